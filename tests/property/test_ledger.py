"""Both books, for any history: they balance exactly, equal the brute-force integral, and are the same bytes again."""

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.control.projections.following import Rows
from gpuyard.ledger.accounts import Owner, Prices, read_entry, sum_entries
from gpuyard.ledger.books import Books
from gpuyard.ledger.jobs import JobBook
from gpuyard.ledger.units import CATEGORIES, CHARGED, ENERGY, FLEET, PARTS, month_of
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    AttemptStopping,
    AttemptUnknown,
    ClockSet,
    ConfigSet,
    EarmarkDropped,
    EarmarkSet,
    GpusTaken,
    Grant,
    Job,
    JobChanged,
    JobContinued,
    JobSpec,
    JobSubmitted,
    JobSuspended,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    MonthClosed,
    Node,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Outcome,
    Price,
    Requested,
    Settings,
    StopCause,
    Ticked,
    Verb,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.mig import Slice
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.testing.values import ask
from harness.reference.ledger import DAY_MS, NOBODY, Integral

FLEET_OF_TEST = (
    Node("a0", "east", "big", "A100-40GB", 2, 16_000, 65_536),
    Node("a1", "east", "big", "H100", 4, 8_000, 0),
    Node("b0", "west", "spot", "T4", 1, 2_000, 4_096),
    Node("b1", "west", "cores", "", 0, 32_000, 65_536),
)
BEGIN_MS = 20_787 * DAY_MS - 3_000_000
"""Fifty minutes before the end of a November."""
STEPS_MS = (0, 1, 999, 60_000, 2_999_999, DAY_MS - 1, DAY_MS, 9 * DAY_MS)
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "1g.10gb")
LABELS: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("project", "vision"),),
    (("project", "vision"), ("stage", "eval")),
)
ENDS = (Outcome.COMPLETED, Outcome.FAILED, Outcome.PREEMPTED, Outcome.NODE_FAIL)


