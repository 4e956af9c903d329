"""Changes of jobs that are there: other limits, classes, names, resources, dependencies, another place in the line.

A change is judged as a new job is: the request that would submit the job again, with the fields that are asked for in
place of its own, goes through the same admission, for the owner of the job. What is admitted is one event with the
whole of the job as it is from then on. What a change does not touch stays, also what was made of it when the job came.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gpuyard.control.access.people import NO_UID, Person, RunAs
from gpuyard.control.admission.admit import Admission, Admitted
from gpuyard.control.admission.dependencies import Dependency, Named, look_up, resolve
from gpuyard.control.admission.entering import set_share_owner
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.clock import time_text
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.commands.wishes import Changed, Outcome, Wish, move_refusal
from gpuyard.control.reading.plain_views import read_recipe
from gpuyard.control.refusals import Forbidden, Impossible, Refusal, Unacceptable
from gpuyard.control.replica.labels import Label
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.control.views.request_again import rebuild_request, revise_request
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.dependencies import find_awaited
from gpuyard.errors import quote
from gpuyard.model import (
    After,
    AfterKind,
    AttemptState,
    Capability,
    EarmarkDropped,
    Event,
    Job,
    JobChanged,
    JobSpec,
    Requested,
    StopCause,
    Verb,
)
from gpuyard.model.jobs import thousandths_text
from gpuyard.model.units import SECOND_MS
from gpuyard.quantities import duration_text, memory_text
from gpuyard.wire.endpoints import Action
from gpuyard.wire.job_fields import CHANGEABLE_RUNNING

_JUDGED = frozenset({"tenant", "class", "labels", "project", "time_limit_s"})
"""Fields that admission looks at, besides those that say what it asks for."""
_WAITS = frozenset({"dependencies", "dependencies_any", "array_limit"})
_UNJUDGED = _WAITS | {"name", "begin_ms", "deadline_ms", "retries", "requeue", "checkpoint_s"}


_WORDS: Mapping[str, Callable[[int], str]] = {
    "s": lambda value: duration_text(value * SECOND_MS),
    "ms": lambda value: time_text(value) or "now",
    "mib": memory_text,
    "milli": thousandths_text,
}
"""How values are written, by the unit at the end of a field's name."""
_SHOWN_MAX = 200


def _value_text(value: Any) -> str:
    """A value in short."""
    if isinstance(value, Mapping):
        parts = [f"{key}={each}" for key, each in value.items()]
    elif isinstance(value, list | tuple):
        parts = [_value_text(each) for each in value]
    else:
        return str(value)
    text = ",".join(parts) or "none"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be another about some jobs."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a submission with their new values; labels with an empty value go."""
    nice_s: int | None = None
    """Its place is that of a job that was submitted so much later; None: as it is."""
    place: Verb | None = None
    """`TOP` or `BACK`: before all other waiting jobs, or where the order has it."""

    @property
    def words(self) -> str:
        """The same for people."""
        found = [f"{name.rpartition('_')[0]} {_WORDS[unit](value)}" if (unit := name.rpartition("_")[2]) in _WORDS
                 else f"{name} {_value_text(value)}" for name, value in self.fields.items()]  # fmt: skip
        found += [f"nice {duration_text(self.nice_s * SECOND_MS)}"] if self.nice_s is not None else []
        return ", ".join([*found, *([self.place.value] if self.place is not None else [])])

    @property
    def resources(self) -> frozenset[str]:
        """Fields that say what the jobs ask for."""
        return frozenset(self.fields) - _JUDGED - _UNJUDGED


class Revise(Protocol):
    """Makes the request of a job that is there, some of its fields new."""

    def __call__(self, fields: Mapping[str, Any], /) -> Wanted:
        """Raises `Unacceptable` where the fields make no request."""


