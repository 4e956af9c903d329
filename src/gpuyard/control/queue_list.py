"""The queue as a list: the jobs that somebody wants, in the order of the scheduler, made piece by piece.

Somebody who asks for everything may get hundreds of thousands of rows. The order is taken at once. The rows are made a
piece at a time, as the JSON that goes over the wire, and between two pieces the books are free for everybody else: a
job that has moved on meanwhile is shown as it is when its row is made, one that has ended is left out.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from json.encoder import encode_basestring
from typing import Any

from gpuyard.control.books import Books
from gpuyard.control.plain_views import View
from gpuyard.control.queue_rows import QUEUE_COLUMNS, masked_row, queue_row
from gpuyard.control.rights import ALL, Sight
from gpuyard.control.slurm_views import MORE_COLUMNS, more
from gpuyard.core import State
from gpuyard.core.jobs.queue_position import ahead, in_order
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import JobClass, JobSpec

PIECE = 2500
"""Jobs that are looked at while the books are locked, for some milliseconds."""

OWN_MAX = 100
"""A user with so few jobs gets them without a walk through everybody's."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

Reason = Callable[[JobRecord, int | None], str]
"""Why a job waits, in a few words, given its place in line."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs. What is empty does not matter."""

    states: frozenset[str] = frozenset()
    tenant: str = ""
    """With all tenants below it."""
    user: str = ""
    name: str = ""
    sight: Sight = ALL
    """Of these, what is there for whoever asks."""

    def live(self, record: JobRecord) -> bool:
        """Whether a live job is wanted."""
        spec = record.job.spec
        return (
            (self.sight.whole or self.sight.sees(spec.tenant))
            and (not self.states or record.state.value in self.states)
            and (not self.user or spec.user == self.user)
            and (not self.name or spec.name == self.name)
            and (not self.tenant or f"{spec.tenant}/".startswith(f"{self.tenant}/"))
        )


EVERYTHING = Filter()


