"""One cluster's part of the loop: ask its engine, say what was seen, and do there what should be so and is not.

A driver knows neither threads nor other clusters, and takes the time as an argument. It looks (`look`), which writes
nothing; the controller writes down what was seen and decides; then it acts (`act`). In between the log may go on: what
a driver has to know of that it reads from the replica, so nothing is lost if it dies between any two lines.
"""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar, cast

from gpuyard.control.loop.act import (
    ACT_NS,
    ALONE_NS,
    AT_ONCE_MAX,
    AT_ONCE_MIN,
    FORGET_MAX,
    OTHERS_MS,
    LayoutKeeper,
    LimitChange,
    RetryPace,
    Todo,
    find_strays,
    find_todo,
    kept_limit_event,
    make_launch,
)
from gpuyard.control.loop.folder_memory import Witness
from gpuyard.control.loop.observe import Difference, compare, index_by_key, refused_event
from gpuyard.control.replica.labels import current_key
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    ChangesLimits,
    Engine,
    EngineError,
    NodeReport,
    Phase,
    Recipe,
    Reply,
    Stale,
    StopRequest,
)
from gpuyard.model import Capability, Event, Node, Outcome
from gpuyard.model.serialise import from_plain

T = TypeVar("T")
LOST_MS = 60_000
"""How long an engine may not know an attempt before it counts as lost, is stopped for good and waits again."""
NODES_EVERY_MS = 10_000
"""How often capacity and health are looked at."""
LISTING_EVERY_MS = 30_000
"""How often everything the engine knows is recounted, to find what nobody owns."""


@dataclass(slots=True)
class Sighting:
    """What the engine of a cluster said, and as of which event it was asked.

    Nothing follows from it for attempts that were committed later: they are not in it.
    """

    cluster: str
    seq: int = 0
    """The last event in the log when the engine was asked."""
    reports: Mapping[str, AttemptReport] = field(default_factory=dict)
    attempts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Job and attempt of each report."""
    barred: Set[str] = frozenset()
    """Attempts that the engine does not know and that will never run."""
    overdue: Set[str] = frozenset()
    """Attempts that the engine has not known for too long."""
    nodes: Sequence[NodeReport] | None = None
    """Every node that the engine has; None: it was not asked, or did not answer."""
    able: frozenset[Capability] = frozenset()
    """What the engine can do; only with `nodes`."""
    errors: Sequence[str] = ()
    """Calls that came to no answer."""

    @property
    def heard(self) -> bool:
        """Whether the engine answers."""
        return self.nodes is not None or not self.errors


@dataclass(frozen=True, slots=True)
class Heard:
    """How an engine answers."""

    at_ms: int = 0
    """When it last did; 0: not yet."""
    answers: bool = False
    """Whether it did when it was last asked."""


@dataclass(slots=True)
class ActResult:
    """What came of acting."""

    events: list[Event] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Calls that came to no answer. They are made again."""
    more: bool = False
    """Whether attempts wait to be started, stopped or forgotten the next time."""


