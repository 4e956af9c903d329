"""The requests of people: new jobs, wishes about jobs that are there, nodes in and out of use.

The service knows nothing of HTTP. Everything is judged before it is written, on a replica that has caught up; what
cannot be is refused with a reason and changes nothing.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from gpuyard.control.access.people import Person, run_as
from gpuyard.control.clock import time_text
from gpuyard.control.commands.concrete import concrete
from gpuyard.control.commands.dependencies import Resolved, look_up, resolve
from gpuyard.control.commands.newjobs import (
    NewJob,
    events_of,
    in_our_words,
    not_one_name_more,
    not_one_share_more,
    not_theirs,
    owned,
    recipe_of,
    reply_of,
    spec_of,
    tenant_of,
    where_images_run,
    why_not,
)
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.commands.wishes import Gone, Outcome, Wish, check_owner
from gpuyard.control.projections.ledger import closed_day, first_day
from gpuyard.control.refusals import Forbidden, Impossible, Refusal, Unacceptable
from gpuyard.control.replica.committer import Arrival, Committer
from gpuyard.control.replica.labels import Label, label_of, live, number_of
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import span
from gpuyard.errors import BadInput
from gpuyard.ledger.units import month_days, month_of
from gpuyard.model import (
    CheckpointSeen,
    Event,
    JobEntered,
    MonthClosed,
    NodeCordoned,
    NodeUncordoned,
    Verb,
)
from gpuyard.model.units import DAY_MS
from gpuyard.store import Accepted, Idempotency, NamedBlobs, Submission
from gpuyard.wire.endpoints import Action

CLOCK_SKEW_MS = 2_000
"""How far a job's clock may be ahead of the server's."""


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
        self._crowding = Crowding()
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

    def submit(self, person: Person, new: NewJob, key: Idempotency | None = None) -> "Future[Accepted]":
        """Hand in a job; the future's result is there when it is on disk."""
        if self._observed is not None:
            self._observed.check(new.clusters, "submit")
        self._check_room()
        account = run_as(person, self._allow_root)
        recipe = recipe_of(new, account)
        # Settled when it is judged, a moment before it is written.
        tenant = new.tenant or person.name

        def judge(state: State) -> Refusal | None:
            found = _judged(person, new, state)
            return found if isinstance(found, Refusal) else None

        def make(now_ms: int) -> Submission:
            nonlocal tenant
            state = self._replica.state
            ours = in_our_words(new, state.settings)
            found = tenant_of(ours, person, state)
            tenant = found if isinstance(found, str) else tenant
            waits = self._dependencies(new, person)
            whole = concrete(ours, state)
            if isinstance(whole, Refusal):
                raise whole
            blobs = NamedBlobs(recipe)
            (name,) = blobs
            spec = spec_of(whole, person, tenant, name, len(recipe), waits.after)
            spec = owned(spec, account, state.settings)

            def crowd(first_id: int) -> Crowd:
                jobs = 1 if new.array is None else len(new.array)
                return Crowd(jobs, first_id, first_id + new.ids - 1, name, len(recipe), now_ms)

            def events(first_id: int) -> Sequence[Event]:
                self._crowding.check(person, crowd(first_id), state)
                return events_of(new, spec, first_id, now_ms, waits.own or {})

            return Submission(
                make=events,
                ids=new.ids,
                blobs=blobs,
                ahead=self._crowding.has_room(person, crowd(0), state),
                idempotency=key,
                reply=lambda first_id: reply_of(new, tenant, person, first_id, now_ms),
            )

        need = (new.ask, new.cpu_milli, new.exclusive, new.gpu_memory_mib, new.isolation)
        kind = (*need, new.tenant, person.name, new.klass, new.limit_ms, person.given, person.places)
        return self._committer.accept(Arrival(kind, judge, make))

    def rehearse(self, person: Person, new: NewJob) -> list[Event]:
        """The events of a submission that is only tried: the same judgement, and nothing is written.

        Called with the replica locked, so that the next look at it sees the state it was judged on.
        """
        account = run_as(person, self._allow_root)
        recipe = recipe_of(new, account)
        self._replica.catch_up()
        state = self._replica.state
        found = _judged(person, new, state)
        if isinstance(found, Refusal):
            raise found
        tenant, whole = found
        waits = self._dependencies(new, person)
        (name,) = NamedBlobs(recipe)
        spec = spec_of(whole, person, tenant, name, len(recipe), waits.after)
        spec = owned(spec, account, state.settings)
        now_ms = max(self._now_ms(), state.now_ms)
        return list(events_of(new, spec, state.last_job_id + 1, now_ms, waits.own or {}))

    def _dependencies(self, new: NewJob, person: Person) -> Resolved:
        if not new.dependencies:
            return Resolved()
        with self._replica.lock:
            self._replica.catch_up()
            named = look_up(new.dependencies, self._replica.state, self._replica.store, person.sight.sees)
        return resolve(new.dependencies, new.array or (), named)

    # -- wishes about jobs ---------------------------------------------------------------------------------------

    def wish(self, person: Person, verb: Verb, said: Sequence[int | str]) -> Wish:
        """Ask for something about jobs, or about all live tasks of arrays: written batch by batch, by `Wish.write`."""
        if self._observed is not None:
            self._observed.check_driven(verb.value, f"{said[0]}{' ...' if len(said) > 1 else ''}")
        if verb is not Verb.CANCEL:
            # Of cancels there are no more than jobs; other wishes could be made again and again.
            self._check_room()
        return Wish(person, verb, said, self._now_ms, self._observed)

    def look_up(self, wish: Wish) -> None:
        """Look up the jobs of a wish about many ids, before its first batch."""
        wish.look_up(self._replica)

    def grant(self, wish: Wish) -> "Future[Sequence[Outcome]]":
        """Write the next batch of a wish; its outcomes are to be entered in it."""
        return self._committer.write(wish.write)

    def checkpoint(self, person: Person, text: str, saved_at_ms: int | None) -> "Future[dict[str, Any]]":
        """A running job has saved its work: now, or a moment ago."""
        if self._observed is not None:
            self._observed.check_driven("checkpoint")
        self._check_room()
        label = label_of(text)

        def make(draft: Draft) -> dict[str, Any]:
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

    def drain(self, person: Person, node: str, why: str) -> "Future[dict[str, Any]]":
        """Let nothing new start on a node. What runs there goes on."""
        return self._node(
            person, node, lambda at_ms, number: NodeCordoned(at_ms, number, why, person.signature)
        )

    def resume(self, person: Person, node: str) -> "Future[dict[str, Any]]":
        """Let a drained node take work again."""
        return self._node(person, node, lambda at_ms, number: NodeUncordoned(at_ms, number, person.signature))

    def _node(self, person: Person, name: str, event: Callable[[int, int], Any]) -> "Future[dict[str, Any]]":
        if self._observed is not None:
            self._observed.check_driven("nodes")
        if not person.may(Action.MANAGE_NODES, ""):
            raise Forbidden(
                f"{person.name} may not take nodes in and out of use", "Ask the owner of the yard, or root."
            )

        def make(draft: Draft) -> dict[str, Any]:
            state = draft.state
            number = number_of(state, name)
            if self._observed is not None:
                self._observed.check((state.nodes.node[number].cluster,), "nodes")
            wanted = event(max(self._now_ms(), state.now_ms), number)
            drained = bool(state.nodes.cordoned[number])
            if drained != isinstance(wanted, NodeCordoned):
                draft.add(wanted)
            return {"node": name, "drained": isinstance(wanted, NodeCordoned)}

        return self._committer.write(make)

    # -- the books -------------------------------------------------------------------------------------------------

    def close_month(self, person: Person, month: str, dry_run: bool = False) -> "Future[dict[str, Any]]":
        """Close the books of a month, and of all months before it that are open; or only say which those are."""
        if not person.may(Action.CLOSE_MONTH, ""):
            raise Forbidden(
                f"{person.name} may not close the books of a month", "Ask an administrator of the whole yard."
            )
        try:
            after = month_days(month)[1]
        except BadInput as error:
            raise Unacceptable(error.message, error.hint) from error

        def make(draft: Draft) -> dict[str, Any]:
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


