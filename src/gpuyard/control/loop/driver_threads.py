"""The loop over several clusters: a thread for each driver, so that an engine that hangs keeps nobody else waiting.

Drivers look and act in their threads; the leader's thread decides with what they have seen and asks no engine. A
cluster that schedules itself has a recorder instead, which looks and writes down what it saw. A thread that hangs in a
call when the leadership ends goes on with its old epoch, which engine and store refuse.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from gpuyard.control.loop.driving import Heard, Sighting
from gpuyard.control.loop.loop import Controller, Step
from gpuyard.control.loop.observe import Difference
from gpuyard.control.loop.observing import Recorder
from gpuyard.engines.contract import EngineError, Stale
from gpuyard.engines.observer import ForeignJob
from gpuyard.errors import YardError, error_text
from gpuyard.store import Fenced

_log = logging.getLogger(__name__)

FIRST_TICK_S, TICK_S = 0.05, 1.0
"""The pause of a driver after something happened, and the longest one."""
REST_S = 0.01
"""The shortest pause: what comes in meanwhile goes together."""
LEAVE_S = 2.0
"""How long a driver may take to finish when the leadership ends."""


class DriverThreads:
    """A controller whose drivers have threads of their own."""

    def __init__(
        self,
        controller: Controller,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        turns: Mapping[str, threading.Lock],
        recorders: Mapping[str, Recorder] | None = None,
    ) -> None:
        """`wake` has the leader decide. `turns`, by cluster: one thread speaks to an engine, also over elections."""
        self._controller = controller
        self._now_ms = now_ms
        self._wake = wake
        self._turns = turns
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._inbox: list[Sighting] = []
        self._deposed: Exception | None = None
        self._recorders = recorders or {}
        self._told = {cluster: threading.Event() for cluster in [*controller.drivers, *self._recorders]}
        self._passed = threading.Condition()
        self._passes = 0
        self._errors: dict[str, tuple[str, ...]] = {}
        """By cluster: calls of the last round that came to no answer."""
        self._threads = [
            threading.Thread(target=self._run, args=(cluster,), name=f"yard-drives-{cluster}", daemon=True)
            for cluster in self._told
        ]
        for thread in self._threads:
            thread.start()

    # -- the leader's side ---------------------------------------------------------------------------------------

    @property
    def difference(self) -> Difference:
        """What the last recounts found."""
        return self._controller.difference

    @property
    def late(self) -> Mapping[str, str]:
        """Attempts whose start came to nothing yet, and why."""
        return self._controller.late

    @property
    def heard(self) -> Mapping[str, Heard]:
        """How each engine answers, by cluster."""
        found = dict(self._controller.heard)
        for recorder in self._recorders.values():
            found |= recorder.heard
        return found

    @property
    def waiting(self) -> Mapping[str, Mapping[str, ForeignJob]]:
        """By observed cluster: jobs of which it was told why they wait, by key."""
        return {cluster: recorder.waiting for cluster, recorder in self._recorders.items()}

    @property
    def troubles(self) -> tuple[str, ...]:
        """Calls that came to no answer and have not since."""
        with self._lock:
            return tuple(
                [f"{name}: {error}" for name in sorted(self._errors) for error in self._errors[name]]
            )

    def step(self, now_ms: int) -> Step:
        """Decide with what was seen since the last time. Raises `Fenced` or `Stale` if deposed."""
        with self._lock:
            seen, self._inbox = self._inbox, []
            if self._deposed is not None:
                raise self._deposed
        step = self._controller.decide(now_ms, seen)
        # An engine that is out of reach is no reason to decide again and again.
        step.errors = []
        with self._passed:
            self._passes += 1
            self._passed.notify_all()
        if step.events:
            for cluster in self._controller.drivers:
                self._told[cluster].set()
        return step

    def hear(self, cluster: str) -> None:
        """An attempt of a cluster may have ended."""
        self._told[cluster].set()

    def stop(self) -> None:
        """Finish what is under way. A driver that hangs in a call is left behind."""
        self._stopping.set()
        for told in self._told.values():
            told.set()
        with self._passed:
            self._passed.notify_all()
        until_s = time.monotonic() + LEAVE_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, until_s - time.monotonic()))

    # -- a driver's side -----------------------------------------------------------------------------------------

    def _run(self, cluster: str) -> None:
        while not self._turns[cluster].acquire(timeout=TICK_S):
            if self._stopping.is_set():
                return
        try:
            self._drive(cluster)
        finally:
            self._turns[cluster].release()

    def _drive(self, cluster: str) -> None:
        told, pause_s = self._told[cluster], FIRST_TICK_S
        while not self._stopping.is_set():
            told.clear()
            try:
                busy = self._observe(cluster) if cluster in self._recorders else self._round(cluster)
            except (Fenced, Stale) as error:
                with self._lock:
                    self._deposed = error
                self._wake()
                return
            except Exception as error:
                busy = False
                known = isinstance(error, YardError | EngineError | OSError)
                if self._note(cluster, (error_text(error) if known else repr(error),)):
                    _log.error(
                        "driving cluster %s: %s",
                        cluster,
                        error_text(error),
                        exc_info=None if known else error,
                    )
            pause_s = FIRST_TICK_S if busy else min(TICK_S, 2 * pause_s)
            self._stopping.wait(REST_S)
            if told.wait(pause_s):
                pause_s = FIRST_TICK_S

    def _round(self, cluster: str) -> bool:
        """Look, have it decided upon, act; whether something happened."""
        controller = self._controller
        began_ns = time.perf_counter_ns()
        seen = controller.look(cluster, self._now_ms())
        with self._lock:
            self._inbox.append(seen)
        with self._passed:
            before = self._passes
            self._wake()
            self._passed.wait_for(lambda: self._passes > before or self._stopping.is_set(), TICK_S)
        if self._stopping.is_set():
            return False
        step = Step()
        controller.act(cluster, self._now_ms(), step, began_ns)
        prefix = f"{cluster}: "
        errors = (*seen.errors, *[error.removeprefix(prefix) for error in step.errors])
        if self._note(cluster, errors):
            for error in errors:
                _log.warning("%s: %s", cluster, error)
        if step.events:
            self._wake()
        return bool(step.events or step.more)

    def _observe(self, cluster: str) -> bool:
        """Look at a cluster that schedules itself; whether there is more to write at once."""
        step = self._recorders[cluster].step(self._now_ms())
        if self._note(cluster, tuple(step.errors)):
            for error in step.errors:
                _log.warning("%s: %s", cluster, error)
        return bool(step.events)

    def _note(self, cluster: str, errors: tuple[str, ...]) -> bool:
        """Keep what went wrong; whether it is news."""
        with self._lock:
            news = self._errors.get(cluster, ()) != errors
            self._errors[cluster] = errors
        return news
