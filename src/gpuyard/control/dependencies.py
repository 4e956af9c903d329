"""Dependencies as people name them, and what they come to: which live jobs a new one waits for.

A job that has ended already is looked up in the history: it has done what was wanted of it, and the dependency is met,
or it has not, and the new job could never start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuyard.control.labels import Label, live
from gpuyard.control.refusals import Unacceptable
from gpuyard.core import State
from gpuyard.core.dependencies import met
from gpuyard.model import After, AfterKind, JobState
from gpuyard.store import Store

CORRESPONDING = "aftercorr"
SINGLETON = "singleton"
KINDS = (*[kind.value for kind in AfterKind], CORRESPONDING, SINGLETON)


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


def resolve(
    wanted: Sequence[Dependency], name: str, user: str, indices: Sequence[int], state: State, store: Store
) -> Resolved:
    """Look everything up. Called with the books locked and caught up."""
    after: list[After] = []
    own: dict[int, tuple[After, ...]] = {}
    for each in wanted:
        if each.kind == SINGLETON:
            same = [r for r in state.jobs.values() if r.job.spec.name == name and r.job.spec.user == user]
            after += [After(AfterKind.ENDED, record.id) for record in same]
        elif each.kind == CORRESPONDING and each.job is not None:
            for index in indices:
                found = _of(Label(each.job.id, index), AfterKind.COMPLETED, state, store)
                own[index] = (*own.get(index, ()), *found)
        elif each.job is not None:
            found = _of(each.job, AfterKind(each.kind), state, store)
            after += [replace(one, delay_ms=each.delay_ms) for one in found] if each.delay_ms else found
    return Resolved(tuple(dict.fromkeys(after)), own)


def _of(label: Label, kind: AfterKind, state: State, store: Store) -> list[After]:
    """The live jobs of a label; those that have ended must have ended as was wanted."""
    records = live(state, label)
    ended = _ended(label, store)
    if not records and not ended:
        raise Unacceptable(
            f"there is no job {label} to wait for", "`yard queue` and `yard history` list jobs."
        )
    for name, how in ended:
        if not met(kind, how):
            raise Unacceptable(
                f"job {name} has ended as {how.value}: the job could never start ({kind.value}:{label})",
                "Leave the dependency out, or wait for another job.",
            )
    return [After(kind, record.id) for record in records]


def _ended(label: Label, store: Store) -> list[tuple[str, JobState]]:
    rows = store.array_history(label.id)
    if label.index is not None:
        rows = [row for row in rows if row.array_index == label.index]
    found = [(f"{row.array_id}_{row.array_index}", JobState(row.state)) for row in rows]
    if label.index is None:
        row = store.history(label.id)
        found += [(str(row.id), JobState(row.state))] if row is not None else []
    return found