class ChangeWish(Wish):
    """One change, asked of some jobs."""

    word = "update"

    def __init__(
        self,
        person: Person,
        change: Change,
        said: Sequence[int | str],
        now_ms: Callable[[], int],
        observed: ObservedClusters | None,
        admission: Admission,
        revise: Revise,
        replica: Replica,
    ) -> None:
        super().__init__(person, said, now_ms, observed)
        self._change, self._admission, self._revise, self._replica = change, admission, revise, replica
        self._known: dict[tuple[int, int], tuple[JobSpec, JobSpec]] = {}
        """New specs by those of before, of which tasks of an array share one."""
        self._dependencies: tuple[Dependency, ...] = ()
        self._named: Mapping[Label, Named] | None = None
        self._awaited: dict[tuple[After, ...], frozenset[int]] = {}
        """The jobs that dependencies wait for, and all that those wait for in turn."""

    # -- one job ---------------------------------------------------------------------------------------------------

    def _forbidden(self, record: JobRecord) -> Forbidden | None:
        found = super()._forbidden(record)
        if found is None and (self._change.place is not None or (self._change.nice_s or 0) < 0):
            found = move_refusal(self._person)
        return found

    def _serve(self, draft: Draft, record: JobRecord, now_ms: int) -> Outcome:
        found = self.judge(draft.state, record, now_ms)
        if isinstance(found, Refusal):
            return found
        before_ms = record.joined_ms
        for event in found:
            draft.add(event)
        if record.joined_ms > before_ms:
            return Changed("it asks for more than before, and goes to the end of its line")
        if found and record.phase is AttemptState.RUNNING and record.end_ms <= now_ms:
            return Changed("it has run for longer than its new limit, and ends now")
        return bool(found)

    def rehearse(self, state: State, record: JobRecord, now_ms: int) -> list[Event]:
        """The events that would change a job; raises why it is not changed."""
        found = self._forbidden(record) or self.judge(state, record, now_ms)
        if isinstance(found, Refusal):
            raise found
        return found

    def judge(self, state: State, record: JobRecord, now_ms: int) -> list[Event] | Refusal:
        """The events that change a job, none if it is so already; or why it is not changed."""
        change, by = self._change, self._person.signature
        if (refusal := _unfit(state, record, change)) is not None:
            return refusal
        try:
            job = self._changed(state, record)
        except Refusal as refused:
            return refused
        more = _asks_more(state, record, job)
        joined_ms = now_ms if more else record.joined_ms
        nice_ms = record.nice_ms if change.nice_s is None else change.nice_s * SECOND_MS
        events: list[Event] = []
        if job != record.job or nice_ms != record.nice_ms:
            if record.earmark is not None and _claim(job) != _claim(record.job):
                events.append(EarmarkDropped(now_ms, record.id))
            events.append(JobChanged(now_ms, job, joined_ms, nice_ms, by, change.words))
        if change.place is Verb.TOP or (change.place is Verb.BACK and record.boost):
            events.append(Requested(now_ms, record.id, change.place, by))
        return events

    def _changed(self, state: State, record: JobRecord) -> Job:
        """The job as it is to be; raises why it cannot be so."""
        job, fields = record.job, self._change.fields
        limit_ms = fields["time_limit_s"] * SECOND_MS if "time_limit_s" in fields else job.limit_ms
        key = (id(job.spec), job.limit_ms)
        known = self._known.get(key)
        if known is None or known[0] is not job.spec:
            known = self._known[key] = (job.spec, self._spec(state, record))
        spec = known[1]
        if fields.keys() & _WAITS:
            after, after_one = self._waits(state, record)
            spec = replace(spec, after=after, after_one=after_one)
        elif spec.after is not job.spec.after:
            spec = replace(spec, after=job.spec.after)
        begin_ms, deadline_ms = (
            fields.get("begin_ms", job.begin_ms),
            fields.get("deadline_ms", job.deadline_ms),
        )
        return job._replace(spec=spec, limit_ms=limit_ms, begin_ms=begin_ms, deadline_ms=deadline_ms)

    # -- its spec --------------------------------------------------------------------------------------------------

    def _spec(self, state: State, record: JobRecord) -> JobSpec:
        """The new spec, without what it waits for; raises what admission says of it."""
        change, job, spec = self._change, record.job, record.job.spec
        fields = change.fields
        recipe = read_recipe(self._replica.store, spec.recipe)
        if not recipe:
            raise Impossible(
                f"how job {job.label} is run is not known any more, so that it cannot be judged anew",
                "Cancel it and submit it again.",
            )
        wanted = self._revise(revise_request(rebuild_request(spec, job.limit_ms, recipe), fields))
        if change.resources and recipe.get("asked"):
            raise Impossible(
                f"job {job.label} asked for whole nodes or for an amount of GPU memory, and what that comes to was "
                "settled when it was submitted",
                f"Submit it anew, and cancel this one: yard submit --like {job.label} ...",
            )
        self._dependencies = wanted.dependencies
        if not fields.keys() - _UNJUDGED:
            admitted = Admitted(spec.tenant, spec.klass, spec.ask, spec.partition, spec.groups)
        else:
            admitted = self._admit(state, record, wanted)
        ask, partition = spec.ask, spec.partition
        if change.resources:
            account = RunAs(recipe.get("uid", 0), recipe.get("gid", 0), recipe.get("user", ""))
            ask, partition = set_share_owner(admitted.ask, account, state.settings), admitted.partition
        return replace(
            spec,
            name=wanted.name,
            tenant=admitted.tenant if "tenant" in fields else spec.tenant,
            klass=admitted.klass if "class" in fields else spec.klass,
            ask=ask,
            partition=partition,
            groups=admitted.groups,
            labels=wanted.labels,
            retries=wanted.retries,
            requeue=wanted.requeue,
            checkpoint_ms=wanted.checkpoint_s * SECOND_MS,
        )

    def _admit(self, state: State, record: JobRecord, wanted: Wanted) -> Admitted:
        """What the yard makes of it, as a job of its owner. An administrator may go beyond the limit of a class."""
        spec, person = record.job.spec, self._person
        klass = state.klass_of(state.settings.qos.get(wanted.klass, wanted.klass))
        if wanted.limit_ms > klass.limit_ms and person.may(Action.MANAGE_CONFIG, ""):
            wanted = wanted.but(limit_ms=klass.limit_ms)
        if person.name != spec.user:
            # The groups that walls of pools look at are the owner's, as they were when the job came.
            person = replace(person, name=spec.user, uid=NO_UID, groups=spec.groups)
        return self._admission.admit(state, wanted, person)

    # -- what it waits for -----------------------------------------------------------------------------------------

    def _waits(self, state: State, record: JobRecord) -> tuple[tuple[After, ...], bool]:
        job, fields = record.job, self._change.fields
        # A task stands behind another of its array where only some of them may run at a time.
        own = [each for each in job.spec.after if job.array_id and job.array_id < each.job_id < job.id]
        asked = [each for each in job.spec.after if each not in own]
        if "array_limit" in fields and record.phase is None:
            if not job.array_id:
                raise Impossible(f"job {job.label} is no array", "Only of an array some tasks run at a time.")
            behind = job.id - fields["array_limit"]
            own = [After(AfterKind.ENDED, behind)] if job.array_id < behind < job.id else []
        if "dependencies" in fields:
            asked = self._find_asked(state, record)
        after = tuple(dict.fromkeys([*asked, *own]))
        return after, fields.get("dependencies_any", job.spec.after_one)

    def _find_asked(self, state: State, record: JobRecord) -> list[After]:
        """What a job is to wait for; raises where that would wait for the job."""
        job, wanted = record.job, self._dependencies
        if self._named is None:
            self._named = look_up(wanted, state, self._replica.store, self._person.sight.sees)
        found = resolve(wanted, (job.array_index,) if job.array_id else (), self._named)
        asked = (*found.after, *(found.own or {}).get(job.array_index, ()))
        if asked not in self._awaited:
            self._awaited[asked] = _find_all_awaited(state, record, asked)
        if job.id in self._awaited[asked]:
            names = ", ".join(dict.fromkeys([str(each.job) for each in wanted if each.job]))
            raise Unacceptable(
                f"job {job.label} cannot wait for {names}: that one waits for it, or for a job that does",
                "Two jobs that wait for each other would never start.",
            )
        return [*asked]