def _seen(person: Person, state: State, label: Label) -> list[JobRecord]:
    """The live jobs of a label that the person may see."""
    return [record for record in live(state, label) if person.sight.sees(record.job.spec.tenant)]


def _judged(person: Person, new: NewJob, state: State) -> tuple[str, NewJob] | Refusal:
    """The tenant of a new job and its resolved ask, or why it is not taken."""
    new = in_our_words(new, state.settings)
    tenant = tenant_of(new, person, state)
    if isinstance(tenant, Refusal):
        return tenant
    refusal = (
        _not_for(person, tenant)
        or not_theirs(person, tenant, state)
        or not_one_share_more(person, tenant, state)
        or not_one_name_more(person, tenant, state)
    )
    if refusal is not None:
        return refusal
    whole: NewJob | Refusal = concrete(new, state)
    if not isinstance(whole, Refusal):
        whole = where_images_run(whole, state)
    if isinstance(whole, Refusal):
        return whole
    return why_not(whole, person, tenant, state) or (tenant, whole)


def _not_for(person: Person, tenant: str) -> Forbidden | None:
    """Why someone may not submit for a tenant."""
    if person.may(Action.SUBMIT, tenant):
        return None
    return Forbidden(
        f"{person.name} may not submit for {tenant}: " + ", ".join(map(str, person.rights)),
        f"Leave the tenant out: it is then {person.home}."
        if person.home and person.may(Action.SUBMIT, person.home)
        else "",
    )


class Crowd(NamedTuple):
    """The jobs of one submission."""

    jobs: int
    first_id: int
    last_id: int
    recipe: str
    recipe_bytes: int
    now_ms: int


