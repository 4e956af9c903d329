"""The read model: what the replica said at one event, immutable, for any number of readers without a lock.

Rows are kept in chunks by their ids. The next model shares every chunk in which nothing has changed, so that publishing
costs by what a commit touched and not by how many jobs wait. A row holds neither its place in line nor its age: one
start would change every row behind it. The order is apart (`Order`) and may be a little older.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from json.encoder import encode_basestring
from typing import Any

from gpuyard.control.reading.plain_views import (
    NEW_TEXT,
    REASON_TEXTS,
    dependencies_text,
    queue_row,
    running_text,
    waits_text,
)
from gpuyard.core import State
from gpuyard.core.jobs.records import HELD_ONLY, JobRecord
from gpuyard.model import After, Job, JobClass, JobSpec, JobState, Node, ReasonCode
from gpuyard.model.jobs import FIRST_EXTERNAL_ID, newest_first
from gpuyard.wire.endpoints import QUEUE_COLUMNS

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

_REASON = len(QUEUE_COLUMNS) - 1


class LiveRow:
    """One job. What is made of it for a list is remembered, as text.

    Of a job that has only waited so far, little can change: its row borrows the rest from the replica's record, and
    makes its own copy when a reader asks for one. An array of thousands is
    published in a fraction of the time that their copies take.
    """

    __slots__ = (
        "_after", "_borrowed", "_record", "aside", "earmarked", "held", "id", "in_line", "job", "klass",
        "limit_ms", "phase", "said", "shape",
    )  # fmt: skip

    def __init__(
        self,
        record: JobRecord,
        aside: bool,
        after: tuple[tuple[After, Job | None], ...] = (),
        borrowed: bool = False,
    ) -> None:
        self._record = record
        self._borrowed = borrowed
        """Whether the record is that of the replica: of it a row reads only what never changes."""
        self._after = after
        """What it still waits for; of a dependency on one job, that job."""
        self.id = record.id
        self.job = record.job
        """What was submitted."""
        self.shape = record.shape
        self.klass = record.klass
        self.limit_ms = record.limit_ms
        self.held = record.extras is not None and record.extras.held
        self.phase = None if borrowed else record.phase
        self.aside = aside
        """Whether it is set aside, and not in line."""
        self.earmarked = not borrowed and record.earmark is not None
        self.in_line = not aside and self.phase is None
        self.said = ""
        """The row as JSON up to its reason, once somebody has asked."""

    @property
    def record(self) -> JobRecord:
        """The job as it was when it was published."""
        if self._borrowed:
            # It may have been changed since.
            own = self._record
            record = JobRecord(self.job, self.shape, self.klass, own.leaf, own.party, own.count)
            record.limit_ms = self.limit_ms
            record.held = self.held
            if self._after:
                record.pending = dict.fromkeys([after for after, _job in self._after])
            self._record, self._borrowed = record, False
        return self._record

    @property
    def waits_for(self) -> str:
        """The jobs that it still waits for, as Slurm writes them."""
        return dependencies_text(self.job, self._after) if self._after else ""

    @property
    def aside_for(self) -> ReasonCode:
        """Why it is set aside."""
        if self.held:
            return ReasonCode.HELD
        waits = self._after or (not self._borrowed and self._record.doomed)
        return ReasonCode.DEPENDENCY if waits else ReasonCode.BEGIN

    def head(self, nodes: Sequence[Node], alike: "Alike") -> str:
        """The row as JSON up to its reason. A task that waits does not remember it: there may be very many of them."""
        head = self.said
        if not head:
            job = self.job
            head = f"[{job.id},{encode_basestring(job.label)},{alike.middle(self, nodes)},"
            if not job.array_id:
                self.said = head
        return head

    def text(self, nodes: Sequence[Node], reason: str, alike: "Alike") -> str:
        """The row as JSON."""
        return f"{self.head(nodes, alike)}{encode_basestring(reason)}]"

    def same(self, other: "LiveRow") -> bool:
        """Whether both tell the same of a job."""
        return told(self) == told(other)


class Alike:
    """What tasks of one array that wait have in common, made once for all that stand one behind the other."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[JobSpec | None, JobClass | None, int, int, str] = (None, None, 0, 0, "")

    def middle(self, row: LiveRow, nodes: Sequence[Node]) -> str:
        """A row as JSON without the id and label before it, and without the reason behind it."""
        job = row.job
        klass, limit_ms = row.klass, row.limit_ms
        task = job.array_id and row.phase is None and not job.spec.origin
        if task:
            spec, of, least_ms, at_ms, found = self._last
            if spec is job.spec and of is klass and least_ms == limit_ms and at_ms == job.submitted_ms:
                return found
        made = encode(queue_row(row.record, nodes, "")[2:_REASON])[1:-1]
        if task:
            self._last = (job.spec, klass, limit_ms, job.submitted_ms, made)
        return made


