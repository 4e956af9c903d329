"""The control loop: observe, fold, decide, commit, act. One step at a time, time comes in as an argument.

It knows nothing of threads, sockets or sleeping, so the same code runs under a virtual clock with an engine that lies,
loses replies and dies (tests/sim). Whatever happens between two lines, the next step finds out from the log and from
the engine what there is to do; nothing that matters is kept here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from gpuyard.control.act import (
    ACT_NS,
    ALONE_NS,
    AT_ONCE_MAX,
    AT_ONCE_MIN,
    OTHERS_MS,
    Pace,
    Todo,
    launch,
    strays,
    todo,
)
from gpuyard.control.attempt_keys import key_of
from gpuyard.control.books import Books, Draft
from gpuyard.control.compare import Difference, compare
from gpuyard.control.layouts import Keeper
from gpuyard.control.memory import Witness
from gpuyard.control.observe import attempt_events, by_key, engine_events, lost, node_events, refused
from gpuyard.control.reading.judged import Judged
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.decide import decide
from gpuyard.engines.contract import (
    Answer,
    Engine,
    EngineError,
    Halt,
    NodeReport,
    Phase,
    Recipe,
    Reply,
    Report,
    Stale,
)
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    DemandLearned,
    EarmarkSet,
    Event,
    JobCancelled,
    Outcome,
    Plan,
    StopCause,
    Ticked,
    Verb,
)
from gpuyard.model.serialise import from_plain
from gpuyard.packing.learning import Learner

T = TypeVar("T")
LOST_MS = 60_000
"""How long an engine may not know an attempt before it counts as lost, is stopped for good and waits again."""
NODES_EVERY_MS = 10_000
"""How often capacity and health are looked at."""
DOOMED_MAX = 100
"""Jobs that can never start, ended in one step: cancelling an array may doom 20,000, and others' starts would wait."""
LISTING_EVERY_MS = 30_000
"""How often everything the engine knows is recounted, to find attempts that belong to no job."""


@dataclass(slots=True)
class Step:
    """What one step did."""

    events: list[Event] = field(default_factory=list)
    """Everything it wrote."""
    plan: Plan = field(default_factory=Plan)
    errors: list[str] = field(default_factory=list)
    """Calls that came to no answer. They are made again."""
    more: bool = False
    """Whether attempts wait to be started, stopped or forgotten, or jobs to be ended, in the next step."""
    decide_ns: int = 0
    """How long the decision took, by the stopwatch the loop was given."""

    @property
    def idle(self) -> bool:
        """Nothing happened, nothing went wrong and nothing is left to do."""
        return not self.events and not self.errors and not self.more


