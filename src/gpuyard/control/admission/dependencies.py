"""Dependencies as people name them, and what they come to: which live jobs a new one waits for.

A job that has ended already is looked up in the history: it has done what was wanted of it, and the dependency is met,
or it has not, and the new job could never start. An array is one dependency, however many tasks it has, and each
job or array that is named is looked up once, however often it is named.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gpuyard.control.refusals import CouldNever, Unacceptable
from gpuyard.control.replica.labels import Label, find_live, match_ended
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text
from gpuyard.core.state.dependencies import is_met
from gpuyard.model import After, AfterKind, JobState
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.store import Store

CORRESPONDING = "aftercorr"
SINGLETON = AfterKind.ALONE.value
EDGES_MAX = 200_000
"""Tasks of one submission times what each of them waits for: every task is written to the log with all of it."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Wait for a job, an array or a task of one; `singleton`: for every job of the same name and user."""

    kind: str
    job: Label | None = None
    delay_ms: int = 0
    """After the other job's start."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a job waits for, and what single tasks of it do, by index."""

    after: tuple[After, ...] = ()
    own: dict[int, tuple[After, ...]] | None = None


def look_up(
    wanted: Sequence[Dependency],
    state: State,
    store: Store,
    sees: Callable[[str], bool] = lambda _tenant: True,
) -> "dict[Label, Named]":
    """The jobs and arrays that are waited for, of the tenants that the person `sees`. Called with the replica
    locked; `resolve` works out the rest without the lock."""
    labels = dict.fromkeys([_whole(each.job) for each in wanted if each.job is not None])
    return {label: Named(label, state, store, sees) for label in labels}


def _whole(label: Label) -> Label:
    """The array of a task; any other label is itself."""
    return label if label.index is None else Label(label.id, cluster=label.cluster)


def resolve(wanted: Sequence[Dependency], indices: Sequence[int], named: "Mapping[Label, Named]") -> Resolved:
    """What a job with these dependencies waits for, each looked up before."""
    after: dict[After, None] = {}
    own: dict[int, tuple[After, ...]] = {}
    # The same dependency twice is one.
    for each in dict.fromkeys(wanted):
        if each.kind == SINGLETON or each.job is None:
            after[After(AfterKind.ALONE, 0)] = None
            continue
        found = named[_whole(each.job)]
        if each.kind == CORRESPONDING:
            if not indices:
                raise Unacceptable(
                    f"{CORRESPONDING}:{each.job} is for arrays: each of their tasks waits for the task with its "
                    "number, and this job has none",
                    "To wait until the other job or array has completed, write afterok.",
                )
            for index in indices:
                own[index] = (*own.get(index, ()), *found.after(AfterKind.COMPLETED, index))
        else:
            edges = found.after(AfterKind(each.kind), each.job.index, each.delay_ms)
            after.update(dict.fromkeys(edges))
    tasks, most = max(1, len(indices)), len(after) + max([len(each) for each in own.values()], default=0)
    if tasks * most > EDGES_MAX:
        raise Unacceptable(
            f"{count_text(tasks, 'task')} that each wait for {count_text(most, 'job')} are too many: "
            f"at most {EDGES_MAX:,} dependencies in one submission",
            "Wait for an array instead of its tasks: that is one dependency.",
        )
    return Resolved(tuple(after), own)


class Named:
    """A job or an array that a new job is to wait for: its live tasks, and how the others ended."""

    def __init__(self, label: Label, state: State, store: Store, sees: Callable[[str], bool]) -> None:
        self._id = job_id = label.id
        # Tasks of an array are all of one tenant.
        sees = cache(sees)
        self._live = [r for r in find_live(state, label) if sees(r.job.spec.tenant)]
        self._by_index: dict[int, JobRecord] = {
            r.job.array_index: r for r in self._live if r.job.array_id == job_id
        }
        row = match_ended(label, store.history.find(job_id))
        self._ended_job = JobState(row.state) if row is not None and sees(row.tenant) else None
        ended = [] if self._live and not self._by_index else store.history.ends_of_array(job_id)
        self._ended = {index: JobState(how) for _id, index, tenant, how in ended if sees(tenant)}
        ids = [each[0] for each in ended] + [r.id for r in self._live]
        self._tasks = max(ids, default=job_id) - job_id
        """How many tasks the array has at most: a job never waits for tasks beyond the last known one."""

    def after(self, kind: AfterKind, index: int | None, delay_ms: int = 0) -> list[After]:
        """What to wait for; those that have ended must have ended as was wanted."""
        if index is not None:
            return self._after_task(kind, index, delay_ms)
        if self._ended_job is not None:
            self._check(kind, str(self._id), str(self._id), self._ended_job)
            return []
        if not self._by_index:
            if not self._live and not self._ended:
                raise self._nobody(str(self._id))
            if self._live:
                return [After(kind, self._id, delay_ms)]
        return self._after_array(kind, delay_ms)

    def _after_task(self, kind: AfterKind, index: int, delay_ms: int) -> list[After]:
        record = self._by_index.get(index)
        if record is not None:
            return [After(kind, record.id, delay_ms)]
        label = f"{self._id}_{index}"
        if index not in self._ended:
            raise self._nobody(label)
        self._check(kind, label, label, self._ended[index])
        return []

    def _after_array(self, kind: AfterKind, delay_ms: int) -> list[After]:
        """`afterok` wants all tasks to complete, `afternotok` all to end and one to fail, as with Slurm."""
        failed = [index for index, how in self._ended.items() if how is not JobState.COMPLETED]
        if kind is AfterKind.COMPLETED and failed:
            name = f"{self._id}_{failed[0]}"
            self._check(kind, name, str(self._id), self._ended[failed[0]])
        if kind is AfterKind.FAILED and failed:
            kind = AfterKind.ENDED
        if not self._live:
            if kind is AfterKind.FAILED:
                raise CouldNever(
                    f"all tasks of job {self._id} have completed: the job could never start ({kind.value}:{self._id})",
                    "Leave the dependency out, or wait for another job.",
                )
            return []
        if self._live[0].id >= FIRST_EXTERNAL_ID:
            # Ids of another system are in no order.
            return [After(kind, record.id, delay_ms) for record in self._live]
        return [After(kind, self._id, delay_ms, self._tasks)]

    def _check(self, kind: AfterKind, name: str, label: str, how: JobState) -> None:
        if not is_met(kind, how):
            raise CouldNever(
                f"job {name} has ended as {how.value}: the job could never start ({kind.value}:{label})",
                "Leave the dependency out, or wait for another job.",
            )

    def _nobody(self, label: str) -> Unacceptable:
        return Unacceptable(
            f"there is no job {label} to wait for", "`yard queue` and `yard history` list jobs."
        )