def told(row: LiveRow) -> tuple[Any, ...]:
    """Everything that is shown of a job, but for the reason."""
    record = row.record
    return (
        record.job, record.klass, record.state, record.phase, record.grants, record.started_ms, record.limit_ms,
        record.attempt, record.preemptions, record.begin_ms, record.held, record.moved_by, record.ran_ms,
        record.wanted, record.cause, tuple(record.pending), record.doomed, row.aside, row.earmarked, row.waits_for,
    )  # fmt: skip


def make_row(state: State, record: JobRecord) -> LiveRow:
    """A job as it is now. Called with the replica locked."""
    aside = record.state is JobState.PENDING and record.id in state.deferred
    extras = record.extras
    if not (record.attempt or record.earmark) and record.begin_ms == record.job.begin_ms:
        if extras is None or extras is HELD_ONLY:
            return LiveRow(record, aside, borrowed=True)
        if extras.pending and not (extras.doomed or extras.boost):
            return LiveRow(record, aside, _after(state, extras.pending), True)
    copy = JobRecord(record.job, record.shape, record.klass, record.leaf, record.party, record.count)
    copy.limit_ms = record.limit_ms
    copy.state, copy.phase, copy.attempt = record.state, record.phase, record.attempt
    copy.grants, copy.started_ms, copy.preemptions = record.grants, record.started_ms, record.preemptions
    copy.begin_ms, copy.earmark = record.begin_ms, record.earmark
    after: tuple[tuple[After, Job | None], ...] = ()
    if extras is not None:
        copy.held, copy.ran_ms, copy.cause = record.held, record.ran_ms, record.cause
        copy.doomed, copy.wanted = record.doomed, record.wanted
        copy.move(record.boost, record.moved_by)
        if record.pending:
            copy.pending = dict(record.pending)
            after = _after(state, record.pending)
    return LiveRow(copy, aside, after)


def _after(state: State, pending: Iterable[After]) -> tuple[tuple[After, Job | None], ...]:
    """Dependencies, each with the job that it names if that has not ended."""
    jobs = state.jobs
    return tuple([(after, jobs[after.job_id].job if after.job_id in jobs else None) for after in pending])


_BITS = 8
"""A chunk has the jobs of so many ids: two to the power of this."""
_FIRST_EXTERNAL = FIRST_EXTERNAL_ID >> _BITS

TEXTS = {int(code): text for code, text in REASON_TEXTS.items()}
_ROOM, _UNSEEN = int(ReasonCode.ROOM), int(ReasonCode.NOT_EXAMINED)

Said = Callable[[JobRecord], str]
"""Something of a job in the words of another: of the engine that is to start it, of the scheduler that decides."""
Line = Iterator[tuple[int | None, LiveRow]]
"""Jobs as a list has them, each with its place in line if it is in line."""


def no_reason(_record: JobRecord) -> str:
    """The yard decides."""
    return ""


