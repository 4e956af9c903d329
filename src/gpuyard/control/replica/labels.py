"""Names: of jobs and nodes as people write them, of attempts towards engines; and what they stand for."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpuyard.control.refusals import NotFound, Unacceptable
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.errors import quote, suggest
from gpuyard.model import Job
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.store import HistoryRow, Store
from gpuyard.wire.job_fields import ARRAY_TASKS_MAX

_FEW = 8
"""Arrays that are looked up one by one; for more, all live jobs are gone through once."""

_LABEL = re.compile(r"(?:([^:@/]*):)?([1-9][0-9]{0,17})(?:_([0-9]{1,9}))?")
SEEN_IDS = 2 * FIRST_EXTERNAL_ID
"""What is added to an id of another scheduler beside our own: above every id that a job has here."""


@dataclass(frozen=True, slots=True)
class Label:
    """The id people use: a job's, an array's, or a task's of an array."""

    id: int
    index: int | None = None
    cluster: str = ""
    """A cluster that schedules itself, whose id this is; its id here is above `SEEN_IDS`."""
    by_number: bool = False
    """Whether a task of an array may be meant by the number of its own, which programs know and people do not see."""

    def names(self, job: Job | HistoryRow) -> bool:
        """Whether a job that has this number is meant by it."""
        return self.by_number or job.array_id in (0, self.id) or job.id >= FIRST_EXTERNAL_ID

    def __str__(self) -> str:
        text = f"{self.cluster}:{self.id - SEEN_IDS}" if self.cluster else str(self.id)
        return text if self.index is None else f"{text}_{self.index}"


def parse_label(text: str) -> Label:
    """`17` or `12_3`; `CLUSTER:17` for a job of a cluster that schedules itself; `:17` by its number."""
    match = _LABEL.fullmatch(text)
    if match is None or (match[1] == "" and match[3] is not None):
        raise Unacceptable(
            f"{quote(text)} is not a job id", "Ids are positive numbers such as 17, or 12_3 for a task."
        )
    cluster = match[1] or ""
    job_id = int(match[2]) + (SEEN_IDS if cluster else 0)
    return Label(job_id, int(match[3]) if match[3] is not None else None, cluster, match[1] == "")


def read_label(value: int | str) -> Label:
    """The label in a document: a number is the one that replies have as `id`, a text what people type."""
    return parse_label(f":{value}" if isinstance(value, int) else value)


def match_ended(label: Label, row: HistoryRow | None) -> HistoryRow | None:
    """An ended job that has the number of a label, if the label means it."""
    return row if row is not None and label.names(row) else None


def row_label(row: HistoryRow) -> str:
    """The id people use for a job that has ended."""
    origin = row.detail.get("spec", {}).get("origin", "")
    if origin:
        return str(origin.partition("@")[0])
    return f"{row.array_id}_{row.array_index}" if row.array_id > 0 else str(row.id)


def find_foreign(store: Store, label: Label) -> HistoryRow | None:
    """The last try of another system's job with this label; None: there is none, or it is an array there."""
    rows = [
        row
        for row in store.history.of_array(label.id, (label.index or 0) - 1, 1000)
        if row.id >= FIRST_EXTERNAL_ID and row_label(row) == str(label)
    ]
    return max(rows, key=lambda row: row.id) if rows else None


class HasJob(Protocol):
    """A live job, in the replica or as it was published."""

    @property
    def job(self) -> Job:
        """What was submitted."""


H_co = TypeVar("H_co", bound=HasJob, covariant=True)


class ById(Protocol[H_co]):
    """Live jobs by their ids."""

    def get(self, job_id: int, /) -> H_co | None:
        """One of them."""

    def values(self) -> Iterable[H_co]:
        """All of them."""


class LiveJobs(Protocol[H_co]):
    """The replica's state, or what was published of it."""

    @property
    def jobs(self) -> ById[H_co]:
        """Live jobs only."""

    @property
    def last_job_id(self) -> int:
        """The highest that was given."""

    @property
    def last_external_id(self) -> int:
        """The highest that was given to a job of another scheduler."""


