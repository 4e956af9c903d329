"""When a job will start: many runs forward from the present state, and the distribution of their starts.

Nothing here has a clock: state, past, seed and budget come in, and equal input gives equal output.
"""

import io
import pickle
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import NamedTuple

from gpuyard.core import Policy, State
from gpuyard.core.caches import Caches
from gpuyard.garbage import pause_collection
from gpuyard.model import Ask, JobClass, JobSpec, Node, Settings, Whole
from gpuyard.model.units import DAY_MS
from gpuyard.sim.forward import Forward
from gpuyard.sim.pastjobs import Arrivals, PastJob, RunTimes

RUNS = 50
HORIZON_MS = 14 * DAY_MS
"""A job that has not started by then counts as not starting."""


class Runs(NamedTuple):
    """The waits of each job in each run."""

    runs: int
    waits_ms: dict[int, list[int]]
    """Waits from now, sorted, in the runs in which the job started."""

    def wait_ms(self, job_id: int, percent: int) -> int | None:
        """The wait that is enough in `percent` % of the runs; None: the job starts in fewer runs."""
        return find_quantile(self.waits_ms[job_id], percent, self.runs)


def find_quantile(values: Sequence[int], percent: int, count: int) -> int | None:
    """The value that `percent` % of new ones would not exceed; of the `count` values the largest may be missing.

    The rank is out of one more than there are values: a new value is equally likely to fall into each gap.
    """
    rank = min(count, -(-(count + 1) * percent // 100))
    return values[rank - 1] if 0 < rank <= len(values) else None


class Past(NamedTuple):
    """The past, ready to be drawn from."""

    run_times: RunTimes
    arrivals: Arrivals

    @classmethod
    def of(cls, jobs: Sequence[PastJob], now_ms: int) -> "Past":
        """From jobs in any order."""
        return cls(RunTimes(jobs), Arrivals(jobs, now_ms))


def forecast(
    state: State,
    policy: Policy,
    now_ms: int,
    wanted: Collection[int],
    past: Past,
    seed: int,
    *,
    runs: int = RUNS,
    enough: Callable[[], bool] = lambda: False,
) -> Runs:
    """Run the state forward until the wanted jobs have started, again and again.

    The state is left as it is. A state fresh from its dump has empty caches and is the fastest to copy. `enough` is
    called now and then and may end the work early; a run that is cut off this way does not count.
    """
    image = freeze(state)
    waits: dict[int, list[int]] = {job_id: [] for job_id in wanted}
    done = 0
    while done < runs and not (done and enough()):
        random = Random(seed * 1_000_003 + done)
        ahead = Forward(thaw(image), policy, now_ms, past.run_times, past.arrivals, random)
        starts = ahead.run(wanted, now_ms + HORIZON_MS, enough)
        if starts is None:
            break
        for job_id, at_ms in starts.items():
            waits[job_id].append(at_ms - now_ms)
        done += 1
    for each in waits.values():
        each.sort()
    return Runs(done, waits)


class Image(NamedTuple):
    """A state as bytes, and the immutable values that it refers to."""

    state: bytes
    values: list[object]


class _Pickler(pickle.Pickler):
    """Replaces values that all copies may share."""

    values: dict[int, tuple[int, object]]

    def persistent_id(self, thing: object) -> int | None:
        """The number that stands for a shared value."""
        if type(thing) not in _SHARED:
            return None
        return self.values.setdefault(id(thing), (len(self.values), thing))[0]


class _Unpickler(pickle.Unpickler):
    """Puts the shared values back."""

    values: list[object]

    def persistent_load(self, number: int) -> object:
        """The shared value of a number."""
        return self.values[number]


_SHARED = frozenset({JobSpec, Ask, Settings, Node, JobClass, Whole})


def freeze(state: State) -> Image:
    """An image from which states are made several times as fast as from a dump."""
    file = io.BytesIO()
    pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.values = {}
    idle_plan, caches = state.idle_plan, state.caches
    # Caches hold parts of a policy, which are functions and cannot be pickled.
    state.idle_plan, state.caches = None, Caches()
    try:
        pickler.dump(state)
    finally:
        state.idle_plan, state.caches = idle_plan, caches
    return Image(file.getvalue(), [thing for _number, thing in pickler.values.values()])


def thaw(image: Image) -> State:
    """A new state, equal to the one that was frozen."""
    with pause_collection():
        unpickler = _Unpickler(io.BytesIO(image.state))
        unpickler.values = image.values
        state: State = unpickler.load()
    return state
