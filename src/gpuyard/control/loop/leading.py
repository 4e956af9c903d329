"""Standing for election, and the leader's loop in one thread: woken by new events, by the engine, or by a tick.

The loop itself (`loop.Controller`) knows nothing of threads and clocks; here they are. A step that fails is logged with
its story and tried again with a growing pause; a leader that was deposed stops acting and stands again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpuyard.control.clock import Steady
from gpuyard.control.commands.configs import StartFile, put_start
from gpuyard.control.loop.driver_threads import DriverThreads
from gpuyard.control.loop.driving import Heard
from gpuyard.control.loop.folder_memory import Witness
from gpuyard.control.loop.loop import Controller, Step
from gpuyard.control.loop.observing import FIRST_MS, Recorder
from gpuyard.control.replica.replica import Draft, Judged, Replica, read_judged
from gpuyard.control.replica.tally import Histogram
from gpuyard.engines.contract import Engine, EngineError, Stale
from gpuyard.engines.observer import ForeignJob, Observer
from gpuyard.errors import YardError, error_text
from gpuyard.model import ClockSet
from gpuyard.store import Fenced, Lease, StoreError

_log = logging.getLogger(__name__)

STAND_S = 1.0
"""How often a process that does not lead tries to."""
TICK_S = 1.0
"""The longest pause between two steps."""
FIRST_TICK_S = 0.05
"""The pause after a step that did something: its effects will show soon."""
REST_S = 0.01
"""The shortest pause between two steps: requests have to get their turn, and what comes in meanwhile goes together."""
RETRY_S_MAX = 10.0
LEASE_CHECK_S = 1.0
TELL_S = 1.0
"""How often the reasons of waiting jobs are written for the other processes, if they have changed."""
TIMES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""How long steps and decisions take: bounds of their histograms."""


@dataclass(slots=True)
class LeaderStatus:
    """Whether this process leads, and how it is doing."""

    leads: bool = False
    epoch: int = 0
    steps: int = 0
    step_at_s: float = 0.0
    """When the last step ended, on the monotonic clock."""
    step_s: list[float] = field(default_factory=list)
    """How long the last steps took."""
    decide_s: list[float] = field(default_factory=list)
    """How long the decisions in them took."""
    all_steps_s: Histogram = field(default_factory=lambda: Histogram(TIMES_S))
    decisions_s: Histogram = field(default_factory=lambda: Histogram(TIMES_S))
    """The same of all steps since this process began."""
    heard: Mapping[str, Heard] = field(default_factory=dict)
    """How each engine answers, by cluster."""
    error: str = ""
    """What went wrong last and has not gone right since."""
    troubles: tuple[str, ...] = ()
    """Calls of the last step that came to no answer."""
    late: Mapping[str, str] = field(default_factory=dict)
    """Attempts whose start came to nothing yet, and why."""
    waiting: Mapping[str, Mapping[str, ForeignJob]] = field(default_factory=dict)
    """By observed cluster: jobs of which it was told why they wait, by key."""
    difference: int = 0
    """Attempts about which replica and world disagreed at the last recount."""