class Rows:
    """Rows by id. Never changed: `with_changes` makes another one."""

    __slots__ = ("chunks", "count")

    def __init__(self, chunks: Mapping[int, Mapping[int, LiveRow]] | None = None, count: int = 0) -> None:
        self.chunks = chunks or {}
        self.count = count

    def get(self, job_id: int) -> LiveRow | None:
        """The row of a job, if it is live."""
        chunk = self.chunks.get(job_id >> _BITS)
        return None if chunk is None else chunk.get(job_id)

    def values(self) -> Iterator[LiveRow]:
        """All of them, in no order that matters."""
        for chunk in self.chunks.values():
            yield from chunk.values()

    def newest_first(self, before_id: int | None = None) -> Iterator[LiveRow]:
        """By id, in the order of lists."""
        last = None if before_id is None else newest_first(before_id)
        for key in sorted(self.chunks, key=lambda key: (key >= _FIRST_EXTERNAL, -key)):
            chunk = self.chunks[key]
            # The lowest id of a chunk is the last.
            if last is None or newest_first(min(chunk)) > last:
                for job_id in sorted(chunk, reverse=True):
                    if last is None or newest_first(job_id) > last:
                        yield chunk[job_id]

    def with_changes(self, changes: Iterable[tuple[int, LiveRow | None]]) -> "Rows":
        """The same with some rows changed or (None) gone."""
        chunks: dict[int, Mapping[int, LiveRow]] = dict(self.chunks)
        own: dict[int, dict[int, LiveRow]] = {}
        count = self.count
        for job_id, row in changes:
            key = job_id >> _BITS
            chunk = own.get(key)
            if chunk is None:
                chunk = own[key] = dict(chunks.get(key, ()))
                chunks[key] = chunk
            count -= job_id in chunk
            if row is not None:
                chunk[job_id] = row
                count += 1
            else:
                chunk.pop(job_id, None)
        for key, chunk in own.items():
            if not chunk:
                del chunks[key]
        return Rows(chunks, count)


@dataclass(frozen=True)
class Order:
    """Jobs in the order of a list, as it was at one event."""

    seq: int = 0
    running: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    """As the scheduler will look at them."""
    aside: tuple[int, ...] = ()

    @cached_property
    def places(self) -> Mapping[int, int]:
        """How many are ahead of each that is in line."""
        return {job_id: place for place, job_id in enumerate(self.waiting)}

    def forget_places(self) -> None:
        """There is a newer order: lists that go on with this one need not keep what is ten times as large."""
        self.__dict__.pop("places", None)


