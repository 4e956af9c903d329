"""Wishes about jobs that are there: of one person, about one job, all tasks of an array, or twenty thousand ids.

A wish is written batch by batch, each in a transaction of its own, so that others get their turn in between. The ids
are looked up in one pass, those of many before the first batch is written; each job is judged when its own batch is.
What was written stays so if the server is killed in the middle, and asking again does the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import MOVES
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.refusals import Forbidden, Impossible, Refusal, Unacceptable
from gpuyard.control.replica.labels import Label, make_live_finder, read_label
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.errors import quote
from gpuyard.model import AttemptState, Capability, JobState, Requested, StopCause, Verb
from gpuyard.wire.endpoints import DOES, Action

BATCH = 160
"""Jobs in one transaction: submissions and the loop wait for no more than these, some 20 ms. A transaction itself costs
as much as a few dozen of them."""
ALONE_BATCH = 4 * BATCH
"""The same while nobody else asks."""
FEW = 8
"""Ids, and jobs, of which a wish is small: many of these may be in one transaction."""


class Gone(Refusal):
    """There is no live job of this label: it has ended, or never was. The history may have it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A job was changed, and something follows that its owner should know."""

    note: str


Outcome = bool | Changed | Refusal | None
"""Of one job: whether it was changed, why it was not, or that it is gone."""


@dataclass(slots=True)
class WishedId:
    """What becomes of one of the ids."""

    said: int | str
    """As it was named: a number of ours, or what people type."""
    label: Label | None = None
    left: int = 0
    """Jobs that are still to be judged."""
    seen: int = 0
    """Jobs that were there when their turn came."""
    jobs: int = 0
    """Jobs that it has changed."""
    refused: int = 0
    error: Exception | None = None
    """Why nothing was done; or, of an array, why the rest was not."""
    notes: dict[str, None] = field(default_factory=dict)
    """What follows of the change, each sentence once."""

    def enter(self, outcome: Outcome) -> None:
        """One of its jobs was judged, and what follows is written."""
        self.left -= 1
        self.seen += outcome is not None
        if isinstance(outcome, Refusal):
            self.refused += 1
            self.error = self.error or outcome
        elif outcome:
            self.jobs += 1
            if isinstance(outcome, Changed):
                self.notes[outcome.note] = None
        if not self.left:
            if not self.seen:
                self.error = Gone(f"there is no live job {self.label}")
            elif self.refused < self.seen:
                # It makes sense of some of its jobs: the others are as they should be.
                if self.error is not None:
                    self.notes[f"{self.refused} of its tasks are left as they are: {self.error}"] = None
                self.error = None


class Wish:
    """What one person asks of some jobs. A subclass says of what kind it is."""

    word: str
    """A verb, as it is answered."""
    last_first = False
    """Whether of an array the first task comes first: the task that is moved last is at the top."""

    def __init__(
        self,
        person: Person,
        said: Sequence[int | str],
        now_ms: Callable[[], int],
        observed: ObservedClusters | None = None,
    ) -> None:
        self._observed = observed or ObservedClusters()
        self.asked = [WishedId(each) for each in said]
        self._person = person
        self._now_ms = now_ms
        self.batch = BATCH
        """Jobs in its next transaction."""
        self._todo: list[tuple[WishedId, int]] | None = None
        """Jobs, the next one last, and for which of the ids they stand; None: nothing was looked up yet."""
        self._may: dict[tuple[str, str], bool] = {}

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to write."""
        return self._todo is not None and not self._todo

    def write(self, draft: Draft) -> Sequence[Outcome]:
        """Write the next batch; what became of each of its jobs, to be entered once it is on disk."""
        if self._todo is None:
            self._name()
            self._todo = self._line_up(make_live_finder(draft.state, self._labels()))
            most = FEW if len(self.asked) <= FEW else self.batch
        else:
            most = self.batch
        now_ms = max(self._now_ms(), draft.state.now_ms)
        jobs = draft.state.jobs
        batch = self._todo[: -most - 1 : -1]
        return [self._one(draft, jobs.get(job_id), now_ms) for _asked, job_id in batch]

    def enter(self, outcomes: Sequence[Outcome]) -> None:
        """A batch is on disk."""
        assert self._todo is not None
        for outcome in outcomes:
            self._todo.pop()[0].enter(outcome)

    def give_up(self, error: Exception) -> None:
        """Nothing more can be written: what is not done yet is answered so."""
        self._todo = []
        for asked in self.asked:
            if asked.left or (asked.label is None and asked.error is None):
                asked.error = error

    def look_up(self, replica: Replica) -> None:
        """Look up the jobs of many ids before the first batch is written: as a part of it, others would wait for it."""
        replica.catch_up()
        self._name()
        with replica.lock:
            find = make_live_finder(replica.state, self._labels())
        self._todo = self._line_up(find)

    def _name(self) -> None:
        for asked in self.asked:
            try:
                asked.label = read_label(asked.said)
            except Unacceptable as error:
                asked.error = error

    def _labels(self) -> list[Label]:
        return [asked.label for asked in self.asked if asked.label is not None]

    def _line_up(self, find: Callable[[Label], list[JobRecord]]) -> list[tuple[WishedId, int]]:
        """The jobs of all ids, the first one last."""
        todo = []
        # One for all of them: what became of each is told by the history.
        gone = Gone("there is no such live job")
        for asked in reversed(self.asked):
            if asked.label is None:
                continue
            found = [r.id for r in find(asked.label) if self._person.sight.sees(r.job.spec.tenant)]
            if not found:
                asked.error = gone
            asked.left = len(found)
            ordered = found if self.last_first else reversed(found)
            todo += [(asked, job_id) for job_id in ordered]
        return todo

    def _one(self, draft: Draft, record: JobRecord | None, now_ms: int) -> Outcome:
        if record is None:
            return None
        spec = record.job.spec
        whose = (spec.tenant, spec.user)
        if not self._may.get(whose):
            refusal = self._forbidden(record)
            if refusal is not None:
                return refusal
            self._may[whose] = True
        if spec.origin and (elsewhere := self._observed.of_job(record, self.word)) is not None:
            return elsewhere
        return self._serve(draft, record, now_ms)

    def _serve(self, draft: Draft, record: JobRecord, now_ms: int) -> Outcome:
        """Do it to one job that the person may act on."""
        raise NotImplementedError

    def _forbidden(self, record: JobRecord) -> Forbidden | None:
        try:
            check_owner(self._person, record)
        except Forbidden as refusal:
            return refusal
        return None