class Leader:
    """One process's part in leading: a follower most of the time, or the one that decides."""

    def __init__(
        self,
        replica: Replica,
        engines: Mapping[str, Engine],
        start: StartFile,
        by: str,
        holder: str,
        now_ms: Callable[[], int],
        witnesses: Mapping[str, Witness] | None = None,
        *,
        stands: bool = True,
        shared: bool = False,
        has_room: Callable[[], bool] = lambda: True,
        drop_unread: Callable[[], None] = lambda: None,
        clock: Steady | None = None,
        keep_clock: Callable[[Steady, int], None] = lambda _clock, _skipped_ms: None,
    ) -> None:
        """`stands`: whether this process may lead at all. `shared`: whether other processes may be there, which have to
        be told why jobs wait. `has_room` tells whether anything may start. `drop_unread` forgets what was published of
        the replica if nobody reads it. `clock` is the one behind `now_ms`, where that goes by a clock which can be set.
        `keep_clock` keeps how it stands for the next start, with what the log left out.
        """
        self._keep_clock = keep_clock
        self._clock = clock
        self._has_room = has_room
        self._drop_unread = drop_unread
        self._stands = stands
        self._shared = shared
        self._told: tuple[float, Judged] = (float("-inf"), Judged())
        """When they were last told, and what."""
        self._witnesses = witnesses
        self.standing = LeaderStatus()
        self.note = ""
        """What people should know about the file that this process was started with."""
        self._replica = replica
        self._engines = engines
        """By cluster."""
        self._turns = {cluster: threading.Lock() for cluster in engines}
        self._drivers: DriverThreads | None = None
        self._start: StartFile | None = start
        """Until it was considered: once, at the start, not at every election."""
        self._by = by
        self._holder = holder
        self._now_ms = now_ms
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._resting = threading.Event()
        self._leading = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="yard-leader", daemon=True),
            threading.Thread(target=self._hear_store, name="yard-hears-store", daemon=True),
            *[
                threading.Thread(
                    target=self._hear_engine, args=(cluster,), name=f"yard-hears-{cluster}", daemon=True
                )
                for cluster in engines
            ],
        ]

    def start(self) -> None:
        """Stand for election from now on, or only follow."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the step under way and give back the lease. What runs goes on."""
        self._stopping.set()
        for event in (self._wake, self._resting, self._leading):
            event.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=30)

    def epoch(self) -> int | None:
        """The epoch of this process while it leads."""
        return self.standing.epoch if self.standing.leads else None

    def wake(self) -> None:
        """Something happened: look."""
        self._wake.set()

    # -- standing ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            pause_s = STAND_S
            try:
                lease = self._replica.store.elect(self._holder) if self._stands else None
                if lease is None:
                    self._follow()
                    continue
            except Exception as error:
                self._failed("standing for election", error)
                continue
            try:
                self._lead(lease)
            except (Fenced, Stale) as error:
                _log.warning("deposed in epoch %d: %s", lease.epoch, error)
            except Exception as error:
                self._failed("taking over", error)
            finally:
                self._replica.stop_saving()
                self._leading.clear()
                self.standing.leads, self.standing.late, self.standing.heard = False, {}, {}
                self.standing.waiting = {}
                with suppress(Exception):
                    lease.release()

    def _follow(self) -> None:
        while self._replica.catch_up():
            pass
        if self._clock is not None:
            self._clock.go_on(self._replica.state.now_ms)
            self._keep_clock(self._clock, self._replica.state.skipped_ms)
        self._configure(None)
        self._replica.judged = read_judged(self._replica.store.reasons.read())
        self._drop_unread()
        self.standing.error = ""

    def _failed(self, what: str, error: Exception) -> None:
        ours = isinstance(error, YardError | EngineError | OSError)
        text = f"{what}: {error_text(error) if ours else repr(error)}"
        if text != self.standing.error:
            # Trouble with the store or the engine explains itself; anything else is ours, with all it can tell.
            known = isinstance(error, StoreError | EngineError)
            _log.error("%s", text, exc_info=None if known else error)
        self.standing.error = text

    # -- leading -------------------------------------------------------------------------------------------------

    def _lead(self, lease: Lease) -> None:
        self._configure(lease.epoch)
        loop = self._loop(lease.epoch)
        self._drivers = loop if isinstance(loop, DriverThreads) else None
        try:
            self._lead_by(loop, lease)
        finally:
            if self._drivers is not None:
                self._drivers.stop()

    def _lead_by(self, loop: Controller | DriverThreads | Recorder, lease: Lease) -> None:
        standing, replica = self.standing, self._replica
        standing.leads, standing.epoch = True, lease.epoch
        self._leading.set()
        _log.info("leads in epoch %d from event %d on", lease.epoch, replica.seq)
        checked_s = time.monotonic()
        pause_s, retry_s, woken = FIRST_TICK_S, TICK_S, True
        while not self._stopping.is_set():
            if time.monotonic() - checked_s > LEASE_CHECK_S:
                checked_s = time.monotonic()
                if not lease.still_held():
                    raise Fenced(f"the lease of epoch {lease.epoch} is lost")
            self._wake.clear()
            try:
                step = self._step(loop)
            except (Fenced, Stale):
                raise
            except Exception as error:
                self._failed("a step of the loop", error)
                self._stopping.wait(retry_s)
                retry_s = min(RETRY_S_MAX, 2 * retry_s)
                self._mend()
                continue
            retry_s = TICK_S
            # What was asked for or seen just now shows its effect soon, if not in this step.
            pause_s = FIRST_TICK_S if woken or not step.idle else min(TICK_S, 2 * pause_s)
            woken = self._rest(0.0 if step.more else pause_s)
        self._save()

    @property
    def _only_observes(self) -> bool:
        return all([isinstance(engine, Observer) for engine in self._engines.values()])

    def _loop(self, epoch: int) -> Controller | DriverThreads | Recorder:
        """The loop: of engines that are driven, of a cluster that is only looked at, or of both."""
        clusters = self._engines.keys()
        recorders = {
            name: Recorder(self._replica, name, engine, epoch, clusters - {name})
            for name, engine in self._engines.items()
            if isinstance(engine, Observer)
        }
        if len(clusters) == 1 and recorders:
            return next(iter(recorders.values()))
        controller = Controller(
            self._replica,
            {name: engine for name, engine in self._engines.items() if name not in recorders},
            epoch,
            stopwatch_ns=time.perf_counter_ns,
            witnesses=self._witnesses,
            has_room=self._has_room,
            observed=recorders.keys(),
        )
        if len(clusters) == 1:
            return controller
        return DriverThreads(controller, self._now_ms, self.wake, self._turns, recorders)

    def _configure(self, epoch: int | None) -> None:
        """Consider the file of the start, whether this process leads or not; if it cannot be now, then later."""
        start = self._start
        if start is None:
            return

        def make(draft: Draft) -> None:
            # The jobs of an observed cluster began before the first look: where there are no others, the file counts
            # from their beginning.
            back_ms = FIRST_MS if self._only_observes else 0
            now_ms = max(self._now_ms() - back_ms, draft.state.now_ms)
            self.note = put_start(draft, self._replica.store, start, self._by, now_ms)

        self._replica.commit(epoch, make)
        self._start = None

    def _follow_clock(self, epoch: int) -> None:
        """Where the machine's clock was set ahead, the log says so and follows it."""
        clock = self._clock
        now_ms = self._now_ms()
        if clock is None:
            return
        if not clock.ahead_ms:
            self._keep_clock(clock, self._replica.state.skipped_ms)
            return
        at_ms = now_ms + clock.ahead_ms

        def make(draft: Draft) -> None:
            left_ms = max(now_ms, draft.state.now_ms)
            if left_ms < at_ms:
                draft.add(ClockSet(at_ms, at_ms - left_ms))

        self._replica.commit(epoch, make)
        clock.go_on(at_ms)

    def _step(self, loop: Controller | DriverThreads | Recorder) -> Step:
        standing = self.standing
        self._follow_clock(standing.epoch)
        began_s = time.monotonic()
        step = loop.step(self._now_ms())
        standing.step_at_s = time.monotonic()
        standing.steps += 1
        standing.step_s = [*standing.step_s[-999:], standing.step_at_s - began_s]
        standing.all_steps_s.add(standing.step_at_s - began_s)
        standing.decide_s = [*standing.decide_s[-999:], step.decide_ns / 1e9]
        if step.decide_ns:
            standing.decisions_s.add(step.decide_ns / 1e9)
        standing.heard = loop.heard
        before, standing.troubles = standing.troubles, tuple(step.errors)
        if isinstance(loop, DriverThreads):
            standing.troubles = loop.troubles
        standing.difference = loop.difference.count
        standing.late = {} if isinstance(loop, Recorder) else loop.late
        if isinstance(loop, Recorder):
            standing.waiting = {loop.cluster: loop.waiting}
        elif isinstance(loop, DriverThreads):
            standing.waiting = loop.waiting
        standing.error = ""
        for trouble in step.errors:
            # A lasting error is logged once, not at every step.
            if trouble not in before:
                _log.warning("%s", trouble)
        if self._shared:
            self._tell(standing.epoch)
        self._replica.save_beside(self._now_ms())
        self._drop_unread()
        return step

    def _tell(self, epoch: int) -> None:
        """Tell the other processes why jobs wait."""
        (told_s, told), judged, now_s = self._told, self._replica.judged, time.monotonic()
        if (
            now_s - told_s >= TELL_S
            and not judged.same(told)
            and self._replica.store.reasons.put(epoch, judged.text())
        ):
            self._told = (now_s, judged)

    def _mend(self) -> None:
        """Read again a replica that could not be put right when a write failed, before anything is decided on it."""
        try:
            self._replica.reload()
        except Exception as error:
            self._failed("reading the log", error)

    def _rest(self, pause_s: float) -> bool:
        """Let others work, then wait for news; whether there were any."""
        self._stopping.wait(REST_S)
        self._resting.set()
        woken = self._wake.wait(pause_s)
        self._resting.clear()
        return woken

    def _save(self) -> None:
        """On a clean stop: the next start reads one snapshot and nothing else."""
        try:
            self._replica.save(self._now_ms(), every=1000)
        except StoreError as error:
            _log.warning("no snapshot was saved: %s", error)

    # -- news ----------------------------------------------------------------------------------------------------

    def _hear_store(self) -> None:
        """Events of this process and of others wake the loop while it rests."""
        while not self._stopping.is_set():
            self._resting.wait()
            if self._quietly(lambda: self._replica.store.wait(self._replica.seq, 0.5)):
                self._resting.clear()
                self._wake.set()

    def _hear_engine(self, cluster: str) -> None:
        """Ends of attempts wake the loop, now or when its step is over. Only the leader listens: news come once."""
        while not self._stopping.is_set():
            self._leading.wait()
            if self._quietly(lambda: self._engines[cluster].wait(0.5)):
                if self._drivers is not None:
                    self._drivers.hear(cluster)
                else:
                    self._wake.set()

    def _quietly(self, call: Callable[[], Any]) -> bool:
        try:
            return bool(call())
        except Exception as error:
            # News are a convenience, the tick comes anyway; but a call that fails at once must not spin.
            _log.debug("listening: %s", error_text(error))
            self._stopping.wait(TICK_S)
            return False