@dataclass(frozen=True)
class Model:
    """The yard at one event."""

    seq: int
    version: int
    """Grows with every model of this process, also where only reasons have changed."""
    now_ms: int
    jobs: Rows
    last_job_id: int
    last_external_id: int
    running: int
    waiting: int
    set_aside: int
    nodes: Sequence[Node]
    """Only ever grows, and none of them changes its name."""
    codes: Mapping[int, int]
    """What the leader's last pass said of those that wait."""
    judged_id: int
    """Jobs with higher ids have come since."""
    room: str
    """What is more to be said of a job that has no room."""
    order: Order
    moved: frozenset[int]
    """Jobs that have changed since the order was made."""
    late: Said = no_reason
    said: Said = no_reason
    alike: Alike = field(default_factory=Alike)

    def reason(self, row: LiveRow, place: int | None = None) -> str:
        """Why a job waits, in a few words, as far as it still holds; of one that runs, what is to be known of it."""
        if row.phase is not None:
            return self.late(row.record) or running_text(row.record)
        if row.job.spec.origin and (said := self.said(row.record)):
            return said
        if row.aside:
            if row.held:
                return TEXTS[ReasonCode.HELD]
            record = row.record
            if record.pending or record.doomed:
                return waits_text(record)
            retried = record.begin_ms > record.job.begin_ms
            return "waits to be tried again" if retried else TEXTS[ReasonCode.BEGIN]
        code = self.codes.get(row.id)
        if code is not None and code != _UNSEEN:
            return TEXTS[code] + self.room if code == _ROOM else TEXTS[code]
        if row.earmarked:
            return TEXTS[ReasonCode.EARMARK]
        if row.id > self.judged_id and not row.job.spec.origin:
            return NEW_TEXT
        return "in line" if place is None else f"in line, {place} ahead"

    def line(self) -> Line:
        """All jobs: those that run, those that wait, and those set aside."""
        chunks = self.jobs.chunks
        last, chunk = -1, chunks.get(-1, {})
        for place, job_id in self.ids():
            key = job_id >> _BITS
            if key != last:
                last, chunk = key, chunks.get(key, {})
            row = chunk.get(job_id)
            if row is not None:
                yield place, row

    def ids(self) -> Iterator[tuple[int | None, int]]:
        """The same by their ids. Some may be of jobs that are gone."""
        order, jobs, moved = self.order, self.jobs, self.moved
        running: Iterable[int] = order.running
        waiting: Iterable[int] = order.waiting
        aside: Iterable[int] = order.aside
        if moved:
            rows = [row for job_id in sorted(moved) if (row := jobs.get(job_id)) is not None]
            runs = [row.id for row in rows if row.phase is not None]
            waits = {row.id: None for row in rows if row.phase is None and not row.aside}
            old = set(filter(waits.__contains__, waiting))
            running = self._by_start([job_id for job_id in running if job_id not in moved] + runs)
            waiting = [job_id for job_id in waiting if job_id not in moved or job_id in waits]
            waiting += [job_id for job_id in waits if job_id not in old]
            aside = sorted(
                [job_id for job_id in aside if job_id not in moved] + [r.id for r in rows if r.aside]
            )
        return chain(zip(repeat(None), running), enumerate(waiting), zip(repeat(None), aside))

    def _by_start(self, ids: list[int]) -> list[int]:
        rows = [row for job_id in ids if (row := self.jobs.get(job_id)) is not None]
        return [row.id for row in sorted(rows, key=lambda row: (row.record.started_ms, row.id))]

    def texts(self, ids: Iterator[tuple[int | None, int]], most: int) -> list[str]:
        """The next rows of a line as JSON, at most so many. One loop for all of it: a list may have ten thousand."""
        nodes, alike, codes, judged_id = self.nodes, self.alike, self.codes, self.judged_id
        chunks, found = self.jobs.chunks, []
        last, chunk = -1, chunks.get(-1, {})
        for place, job_id in ids if most else ():
            key = job_id >> _BITS
            if key != last:
                last, chunk = key, chunks.get(key, {})
            row = chunk.get(job_id)
            if row is None:
                continue
            if row.in_line and job_id not in codes and job_id <= judged_id and not row.earmarked:
                # As most of a long queue: further back than the last pass has looked.
                found.append(f'{row.said or row.head(nodes, alike)}"in line, {place} ahead"]')
            else:
                found.append(row.text(nodes, self.reason(row, place), alike))
            if len(found) == most:
                break
        return found

    def own(self, ids: Iterable[int]) -> Line:
        """A few jobs in the same order, without a look at all the others."""
        rows = [row for job_id in ids if (row := self.jobs.get(job_id)) is not None]
        runs = sorted([r for r in rows if r.phase is not None], key=lambda r: (r.record.started_ms, r.id))
        aside = sorted([r for r in rows if r.aside], key=lambda r: r.id)
        places, behind = self.order.places, len(self.order.waiting)
        waits = sorted(
            [(places.get(r.id, behind), r.id, r) for r in rows if r.phase is None and not r.aside],
            key=lambda each: each[:2],
        )
        line = [(place, row) for place, _id, row in waits]
        return chain(zip(repeat(None), runs), line, zip(repeat(None), aside))