class VerbWish(Wish):
    """One verb, asked of some jobs."""

    def __init__(
        self,
        person: Person,
        verb: Verb,
        said: Sequence[int | str],
        now_ms: Callable[[], int],
        observed: ObservedClusters | None = None,
    ) -> None:
        super().__init__(person, said, now_ms, observed)
        self.verb, self.word, self.last_first = verb, verb.value, verb is Verb.TOP

    def _serve(self, draft: Draft, record: JobRecord, now_ms: int) -> Outcome:
        freezes = self.verb is Verb.SUSPEND
        verdict = (_cannot_freeze(draft.state, record) if freezes else None) or _verdict(record, self.verb)
        if verdict is True:
            draft.add(Requested(now_ms, record.id, self.verb, self._person.signature))
        return verdict

    def _forbidden(self, record: JobRecord) -> Forbidden | None:
        return super()._forbidden(record) or (move_refusal(self._person) if self.verb in MOVES else None)


def move_refusal(person: Person) -> Forbidden | None:
    """Why somebody may not put a job before those of others."""
    if person.may(Action.MOVE_JOB, ""):
        return None
    return Forbidden(
        f"{person.name} may not {DOES[Action.MOVE_JOB]}: others wait longer for it",
        "Ask an administrator of the whole yard.",
    )


def check_owner(person: Person, record: JobRecord) -> None:
    """Raise where somebody may not act on a job."""
    spec = record.job.spec
    if person.may(Action.ACT_ON_JOB, spec.tenant, spec.user):
        return
    if spec.user == person.name:
        raise Forbidden(f"{person.name} may only look at jobs of {spec.tenant}", "That needs the role user.")
    raise Forbidden(
        f"job {record.job.label} is {spec.user}'s, not {person.name}'s",
        "Only its owner, an admin of its tenant and root may act on it.",
    )


def _cannot_freeze(state: State, record: JobRecord) -> Refusal | None:
    """Why a job cannot be frozen where it runs; None: it can, or does not run."""
    clusters = sorted({state.nodes.node[grant.node].cluster for grant in record.grants})
    unable = [name for name in clusters if Capability.SUSPEND in state.nodes.lacks.get(name, ())]
    if not unable:
        return None
    label = record.job.label
    return Impossible(
        f"job {label} runs on cluster {quote(unable[0])}, which cannot freeze jobs",
        f"`yard requeue {label}` lets it wait again.",
    )


def _verdict(record: JobRecord, verb: Verb) -> bool | Refusal:
    """Whether a wish is to be written; False: it is so already, or on its way. A refusal: it makes no sense now."""
    phase, label = record.phase, record.job.label
    stopping = phase is AttemptState.STOPPING
    match verb:
        case Verb.CANCEL:
            return not (record.wanted is Verb.CANCEL or (stopping and record.cause is StopCause.CANCEL))
        case Verb.HOLD:
            if phase is not None:
                return Impossible(f"job {label} runs already", f"`yard suspend {label}` freezes it.")
            return not record.held
        case Verb.RELEASE:
            if phase is not None or not (record.held or record.begin_ms > record.job.begin_ms):
                return Impossible(f"job {label} is not on hold", f"`yard show {label}` tells how it stands.")
            return True
        case Verb.SUSPEND:
            if phase is None:
                return Impossible(f"job {label} does not run", f"`yard hold {label}` keeps it from starting.")
            if stopping or phase is AttemptState.UNKNOWN:
                return Impossible(f"job {label} is {phase.value} and cannot be frozen now")
            return phase is not AttemptState.SUSPENDED or record.wanted is Verb.CONTINUE
        case Verb.CONTINUE:
            frozen = record.state is JobState.SUSPENDED and not stopping
            if not frozen and record.wanted is not Verb.SUSPEND:
                return Impossible(f"job {label} is not suspended", "`resume` is for nodes.")
            return record.wanted is not Verb.CONTINUE
        case Verb.REQUEUE:
            if phase is None:
                return Impossible(f"job {label} waits already", f"`yard why {label}` tells what for.")
            if stopping and record.cause is StopCause.CANCEL:
                return Impossible(f"job {label} is being cancelled")
            return not (stopping or record.wanted is Verb.REQUEUE)
        case Verb.TOP | Verb.BACK:
            if phase is not None:
                return Impossible(f"job {label} runs already", "Only a job that waits is moved.")
            return verb is Verb.TOP or record.boost > 0