class History:
    """Any history that could be in a log, made of small numbers."""

    def __init__(self) -> None:
        self.now_ms = self.last_ms = BEGIN_MS
        self.steps: list[Any] = [NodeAdded(BEGIN_MS, node) for node in FLEET_OF_TEST]
        self.free = [[1000] * node.gpus for node in FLEET_OF_TEST]
        self.compute = [[7] * node.gpus for node in FLEET_OF_TEST]
        self.nodes = list(FLEET_OF_TEST)
        self.jobs = 0
        self.waiting: dict[int, int] = {}
        """Attempts so far, by job."""
        self.live: dict[int, list[Any]] = {}
        """Attempt, grants, phase, start."""
        self.past: list[tuple[int, int, int]] = []

    def add(self, kind: Any, *fields: Any, **more: Any) -> None:
        self.steps.append(kind(self.now_ms, *fields, **more))

    def step(self, what: int, a: int, b: int, c: int) -> None:
        self.last_ms = max(self.last_ms, self.now_ms)
        self.now_ms += STEPS_MS[c % len(STEPS_MS)]
        if c % 11 == 7:
            # A clock that goes back.
            self.now_ms -= min(c * 1000, self.now_ms - BEGIN_MS)
        _OPS[what % len(_OPS)](self, a, b, c)

    def submit(self, a: int, b: int, c: int) -> None:
        self.jobs += 1
        job_id = self.jobs + (FIRST_EXTERNAL_ID if a % 5 == 4 else 0)
        spec = JobSpec(
            ("org/red", "org/blue")[a % 2],
            ask(1),
            klass=("", "urgent")[b % 2],
            user=("ana", "ben")[c % 2],
            labels=LABELS[(a + b + c) % len(LABELS)],
        )
        self.add(JobSubmitted, Job(job_id, spec, self.now_ms))
        self.waiting[job_id] = 0

    def start(self, a: int, b: int, c: int) -> None:
        if not self.waiting:
            return self.submit(a, b, c)
        job_id = sorted(self.waiting)[a % len(self.waiting)]
        numbers = [b % len(self.nodes), (b + 1) % len(self.nodes)][: 1 + a % 2]
        grants = [g for number in numbers if (g := self.room(number, a, c)) is not None]
        if not grants:
            return None
        attempt = self.waiting.pop(job_id) + 1
        self.add(AttemptStarted, job_id, attempt, tuple(grants))
        self.live[job_id] = [attempt, tuple(grants), "starting", max(self.now_ms, self.last_ms)]
        return None

    def room(self, number: int, a: int, c: int) -> Grant | None:
        """Whole GPUs, a share, a slice, or cores alone, as far as there is room."""
        node, free = self.nodes[number], self.free[number]
        cpu_milli, memory_mib = (0, 1_000, node.cpu_milli)[c % 3], (0, 1_024, node.memory_mib)[a % 3]
        if not node.gpus:
            return Grant(number, 0, 1000, cpu_milli, memory_mib, 1)
        gpu = a % node.gpus
        if node.gpu_model == "A100-40GB" and c % 2:
            if free[gpu] not in (1000, -1):
                return None
            profile = PROFILES[a % len(PROFILES)]
            if self.compute[number][gpu] < int(profile[0]):
                return None
            self.compute[number][gpu] -= int(profile[0])
            free[gpu] = -1
            piece = (Slice(gpu, profile, 0),)
            return Grant(number, 1 << gpu, 125 * int(profile[0]), cpu_milli, memory_mib, 1, piece)
        milli = (1000, 250, 333, 1)[c % 4]
        if free[gpu] < milli:
            return None
        free[gpu] -= milli
        return Grant(number, 1 << gpu, milli, cpu_milli, memory_mib, 1)

    def of(self, a: int, *phases: str) -> int | None:
        found = [job_id for job_id, each in sorted(self.live.items()) if each[2] in phases]
        return found[a % len(found)] if found else None

    def confirm(self, a: int, b: int, _c: int) -> None:
        if (job_id := self.of(a, "starting", "unknown")) is not None:
            late = self.live[job_id][3] - (b % 3) * 5_000_000 if b % 4 == 1 else 0
            self.add(AttemptConfirmed, job_id, self.live[job_id][0], started_ms=late)
            self.live[job_id][2] = "running"

    def unknown(self, a: int, _b: int, _c: int) -> None:
        if (job_id := self.of(a, "starting", "running")) is not None:
            self.add(AttemptUnknown, job_id, self.live[job_id][0])
            self.live[job_id][2] = "unknown"

    def suspend(self, a: int, _b: int, _c: int) -> None:
        if (job_id := self.of(a, "running")) is not None:
            self.add(JobSuspended, job_id)
            self.live[job_id][2] = "suspended"
        elif (job_id := self.of(a, "suspended")) is not None:
            self.add(JobContinued, job_id)
            self.live[job_id][2] = "running"

    def stop(self, a: int, _b: int, _c: int) -> None:
        if (job_id := self.of(a, "starting", "running", "suspended", "unknown")) is not None:
            self.add(AttemptStopping, job_id, self.live[job_id][0], StopCause.CLASS)
            self.live[job_id][2] = "stopping"

    def end(self, a: int, b: int, c: int) -> None:
        if (job_id := self.of(a, "starting", "running", "suspended", "unknown", "stopping")) is None:
            return
        attempt, grants, _phase, start_ms = self.live.pop(job_id)
        for grant in grants:
            for gpu in range(self.nodes[grant.node].gpus):
                if grant.gpus >> gpu & 1 and grant.slices:
                    self.compute[grant.node][gpu] += int(grant.slices[0].profile[0])
                    if self.compute[grant.node][gpu] == 7:
                        self.free[grant.node][gpu] = 1000
                elif grant.gpus >> gpu & 1:
                    self.free[grant.node][gpu] += grant.milli
        outcome = ENDS[c % len(ENDS)]
        ended_ms = max(1, self.now_ms - b * 700_000) if b % 3 == 2 else 0
        self.add(AttemptEnded, job_id, attempt, outcome, ended_ms=ended_ms)
        self.past.append((job_id, attempt, start_ms))
        if outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL):
            self.waiting[job_id] = attempt

    def measure(self, a: int, b: int, c: int) -> None:
        found = [(job_id, each[0], each[3]) for job_id, each in sorted(self.live.items())]
        found += [past for past in self.past[-1:] if past[0] not in self.waiting and past[0] not in self.live]
        if found:
            job_id, attempt, start_ms = found[a % len(found)]
            # With holes, at times that were measured before or are to come, an earlier part after a later one.
            from_ms = start_ms + b * 1_000_000
            ends = [from_ms + 3_600_000 * (1 + c) * part // 4 for part in range(5)]
            spans = (((0, 4),), ((0, 1), (3, 4)), ((1, 2), (2, 3)), ((0, 2), (1, 3)), ())[(a + b + c) % 5]
            seen = tuple([(ends[first], ends[last]) for first, last in spans])
            self.add(
                AttemptMeasured,
                job_id,
                attempt,
                from_ms,
                ends[-1],
                0,
                used_gpu_ms=1_234_567 * (a % 7),
                energy_mj=(None, 0, 1, 987_654_321)[b % 4],
                spans=seen,
            )

    def earmark(self, a: int, b: int, c: int) -> None:
        if self.waiting:
            job_id = sorted(self.waiting)[a % len(self.waiting)]
            marked = {s.job_id for s in self.steps if isinstance(s, EarmarkSet)}
            if job_id not in marked:
                number = b % 3
                grant = Grant(number, 1 + a % 3, (1000, 500)[c % 2], 0, 0, 1)
                self.add(EarmarkSet, job_id, (grant,), self.now_ms + 600_000 * c)
                return
        self.add(Ticked)

    def node(self, a: int, b: int, _c: int) -> None:
        number = a % len(self.nodes)
        kind = (NodeDown, NodeUp, NodeCordoned, NodeUncordoned)[b % 4]
        self.add(kind, number, **({"why": "lost"} if b % 4 in (0, 2) else {}))

    def cut(self, a: int, b: int, c: int) -> None:
        number = a % 3
        mask = b % (1 << self.nodes[number].gpus)
        match c % 4:
            case 0:
                self.add(LayoutPinned, number, mask, ())
            case 1:
                self.add(LayoutMade, number, mask, why=("", "the driver refuses")[a % 2])
            case 2:
                self.add(LayoutReleased, number, mask)
            case _:
                self.add(GpusTaken, number, mask, "outsiders")

    def configure(self, a: int, b: int, c: int) -> None:
        price = Price(1_000_001 * (1 + a), model=("H100", "")[b % 2], from_day=20_780 + c)
        markets = ({}, {"west/spot": "spot"}, {"east/big": "on-demand"})[a % 3]
        config = Settings(price_book=(price,), markets=markets, prices={"T4": 7 * b})
        self.add(ConfigSet, config)

    def rename(self, a: int, _b: int, _c: int) -> None:
        self.nodes[1] = Node("a1", "east", "big", ("H100", "H200")[a % 2], 4, 8_000, 0)
        self.add(NodeChanged, 1, self.nodes[1])

    def change(self, a: int, b: int, c: int) -> None:
        """A job that waits or runs has another tenant, class or labels."""
        ids = sorted({*self.waiting, *self.live})
        if not ids:
            return
        job_id = ids[a % len(ids)]
        if any(isinstance(s, EarmarkSet) and s.job_id == job_id for s in self.steps):
            self.add(EarmarkDropped, job_id)
        was = next(s.job for s in self.steps if isinstance(s, JobSubmitted) and s.job.id == job_id)
        spec = replace(
            was.spec,
            tenant=("org/red", "org/blue")[b % 2],
            klass=("", "urgent")[c % 2],
            labels=LABELS[(a + b + c) % len(LABELS)],
        )
        self.add(JobChanged, was._replace(spec=spec))

    def set_clock(self, a: int, _b: int, _c: int) -> None:
        by_ms = (6_000, 3_600_000, 40 * DAY_MS)[a % 3]
        self.now_ms += by_ms
        self.add(ClockSet, by_ms)

    def close(self, _a: int, _b: int, _c: int) -> None:
        self.add(MonthClosed, month_of(max(self.now_ms, self.last_ms) // DAY_MS - 25))

    def cancel(self, a: int, b: int, _c: int) -> None:
        if self.waiting:
            job_id = sorted(self.waiting)[a % len(self.waiting)]
            self.add(Requested, job_id, (Verb.CANCEL, Verb.HOLD)[b % 2])
            if b % 2 == 0:
                del self.waiting[job_id]


_OPS = (
    History.submit, History.start, History.start, History.start, History.change, History.confirm, History.confirm,
    History.unknown, History.suspend, History.stop, History.end, History.end, History.measure, History.measure,
    History.earmark, History.node, History.cut, History.configure, History.rename, History.close, History.cancel,
    History.set_clock,
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn, steps_max: int = 60) -> list[Any]:
    number = st.integers(0, 40)
    history = History()
    for step in draw(st.lists(st.tuples(number, number, number, number), min_size=1, max_size=steps_max)):
        history.step(*step)
    history.steps.append(Ticked(max(history.now_ms, history.last_ms) + draw(st.sampled_from(STEPS_MS))))
    return history.steps


def fold(steps: list[Any], rows: Rows, batch: int = 1_000, kept: bool = False) -> Rows:
    """The rows of the books, written after every `batch` steps; `kept`: by books that remember what they read."""
    books = Books(rows)
    for first in range(0, len(steps), batch):
        books = books if kept else Books(rows)
        for step in steps[first : first + batch]:
            books.fold(step)
        books.flush()
    return rows


def read(rows: Rows, prefix: str) -> dict[str, Any]:
    keys = sorted(key for key, text in rows.known.items() if key.startswith(prefix) and text is not None)
    return {key: rows[key] for key in keys}


def settled(steps: list[Any]) -> Rows:
    """The books with all that is still open booked up to the last event."""
    rows = fold(steps, Rows())
    books = Books(rows)
    books.settle()
    books.flush()
    return rows


@settings(max_examples=40, deadline=None)
@given(histories())
def test_the_time_book_is_the_integral_and_fills_the_capacity_exactly(steps: list[Any]) -> None:
    check_integral(steps)


@pytest.mark.parametrize("seed", range(8))
def test_the_same_of_long_histories(seed: int) -> None:
    """Drawn ones are short, as a rule: few of them change a job that runs, and let it run on."""
    rng, history = Random(seed), History()
    for _ in range(60):
        history.step(*[rng.randrange(41) for _ in range(4)])
    history.steps.append(Ticked(max(history.now_ms, history.last_ms) + 1000))
    check_integral(history.steps)


def check_integral(steps: list[Any]) -> None:
    integral, rows = Integral(steps), settled(steps)
    places = {key[2:]: tuple(facts) for key, facts in read(rows, "p/").items()}
    whose = {key[2:]: Owner.of(facts) for key, facts in read(rows, "o/").items()}
    owners = {"": NOBODY} | {
        name: (owner.tenant, owner.user, owner.klass, tuple(sorted(owner.labels.items())))
        for name, owner in whose.items()
    }
    time: dict[Any, Fraction] = {}
    charged: dict[Any, Fraction] = {}
    fleet: dict[Any, Fraction] = {}
    energy_mj: dict[Any, int] = {}
    for key, columns in {**read(rows, "d/"), **read(rows, "c/")}.items():
        entry = read_entry(key, columns)
        where, who = places[entry.place], owners[entry.owner]
        for name, amount in zip(CATEGORIES, columns, strict=False):
            at = (entry.day, where, who, name)
            time[at] = time.get(at, Fraction(0)) + Fraction(amount, PARTS)
        at = (entry.day, where, who)
        charged[at] = charged.get(at, Fraction(0)) + Fraction(columns[CHARGED], PARTS)
        energy_mj[who] = energy_mj.get(who, 0) + columns[ENERGY]
        fleet[at[:2]] = fleet.get(at[:2], Fraction(0)) + Fraction(columns[FLEET], PARTS)

    assert integral.time() == {key: amount for key, amount in time.items() if amount}
    assert {k: v for k, v in integral.charges.items() if v} == {k: v for k, v in charged.items() if v}
    assert {k: v for k, v in integral.fleet.items() if v} == {k: v for k, v in fleet.items() if v}
    assert integral.energy_mj == {who: burnt for who, burnt in energy_mj.items() if burnt}
    # What each job owes, by itself, adds up to the same.
    owed: dict[Any, Fraction] = {}
    for job in [JobBook.of(row) for block in read(rows, "j/").values() for row in block.values()]:
        for (day, place), parts in job.costs.items():
            at = (day, places[place], owners[job.owner])
            owed[at] = owed.get(at, Fraction(0)) + Fraction(parts, PARTS)
    assert {k: v for k, v in owed.items() if v} == {k: v for k, v in charged.items() if v}
    for (day, where), units in fleet.items():
        whole = sum((v for k, v in time.items() if k[:2] == (day, where)), Fraction(0))
        assert (units if where[2] else 0) == whole
    assert all(amount >= 0 for amount in time.values())


@settings(max_examples=25, deadline=None)
@given(histories(), st.integers(1, 7))
def test_the_books_are_the_same_bytes_in_any_batches(steps: list[Any], batch: int) -> None:
    check_batches(steps, batch)


def check_batches(steps: list[Any], batch: int) -> None:
    remembered = fold(steps, Rows(), batch, kept=True).known
    whole = {key: text for key, text in fold(steps, Rows()).known.items() if text is not None}
    parts = {key: text for key, text in fold(steps, Rows(), batch).known.items() if text is not None}
    assert whole == {key: text for key, text in remembered.items() if text is not None}

    assert whole == parts


@settings(max_examples=25, deadline=None)
@given(histories(), st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(1, 7))
def test_from_the_checkpoint_of_any_closed_month_the_books_are_the_same_bytes(
    steps: list[Any], at: list[int], batch: int
) -> None:
    check_checkpoints(steps, at, batch)


def closing(steps: list[Any], at: list[int]) -> list[Any]:
    """The history with months closed after some of its steps: those that have ended by then."""
    made, now_ms = list[Any](), 0
    for place, step in enumerate(steps):
        made.append(step)
        now_ms = max(now_ms, step.at_ms)
        if place in at:
            made.append(MonthClosed(now_ms, month_of(now_ms // DAY_MS - 31)))
    return made


def check_checkpoints(steps: list[Any], at: list[int], batch: int) -> None:
    steps = closing(steps, at)
    whole = {key: text for key, text in fold(steps, Rows()).known.items() if text is not None}
    ends = [place + 1 for place, step in enumerate(steps) if isinstance(step, MonthClosed)]
    kept = Rows()
    for first, end in zip([0, *ends], ends, strict=False):
        fold(steps[first:end], kept, batch)
        checkpoint = {key: text for key, text in kept.known.items() if text is not None}
        again = fold(steps[end:], Rows(known=dict[str, str | None](checkpoint)), batch, kept=True)

        assert whole == {key: text for key, text in again.known.items() if text is not None}


@settings(max_examples=25, deadline=None)
@given(histories())
def test_the_money_of_any_two_dimensions_balances_to_the_cost_of_the_fleet(steps: list[Any]) -> None:
    check_money(steps)


def check_money(steps: list[Any]) -> None:
    rows = settled(steps)
    places = {key[2:]: BookPlace(*facts) for key, facts in read(rows, "p/").items()}
    owners = {key[2:]: Owner.of(facts) for key, facts in read(rows, "o/").items()}
    closed = [(m["from_day"], m["until_day"], PriceBook.of(m["prices"])) for m in read(rows, "m/").values()]
    prices = Prices(PriceBook.of(rows.get("prices")), closed)
    entries = [read_entry(k, v) for k, v in {**read(rows, "d/"), **read(rows, "c/")}.items()]
    totals = {
        (
            sum(line.charged for line in lines),
            sum(line.fleet for line in lines),
            sum(line.rest for line in lines),
        )
        for by in (("tenant", "model"), ("user", "day"), ("class", "market"), ("cluster", "pool"))
        for lines in [sum_entries(entries, by, places, owners, prices, whole=True)]
    }

    assert 1 == len(totals)
    ((charged, fleet, rest),) = totals
    assert fleet - charged == rest
    lines = sum_entries(entries, ("tenant",), places, owners, prices)
    assert fleet == sum([line.charged for line in lines]) + rest, "what is shown adds up, without a remainder"


@settings(max_examples=25, deadline=None)
@given(histories(), histories())
def test_a_closed_month_stays_byte_for_byte_whatever_is_learned_later(
    first: list[Any], later: list[Any]
) -> None:
    end_ms = max(step.at_ms for step in first)
    month = month_of(end_ms // DAY_MS)
    close_ms = (end_ms // DAY_MS + 32) * DAY_MS
    rows = fold([*first, MonthClosed(close_ms, month)], Rows())
    closed_day = rows["head"]["closed_day"]
    before = {
        key: text for key, text in rows.known.items() if key.startswith(("d/", "m/")) and text is not None
    }
    standing = {
        key: text for key, text in before.items() if key < f"d/{closed_day:06}" or key.startswith("m/")
    }
    jobs = {step.job.id for step in first if isinstance(step, JobSubmitted)}
    ends = [
        step._replace(at_ms=close_ms + 5)
        if isinstance(step, AttemptEnded)
        else replace(step, at_ms=close_ms + 5)
        for step in later
        if isinstance(step, AttemptEnded | AttemptMeasured) and step.job_id in jobs
    ]
    price = ConfigSet(close_ms + 1, Settings(price_book=(Price(5, from_day=1),)))
    fold([price, *ends, Ticked(close_ms + 9)], rows)

    assert standing == {key: rows.known[key] for key in standing}


@pytest.mark.soak
@settings(max_examples=3_000, deadline=None)
@given(histories(120), st.lists(st.integers(0, 120), max_size=6), st.integers(1, 20))
def test_long_histories_balance_and_are_the_same_bytes_from_the_log_and_any_month(
    steps: list[Any], at: list[int], batch: int
) -> None:
    steps = closing(steps, at)
    check_integral(steps)
    check_money(steps)
    check_batches(steps, batch)
    check_checkpoints(steps, [], batch)
