"""Made-up traces from a seed: one to measure with, and one to show.

`poisson` is the trace that published simulators were measured on. `teams_week` is a week in the life of three
teams, for the demonstration.

The same seed gives the same trace on every machine. The logarithm and the exponential of the C library differ
in the last digit from one machine to another, so they are computed here from sums and products, which do not.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import frexp, ldexp, sqrt
from random import Random

from gpuyard.errors import BadInput
from gpuyard.model import Ask, JobSpec, Milli, Whole
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI, MINUTE_MS
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.options import make_gang_ask

# ----------------------------------------------------------------------
# Random numbers

_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476


def _ln(x: float) -> float:
    """Natural logarithm of a positive number, to some 13 digits."""
    mantissa, exponent = frexp(x)
    if mantissa < _SQRT_HALF:
        mantissa += mantissa
        exponent -= 1
    s = (mantissa - 1) / (mantissa + 1)
    q = s * s
    series = 1 / 15 + q * (1 / 17)
    series = 1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * series)))
    return exponent * _LN2 + 2 * s * (1 + q * (1 / 3 + q * (1 / 5 + q * series)))


def _exp(x: float) -> float:
    """Exponential, to some 13 digits: its series on at most half a doubling, and the doublings apart."""
    exponent = int(x / _LN2 + (0.5 if x >= 0 else -0.5))
    r = x - exponent * _LN2
    series = 1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800))))
    series = 1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * series))))
    return ldexp(1 + r * (1 + r * series), exponent)


def _normals(uniform: Callable[[], float]) -> Iterator[float]:
    """Standard normal numbers, two from each point in the unit disc (Marsaglia's polar method)."""
    while True:
        x, y = 2 * uniform() - 1, 2 * uniform() - 1
        q = x * x + y * y
        if 0 < q < 1:
            stretch = sqrt(-2 * _ln(q) / q)
            yield x * stretch
            yield y * stretch


def _lognormal_ms(median_ms: int, sigma: float, normal: float) -> int:
    return max(1, int(median_ms * _exp(sigma * normal)))


def _pick(weights: Sequence[int], uniform: Callable[[], float]) -> Callable[[], int]:
    """A function that draws a place in `weights`, each as often as its weight says."""
    bounds = list(accumulate(weights))
    total = bounds[-1]
    return lambda: bisect_right(bounds, int(uniform() * total))


# ----------------------------------------------------------------------
# The trace to measure with

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""GPUs of a job; `SIZE_WEIGHTS` says how often each occurs in a thousand jobs."""
SIZE_WEIGHTS = (660, 90, 90, 110, 30, 15, 5)
MEDIAN_MS = 600_000
MEAN_MS = 3_450_000


def poisson(
    jobs: int,
    gpus: int,
    load: float,
    seed: int,
    *,
    tenants: Sequence[tuple[str, str, int]] = (("default", "", 1),),
    gpus_per_node: int = 8,
) -> Trace:
    """Poisson arrivals that offer `load` times the GPU time of `gpus` GPUs, from (tenant, class, weight).

    Durations are lognormal with a heavy tail: in ten thousand of them the mean is off by a tenth. The rate of
    arrivals is therefore set from the work that was really drawn, so that a load of 0.9 is 0.9.
    """
    sizes = [size for size in SIZES if size <= gpus]
    if jobs < 1 or not sizes or not 0 < load <= 1000 or gpus_per_node < 1:
        raise BadInput(
            "a trace needs jobs, GPUs, nodes and a load of more than 0", hint="Check these numbers."
        )
    if not tenants or any(weight < 1 for _, _, weight in tenants):
        raise BadInput(
            "a trace needs tenants with weights of at least 1", hint="Give (tenant, class, weight)."
        )
    uniform = Random(seed).random
    normal = _normals(uniform).__next__
    size_of = _pick(SIZE_WEIGHTS[: len(sizes)], uniform)
    tenant_of = _pick([weight for _, _, weight in tenants], uniform)
    sigma = sqrt(2 * _ln(MEAN_MS / MEDIAN_MS))
    known: dict[tuple[int, int], int] = {}
    trace = Trace(f"poisson-{jobs}-{gpus}gpus-load{load:g}-seed{seed}", rows=jobs)
    work_gpu_ms = 0
    for _ in range(jobs):
        size, owner = size_of(), tenant_of() if len(tenants) > 1 else 0
        run_ms = _lognormal_ms(MEDIAN_MS, sigma, normal())
        work_gpu_ms += run_ms * sizes[size]
        trace.spec.append(known.setdefault((size, owner), len(known)))
        trace.run_ms.append(run_ms)
        trace.limit_ms.append(int(run_ms * (1 + 2 * uniform())) + MINUTE_MS)
    trace.specs = [
        JobSpec(tenants[owner][0], make_gang_ask(sizes[size], gpus_per_node), klass=tenants[owner][1])
        for size, owner in known
    ]
    gap_ms = work_gpu_ms / (load * gpus * jobs)
    at_ms = 0.0
    for _ in range(jobs):
        trace.submit_ms.append(int(at_ms))
        at_ms -= _ln(1 - uniform()) * gap_ms
    trace.deadline_ms = array("q", bytes(8 * jobs))
    return trace


# ----------------------------------------------------------------------
# The week to show

WEEK_GPUS = 64
"""Four nodes of 8 H100 and four of 8 A100-80GB."""
WEEK_LOAD = 0.95
MONDAY_MS = 1_772_409_600_000
"""2026-03-02, 00:00 UTC."""

_RESEARCH = (("research/ana", 5), ("research/ben", 3), ("research/chloe", 2), ("research/dev", 1))
_PRODUCT = (("product/eli", 3), ("product/fatima", 3), ("product/gus", 2))
_INTERNS = (
    ("interns/hana", 3),
    ("interns/ivo", 3),
    ("interns/juno", 2),
    ("interns/kai", 2),
    ("interns/lea", 1),
)

# How likely a submission is in each hour of a day.
_OFFICE = (0, 0, 0, 0, 0, 0, 0, 1, 5, 9, 10, 9, 5, 8, 10, 10, 8, 5, 2, 1, 1, 0, 0, 0)
_LONG_DAY = (1, 1, 0, 0, 0, 0, 0, 1, 3, 6, 8, 8, 5, 7, 9, 10, 11, 11, 8, 4, 4, 4, 3, 2)
_NIGHTLY = (0, 0, 1, *(0,) * 21)
# And on each day from Monday to Sunday.
_WORKDAYS = (20, 21, 21, 20, 16, 1, 1)
_EVERY_DAY = (1, 1, 1, 1, 1, 1, 1)
_WITH_WEEKEND = (20, 20, 20, 20, 16, 6, 6)
_BEFORE_FRIDAY = (1, 2, 10, 14, 0, 0, 0)

_LIMITS_MIN = (15, 30, 60, 120, 240, 480, 720, 1440, 2880, 5760)
"""The time limits that users choose."""


@dataclass(frozen=True, slots=True)
class _Habit:
    """Jobs of one kind that a team submits week after week."""

    name: str
    users: tuple[tuple[str, int], ...]
    jobs: int
    sizes: tuple[tuple[int, int], ...]
    """Milli-GPU, and how often each occurs."""
    median_min: int
    sigma: float
    hours: tuple[int, ...]
    days: tuple[int, ...]
    klass: str = ""
    sweep: tuple[int, int] = (1, 1)
    """How many jobs are submitted at once: from, to."""
    checkpoint_min: int = 0
    models: tuple[tuple[tuple[str, ...], int], ...] = (((), 1),)
    """Suitable GPU models, and how often each occurs."""
    due_ms: int = 0
    """The deadline of all of them."""


_H100_OFTEN = ((("H100",), 2), (("H100", "A100-80GB"), 1), ((), 4))
_HABITS = (
    _Habit("train", _RESEARCH, 120, ((4000, 12), (8000, 50), (16000, 28), (32000, 10)), 220, 0.7, _LONG_DAY,
           _WITH_WEEKEND, checkpoint_min=30, models=_H100_OFTEN),
    _Habit("sweep", _RESEARCH, 560, ((1000, 1),), 55, 0.5, _LONG_DAY, _WITH_WEEKEND, sweep=(8, 20),
           checkpoint_min=15),
    _Habit("paper", _RESEARCH, 70, ((2000, 2), (4000, 3), (8000, 4)), 170, 0.5, _LONG_DAY, _BEFORE_FRIDAY,
           checkpoint_min=20, due_ms=4 * DAY_MS + 12 * HOUR_MS),
    _Habit("finetune", _PRODUCT, 260, ((1000, 4), (2000, 3), (4000, 3), (8000, 1)), 45, 0.7, _OFFICE,
           _WORKDAYS, checkpoint_min=10, models=((("A100-80GB",), 1), ((), 5))),
    _Habit("evaluate", _PRODUCT, 400, ((1000, 3), (2000, 1)), 9, 0.6, _OFFICE, _WORKDAYS, klass="urgent"),
    _Habit("nightly", _PRODUCT, 70, ((1000, 2), (4000, 1)), 25, 0.4, _NIGHTLY, _EVERY_DAY, sweep=(8, 12)),
    _Habit("notebook", _INTERNS, 380, ((250, 3), (500, 3), (1000, 4)), 120, 0.6, _OFFICE, _WORKDAYS),
    _Habit("short", _INTERNS, 640, ((1000, 6), (2000, 1)), 7, 0.8, _OFFICE, _WORKDAYS),
)  # fmt: skip


class _Week:
    """The jobs of a week as they are drawn: submission, intended run time, real run time and spec of each."""

    def __init__(self, seed: int) -> None:
        self.uniform = Random(seed).random
        self.normal = _normals(self.uniform).__next__
        self.jobs: list[tuple[int, int, int, JobSpec, int]] = []

    def live(self, habit: _Habit) -> None:
        """Add the jobs of one habit."""
        uniform = self.uniform
        hour_of = _pick([day * hour for day in habit.days for hour in habit.hours], uniform)
        user_of = _pick([weight for _, weight in habit.users], uniform)
        size_of = _pick([weight for _, weight in habit.sizes], uniform)
        model_of = _pick([weight for _, weight in habit.models], uniform)
        fewest, most = habit.sweep
        left = habit.jobs
        while left > 0:
            together = min(left, fewest + int(uniform() * (most - fewest + 1)))
            left -= together
            at_ms = hour_of() * HOUR_MS + int(uniform() * HOUR_MS)
            spec = JobSpec(
                habit.users[user_of()][0],
                replace(_ask(habit.sizes[size_of()][0]), models=habit.models[model_of()][0]),
                klass=habit.klass,
                name=habit.name,
                checkpoint_ms=habit.checkpoint_min * MINUTE_MS,
                restart_cost_ms=2 * MINUTE_MS if habit.checkpoint_min else 0,
            )
            for _ in range(together):
                intended_ms = _lognormal_ms(habit.median_min * MINUTE_MS, habit.sigma, self.normal())
                # One in twelve fails within minutes, as everywhere.
                run_ms = intended_ms if uniform() > 1 / 12 else 20_000 + int(uniform() * 5 * MINUTE_MS)
                at_ms += 500 + int(uniform() * 2000)
                due_ms = habit.due_ms - at_ms if habit.due_ms > at_ms else 0
                self.jobs.append((at_ms, intended_ms, min(run_ms, intended_ms), spec, due_ms))


def teams_week(seed: int) -> Trace:
    """A week of three teams on 64 GPUs: 2,500 jobs that would fill 95 % of them if they came evenly.

    They do not: they come in working hours, and more before the deadline of a paper on Friday at noon.
    The long trainings are stretched or shrunk a little so that every seed makes the same load.
    """
    week = _Week(seed)
    for habit in _HABITS:
        week.live(habit)
    train = sum(run_ms * _milli(spec) for _, _, run_ms, spec, _ in week.jobs if spec.name == "train")
    whole = sum(run_ms * _milli(spec) for _, _, run_ms, spec, _ in week.jobs)
    wanted = int(WEEK_LOAD * WEEK_GPUS * MILLI * 7 * DAY_MS)
    stretch = max(0.25, (wanted - (whole - train)) / train)
    builder = Builder("teams-week", epoch_ms=MONDAY_MS)
    for at_ms, intended_ms, run_ms, spec, due_ms in week.jobs:
        factor = stretch if spec.name == "train" else 1.0
        limit_ms = _chosen_limit_ms(int(intended_ms * factor * (1.1 + 1.4 * week.uniform())))
        builder.add(builder.index(spec), at_ms, max(1, min(int(run_ms * factor), limit_ms)), limit_ms, due_ms)
    return builder.finish(f"teams-week-seed{seed}")


def _ask(milli: int) -> Ask:
    return Ask(Milli(1, milli)) if milli < MILLI else make_gang_ask(milli // MILLI, 8)


def _milli(spec: JobSpec) -> int:
    gpus = spec.ask.gpus
    match gpus:
        case Whole(count):
            return count * spec.ask.tasks * MILLI
        case Milli(count, milli):
            return count * milli * spec.ask.tasks
    raise AssertionError(gpus)


def _chosen_limit_ms(needed_ms: int) -> int:
    longest = _LIMITS_MIN[-1] * MINUTE_MS
    return next((m * MINUTE_MS for m in _LIMITS_MIN if m * MINUTE_MS >= needed_ms), longest)
