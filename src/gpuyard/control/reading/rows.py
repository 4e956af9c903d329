"""A live job as it was when it was published: a copy that nothing changes any more, and what a list shows of it.

A row holds neither its place in line nor its age: one start would change every row behind it.
"""

import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any

from gpuyard.control.reading.plain_views import QUEUE_COLUMNS, queue_row, waits_for
from gpuyard.core import State
from gpuyard.core.jobs.records import HELD_ONLY, JobRecord
from gpuyard.model import After, Job, JobClass, JobSpec, JobState, Node

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

_REASON = len(QUEUE_COLUMNS) - 1


class Row:
    """One job. What is made of it for a list is remembered, as text.

    Of a job that has only waited so far nothing can change but that it waits no longer: its row borrows what was
    submitted from the record in the books, and makes its own copy when a reader asks for one. An array of thousands is
    published in a fraction of the time that their copies take.
    """

    __slots__ = (
        "_after", "_borrowed", "_head", "_record", "aside", "earmarked", "held", "id", "in_line", "job", "klass",
        "limit_ms", "phase",
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
        """Whether the record is that of the books: of it a row reads only what never changes."""
        self._after = after
        """What it still waits for; of a dependency on one job, that job."""
        self.id = record.id
        self.job = record.job
        """What was submitted."""
        self.klass = record.klass
        self.limit_ms = record.limit_ms
        self.held = record.extras is not None and record.extras.held
        self.phase = None if borrowed else record.phase
        self.aside = aside
        """Whether it is set aside, and not in line."""
        self.earmarked = not borrowed and record.earmark is not None
        self.in_line = not aside and self.phase is None
        self._head = ""

    @property
    def record(self) -> JobRecord:
        """The job as it was when it was published."""
        if self._borrowed:
            record = _fresh(self._record, self.klass, self.limit_ms)
            record.held = self.held
            if self._after:
                record.pending = dict.fromkeys([after for after, _job in self._after])
            self._record, self._borrowed = record, False
        return self._record

    @property
    def waits_for(self) -> str:
        """The jobs that it still waits for, as Slurm writes them."""
        return waits_for(self.job, self._after) if self._after else ""

    def head(self, nodes: Sequence[Node], alike: "Alike") -> str:
        """The row as JSON up to its reason. A task that waits does not remember it: there may be very many of them."""
        head = self._head
        if not head:
            job = self.job
            head = f"[{job.id},{encode_basestring(job.label)},{alike.middle(self, nodes)},"
            if not job.array_id:
                self._head = head
        return head

    def text(self, nodes: Sequence[Node], reason: str, alike: "Alike") -> str:
        """The row as JSON."""
        return f"{self.head(nodes, alike)}{encode_basestring(reason)}]"

    def same(self, other: "Row") -> bool:
        """Whether both tell the same of a job."""
        return told(self) == told(other)


class Alike:
    """What tasks of one array that wait have in common, made once for all that stand one behind the other."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[JobSpec | None, JobClass | None, int, int, str] = (None, None, 0, 0, "")

    def middle(self, row: Row, nodes: Sequence[Node]) -> str:
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


def told(row: Row) -> tuple[Any, ...]:
    """Everything that is shown of a job, but for the reason."""
    record = row.record
    return (
        record.job, record.klass, record.state, record.phase, record.grants, record.started_ms, record.limit_ms,
        record.attempt, record.preemptions, record.begin_ms, record.held, record.moved_by, record.ran_ms,
        record.wanted, record.cause, tuple(record.pending), record.doomed, row.aside, row.earmarked, row.waits_for,
    )  # fmt: skip


def row_of(state: State, record: JobRecord) -> Row:
    """A job as it is now. Called with the books locked."""
    aside = record.state is JobState.PENDING and record.id in state.deferred
    extras = record.extras
    if not (record.attempt or record.earmark) and record.begin_ms == record.job.begin_ms:
        if extras is None or extras is HELD_ONLY:
            return Row(record, aside, borrowed=True)
        if extras.pending and not (extras.doomed or extras.boost):
            return Row(record, aside, _after(state, extras.pending), True)
    copy = _fresh(record, record.klass, record.limit_ms)
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
    return Row(copy, aside, after)


def _after(state: State, pending: Iterable[After]) -> tuple[tuple[After, Job | None], ...]:
    """Dependencies, each with the job that it names if that has not ended."""
    jobs = state.jobs
    return tuple([(after, jobs[after.job_id].job if after.job_id in jobs else None) for after in pending])


def _fresh(record: JobRecord, klass: JobClass, limit_ms: int) -> JobRecord:
    """The job as it was when it was submitted, in this class and with this limit."""
    copy = JobRecord(record.job, record.shape, klass, record.leaf, record.party, record.count)
    copy.limit_ms = limit_ms
    return copy
