"""What is to be done about the world, from the state and the last reports: what should be so and is not.

There is no list of things to do that could be lost in a crash. An attempt that is committed and that the engine does
not know is to be started, under the same key, however often; one that is stopping and not gone is to be stopped.
GPUs that keep a layout which the engine has not made are to be cut.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuyard.control.replica.labels import current_key, parse_attempt_key
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State
from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Engine,
    EngineError,
    Launch,
    NewLimit,
    Part,
    Phase,
    Recipe,
    Reply,
    Stale,
    StopRequest,
)
from gpuyard.model import (
    AttemptState,
    Capability,
    Event,
    JobChanged,
    LayoutMade,
    Node,
    Outcome,
    StopCause,
    Verb,
)
from gpuyard.model.mig import Slice
from gpuyard.model.units import NO_LIMIT_MS
from gpuyard.quantities import duration_text
from gpuyard.wire.partition_names import choose_partition

FIRST_RETRY_MS = 1_000
MAX_RETRY_MS = 30_000
"""The first and the longest wait before an unanswered call is repeated; each wait is twice the one before."""
PUT_OFF_MS = 5_000
"""The wait before a call that the engine put off is repeated."""
AT_ONCE_MIN, AT_ONCE_MAX = 2, 32
"""Attempts that an engine is asked to start or to stop in one call: as many as take little time."""
FORGET_MAX = 100
"""Attempts that an engine is told to forget in one step."""
ACT_NS = 15_000_000
"""How long such a call may take, about, and how long a step acts, at least: what came in meanwhile is then decided on
before the rest is done."""
ALONE_NS = 16 * ACT_NS
"""The same while only one user's attempts start: no other user waits, and each step has a cost."""
OTHERS_MS = 10_000
"""How long after a start a user counts as one whose attempts start."""


@dataclass(slots=True)
class RetryPace:
    """When each call was last made, so that one that does not help is not made again and again."""

    _next_ms: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def due(self, what: str, key: str, now_ms: int) -> bool:
        """Whether a call may be made now. Clocks may be set back, so a wait that looks too long is over."""
        at_ms, wait_ms = self._next_ms.get((what, key), (0, 0))
        return now_ms >= at_ms or at_ms - now_ms > wait_ms

    def made(self, what: str, key: str, now_ms: int) -> None:
        """It was made: not again before its time."""
        _at_ms, before_ms = self._next_ms.get((what, key), (0, 0))
        wait_ms = min(MAX_RETRY_MS, max(FIRST_RETRY_MS, 2 * before_ms))
        self._next_ms[what, key] = (now_ms + wait_ms, wait_ms)

    def put_off(self, what: str, key: str, now_ms: int) -> None:
        """It was made and is to be made again before long: nothing is wrong with it."""
        self._next_ms[what, key] = (now_ms + PUT_OFF_MS, PUT_OFF_MS)

    def forget(self, alive: set[str]) -> None:
        """Only these attempts are still of interest."""
        self._next_ms = {at: when for at, when in self._next_ms.items() if at[1] in alive}


class LimitChange(NamedTuple):
    """An attempt that is held to another time limit than its job has by now."""

    record: JobRecord
    wish: NewLimit
    held_ms: int
    """What it is held to; 0: none."""


@dataclass(slots=True)
class Todo:
    """Calls to make, in this order."""

    halts: list[StopRequest] = field(default_factory=list)
    suspend: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)
    limits: list[LimitChange] = field(default_factory=list)
    starts: list[JobRecord] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)


def find_todo(
    live: Mapping[str, JobRecord],
    reports: Mapping[str, AttemptReport],
    lost: Container[str],
    pace: RetryPace,
    now_ms: int,
) -> Todo:
    """What the world lacks of these attempts, as far as the last reports show. Those without a report are left alone.

    Those that have been unknown for too long, `lost`, are stopped, so that they cannot turn up later. Users take turns.
    """
    found = Todo()
    stops, starts, keys = [], [], {}
    for key, record in live.items():
        report = reports.get(key)
        if report is None or report.phase is Phase.ENDED:
            continue
        if record.phase is AttemptState.STOPPING or key in lost:
            if pace.due("stop", key, now_ms):
                stops.append(record)
                keys[record.id] = key
        elif record.phase is AttemptState.STARTING and report.phase is Phase.UNKNOWN:
            if pace.due("start", key, now_ms):
                starts.append(record)
        elif report.phase is Phase.RUNNING and _frozen(record) and pace.due("suspend", key, now_ms):
            found.suspend.append(key)
        elif report.phase is Phase.SUSPENDED and _thaws(record) and pace.due("resume", key, now_ms):
            found.resume.append(key)
        elif (
            report.limit_ms is not None
            and report.limit_ms != limit_of(record)
            and report.phase in (Phase.RUNNING, Phase.SUSPENDED)
            and pace.due("limit", key, now_ms)
        ):
            found.limits.append(LimitChange(record, NewLimit(key, limit_of(record)), report.limit_ms))
    found.halts = [
        StopRequest(keys[record.id], _outcome(record), _grace_ms(record)) for record in by_turns(stops)
    ]
    found.starts = by_turns(starts)
    return found