def find_live(state: LiveJobs[H_co], label: Label) -> list[H_co]:
    """The live jobs of a label: one, all of an array, or none."""
    jobs, last_job_id = state.jobs, state.last_job_id
    if label.index is None:
        record = jobs.get(label.id)
        if record is not None and label.names(record.job):
            return [record]
    # Ids of tasks follow that of their array; those that ended are gaps.
    tasks = []
    for job_id in range(label.id + 1, min(label.id + ARRAY_TASKS_MAX, last_job_id) + 1):
        record = jobs.get(job_id)
        if record is None:
            continue
        if record.job.array_id != label.id:
            break
        if label.index is None or record.job.array_index == label.index:
            tasks.append(record)
    if tasks or state.last_external_id < FIRST_EXTERNAL_ID:
        return tasks
    # Jobs that were seen in another system have its ids, in no order.
    return [
        record
        for record in jobs.values()
        if record.job.array_id == label.id
        and label.index in (None, record.job.array_index)
        and record.job.label.startswith(f"{label.cluster}:" if label.cluster else "")
    ]


def make_live_finder(state: State, labels: Sequence[Label]) -> Callable[[Label], list[JobRecord]]:
    """The same as `find_live` for each of many labels; the live jobs are gone through once for all of them.

    What it gives looks at the state no more: that takes the longest where there are many, and needs no lock.
    """
    jobs = state.jobs
    singles = {
        label: [jobs[label.id]]
        for label in labels
        if label.index is None and label.id in jobs and label.names(jobs[label.id].job)
    }
    arrays: dict[int, list[JobRecord]] = {label.id: [] for label in labels if label not in singles}
    if len(arrays) <= _FEW:
        for array_id in arrays:
            # Where a job has the array's own id, its tasks have it too: it was seen in another system.
            arrays[array_id] = find_live(state, Label(array_id)) if array_id not in jobs else []
    if len(arrays) > _FEW or any([array_id in jobs for array_id in arrays]):
        for record in jobs.values():
            array_id = record.job.array_id
            if array_id in arrays:
                arrays[array_id].append(record)
    tasks: dict[tuple[int, int], list[JobRecord]] = {}

    def find(label: Label) -> list[JobRecord]:
        if label.index is None:
            return singles.get(label) or arrays[label.id]
        if not tasks:
            for array_id, records in arrays.items():
                for record in records:
                    tasks.setdefault((array_id, record.job.array_index), []).append(record)
        return tasks.get((label.id, label.index), [])

    return find


def current_key(yard: str, record: JobRecord) -> str:
    """The name of a job's current attempt towards an engine."""
    return attempt_key(yard, record.id, record.attempt, record.job.submitted_ms)


def attempt_key(yard: str, job_id: int, attempt: int, submitted_ms: int) -> str:
    """The time of submission is in it because an old backup that is restored hands out ids again."""
    return f"{yard}-{submitted_ms:x}-{job_id}-{attempt}"


def parse_attempt_key(yard: str, key: str) -> tuple[int, int] | None:
    """Job and attempt of a key of this yard; None: the key belongs to no job here."""
    name, _, attempt = key.rpartition("-")
    name, _, job_id = name.rpartition("-")
    name, _, _submitted = name.rpartition("-")
    if name != yard or not (job_id.isdecimal() and attempt.isdecimal()):
        return None
    return int(job_id), int(attempt)


def node_key(cluster: str, node: str) -> str:
    """The name of a node that no other cluster has: series are kept by it."""
    return f"{cluster}:{node}"


def find_nodes(state: State, text: str) -> list[int]:
    """The nodes that a text may mean, in the order of their clusters."""
    cluster, _, name = text.rpartition(":")
    there = [cluster] if cluster else sorted({kind.cluster for kind in state.nodes.kinds})
    return [state.node_number[each, name] for each in there if (each, name) in state.node_number]


def find_node(state: State, text: str) -> int:
    """The one node that a text means; raises where there is none, or more than one."""
    found = find_nodes(state, text)
    if not found:
        known = [name for _cluster, name in state.node_number]
        raise NotFound(f"there is no node {quote(text)}; {suggest(text, known, 'nodes')}")
    if len(found) > 1:
        clusters = [state.nodes.node[number].cluster for number in found]
        raise Unacceptable(
            f"clusters {' and '.join(clusters)} each have a node {quote(text)}",
            f"Say which one: {clusters[0]}:{text}.",
        )
    return found[0]