class Crowding:
    """How many jobs of one user may wait, how much the store may keep for those that have not ended, and how fast what
    it keeps of those that ended may grow.

    Each takes memory of the server, and makes every list of all jobs longer; its recipe takes disk. Submissions are
    judged in the order in which they are written, in the thread that writes them. Jobs that were accepted and that the
    replica has not read yet count, too, so that many submissions at one moment get no further. What other servers have
    accepted counts when the replica has read it, within a second or so.
    """

    def __init__(self) -> None:
        self._unread: deque[tuple[int, str, int]] = deque()
        """Submissions that are newer than the replica: the last id of each, its user and how many jobs it is."""
        self._recipes: deque[tuple[int, str, str, int]] = deque()
        """Recipes that are newer than the replica: the id that brings each, its user, its hash and its size."""
        self._users: dict[str, _Unread] = {}

    def has_room(self, person: Person, new: Crowd, state: State) -> bool:
        """Whether a submission would be accepted now. It is not counted."""
        try:
            self.check(person, new, state, count=False)
        except Impossible:
            return False
        return True

    def check(self, person: Person, new: Crowd, state: State, *, count: bool = True) -> None:
        """Refuse a submission with which too many jobs of a user would wait, or too much be kept; else count it."""
        settings, counts = state.settings, state.counts
        most, most_bytes = settings.waiting_per_user, settings.recipes_mib_per_user << 20
        if not (most or most_bytes) or person.may(Action.MANAGE_CONFIG, ""):
            return
        name, jobs = person.name, new.jobs
        # In this order: the replica may read on meanwhile, and a job is then missed for a moment, not counted twice.
        waiting, kept = counts.of_user(name), counts.recipe_bytes(name)
        self._forget(state.last_job_id)
        unread = self._users.get(name) or _Unread()
        waiting += unread.jobs - self._half_read(name, state.last_job_id)
        kept += unread.recipe_bytes
        if most and waiting + jobs > most:
            more = f", and these would be {jobs:,} more" if jobs > 1 else ""
            raise Impossible(
                f"{waiting:,} jobs of {name} wait already{more}; a user may have {most:,}",
                "Submit the rest when some of them have started, or cancel some. "
                "An administrator sets the limit: `waiting_per_user` in yard.yaml.",
            )
        brings = new.recipe not in unread.recipes and not counts.has_recipe(name, new.recipe)
        if brings and most_bytes:
            _check_recipe(name, new, kept, counts.ended_bytes(name, new.now_ms), most_bytes)
        if not count:
            return
        if brings:
            self._recipes.append((new.first_id, name, new.recipe, new.recipe_bytes))
            unread.recipes.add(new.recipe)
            unread.recipe_bytes += new.recipe_bytes
        self._unread.append((new.last_id, name, jobs))
        unread.jobs += jobs
        self._users[name] = unread

    def _forget(self, read_id: int) -> None:
        """The replica has read up to this id, and counts itself what is older."""
        users = self._users
        while self._recipes and self._recipes[0][0] <= read_id:
            _first_id, user, recipe, size = self._recipes.popleft()
            users[user].recipes.discard(recipe)
            users[user].recipe_bytes -= size
        while self._unread and self._unread[0][0] <= read_id:
            _last_id, user, jobs = self._unread.popleft()
            users[user].jobs -= jobs
            if not users[user].jobs:
                del users[user]

    def _half_read(self, name: str, read_id: int) -> int:
        """How many tasks of the oldest array that is not read whole are read, if it is this user's."""
        if not self._unread or self._unread[0][1] != name:
            return 0
        last_id, _user, jobs = self._unread[0]
        return max(0, jobs - (last_id - read_id))


def _check_recipe(name: str, new: Crowd, kept: int, ended: int, most: int) -> None:
    """Refuse one recipe more than the store keeps of a user, for live jobs or of ended ones."""
    limit = "An administrator sets the limit: `recipes_per_user` in yard.yaml."
    size = new.recipe_bytes
    if kept + size > most:
        raise Impossible(
            f"scripts and environments of {name}'s jobs that have not ended take {kept:,} bytes of the store, and this "
            f"one takes {size:,} more; a user may have {most:,}",
            "Submit the rest when some of them have ended, or cancel some. An array is kept once, and so are jobs that "
            f"differ in nothing; what a script reads from files is not kept. {limit}",
        )
    if ended + size > most:
        raise Impossible(
            f"scripts and environments of {name}'s jobs that ended take {ended:,} bytes of the store, counted less "
            f"with time, and this one takes {size:,} more; a user may have {most:,} a day",
            f"Submit it again in {span((ended + size - most) * DAY_MS // most)}. {limit}",
        )


class _Unread:
    """What the replica has not read of one user's submissions."""

    __slots__ = ("jobs", "recipe_bytes", "recipes")

    def __init__(self) -> None:
        self.jobs = self.recipe_bytes = 0
        self.recipes: set[str] = set()