def by_turns(records: list[JobRecord]) -> list[JobRecord]:
    """The first of each user, then the second of each, and so on, and in each turn those of users with few before those
    of users with many: a user with one is among the first, however many others have.
    """
    before: Counter[str] = Counter()
    turn = {}
    for record in records:
        turn[record.id] = before[record.job.spec.user]
        before[record.job.spec.user] += 1
    if len(before) < 2:
        return records
    return sorted(records, key=lambda record: (turn[record.id], before[record.job.spec.user], record.id))


def find_strays(
    yard: str, owned: Container[str], listing: Mapping[str, AttemptReport], pace: RetryPace, now_ms: int
) -> tuple[list[StopRequest], list[str]]:
    """Attempts that the engine knows and that are not `owned`: those to stop, and those over, to be forgotten."""
    halts, over = [], []
    for key, report in listing.items():
        if key in owned or parse_attempt_key(yard, key) is None:
            continue
        if report.phase is Phase.ENDED:
            over.append(key)
        elif report.phase is not Phase.UNKNOWN and pace.due("stop", key, now_ms):
            halts.append(StopRequest(key, Outcome.CANCELLED, 0))
    return halts, over


def limit_of(record: JobRecord) -> int:
    """The time limit of a job's attempts, as engines have it; 0: none."""
    return 0 if record.limit_ms >= NO_LIMIT_MS else record.limit_ms


def kept_limit_event(state: State, change: LimitChange, why: str, now_ms: int) -> Event | None:
    """The job keeps the limit that its attempt is held to: its engine has refused another. None: it is over."""
    record, was = state.jobs.get(change.record.id), change.record
    if record is None or record.phase is None or record.attempt != was.attempt:
        return None
    job = record.job._replace(limit_ms=change.held_ms)
    what = f"time limit {duration_text(change.held_ms) if change.held_ms else 'none'}, as before: {why}"
    return JobChanged(now_ms, job, record.joined_ms, record.nice_ms, "", what)


def _frozen(record: JobRecord) -> bool:
    """Whether an attempt should stand still."""
    if record.wanted is Verb.SUSPEND:
        return True
    return record.phase is AttemptState.SUSPENDED and record.wanted is not Verb.CONTINUE


def _thaws(record: JobRecord) -> bool:
    """Whether it was asked to go on. What others froze stays: an administrator of the cluster may have a reason."""
    return record.wanted is Verb.CONTINUE


def _outcome(record: JobRecord) -> Outcome:
    return Outcome.CANCELLED if record.cause is StopCause.CANCEL else Outcome.PREEMPTED


def _grace_ms(record: JobRecord) -> int:
    return record.klass.grace_ms


def make_launch(yard: str, state: State, record: JobRecord, recipe: Recipe) -> Launch:
    """The start of a job's current attempt."""
    job, spec = record.job, record.job.spec
    nodes = state.nodes.node
    pool = nodes[record.grants[0].node].pool
    parts = [
        Part(nodes[g.node].name, positions[g.gpus], g.milli, g.cpu_milli, g.memory_mib, g.tasks, g.slices)
        for g in record.grants
    ]
    return Launch(
        key=current_key(yard, record),
        job_id=job.id,
        attempt=record.attempt,
        label=job.label,
        name=spec.name,
        recipe=recipe,
        parts=tuple(parts),
        limit_ms=limit_of(record),
        grace_ms=_grace_ms(record),
        restarts=record.attempt - 1,
        array_id=job.array_id,
        array_index=job.array_index,
        cluster=nodes[record.grants[0].node].cluster,
        partition=choose_partition(
            pool, spec.partition or ",".join(spec.ask.pools), state.settings.partitions
        ),
        account=spec.tenant,
        qos=record.klass.name,
    )