class Driver:
    """A leader's observer and actor for one engine."""

    def __init__(
        self,
        replica: Replica,
        cluster: str,
        engine: Engine,
        epoch: int,
        others: Set[str] = frozenset(),
        *,
        lost_ms: int = LOST_MS,
        stopwatch_ns: Callable[[], int] = lambda: 0,
        witness: Witness | None = None,
    ) -> None:
        """`others` are the clusters of other engines. Without any, every node and attempt is this engine's."""
        self.replica = replica
        self.cluster = cluster
        self.engine = engine
        self.others = others
        self.epoch = epoch
        self.yard = replica.store.yard
        self.difference = Difference()
        """What the last recount found."""
        self.late: dict[str, str] = {}
        """Attempts whose start came to nothing yet, or whose end does not come, and why."""
        self.heard = Heard()
        """When the engine last answered, and whether it did when it was last asked."""
        self._witness = witness
        """Tells the engine's folder how far the log has come; None: it remembers nothing, as in a simulation."""
        self._lost_ms = lost_ms
        self._stopwatch_ns = stopwatch_ns
        self._until_ns = 0
        """Until when this step acts, by the stopwatch."""
        self._until_news_ns = 0
        """Until when it acts in any case; from then on only until there is news."""
        self._at_least = AT_ONCE_MAX
        """How many attempts the engine is given in one call at least, if there are so many."""
        self._starters: dict[str, int] = {}
        """Users whose attempts are being started, and when that last was so."""
        self._each_ns: dict[str, int] = {}
        """How long the engine took for an attempt when it was last asked, by what it was asked for."""
        self._pace = RetryPace()
        self._reports: Mapping[str, AttemptReport] = {}
        """What the engine said since this driver last acted."""
        self._unasked: dict[str, None] = {}
        """Attempts that this leader decided to start and has not asked the engine for: nobody else can have."""
        self._unknown_since: dict[str, int] = {}
        self._barred: set[str] = set()
        """Attempts that will not run from now on: the engine promised it, or was never asked for them."""
        self._keys: dict[tuple[int, int], str] = {}
        """Names of live attempts, by job and attempt."""
        self._over: dict[str, None] = {}
        """Attempts whose ends are in the log, to be forgotten by the engine."""
        self._names: frozenset[str] = frozenset()
        """Nodes that the engine last reported."""
        self._keeper = LayoutKeeper(replica, engine, epoch, self._pace, stopwatch_ns, self._has)
        self._nodes_ms: int | None = None
        self._listing_ms: int | None = None
        with replica.lock:
            replica.catch_up()
            self._live(replica.state)
            # Earlier leaders may have asked for these.
            self._unasked.clear()

    @property
    def serves_several(self) -> bool:
        """Whether attempts of several users start: then nobody may wait for long for the others'."""
        return len(self._starters) > 1

    # -- what the log has ----------------------------------------------------------------------------------------

    def _has(self, node: Node) -> bool:
        """Whether a node is this cluster's. One of a cluster that no engine has any more goes by its name."""
        if not self.others or node.cluster == self.cluster:
            return True
        return node.cluster not in self.others and node.name in self._names

    def _live(self, state: State) -> dict[str, JobRecord]:
        """The live attempts of this cluster by key. Called with the replica's lock.

        One that is new was committed by this leader, as no other one can; one that is gone has its end in the log.
        """
        live: dict[str, JobRecord] = {}
        before, keys, kept = self._keys, {}, 0
        nodes, alone = state.nodes.node, not self.others
        for record in state.running.values():
            if alone or self._has(nodes[record.grants[0].node]):
                at = (record.id, record.attempt)
                key = before.get(at)
                if key is None:
                    key = current_key(self.yard, record)
                    self._unasked[key] = None
                else:
                    kept += 1
                keys[at] = key
                live[key] = record
        if kept < len(before):
            for key in before.values():
                if key not in live:
                    # Only an end that is in the log may be forgotten by the engine.
                    self._over[key] = None
                    self._unasked.pop(key, None)
        self._keys = keys
        return live

    def withdraw(self, state: State) -> list[JobRecord]:
        """Attempts that the engine was never asked for and never will be. Called with the replica's lock."""
        live = self._live(state)
        found = [key for key in self._unasked if key in live]
        self._barred.update(found)
        self._unasked.clear()
        return [live[key] for key in found]

    # -- look ----------------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> Sighting:
        """Ask the engine how its attempts and, now and then, its nodes are. Writes nothing."""
        replica = self.replica
        with replica.lock:
            replica.catch_up()
            seq = replica.seq
            live = self._live(replica.state)
            keys = [key for key in live if key not in self._unasked]
            attempts = {key: (live[key].id, live[key].attempt) for key in keys}
        seen = Sighting(self.cluster, seq, attempts=attempts)
        errors: list[str] = []
        if keys:
            try:
                seen.reports = index_by_key(self.engine.status(keys))
            except Stale:
                raise
            except EngineError as error:
                errors.append(f"status: {error}")
        if self._lost_a_place(seen.reports):
            self._nodes_ms = None
        self._look_at_nodes(seen, errors, now_ms)
        self._consider(seen, now_ms)
        self._reports = seen.reports
        seen.errors = errors
        answered = bool(keys) or seen.nodes is not None
        if errors or answered:
            self.heard = Heard(now_ms if seen.heard and answered else self.heard.at_ms, not errors)
        return seen

    def _lost_a_place(self, reports: Mapping[str, AttemptReport]) -> bool:
        """Whether an attempt ended for its node's sake: what is decided next should know how the nodes stand."""
        gone = [key for key, report in reports.items() if report.outcome in _FOR_THE_NODE]
        if not gone:
            return False
        with self.replica.lock:
            told = {
                current_key(self.yard, r) for r in self.replica.state.running.values() if r.cause is not None
            }
        return any([key not in told for key in gone])

    def _look_at_nodes(self, seen: Sighting, errors: list[str], now_ms: int) -> None:
        if self._nodes_ms is not None and 0 <= now_ms - self._nodes_ms < NODES_EVERY_MS:
            return
        try:
            found = self.engine.nodes()
        except EngineError as error:
            errors.append(f"nodes: {error}")
            return
        self._nodes_ms = now_ms
        self._names = frozenset([report.node.name for report in found])
        seen.nodes, seen.able = found, self.engine.capabilities

    def _consider(self, seen: Sighting, now_ms: int) -> None:
        """An attempt that the engine does not know is stopped for good after a while, and only then taken for gone."""
        barred, overdue = set(), set()
        for key, report in seen.reports.items():
            if report.phase is Phase.ENDED:
                continue
            if report.phase is not Phase.UNKNOWN:
                self._unknown_since.pop(key, None)
                if report.why:
                    self.late[key] = report.why
                else:
                    self.late.pop(key, None)
            elif key in self._barred:
                barred.add(key)
            elif now_ms - self._unknown_since.setdefault(key, now_ms) >= self._lost_ms:
                # It was asked for again and again, and the engine says yes and never shows it.
                overdue.add(key)
        seen.barred, seen.overdue = barred, overdue

    # -- act -----------------------------------------------------------------------------------------------------

    def act(self, now_ms: int, began_ns: int) -> ActResult:
        """Stops first: what they free is free only once it is reported, but they should not wait for starts."""
        deeds, replica = ActResult(), self.replica
        with replica.lock:
            replica.settle()
            live = self._live(replica.state)
            seen = {**self._reports, **{key: AttemptReport(key, Phase.UNKNOWN) for key in self._unasked}}
            late = [k for k, ms in self._unknown_since.items() if now_ms - ms >= self._lost_ms]
            wanted = find_todo(live, seen, frozenset(late), self._pace, now_ms)
        self._reports = {}
        self._set_time(wanted, now_ms, began_ns)
        self._by_pieces("stop", wanted.halts, lambda halts: self._stop(halts, now_ms, deeds), deeds)
        self._freeze(wanted, now_ms, deeds)
        self._limit(wanted.limits, now_ms, deeds)
        self._keep_layouts(now_ms, deeds)
        self._by_pieces("start", wanted.starts, lambda records: self._start(records, now_ms, deeds), deeds)
        if self._over:
            # Told at once: an engine that takes long for it does it in its own time.
            self._forget(list(islice(self._over, FORGET_MAX)), deeds)
        self._recount(deeds, now_ms)
        deeds.more = deeds.more or bool(self._over)
        return deeds

    def _commit(self, events: list[Event], deeds: ActResult) -> None:
        """Write what the engine answered; what has been overtaken while it was being asked is left out."""

        def make(draft: Draft) -> None:
            for event in events:
                draft.offer(event)

        deeds.events += self.replica.commit(self.epoch, make)

    def _set_time(self, wanted: Todo, now_ms: int, began_ns: int) -> None:
        """How long this step acts: not long while attempts of several users start, and else as long as it looked.

        Once there is news it ends sooner: a job that came meanwhile waits for no attempts of others.
        """
        self._starters |= dict.fromkeys([record.job.spec.user for record in wanted.starts], now_ms)
        self._starters = {user: ms for user, ms in self._starters.items() if abs(now_ms - ms) < OTHERS_MS}
        several = self.serves_several
        self._at_least = AT_ONCE_MIN if several else AT_ONCE_MAX
        acts_ns = self._stopwatch_ns()
        looked_ns = acts_ns - began_ns
        self._until_ns = acts_ns + (
            min(max(ACT_NS, looked_ns), 2 * ACT_NS) if several else max(ALONE_NS, looked_ns)
        )
        self._until_news_ns = acts_ns + ACT_NS if several else self._until_ns

    def _by_pieces(self, what: str, items: list[T], act: Callable[[list[T]], bool], deeds: ActResult) -> None:
        """Act on some at a time, as many as there seems to be time for, until the time of this step is over or the
        engine does not answer; on the first few in any case.
        """
        done = 0
        while done < len(items):
            began_ns = self._stopwatch_ns()
            left_ns = self._until_ns - began_ns
            if done and (left_ns <= 0 or (began_ns >= self._until_news_ns and self._news())):
                deeds.more = True
                return
            each_ns = self._each_ns.get(what, left_ns)
            # So that news is not overlooked for long.
            call_ns = left_ns if self._until_ns == self._until_news_ns else min(left_ns, 2 * ACT_NS)
            fit = call_ns // each_ns if each_ns else AT_ONCE_MAX
            if not done:
                # An engine answers for all that it was asked at once: users with few do not wait for those with many.
                fit = min(fit, self._at_least)
            some = items[done : done + max(self._at_least, min(AT_ONCE_MAX, fit))]
            if not act(some):
                return
            done += len(some)
            self._each_ns[what] = (self._stopwatch_ns() - began_ns) // len(some)

    def _news(self) -> bool:
        """Whether anything was written that this step does not know of."""
        return self.replica.store.head() > self.replica.seq

    def _forget(self, keys: list[str], deeds: ActResult) -> bool:
        if not self._try("forget", deeds, lambda: self.engine.forget(self.epoch, keys)):
            return False
        self._barred.difference_update(keys)
        for key in keys:
            del self._over[key]
            self._unknown_since.pop(key, None)
            self.late.pop(key, None)
        return True

    def _stop(self, halts: list[StopRequest], now_ms: int, deeds: ActResult) -> bool:
        """Whether the engine answered."""
        with self.replica.lock:
            # Nobody can have started these but us, and we will not: the engine need not know.
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
            deeds.errors.append(f"stop: {error}")
            return False
        for halt, reply in zip(halts, replies, strict=True):
            if reply.answer is Answer.BARRED:
                self._barred.add(halt.key)
            elif reply.answer is not Answer.DONE:
                deeds.errors.append(f"stop {halt.key}: {reply.why or reply.answer.value}")
        return True

    def _freeze(self, wanted: Todo, now_ms: int, deeds: ActResult) -> None:
        for what, keys, call in (
            ("suspend", wanted.suspend, self.engine.suspend),
            ("resume", wanted.resume, self.engine.resume),
        ):
            if keys:
                for key in keys:
                    self._pace.made(what, key, now_ms)
                self._try(what, deeds, lambda call=call, keys=keys: call(self.epoch, keys))  # type: ignore[misc]

    def _limit(self, wanted: list[LimitChange], now_ms: int, deeds: ActResult) -> None:
        """Have attempts held to the limits of their jobs; a job keeps the limit that its engine does not change."""
        if not wanted or Capability.NEW_LIMITS not in self.engine.capabilities:
            return
        for each in wanted:
            self._pace.made("limit", each.wish.key, now_ms)
        try:
            replies = cast("ChangesLimits", self.engine).limit(self.epoch, [each.wish for each in wanted])
        except Stale:
            raise
        except EngineError as error:
            deeds.errors.append(f"limit: {error}")
            return
        refused = [
            (each, reply.why)
            for each, reply in zip(wanted, replies, strict=True)
            if reply.answer is Answer.REFUSED
        ]
        if refused:

            def make(draft: Draft) -> None:
                for each, why in refused:
                    if (event := kept_limit_event(draft.state, each, why, now_ms)) is not None:
                        draft.offer(event)

            deeds.events += self.replica.commit(self.epoch, make)

    def _keep_layouts(self, now_ms: int, deeds: ActResult) -> None:
        news, errors = self._keeper.step(now_ms)
        deeds.errors += errors
        if news:
            holds = self._keeper.holds

            def make(draft: Draft) -> None:
                for event in [each for each in news if holds(draft.state, each)]:
                    draft.offer(event)

            deeds.events += self.replica.commit(self.epoch, make)

    def _start(self, records: list[JobRecord], now_ms: int, deeds: ActResult) -> bool:
        """Whether the engine answered."""
        launches, ends = [], []
        recipes = self._recipes(records)
        with self.replica.lock:
            state = self.replica.state
            for record in records:
                recipe = recipes.get(record.job.spec.recipe)
                key = self._keys.get((record.id, record.attempt), "")
                if record.id not in state.running or not key or key in self._barred:
                    # It has ended meanwhile, or is to start elsewhere.
                    continue
                if recipe is None:
                    ends.append(refused_event(record, "how to run it was deleted", now_ms))
                else:
                    launches.append((record, make_launch(self.yard, state, record, recipe)))
                    self._pace.made("start", key, now_ms)
                    self._unasked.pop(key, None)
            last_job_id = state.last_job_id
        replies: list[Reply] = []
        answered = True
        if launches:
            if self._witness is not None:
                self._witness.tell(self.replica.seq, last_job_id, now_ms, starts=True)
            try:
                replies = self.engine.start(self.epoch, [wanted for _record, wanted in launches])
            except Stale:
                raise
            except EngineError as error:
                deeds.errors.append(f"start: {error}")
                answered = False
        for (record, wanted), reply in zip(launches, replies, strict=False):
            if reply.answer is Answer.REFUSED:
                ends.append(refused_event(record, reply.why, now_ms, reply.exit_code))
            elif reply.answer in (Answer.UNSURE, Answer.LATER):
                deeds.errors.append(f"start {wanted.key}: {reply.why}")
                self.late[wanted.key] = reply.why
            if reply.answer is Answer.LATER:
                # It is not lost, however long it takes: the engine knows what it waits for.
                self._unknown_since.pop(wanted.key, None)
                self._pace.put_off("start", wanted.key, now_ms)
        if ends:
            self._commit(ends, deeds)
        return answered

    def _recipes(self, records: list[JobRecord]) -> dict[str, Recipe]:
        """The recipes of these jobs, by name, read in one query; recipes that were deleted are left out."""
        names = dict.fromkeys([record.job.spec.recipe for record in records])
        found = self.replica.store.blobs([name for name in names if name])
        recipes = {name: from_plain(Recipe, json.loads(body)) for name, body in found.items()}
        return {"": Recipe(), **recipes}

    def _try(self, what: str, deeds: ActResult, call: Callable[[], object]) -> bool:
        try:
            call()
        except Stale:
            raise
        except EngineError as error:
            deeds.errors.append(f"{what}: {error}")
            return False
        return True

    # -- recount -------------------------------------------------------------------------------------------------

    def _recount(self, deeds: ActResult, now_ms: int) -> None:
        """Look at everything the engine knows: stop what nobody owns, forget what is over."""
        if self._listing_ms is not None and 0 <= now_ms - self._listing_ms < LISTING_EVERY_MS:
            return
        try:
            listing = self.engine.listing()
        except EngineError as error:
            deeds.errors.append(f"listing: {error}")
            return
        self._listing_ms = now_ms
        with self.replica.lock:
            state = self.replica.state
            here = self._live(state)
            # An attempt that the replica has elsewhere is nothing to stop here: its node may have changed its cluster.
            owned = (
                {current_key(self.yard, r) for r in state.running.values()} if self.others else here.keys()
            )
            self.difference = compare(self.yard, here, owned, listing)
            halts, over = find_strays(self.yard, owned, index_by_key(listing), self._pace, now_ms)
            if self._witness is not None:
                halts = [halt for halt in halts if halt.key not in self._witness.adopted]
                self._witness.tell(self.replica.seq, state.last_job_id, now_ms, starts=False)
            self._pace.forget({*here, *[halt.key for halt in halts], *[n.name for n in state.nodes.node]})
        self._by_pieces("stop", halts, lambda some: self._stop(some, now_ms, deeds), deeds)
        self._over |= dict.fromkeys(over)


_FOR_THE_NODE = (Outcome.NODE_FAIL, Outcome.PREEMPTED)
