"""An engine on a virtual clock, with its own world and faults on demand, held to the promises of real engines.

It keeps three things apart. The *books* are what it answers from. The *claims* are the keys that were ever started,
which survive all forgetting. The *world* is a record of what really ran, and no answer uses it: checkers read it. The
contract suite checks this engine like all others, so that no simulation passes by its own lie.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush

from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Launch,
    LogPiece,
    NewLimit,
    NodeReport,
    NoMig,
    Phase,
    Reply,
    Stale,
    StopRequest,
    Transient,
    offset_of,
)
from gpuyard.model import Capability, Node, Outcome
from gpuyard.testing.faults import Faults, Misfortune
from gpuyard.testing.world import Life, NodeState, Run, World, flaw_of

__all__ = ["Faults", "Life", "Misfortune", "Run", "SimEngine", "World"]

_DONE = Reply(Answer.DONE)
_ALIVE = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED, Phase.STOPPING)
_NODE_LOST = "its node was lost"
PULLING = "its image is made ready"
NO_IMAGE = 125
"""The exit code of an attempt whose image cannot be had, as podman has it."""


@dataclass(slots=True)
class _Entry:
    """One attempt in the books, and the run that belongs to it."""

    launch: Launch
    life: Life
    run: Run
    report: AttemptReport
    halt: StopRequest | None = None
    turn: int = 0
    """Grows whenever what was scheduled for this attempt becomes void."""
    ran_ms: int = 0
    """How long it had run when it was last resumed."""
    since_ms: int = 0
    """When it was last resumed."""
    timed_out: bool = False


class SimEngine(NoMig):
    """The contract of engines, on `clock`. `life` says how each job would live without interference."""

    name = "sim"

    def __init__(
        self,
        clock: Callable[[], int],
        nodes: Sequence[Node],
        life: Callable[[Launch], Life],
        *,
        faults: Faults | None = None,
        capabilities: frozenset[Capability] = frozenset(
            {
                Capability.GANG,
                Capability.SUSPEND,
                Capability.LIMITS,
                Capability.INDICES,
                Capability.NEW_LIMITS,
            }
        ),
    ) -> None:
        self.capabilities = capabilities
        self.world = World()
        self.faults = faults or Faults.none()
        self._clock = clock
        self._life = life
        self._now = clock()
        self._epoch = 0
        self._nodes = {node.name: NodeState(node) for node in nodes}
        self._books: dict[str, _Entry] = {}
        self._claims: set[str] = set()
        self._outputs: dict[str, bytes] = {}
        self._told: dict[str, AttemptReport] = {}
        """The last report of each attempt, for replies that come late."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._ended_since_wait = False

    # ---- time

    def advance(self) -> int:
        """Let everything happen that is due, each at its own time; returns the time, which never goes back."""
        now = max(self._now, self._clock())
        while self._queue and self._queue[0][0] <= now:
            at_ms, _, act = heappop(self._queue)
            self._now = max(self._now, at_ms)
            act()
        self._now = now
        return now

    def next_ms(self) -> int | None:
        """When something happens next by itself; None: never."""
        return self._queue[0][0] if self._queue else None

    def _at(self, at_ms: int, act: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._queue, (at_ms, self._sequence, act))

    def wait(self, timeout_s: float) -> bool:
        """Whether any attempt has ended since the last call. Virtual time does not pass in here."""
        self.advance()
        ended, self._ended_since_wait = self._ended_since_wait, False
        return ended

    # ---- nodes

    def nodes(self) -> tuple[NodeReport, ...]:
        """Capacity and health."""
        self.advance()
        if flap := self.faults.flap(sorted(self._nodes)):
            name, crash, for_ms = flap
            if self._nodes[name].up:
                (self.crash if crash else self.cut_off)(name)
                self._at(self._now + for_ms, lambda: self.mend(name))
        return tuple(NodeReport(state.node, state.up, state.why) for state in self._nodes.values())

    def cut_off(self, name: str) -> None:
        """A node is out of reach; its attempts go on."""
        state = self._nodes[name]
        state.up, state.why = False, "out of reach"

    def crash(self, name: str) -> None:
        """A node dies, with all its attempts."""
        state = self._nodes[name]
        state.up, state.why = False, "crashed"
        for key, entry in self._books.items():
            if entry.report.phase in _ALIVE and any(part.node == name for part in entry.launch.parts):
                self.world.end(entry.run, self._now)
                entry.turn += 1
                state.crashed.append(key)

    def mend(self, name: str) -> None:
        """A node is back; the ends of attempts that died with it are reported from now on."""
        state = self._nodes[name]
        state.up, state.why = True, ""
        for key in state.crashed:
            if (entry := self._books.get(key)) and entry.report.phase in _ALIVE:
                self._close(entry, Outcome.NODE_FAIL, 0, _NODE_LOST)
        state.crashed.clear()

    def _reachable(self, launch: Launch) -> bool:
        return all([self._nodes[part.node].up for part in launch.parts])

    # ---- acting

    def _check(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise Stale(f"epoch {epoch} is over, the newest is {self._epoch}")
        self._epoch = epoch

    def _call(self, epoch: int, acts: Sequence[Callable[[], Reply]]) -> list[Reply]:
        """One call for many attempts, with any misfortune that befalls it."""
        self.advance()
        self._check(epoch)
        if self.faults.breaks():
            raise Transient("the call did not get through")
        replies = [self._befall(epoch, act) for act in acts]
        if self.faults.breaks():
            raise Transient("the call was cut off")
        return replies

    def _befall(self, epoch: int, act: Callable[[], Reply]) -> Reply:
        misfortune, later_ms = self.faults.befall()
        if misfortune is Misfortune.LOST:
            return Reply(Answer.UNSURE, "the request was lost")

        def again() -> None:
            # A late request from a leader that was replaced meanwhile is refused like any other.
            if epoch >= self._epoch:
                act()

        if misfortune in (Misfortune.LATE, Misfortune.TWICE):
            self._at(self._now + later_ms, again)
        if misfortune is Misfortune.LATE:
            return Reply(Answer.UNSURE, "no answer in time")
        reply = act()
        return Reply(Answer.UNSURE, "the answer was lost") if misfortune is Misfortune.UNSAID else reply

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        """Start attempts."""
        return self._call(epoch, [partial(self._start, launch) for launch in launches])

    def _start(self, launch: Launch) -> Reply:
        if flaw := flaw_of(
            launch, {name: state.node for name, state in self._nodes.items()}, self.capabilities
        ):
            return Reply(Answer.REFUSED, flaw)
        key = launch.key
        if key in self._claims:
            known = key in self._books
            return _DONE if known else Reply(Answer.REFUSED, "this attempt has ended and was forgotten")
        if not self._reachable(launch):
            return Reply(Answer.UNSURE, "its node is out of reach")
        self._claims.add(key)
        life = self._life(launch)
        asked = sum([part.tasks for part in launch.parts])
        run = self.world.begin(launch, tasks=0, now_ms=self._now)
        entry = self._books[key] = _Entry(launch, life, run, AttemptReport(key, Phase.STARTING, why=PULLING))
        if life.pull_ms:
            self._later(entry, life.pull_ms, lambda: self._pulled(entry, asked))
        else:
            self._begin(entry, asked)
        return _DONE

    def _pulled(self, entry: _Entry, asked: int) -> None:
        """Its image is there now, or it turned out that it cannot be had."""
        why = entry.life.no_image or ("the registry does not answer" if self.faults.pull_fails() else "")
        if why:
            self._finish(entry, Outcome.FAILED, NO_IMAGE, why, for_good=bool(entry.life.no_image))
        else:
            self._begin(entry, asked)

    def _begin(self, entry: _Entry, asked: int) -> None:
        """Its processes start, all or half of them."""
        half = asked > 1 and self.faults.half_gang()
        run, life = entry.run, entry.life
        run.tasks = asked // 2 if half else asked
        entry.since_ms = self._now
        entry.report = AttemptReport(
            entry.launch.key,
            Phase.STARTING if half else Phase.RUNNING,
            started_ms=self._now,
            limit_ms=entry.launch.limit_ms,
        )
        self._outputs[entry.launch.key] = life.output
        if half:
            why = f"only {run.tasks} of {asked} tasks started"
            self._later(
                entry, self.faults.half_gang_ms, lambda: self._finish(entry, Outcome.NODE_FAIL, 0, why)
            )
        else:
            self._schedule(entry)

    def _later(self, entry: _Entry, delay_ms: int, act: Callable[[], None]) -> None:
        """Do something to an attempt later, if nothing else happens to it until then."""
        turn = entry.turn

        def due() -> None:
            if entry.turn == turn:
                act()

        self._at(self._now + delay_ms, due)

    def _schedule(self, entry: _Entry) -> None:
        """Schedule what comes next: its own end, or its time limit if that comes first."""
        life, limit_ms = entry.life, entry.launch.limit_ms
        if limit_ms and limit_ms < life.run_ms:
            self._later(entry, max(0, limit_ms - entry.ran_ms), lambda: self._time_out(entry))
        else:
            self._later(entry, max(0, life.run_ms - entry.ran_ms), lambda: self._end_itself(entry))

    def _end_itself(self, entry: _Entry) -> None:
        life = entry.life
        outcome = life.outcome or (Outcome.COMPLETED if life.exit_code == 0 else Outcome.FAILED)
        self._finish(entry, outcome, life.exit_code, "")

    def _time_out(self, entry: _Entry) -> None:
        entry.turn += 1
        entry.timed_out = True
        self._term(entry, Outcome.TIMEOUT, entry.launch.grace_ms)

    def _term(self, entry: _Entry, outcome: Outcome, grace_ms: int) -> None:
        """TERM now, KILL after the grace."""
        deaf = entry.life.ignores_term or self.faults.deaf()
        goes_ms = grace_ms if deaf else min(entry.life.term_ms, grace_ms)
        code = 128 + 9 if goes_ms == grace_ms else 128 + 15
        self._later(entry, goes_ms, lambda: self._finish(entry, outcome, code, ""))

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        """Stop attempts."""
        return self._call(epoch, [partial(self._stop, halt) for halt in halts])

    def _stop(self, halt: StopRequest) -> Reply:
        entry = self._books.get(halt.key)
        if entry is None:
            # A start that is still on its way comes too late.
            self._claims.add(halt.key)
            return Reply(Answer.BARRED)
        if entry.report.phase is Phase.ENDED:
            return _DONE
        if not self._reachable(entry.launch):
            return Reply(Answer.UNSURE, "its node is out of reach")
        if entry.halt is not None:
            # A second stop can only be more urgent.
            kill = entry.halt.outcome
            self._later(entry, halt.grace_ms, lambda: self._finish(entry, kill, 137, ""))
            return _DONE
        entry.halt = halt
        if not entry.run.tasks:
            # Nothing of it runs: a pull is broken off at once.
            self._finish(entry, halt.outcome, 0, "")
            return _DONE
        if self.faults.ends_first():
            entry.life = replace(entry.life, exit_code=0, outcome=None)
            self._end_itself(entry)
            return _DONE
        self._pause(entry)
        entry.report = replace(entry.report, phase=Phase.STOPPING)
        self._term(entry, halt.outcome, halt.grace_ms)
        return _DONE

    def suspend(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Freeze attempts. Their time limits pause with them."""
        return self._call(epoch, [partial(self._suspend, key) for key in keys])

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Let frozen attempts go on."""
        return self._call(epoch, [partial(self._resume, key) for key in keys])

    def limit(self, epoch: int, limits: Sequence[NewLimit]) -> list[Reply]:
        """Give running attempts other time limits."""
        return self._call(epoch, [partial(self._limit, wish) for wish in limits])

    def _limit(self, wish: NewLimit) -> Reply:
        entry = self._running(wish.key)
        if isinstance(entry, Reply):
            return Reply(Answer.UNSURE, entry.why)
        if entry.timed_out:
            return Reply(Answer.UNSURE, "its time is up")
        if self.faults.refuses_limit():
            return Reply(Answer.REFUSED, "the site allows no other limit")
        runs = entry.report.phase is Phase.RUNNING
        self._pause(entry)
        entry.launch = replace(entry.launch, limit_ms=wish.limit_ms)
        entry.report = replace(entry.report, limit_ms=wish.limit_ms)
        if runs:
            entry.since_ms = self._now
            self._schedule(entry)
        return _DONE

    def _frozen_or_running(self, key: str) -> _Entry | Reply:
        if Capability.SUSPEND not in self.capabilities:
            return Reply(Answer.REFUSED, "this engine cannot freeze jobs")
        return self._running(key)

    def _running(self, key: str) -> _Entry | Reply:
        entry = self._books.get(key)
        if entry is None or entry.report.phase not in (Phase.RUNNING, Phase.SUSPENDED):
            return Reply(Answer.REFUSED, "it does not run")
        return entry if self._reachable(entry.launch) else Reply(Answer.UNSURE, "its node is out of reach")

    def _pause(self, entry: _Entry) -> None:
        if entry.report.phase is Phase.RUNNING:
            entry.ran_ms += self._now - entry.since_ms
        entry.turn += 1

    def _suspend(self, key: str) -> Reply:
        entry = self._frozen_or_running(key)
        if isinstance(entry, Reply):
            return entry
        if entry.report.phase is Phase.RUNNING:
            self._pause(entry)
            entry.report = replace(entry.report, phase=Phase.SUSPENDED)
        return _DONE

    def _resume(self, key: str) -> Reply:
        entry = self._frozen_or_running(key)
        if isinstance(entry, Reply):
            return entry
        if entry.report.phase is Phase.SUSPENDED:
            entry.since_ms = self._now
            entry.report = replace(entry.report, phase=Phase.RUNNING)
            self._schedule(entry)
        return _DONE

    # ---- ends

    def _finish(
        self, entry: _Entry, outcome: Outcome, exit_code: int, why: str, for_good: bool = False
    ) -> None:
        """All its processes are gone: first in the world, then in the books."""
        self.world.end(entry.run, self._now)
        self._close(entry, outcome, exit_code, why, for_good)

    def _close(
        self, entry: _Entry, outcome: Outcome, exit_code: int, why: str, for_good: bool = False
    ) -> None:
        saved_ms = self._checkpoint_ms(entry)
        entry.turn += 1
        entry.report = replace(
            entry.report,
            phase=Phase.ENDED,
            outcome=outcome,
            exit_code=exit_code,
            ended_ms=entry.run.ended_ms or self._now,
            checkpoint_ms=saved_ms,
            why=why,
            for_good=for_good,
        )
        self._ended_since_wait = True

    def _checkpoint_ms(self, entry: _Entry) -> int:
        every_ms = entry.life.checkpoint_every_ms
        if not every_ms or entry.report.phase is not Phase.RUNNING:
            return entry.report.checkpoint_ms
        ran_ms = entry.ran_ms + self._now - entry.since_ms
        saved_ms = self._now - ran_ms % every_ms
        return max(entry.report.checkpoint_ms, saved_ms if ran_ms >= every_ms else 0)

    # ---- looking

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        """What is known of these attempts."""
        self.advance()
        if self.faults.breaks():
            raise Transient("the call did not get through")
        return [self._look(key) for key in keys]

    def _look(self, key: str) -> AttemptReport:
        entry = self._books.get(key)
        if entry is None:
            return AttemptReport(key, Phase.UNKNOWN)
        if entry.report.phase is Phase.ENDED and self.faults.forgets():
            del self._books[key]
            return AttemptReport(key, Phase.UNKNOWN)
        if key in self._told and self.faults.old_news():
            return self._told[key]
        told = self._told.get(key)
        if not self._reachable(entry.launch) and (told is None or told.phase is not Phase.ENDED):
            return AttemptReport(key, Phase.UNKNOWN)
        saved_ms = self._checkpoint_ms(entry)
        if saved_ms != entry.report.checkpoint_ms:
            entry.report = replace(entry.report, checkpoint_ms=saved_ms)
        self._told[key] = entry.report
        return entry.report

    def listing(self) -> list[AttemptReport]:
        """Every attempt in the books."""
        self.advance()
        if self.faults.breaks():
            raise Transient("the call did not get through")
        reports = [self._look(key) for key in sorted(self._books)]
        return [report for report in reports if report.phase is not Phase.UNKNOWN]

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        """Take ended attempts out of the books. Their keys stay claimed."""
        self.advance()
        self._check(epoch)
        for key in keys:
            if (entry := self._books.get(key)) and entry.report.phase is Phase.ENDED:
                del self._books[key]
                self._told.pop(key, None)

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """Part of the output that a job's life defines."""
        self.advance()
        offset, output = offset_of(cursor), self._outputs.get(key, b"") if stream == "stdout" else b""
        content = output[offset : offset + limit]
        return LogPiece(content, str(offset + len(content)))

    def close(self) -> None:
        """Let go. Attempts go on."""