class Controller:
    """The leader's loop over one engine."""

    def __init__(
        self,
        books: Books,
        engine: Engine,
        epoch: int,
        *,
        lost_ms: int = LOST_MS,
        stopwatch_ns: Callable[[], int] = lambda: 0,
        witness: Witness | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`has_room` tells whether there is room on disk for a start."""
        self.books = books
        self._has_room = has_room
        self._witness = witness
        """Tells the engine's folder how far the log has come; None: it remembers nothing, as in a simulation."""
        self.engine = engine
        self.epoch = epoch
        self.yard = books.store.yard
        self.difference = Difference()
        """What the last recount found."""
        self._lost_ms = lost_ms
        self._stopwatch_ns = stopwatch_ns
        self._until_ns = 0
        """Until when this step acts, by the stopwatch."""
        self._at_least = AT_ONCE_MAX
        """The least number of attempts that the engine is given in one call, if there are as many."""
        self._starters: dict[str, int] = {}
        """Users whose attempts are being started, and when that last was so."""
        self._each_ns: dict[str, int] = {}
        """How long the engine took for an attempt when it was last asked, by what it was asked for."""
        self._pace = Pace()
        self._learner = Learner()
        self.late: dict[str, str] = {}
        """Attempts whose start came to nothing yet, or whose end does not come, and why."""
        self._unasked: dict[str, None] = {}
        """Attempts that this leader decided to start and has not asked the engine for: no other server can have."""
        self._unknown_since: dict[str, int] = {}
        self._barred: set[str] = set()
        """Attempts of which the engine promised that they will not run from now on."""
        self._keys: dict[tuple[int, int], str] = {}
        """Names of live attempts, by job and attempt."""
        self._over: dict[str, None] = {}
        """Attempts whose ends are in the log, to be forgotten by the engine."""
        self._keeper = Keeper(books, engine, epoch, self._pace, stopwatch_ns)
        self._last_job_id = 0
        """The last job that the last pass knew of."""
        self._nodes_ms: int | None = None
        self._listing_ms: int | None = None

    # -- one step ----------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> Step:
        """Look, write down what was seen, decide, write that down, act on it. Raises `Fenced` or `Stale` if deposed."""
        step = Step()
        began_ns = self._stopwatch_ns()
        now_ms = max(now_ms, self.books.state.now_ms)
        reports = self._observe(step)
        if self._lost_a_place(reports):
            self._nodes_ms = None
        found = self._look_at_nodes(step, now_ms)

        def note_and_decide(draft: Draft) -> None:
            # One write for both: what was seen and what follows from it are durable together.
            self._note(draft, reports, found, now_ms)
            self._decide(draft, now_ms, step)

        step.events += self._commit(note_and_decide)
        # Of those that started it is no longer asked why they wait.
        self.books.judged = Judged(self.books.seq, self._last_job_id, step.plan.examined, step.plan.codes)
        self._act(reports, now_ms, step, began_ns)
        self._recount(step, now_ms)
        step.more = step.more or bool(self._over)
        return step

    def _commit(self, make: Callable[[Draft], None]) -> list[Event]:
        events = self.books.commit(self.epoch, make)
        # Only an end that is in the log may be forgotten by the engine.
        ended = [self._keys.pop((e.job_id, e.attempt), None) for e in events if isinstance(e, AttemptEnded)]
        for key in ended:
            if key is not None:
                self._over[key] = None
                self._unasked.pop(key, None)
        return events

    def _key(self, record: JobRecord) -> str:
        key = self._keys[record.id, record.attempt] = key_of(self.yard, record)
        return key

    # -- observe -----------------------------------------------------------------------------------------------

    def _observe(self, step: Step) -> Mapping[str, Report]:
        with self.books.lock:
            self.books.catch_up()
            keys = [
                key for r in self.books.state.running.values() if (key := self._key(r)) not in self._unasked
            ]
        if not keys:
            return {}
        try:
            return by_key(self.engine.status(keys))
        except Stale:
            raise
        except EngineError as error:
            step.errors.append(f"status: {error}")
            return {}

    def _lost_a_place(self, reports: Mapping[str, Report]) -> bool:
        """Whether an attempt ended for its node's sake: what is decided next should know how the nodes stand."""
        gone = [key for key, report in reports.items() if report.outcome in _FOR_THE_NODE]
        if not gone:
            return False
        with self.books.lock:
            told = {key_of(self.yard, r) for r in self.books.state.running.values() if r.cause is not None}
        return any([key not in told for key in gone])

    def _look_at_nodes(self, step: Step, now_ms: int) -> Sequence[NodeReport] | None:
        """Every node that the engine has; None: it was not asked, or did not answer."""
        if self._nodes_ms is not None and 0 <= now_ms - self._nodes_ms < NODES_EVERY_MS:
            return None
        try:
            found = self.engine.nodes()
        except EngineError as error:
            step.errors.append(f"nodes: {error}")
            return None
        self._nodes_ms = now_ms
        return found

    def _note(
        self, draft: Draft, reports: Mapping[str, Report], nodes: Sequence[NodeReport] | None, now_ms: int
    ) -> None:
        """Write down what was seen. Reports are about attempts, so one that is over by now is passed over."""
        state = draft.state
        wake_ms = state.wake_ms()
        if wake_ms is not None and wake_ms <= now_ms:
            draft.add(Ticked(now_ms))
        for record in list(state.running.values()):
            key = self._key(record)
            report = reports.get(key)
            if report is None:
                continue
            for event in attempt_events(record, report, now_ms):
                draft.add(event)
            if report.phase is not Phase.ENDED:
                self._watch_unknown(draft, record, key, report, now_ms)
        if nodes is None:
            return
        for event in engine_events(state, self.engine.capabilities, nodes, now_ms):
            draft.add(event)
        for event in node_events(state, nodes, now_ms):
            draft.add(event)

    def _watch_unknown(self, draft: Draft, record: JobRecord, key: str, report: Report, now_ms: int) -> None:
        """An attempt that the engine does not know is stopped for good after a while, and only then taken for gone."""
        if report.phase is not Phase.UNKNOWN:
            self._unknown_since.pop(key, None)
            if report.why:
                self.late[key] = report.why
            else:
                self.late.pop(key, None)
            return
        if key in self._barred:
            draft.add(lost(record, now_ms))
            return
        since_ms = self._unknown_since.setdefault(key, now_ms)
        if record.phase is AttemptState.STARTING and now_ms - since_ms >= self._lost_ms:
            # It was asked for again and again, and the engine says yes and never shows it.
            draft.add(AttemptUnknown(now_ms, record.id, record.attempt))

    # -- decide ------------------------------------------------------------------------------------------------

    def _decide(self, draft: Draft, now_ms: int, step: Step) -> None:
        """Decide on books that have caught up, under the log's lock: what is planned holds when it is written."""
        state = draft.state
        step.more = self._heed(draft, now_ms)
        if not self._has_room():
            # What is left is for cancels and ends, and nothing is stopped for a job that could not start.
            return
        asks = self._learner.look(state)
        if asks is not None:
            draft.add(DemandLearned(now_ms, asks))
        began_ns = self._stopwatch_ns()
        step.plan = plan = decide(state, self.books.policy, now_ms)
        self._last_job_id = state.last_job_id
        step.decide_ns = self._stopwatch_ns() - began_ns
        for stop in plan.stops:
            draft.offer(AttemptStopping(now_ms, stop.job_id, stop.attempt, stop.cause, stop.for_job))
        for start in plan.starts:
            draft.offer(AttemptStarted(now_ms, start.job_id, start.attempt, start.grants))
        for earmark in plan.earmarks:
            draft.offer(EarmarkSet(now_ms, earmark.job_id, earmark.grants, earmark.expires_ms))

    def _heed(self, draft: Draft, now_ms: int) -> bool:
        """What people asked for about running attempts; and jobs that can never start are ended, with the reason.

        Whether there are more of these, for the next step.
        """
        for record in list(islice(draft.state.doomed.values(), DOOMED_MAX)):
            draft.add(JobCancelled(now_ms, record.id))
        for record in list(draft.state.running.values()):
            if record.wanted in _CAUSES and record.phase is not AttemptState.STOPPING:
                cause = _CAUSES[record.wanted]
                draft.add(AttemptStopping(now_ms, record.id, record.attempt, cause))
        return bool(draft.state.doomed)

    # -- act ---------------------------------------------------------------------------------------------------

    def _act(self, reports: Mapping[str, Report], now_ms: int, step: Step, began_ns: int) -> None:
        """Stops first: what they free is free only once it is reported, but they should not wait for starts."""
        with self.books.lock:
            state = self.books.state
            started = [state.running.get(e.job_id) for e in step.events if isinstance(e, AttemptStarted)]
            self._unasked |= dict.fromkeys([self._key(record) for record in started if record is not None])
            seen = {**reports, **{key: Report(key, Phase.UNKNOWN) for key in self._unasked}}
            late = [k for k, ms in self._unknown_since.items() if now_ms - ms >= self._lost_ms]
            wanted = todo(self.yard, state, seen, frozenset(late), self._pace, now_ms)
        self._set_time(wanted, now_ms, began_ns)
        self._by_pieces("stop", wanted.halts, lambda halts: self._stop(halts, now_ms, step), step)
        self._freeze(wanted, now_ms, step)
        self._keep_layouts(now_ms, step)
        self._by_pieces("start", wanted.starts, lambda records: self._start(records, now_ms, step), step)
        self._by_pieces("forget", list(self._over), lambda keys: self._forget(keys, step), step)

    def _set_time(self, wanted: Todo, now_ms: int, began_ns: int) -> None:
        """How long this step acts: not long while attempts of several users start, and yet as long as it looked."""
        self._starters |= dict.fromkeys([record.job.spec.user for record in wanted.starts], now_ms)
        self._starters = {user: ms for user, ms in self._starters.items() if abs(now_ms - ms) < OTHERS_MS}
        several = len(self._starters) > 1
        self._at_least = AT_ONCE_MIN if several else AT_ONCE_MAX
        acts_ns = self._stopwatch_ns()
        self._until_ns = acts_ns + max(ACT_NS if several else ALONE_NS, acts_ns - began_ns)

    def _by_pieces(self, what: str, items: list[T], act: Callable[[list[T]], bool], step: Step) -> None:
        """Act on some at a time, as many as there seems to be time for, until the time of this step is over or the
        engine does not answer; on the first few in any case.
        """
        done = 0
        while done < len(items):
            began_ns = self._stopwatch_ns()
            left_ns = self._until_ns - began_ns
            if done and left_ns <= 0:
                step.more = True
                return
            each_ns = self._each_ns.get(what, left_ns)
            fit = left_ns // each_ns if each_ns else AT_ONCE_MAX
            some = items[done : done + max(self._at_least, min(AT_ONCE_MAX, fit))]
            if not act(some):
                return
            done += len(some)
            self._each_ns[what] = (self._stopwatch_ns() - began_ns) // len(some)

    def _forget(self, keys: list[str], step: Step) -> bool:
        if not self._try("forget", step, lambda: self.engine.forget(self.epoch, keys)):
            return False
        self._barred.difference_update(keys)
        for key in keys:
            del self._over[key]
            self._unknown_since.pop(key, None)
            self.late.pop(key, None)
        return True

    def _stop(self, halts: list[Halt], now_ms: int, step: Step) -> bool:
        """Whether the engine answered."""
        # Only this leader could have started these, and it will not: the engine need not know.
        never = [halt.key for halt in halts if halt.key in self._unasked]
        self._barred.update(never)
        for key in never:
            del self._unasked[key]
        halts = [halt for halt in halts if halt.key not in never]
        if not halts:
            return True
        for halt in halts:
            self._pace.made("stop", halt.key, now_ms)
        try:
            replies = self.engine.stop(self.epoch, halts)
        except Stale:
            raise
        except EngineError as error:
            step.errors.append(f"stop: {error}")
            return False
        for halt, reply in zip(halts, replies, strict=True):
            if reply.answer is Answer.BARRED:
                self._barred.add(halt.key)
            elif reply.answer is not Answer.DONE:
                step.errors.append(f"stop {halt.key}: {reply.why or reply.answer.value}")
        return True

    def _freeze(self, wanted: Todo, now_ms: int, step: Step) -> None:
        for what, keys, call in (
            ("suspend", wanted.suspend, self.engine.suspend),
            ("resume", wanted.resume, self.engine.resume),
        ):
            if keys:
                for key in keys:
                    self._pace.made(what, key, now_ms)
                self._try(what, step, lambda call=call, keys=keys: call(self.epoch, keys))  # type: ignore[misc]

    def _keep_layouts(self, now_ms: int, step: Step) -> None:
        news, errors = self._keeper.step(now_ms)
        step.errors += errors
        if news:
            holds = self._keeper.holds
            step.events += self._commit(
                lambda draft: _offer_all(draft, [e for e in news if holds(draft.state, e)])
            )

    def _start(self, records: list[JobRecord], now_ms: int, step: Step) -> bool:
        """Whether the engine answered."""
        launches, ends = [], []
        recipes = self._recipes(records)
        for record in records:
            recipe = recipes.get(record.job.spec.recipe)
            if recipe is None:
                ends.append(refused(record, "how to run it was deleted", now_ms))
                continue
            with self.books.lock:
                launches.append((record, launch(self.yard, self.books.state, record, recipe)))
        replies: list[Reply] = []
        answered = True
        if launches:
            if self._witness is not None:
                self._witness.tell(self.books.seq, self.books.state.last_job_id, now_ms, starts=True)
            for record, _launch in launches:
                key = key_of(self.yard, record)
                self._pace.made("start", key, now_ms)
                self._unasked.pop(key, None)
            try:
                replies = self.engine.start(self.epoch, [wanted for _record, wanted in launches])
            except Stale:
                raise
            except EngineError as error:
                step.errors.append(f"start: {error}")
                answered = False
        for (record, wanted), reply in zip(launches, replies, strict=False):
            if reply.answer is Answer.REFUSED:
                ends.append(refused(record, reply.why, now_ms))
            elif reply.answer in (Answer.UNSURE, Answer.LATER):
                step.errors.append(f"start {wanted.key}: {reply.why}")
                self.late[wanted.key] = reply.why
            if reply.answer is Answer.LATER:
                # It is not lost, however long it takes: the engine knows what it waits for.
                self._unknown_since.pop(wanted.key, None)
                self._pace.put_off("start", wanted.key, now_ms)
        if ends:
            step.events += self._commit(lambda draft: _offer_all(draft, ends))
        return answered

    def _recipes(self, records: list[JobRecord]) -> dict[str, Recipe]:
        """The recipes of these jobs, by name, read in one query; recipes that were deleted are left out."""
        names = dict.fromkeys([record.job.spec.recipe for record in records])
        found = self.books.store.blobs([name for name in names if name])
        recipes = {name: from_plain(Recipe, json.loads(body)) for name, body in found.items()}
        return {"": Recipe(), **recipes}

    def _try(self, what: str, step: Step, call: Callable[[], object]) -> bool:
        try:
            call()
        except Stale:
            raise
        except EngineError as error:
            step.errors.append(f"{what}: {error}")
            return False
        return True

    # -- recount -----------------------------------------------------------------------------------------------

    def _recount(self, step: Step, now_ms: int) -> None:
        """Look at everything the engine knows: stop attempts that belong to no job, forget those that are over."""
        if self._listing_ms is not None and 0 <= now_ms - self._listing_ms < LISTING_EVERY_MS:
            return
        try:
            listing = self.engine.listing()
        except EngineError as error:
            step.errors.append(f"listing: {error}")
            return
        self._listing_ms = now_ms
        with self.books.lock:
            state = self.books.state
            self.difference = compare(self.yard, state, listing)
            halts, over = strays(self.yard, state, by_key(listing), self._pace, now_ms)
            if self._witness is not None:
                halts = [halt for halt in halts if halt.key not in self._witness.adopted]
                self._witness.tell(self.books.seq, state.last_job_id, now_ms, starts=False)
            alive = {key_of(self.yard, r) for r in state.running.values()} | {h.key for h in halts}
            self._pace.forget(alive | {node.name for node in state.nodes.node})
        self._by_pieces("stop", halts, lambda some: self._stop(some, now_ms, step), step)
        self._over |= dict.fromkeys(over)


_FOR_THE_NODE = (Outcome.NODE_FAIL, Outcome.PREEMPTED)
_CAUSES = {Verb.CANCEL: StopCause.CANCEL, Verb.REQUEUE: StopCause.REQUEUE}


def _offer_all(draft: Draft, events: list[Event]) -> None:
    for event in events:
        # One of them may have ended otherwise while the engine was being asked.
        draft.offer(event)