# -- pinned layouts ----------------------------------------------------------------------------------------------------


Layouts = dict[int, tuple[Slice, ...]]
"""Slices by GPU; none: it stays whole."""

_CANNOT = "this engine does not cut GPUs"


class LayoutKeeper:
    """One leader's word to the engine about layouts.

    The log says which layouts GPUs keep. A leader tells the engine all of them once, whatever the last one had done,
    and again whenever they change or have not been made. What becomes of it is written down, each time it changes.
    """

    def __init__(
        self,
        replica: Replica,
        engine: Engine,
        epoch: int,
        pace: RetryPace,
        stopwatch_ns: Callable[[], int],
        has: Callable[[Node], bool],
    ) -> None:
        """`has` tells whether a node is one of the engine's cluster."""
        self._has = has
        self._replica = replica
        self._engine = engine
        self._epoch = epoch
        self._pace = pace
        self._stopwatch_ns = stopwatch_ns
        self._told: dict[str, Layouts] = {}
        """What the engine was last told, by node; not there: nothing yet by this leader."""
        self._tried: dict[str, Layouts] = {}
        """What it was last asked for, whether or not that came to an answer."""

    def step(self, now_ms: int) -> tuple[list[Event], list[str]]:
        """Tell the engine what it has to know; what is to be written, and calls that came to no answer."""
        events: list[Event] = []
        errors: list[str] = []
        for number, name, pins in self._wanted():
            layouts = {gpu: _slices(gpu, pin) for gpu, pin in pins.items()}
            if self._told.get(name) == layouts and all([pin.made for pin in pins.values()]):
                continue
            if self._tried.get(name) == layouts and not self._pace.due("pin", name, now_ms):
                continue
            self._tried[name] = layouts
            self._pace.made("pin", name, now_ms)
            began_ns = self._stopwatch_ns()
            try:
                replies = self._ask(name, layouts)
            except Stale:
                raise
            except EngineError as error:
                errors.append(f"pin: {error}")
                replies = dict.fromkeys(layouts, Reply(Answer.UNSURE, str(error)))
            else:
                self._told[name] = layouts
            took_ms = (self._stopwatch_ns() - began_ns) // 1_000_000
            events += _news(number, pins, replies, now_ms, took_ms)
        return events, errors

    def holds(self, state: State, news: Event) -> bool:
        """Whether what the engine said is still about the layouts that are wanted: others may be pinned meanwhile."""
        assert isinstance(news, LayoutMade)
        pins = state.nodes.pins.get(news.node, {})
        tried = self._tried[state.nodes.node[news.node].name]
        return all(
            [gpu in pins and _slices(gpu, pins[gpu]) == tried.get(gpu) for gpu in positions[news.gpus]]
        )

    def _wanted(self) -> list[tuple[int, str, dict[int, Pin]]]:
        """Nodes with pinned GPUs, and those of which the engine may think that they have some."""
        with self._replica.lock:
            nodes = self._replica.state.nodes
            able = Capability.SLICES in self._engine.capabilities
            return [
                (number, node.name, dict(nodes.pins.get(number, {})))
                for number, node in enumerate(nodes.node)
                if (number in nodes.pins or (able and node.gpus and self._told.get(node.name) != {}))
                and self._has(node)
            ]

    def _ask(self, name: str, layouts: Layouts) -> Mapping[int, Reply]:
        if Capability.SLICES not in self._engine.capabilities:
            return dict.fromkeys(layouts, Reply(Answer.REFUSED, _CANNOT))
        return self._engine.pin(self._epoch, name, layouts)


def _slices(gpu: int, pin: Pin) -> tuple[Slice, ...]:
    return tuple([Slice(gpu, *place) for place in pin.held])


def _news(
    number: int, pins: Mapping[int, Pin], replies: Mapping[int, Reply], now_ms: int, took_ms: int
) -> list[Event]:
    """What the log does not say yet of these GPUs, those of one answer together."""
    by_why: dict[str, int] = {}
    for gpu, pin in sorted(pins.items()):
        reply = replies.get(gpu, Reply(Answer.UNSURE, "the engine does not know this GPU"))
        why = "" if reply.answer is Answer.DONE else reply.why or reply.answer.value
        if (pin.made, pin.why) != (not why, why):
            by_why[why] = by_why.get(why, 0) | 1 << gpu
    return [LayoutMade(now_ms, number, mask, why, took_ms) for why, mask in sorted(by_why.items())]