def _unfit(state: State, record: JobRecord, change: Change) -> Refusal | None:
    """Why a job cannot be changed in its state."""
    if record.phase is None:
        return None
    label = record.job.label
    if record.phase is AttemptState.STOPPING and record.cause is StopCause.CANCEL:
        return Impossible(f"job {label} is being cancelled")
    if change.place is not None:
        return Impossible(f"job {label} runs already", "Only a job that waits is moved.")
    fixed = sorted(change.fields.keys() - CHANGEABLE_RUNNING)
    if fixed or change.nice_s is not None:
        what = ", ".join([*fixed, *(["nice"] if change.nice_s is not None else [])])
        return Impossible(
            f"job {label} runs: {what} cannot be changed now, only {', '.join(sorted(CHANGEABLE_RUNNING))}",
            f"`yard requeue {label}` lets it wait again; then it can be changed.",
        )
    clusters = sorted({state.nodes.node[grant.node].cluster for grant in record.grants})
    unable = [name for name in clusters if Capability.NEW_LIMITS in state.nodes.lacks.get(name, ())]
    if unable and "time_limit_s" in change.fields:
        return Impossible(
            f"job {label} runs on cluster {quote(unable[0])}, which gives no running job another time limit",
            f"`yard requeue {label}` lets it wait again; then it can be changed.",
        )
    return None


def _claim(job: Job) -> tuple[object, ...]:
    """What room is kept for."""
    spec = job.spec
    return spec.ask, spec.tenant, spec.klass, spec.labels, spec.after, job.limit_ms, job.begin_ms


def _asks_more(state: State, record: JobRecord, job: Job) -> bool:
    """Whether a job that waits asks for more than it did: of GPUs, cores, memory, time, or in its class."""
    if record.phase is not None:
        return False
    before, ask = record.job.spec.ask, job.spec.ask
    klass = state.klass_for(job.spec)
    limit_ms = record.limit_ms
    if job.limit_ms != record.job.limit_ms or job.spec.klass != record.job.spec.klass:
        limit_ms = job.limit_ms or state.limit_for(job.spec, 0)
    return (
        state.shape_of(ask).gpu_milli > record.shape.gpu_milli
        or ask.cpu_milli * ask.tasks > before.cpu_milli * before.tasks
        or ask.memory_mib * ask.tasks > before.memory_mib * before.tasks
        or limit_ms > record.limit_ms
        or klass.priority > record.klass.priority
    )


def _find_all_awaited(state: State, record: JobRecord, asked: Sequence[After]) -> frozenset[int]:
    """The live jobs that these dependencies wait for, and all that those wait for in turn."""
    found: set[int] = set()
    todo = [
        each.id
        for after in asked
        if after.kind is not AfterKind.ALONE
        for each in find_awaited(state, record, after)
    ]
    while todo:
        job_id = todo.pop()
        if job_id not in found:
            found.add(job_id)
            other = state.jobs[job_id]
            todo += [each.id for after in other.pending for each in find_awaited(state, other, after)]
    return frozenset(found)