class Owners:
    """Who has which live jobs, brought up to date when somebody asks: each job is looked at once, when it has come."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._ids: dict[str, list[int]] = {}
        self._last = 0
        """The last job that was looked at."""
        self._size = 0
        """How many are known, those that have ended since among them."""

    def of(self, state: State, user: str) -> list[JobRecord]:
        """The live jobs of one user, in the order in which they came. Called with the books locked."""
        jobs, new = state.jobs, []
        if self._state is not state or self._size > 2 * len(jobs) + PIECE:
            # Mostly of jobs that have ended: those of users who never ask would stay for ever.
            self._state, self._ids, self._last, self._size = state, {}, 0, 0
        for job_id in reversed(jobs):
            if job_id <= self._last:
                break
            new.append(job_id)
        for job_id in reversed(new):
            self._ids.setdefault(jobs[job_id].job.spec.user, []).append(job_id)
        self._last, self._size = state.last_job_id, self._size + len(new)
        found = [jobs[job_id] for job_id in self._ids.get(user, ()) if job_id in jobs]
        if found:
            self._ids[user] = [record.id for record in found]
        else:
            self._ids.pop(user, None)
        return found


class QueueList:
    """One list: what stands above the rows, and the rows."""

    def __init__(
        self,
        books: Books,
        reasons: Callable[[State], Reason],
        owners: Owners,
        wanted: Filter,
        limit: int | None,
        wide: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._books = books
        self._wanted = wanted
        self._left = limit
        self._wide = wide
        self._alike: tuple[JobSpec | None, JobClass | None, int, int, str] = (None, None, 0, 0, "")
        """What the last task that waits has in common with others of its array, and that as JSON."""
        self._masks = not (wanted.sight.whole or wanted.tenant or wanted.user or wanted.name)
        with books.lock:
            books.catch_up()
            state = books.state
            self._reason = reasons(state)
            self._line = self._places(state, owners)
            self.head: View = {
                "at_ms": max(now_ms(), state.now_ms),
                "running": len(state.running),
                "waiting": state.queue.count,
                "set_aside": len(state.deferred),
                "columns": QUEUE_COLUMNS + MORE_COLUMNS if wide else QUEUE_COLUMNS,
            }
            self._first, self._over = self._piece(state)

    @property
    def short(self) -> bool:
        """Whether all of it is made already."""
        return self._over

    def pieces(self) -> Iterator[str]:
        """The rows as JSON, without the brackets around them all, some at a time. Can be asked for once."""
        if self._first:
            yield self._first
        comma = "," if self._first else ""
        while not self._over:
            with self._books.lock:
                rows, self._over = self._piece(self._books.state)
            if rows:
                yield comma + rows
                comma = ","

    def _places(self, state: State, owners: Owners) -> Iterator[tuple[int | None, JobRecord]]:
        """Those that run, those that wait, with their places in line, and those set aside."""
        user = self._wanted.user
        own = owners.of(state, user) if user else None
        if own is not None and len(own) <= OWN_MAX:
            return iter(_own_places(state, own))
        # Of a list that leaves nobody out no more is needed than is shown.
        most = self._left if self._wanted == EVERYTHING else None
        running = sorted(state.running.values(), key=lambda r: (r.started_ms, r.id))
        aside = [state.deferred[job_id] for job_id in sorted(state.deferred)]
        waiting = list(islice(in_order(state.queue), most))
        return chain(zip(repeat(None), running), enumerate(waiting), zip(repeat(None), aside))

    def _piece(self, state: State) -> tuple[str, bool]:
        """The rows of the next jobs, and whether these were the last."""
        wanted, wide, reason, left = self._wanted, self._wide, self._reason, self._left
        everything, jobs, nodes = wanted == EVERYTHING, state.jobs, state.nodes.node
        texts: list[str] = []
        rows: list[tuple[Any, ...]] = []
        """Those that are not text yet."""
        looked = shown = 0
        for place, known in islice(self._line, PIECE):
            looked += 1
            record = jobs.get(known.id)
            if record is None:
                continue
            if not everything and not wanted.live(record):
                if not self._masks or not _out_of_sight(wanted, record):
                    continue
                rows.append(masked_row(record, wide))
            elif record.job.array_id and record.phase is None and not wide and not record.job.spec.origin:
                if rows:
                    texts.append(_encode(rows)[1:-1])
                    rows = []
                texts.append(self._task(record, reason(record, place)))
            else:
                row = queue_row(record, nodes, reason(record, place))
                rows.append(row + more(state, record) if wide else row)
            shown += 1
            if shown == left:
                break
        if rows:
            texts.append(_encode(rows)[1:-1])
        if left is not None:
            self._left = left = left - shown
        return ",".join(texts), looked < PIECE or left == 0

    def _task(self, record: JobRecord, reason: str) -> str:
        """The row of a task that waits: the other tasks of its array have much the same, and there may be thousands."""
        job, klass = record.job, record.klass
        job_id, spec, submitted_ms, _limit_ms, _deadline_ms, _begin_ms, array_id, array_index = job
        of, by, limit_ms, at_ms, alike = self._alike
        if of is not spec or by is not klass or limit_ms != record.limit_ms or at_ms != submitted_ms:
            alike = _encode(queue_row(record, [], "")[2:-1])[1:-1]
            self._alike = (spec, klass, record.limit_ms, submitted_ms, alike)
        return f'[{job_id},"{array_id}_{array_index}",{alike},{encode_basestring(reason)}]'


def _own_places(state: State, own: list[JobRecord]) -> Iterable[tuple[int | None, JobRecord]]:
    """The jobs of one user in the order of the queue, each with its place in line."""
    running = sorted([r for r in own if r.id in state.running], key=lambda r: (r.started_ms, r.id))
    aside = sorted([r for r in own if r.id in state.deferred], key=lambda r: r.id)
    waiting = [r for r in own if r.id not in state.running and r.id not in state.deferred]
    line = sorted([(ahead(state.queue, record), record.id) for record in waiting])
    return chain(
        zip(repeat(None), running),
        [(place, state.jobs[job_id]) for place, job_id in line],
        zip(repeat(None), aside),
    )


def _out_of_sight(wanted: Filter, record: JobRecord) -> bool:
    """Whether a job is there, in the state that is asked for, and only its names are nobody's business."""
    seen = wanted.sight.sees(record.job.spec.tenant)
    return not seen and (not wanted.states or record.state.value in wanted.states)
