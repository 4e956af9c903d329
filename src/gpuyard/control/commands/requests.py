"""The requests of people: new jobs, wishes about jobs that are there, nodes in and out of use.

The service knows nothing of HTTP. Everything is judged before it is written, on a replica that has caught up; what
cannot be is refused with a reason and changes nothing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.control.access.people import Person, RunAs, run_as
from gpuyard.control.admission.admit import Admission
from gpuyard.control.admission.dependencies import Resolved, look_up, resolve
from gpuyard.control.admission.entering import (
    Crowd,
    Crowding,
    make_events,
    make_recipe_blob,
    make_reply,
    make_spec,
    set_share_owner,
)
from gpuyard.control.admission.tenant_rules import Claim, TenantLimits, make_claim
from gpuyard.control.admission.wanted import NewJob, Wanted
from gpuyard.control.clock import time_text
from gpuyard.control.commands.changes import Change, ChangeWish, Revise
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.commands.wishes import Gone, Outcome, VerbWish, Wish, check_owner
from gpuyard.control.projections.ledger import closed_day, first_day
from gpuyard.control.refusals import Forbidden, Impossible, Unacceptable
from gpuyard.control.replica.committer import Committer, R
from gpuyard.control.replica.labels import Label, find_live, find_node, parse_label
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.errors import BadInput
from gpuyard.ledger.units import month_days, month_of
from gpuyard.model import (
    CheckpointSeen,
    Event,
    Job,
    JobChanged,
    JobEntered,
    JobSpec,
    MonthClosed,
    NodeCordoned,
    NodeUncordoned,
    Verb,
)
from gpuyard.model.units import DAY_MS
from gpuyard.store import Idempotency, NamedBlobs, Submission
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.fleet import DrainReply
from gpuyard.wire.replies.jobs import CheckpointReply
from gpuyard.wire.replies.people import ClosedMonthReply

CLOCK_SKEW_MS = 2_000
"""How far a job's clock may be ahead of the server's."""


class Rehearsal(NamedTuple):
    """What is only tried."""

    at_ms: int
    job: Job
    """The job as it would be; of an array, its first task."""
    events: tuple[Event, ...]


class RequestService:
    """What people may ask for."""

    def __init__(
        self,
        replica: Replica,
        committer: Committer,
        now_ms: Callable[[], int],
        *,
        allow_root: bool = False,
        observed: ObservedClusters | None = None,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_room` raises where the disk has no room for anything new."""
        self._replica = replica
        self._committer = committer
        self._now_ms = now_ms
        self._allow_root = allow_root
        self._check_room = check_room
        self.admission = Admission(replica.lock)
        self._crowding = Crowding()
        self._limits = TenantLimits()
        self._observed = observed or None
        """None: the yard drives all its clusters."""
        self._closed_day = 0
        """Days before this one are closed in the books, as far as this process knows: they follow the log."""

    # -- new jobs ------------------------------------------------------------------------------------------------

    def read_up(self) -> None:
        """Fold what others have written, before a submission with dependencies is left to the thread that writes.

        That thread has less to fold then, and all users' submissions wait for it.
        """
        self._replica.catch_up()

    def submit(self, person: Person, new: NewJob, receipt: R, key: Idempotency | None = None) -> R:
        """Hand in a job; the receipt is told, with `Accepted`, when it is on disk."""
        if self._observed is not None:
            self._observed.check(new.wanted.clusters, "submit")
        self._check_room()
        account = run_as(person, self._allow_root)
        blobs = NamedBlobs(make_recipe_blob(new, account))

        def make(now_ms: int) -> Submission:
            entry = self._entry(person, new, account, blobs)
            return Submission(
                make=lambda first_id: entry.events(first_id, now_ms, self._crowding, self._limits),
                ids=new.wanted.ids,
                blobs=blobs,
                # Where a tenant refuses jobs, the thread that writes says whether there may be one more.
                ahead=not entry.state.tenants.refusing
                and self._crowding.has_room(person, entry.crowd(0, now_ms), entry.state),
                idempotency=key,
                reply=lambda first_id: make_reply(new.wanted, entry.spec.tenant, person, first_id, now_ms),
            )

        return self._committer.accept(make, receipt)

    def rehearse(self, person: Person, new: NewJob) -> list[Event]:
        """The events of a submission that is only tried: the same judgement, and nothing is written.

        Called with the replica locked, so that the next look at it sees the state it was judged on.
        """
        account = run_as(person, self._allow_root)
        self._replica.catch_up()
        entry = self._entry(person, new, account, NamedBlobs(make_recipe_blob(new, account)))
        now_ms = max(self._now_ms(), entry.state.now_ms)
        self._limits.check(entry.claim, 0, person.sight, entry.state)
        return list(entry.events(entry.state.last_job_id + 1, now_ms))

    def _entry(self, person: Person, new: NewJob, account: RunAs, blobs: NamedBlobs) -> "Entry":
        """A request that the yard takes, as it is entered; raises why it is not taken."""
        state, wanted = self._replica.state, new.wanted
        admitted = self.admission.admit(state, wanted, person)
        waits = self._dependencies(new, person)
        ((name, recipe),) = blobs.items()
        ask = set_share_owner(admitted.ask, account, state.settings)
        spec = make_spec(wanted, admitted, person, ask, name, len(recipe), waits.after)
        claim = None
        if state.tenants.refusing:
            with self._replica.lock:
                claim = make_claim(spec, wanted.tasks_of_array, state)
        return Entry(person, wanted, spec, waits, state, claim)

    def _dependencies(self, new: NewJob, person: Person) -> Resolved:
        wanted = new.wanted
        if not wanted.dependencies:
            return Resolved()
        with self._replica.lock:
            self._replica.catch_up()
            named = look_up(wanted.dependencies, self._replica.state, self._replica.store, person.sight.sees)
        return resolve(wanted.dependencies, wanted.array or (), named)

    # -- wishes about jobs ---------------------------------------------------------------------------------------

    def wish(self, person: Person, verb: Verb, said: Sequence[int | str]) -> Wish:
        """Ask for something about jobs, or about all live tasks of arrays: written batch by batch, by `Wish.write`."""
        if self._observed is not None:
            self._observed.check_driven(verb.value, f"{said[0]}{' ...' if len(said) > 1 else ''}")
        if verb is not Verb.CANCEL:
            # Of cancels there are no more than jobs; other wishes could be made again and again.
            self._check_room()
        return VerbWish(person, verb, said, self._now_ms, self._observed)

    def change(self, person: Person, change: Change, said: Sequence[int | str], revise: Revise) -> ChangeWish:
        """Change jobs, or all live tasks of arrays: written batch by batch, as other wishes are."""
        if self._observed is not None:
            self._observed.check_driven(ChangeWish.word, f"{said[0]}{' ...' if len(said) > 1 else ''}")
        self._check_room()
        observed, replica = self._observed, self._replica
        return ChangeWish(person, change, said, self._now_ms, observed, self.admission, revise, replica)

    def rehearse_change(self, person: Person, change: Change, text: str, revise: Revise) -> Rehearsal:
        """The events of a change that is only tried, of the next task where it is an array; raises why it is none.

        Called with the replica locked, so that the next look at it sees the state it was judged on.
        """
        self._replica.catch_up()
        state, wish = self._replica.state, self.change(person, change, [text], revise)
        records = _seen(person, state, parse_label(text))
        if not records:
            raise Gone(f"there is no live job {text}")
        record = next((each for each in records if each.phase is None), records[0])
        now_ms = max(self._now_ms(), state.now_ms)
        events = wish.rehearse(state, record, now_ms)
        job = next((each.job for each in events if isinstance(each, JobChanged)), record.job)
        return Rehearsal(now_ms, job, tuple(events))

    def look_up(self, wish: Wish) -> None:
        """Look up the jobs of a wish about many ids, before its first batch."""
        wish.look_up(self._replica)

    def grant(self, wish: Wish) -> "Future[Sequence[Outcome]]":
        """Write the next batch of a wish; its outcomes are to be entered in it."""
        return self._committer.write(wish.write)

    def checkpoint(self, person: Person, text: str, saved_at_ms: int | None) -> "Future[CheckpointReply]":
        """A running job has saved its work: now, or a moment ago."""
        if self._observed is not None:
            self._observed.check_driven("checkpoint")
        self._check_room()
        label = parse_label(text)

        def make(draft: Draft) -> CheckpointReply:
            records = _seen(person, draft.state, label)
            if not records:
                raise Gone(f"there is no live job {label}")
            if len(records) > 1:
                raise Impossible(f"{label} is an array", f"Name one of its tasks, for example {label}_0.")
            (record,) = records
            check_owner(person, record)
            if self._observed is not None and (elsewhere := self._observed.of_job(record, "checkpoint")):
                raise elsewhere
            if record.phase is None:
                raise Impossible(f"job {record.job.label} does not run", "Only a running job saves its work.")
            now_ms = max(self._now_ms(), draft.state.now_ms)
            at_ms = now_ms if saved_at_ms is None else saved_at_ms
            if not record.started_ms <= at_ms <= now_ms + CLOCK_SKEW_MS:
                raise Unacceptable(
                    f"this attempt did not run at {time_text(at_ms)}: it began at {time_text(record.started_ms)}",
                    "Leave the time out: then it is now.",
                )
            at_ms = min(at_ms, now_ms)
            if at_ms > record.checkpoint_ms:
                draft.add(CheckpointSeen(now_ms, record.id, record.attempt, at_ms, person.signature))
            newest_ms = max(at_ms, record.checkpoint_ms)
            return {"id": record.id, "label": record.job.label, "checkpoint_ms": newest_ms}

        return self._committer.write(make)

    def enter(self, person: Person, job_id: int, how: str) -> "Future[None]":
        """Write down that a person comes into a job; the caller has asked whether they may."""

        def make(draft: Draft) -> None:
            draft.add(JobEntered(max(self._now_ms(), draft.state.now_ms), job_id, how, person.signature))

        return self._committer.write(make)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def drain(self, person: Person, node: str, why: str) -> "Future[DrainReply]":
        """Let nothing new start on a node. Jobs that run there keep running."""
        return self._node(
            person, node, lambda at_ms, number: NodeCordoned(at_ms, number, why, person.signature)
        )

    def resume(self, person: Person, node: str) -> "Future[DrainReply]":
        """Let a drained node take work again."""
        return self._node(person, node, lambda at_ms, number: NodeUncordoned(at_ms, number, person.signature))

    def _node(
        self, person: Person, name: str, event: Callable[[int, int], NodeCordoned | NodeUncordoned]
    ) -> "Future[DrainReply]":
        if self._observed is not None:
            self._observed.check_driven("nodes")
        if not person.may(Action.MANAGE_NODES, ""):
            raise Forbidden(
                f"{person.name} may not take nodes in and out of use", "Ask the owner of the yard, or root."
            )

        def make(draft: Draft) -> DrainReply:
            state = draft.state
            number = find_node(state, name)
            if self._observed is not None:
                self._observed.check((state.nodes.node[number].cluster,), "nodes")
            wanted = event(max(self._now_ms(), state.now_ms), number)
            drained = bool(state.nodes.cordoned[number])
            if drained != isinstance(wanted, NodeCordoned):
                draft.add(wanted)
            return {"node": name, "drained": isinstance(wanted, NodeCordoned)}

        return self._committer.write(make)

    # -- the books -------------------------------------------------------------------------------------------------

    def close_month(self, person: Person, month: str, dry_run: bool = False) -> "Future[ClosedMonthReply]":
        """Close the books of a month, and of all months before it that are open; or only say which those are."""
        if not person.may(Action.CLOSE_MONTH, ""):
            raise Forbidden(
                f"{person.name} may not close the books of a month", "Ask an administrator of the whole yard."
            )
        try:
            after = month_days(month)[1]
        except BadInput as error:
            raise Unacceptable(error.message, error.hint) from error

        def make(draft: Draft) -> ClosedMonthReply:
            now_ms = max(self._now_ms(), draft.state.now_ms)
            if after * DAY_MS > now_ms:
                last = month_of(month_days(month_of(now_ms // DAY_MS))[0] - 1)
                raise Impossible(
                    f"{month} has not ended: its books are still open",
                    f"The last month that can be closed is {last}.",
                )
            self._closed_day = max(self._closed_day, closed_day(self._replica.store))
            if after <= self._closed_day:
                raise Impossible(
                    f"{month} is closed already, and stays as it is",
                    "What is learned about it now is a correction in the open month: yard cost --by month,day.",
                )
            first = min(after - 1, max(self._closed_day, first_day(self._replica.store)))
            months = list(dict.fromkeys([month_of(day) for day in range(first, after)]))
            if not dry_run:
                draft.add(MonthClosed(now_ms, month, person.signature))
                self._closed_day = after
            return {"month": month, "months": months, "closed_ms": now_ms, "by": person.name}

        return self._committer.write(make)


@dataclass(frozen=True, slots=True)
class Entry:
    """An admitted job, as it goes into the log."""

    person: Person
    wanted: Wanted
    spec: JobSpec
    waits: Resolved
    state: State
    """On which it was judged."""
    claim: Claim | None = None
    """What it adds to the jobs of its tenant, where some tenant refuses jobs."""

    def crowd(self, first_id: int, now_ms: int) -> Crowd:
        """What it adds to the jobs of its user."""
        wanted, spec = self.wanted, self.spec
        last_id = first_id + wanted.ids - 1
        return Crowd(wanted.tasks_of_array, first_id, last_id, spec.recipe, spec.recipe_bytes, now_ms)

    def events(
        self,
        first_id: int,
        now_ms: int,
        limit: Crowding | None = None,
        tenants: TenantLimits | None = None,
    ) -> Sequence[Event]:
        """The lines of the log that accept it; with limits, it is counted there, or refused."""
        crowd = self.crowd(first_id, now_ms)
        if limit is not None:
            limit.check(self.person, crowd, self.state)
        if tenants is not None:
            tenants.check(self.claim, crowd.last_id, self.person.sight, self.state)
        return make_events(self.wanted, self.spec, first_id, now_ms, self.waits.own or {})


def _seen(person: Person, state: State, label: Label) -> list[JobRecord]:
    """The live jobs of a label that the person may see."""
    return [record for record in find_live(state, label) if person.sight.sees(record.job.spec.tenant)]
