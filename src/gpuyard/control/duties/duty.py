"""A duty: something that a server does by itself, again and again, beside its requests and its loop; and how it is run.

A duty is a value. It says how often its rounds come, whether they are the leader's, what one round does, and how the
duty is watched and closed. What it needs are the parameters of the function that makes it. It knows no thread, and it
reads no clock for its rounds: `DutyRecord` is told when a round began and ended.

`RunningDuty` is its thread, which takes the rounds, keeps their record, and tries again after one that failed. Whatever
a round raises, the thread goes on: without it, all that the duty does would be left undone for good. The failure is
logged with the name of the duty, once for as long as it lasts, and it is in `/readyz`, the metrics and `yard duties`
until a round is good again.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.engines.contract import EngineError
from gpuyard.errors import YardError, error_text
from gpuyard.store import Fenced

FOLLOWER_S = 1.0
"""How often a server that does not lead looks whether a duty of the leader has become its own."""
CLOSE_S = 30.0
EXPLAINED = (YardError, EngineError, OSError, sqlite3.Error)
"""Failures whose words say enough; any other is a defect of ours and is logged with all it can tell."""
LEAST_S = 1.0
"""How long the end of a server waits for each duty where an earlier one has used up the time for all of them."""


class Turn(NamedTuple):
    """What one round is given."""

    epoch: int
    """The epoch of this server while it leads; 0: it does not."""
    rest: Callable[[float], bool]
    """Pause within a round; whether it is time to break off."""


class BackOff(NamedTuple):
    """The pauses after rounds that failed, one after the other."""

    first_s: float = 1.0
    most_s: float = 30.0

    def pause_s(self, failed: int) -> float:
        """The pause after so many failures in a row: twice as long after each, up to a limit."""
        return min(self.most_s, self.first_s * 2.0 ** min(failed - 1, 30))


RETRY = BackOff()


def _nothing() -> None:
    pass


def _no_trouble() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Duty:
    """One duty of a server."""

    name: str
    """Of its thread (`yard-NAME`), its metrics, and in `/readyz`."""
    do: Callable[[Turn], float | None]
    """One round; it gives the seconds until the next one, None: as always. What it raises is a failure of the round."""
    every_s: float
    """From the end of a round to the next one, unless the round says something else."""
    first_s: float = 1.0
    """From the start of the server to the first round."""
    leader: bool = False
    """Whether rounds are taken by the leader alone."""
    follower_s: float = FOLLOWER_S
    """Of a duty of the leader: how often a server that does not lead looks whether it does."""
    elsewhere: Callable[[], None] = _nothing
    """Of a duty of the leader: what a server that does not lead does in place of a round."""
    undone: str = ""
    """What a round that failed has left undone, as the beginning of a sentence for the log."""
    retry: BackOff = RETRY
    trouble: Callable[[], str] = _no_trouble
    """What keeps the duty from its end although its rounds do not raise, such as a receiver that is away; empty:
    nothing. A duty with such trouble has logged it, and its round has said when the next one comes."""
    close: Callable[[], None] = _nothing
    """What there is to do at the end of the server, after the last round."""
    close_s: float = CLOSE_S
    """How long the end of the server waits for the round under way."""


@dataclass(frozen=True, slots=True)
class DutyRecord:
    """What came of the rounds of a duty so far, by a clock that passes as time does. A round makes a new record."""

    since_s: float
    """When the duty became this server's: at its start, or when it began to lead."""
    runs: int = 0
    failures: int = 0
    failed: int = 0
    """How many rounds have failed since the last good one."""
    ended_s: float | None = None
    """When the last round ended; None: there was none."""
    took_s: float = 0.0
    good_s: float | None = None
    """When the last good round ended."""
    why: str = ""
    """Why the last round failed; empty: it did not."""

    def after(self, began_s: float, ended_s: float, why: str = "") -> "DutyRecord":
        """The record after one more round; `why` it failed, empty: it was a good one."""
        return DutyRecord(
            since_s=self.since_s,
            runs=self.runs + 1,
            failures=self.failures + bool(why),
            failed=self.failed + 1 if why else 0,
            ended_s=ended_s,
            took_s=ended_s - began_s,
            good_s=self.good_s if why else ended_s,
            why=why,
        )

    def elsewhere(self, now_s: float) -> "DutyRecord":
        """The record where another server takes the rounds: what failed here is no longer this server's concern."""
        return DutyRecord(
            since_s=now_s,
            runs=self.runs,
            failures=self.failures,
            ended_s=self.ended_s,
            took_s=self.took_s,
            good_s=self.good_s,
        )

    def good_age_s(self, now_s: float) -> float:
        """Since the last good round, or since the duty became this server's, if that is later."""
        good_s = self.since_s if self.good_s is None else self.good_s
        return max(0.0, now_s - max(self.since_s, good_s))


class RunningDuty:
    """One duty in its thread."""

    def __init__(
        self,
        duty: Duty,
        epoch: Callable[[], int | None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`epoch` is that of this server while it leads. `clock_s` passes as time does."""
        self.duty = duty
        self.record = DutyRecord(clock_s())
        self._epoch = epoch
        self._clock_s = clock_s
        self._said = ""
        """What was logged last of rounds that fail; empty: they do not."""
        self._logger = logging.getLogger(f"gpuyard.control.duties.{duty.name}")
        """The duty's own: lines of one that fails again and again take no room from those of another."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"yard-{duty.name}", daemon=True)

    @property
    def here(self) -> bool:
        """Whether the rounds are this server's now; those of the leader are not where another server leads."""
        return not self.duty.leader or self._epoch() is not None

    @property
    def why(self) -> str:
        """Why the duty fails here; empty: it does not."""
        return self.record.why if self.here else ""

    @property
    def good_age_s(self) -> float:
        """How long ago its last good round ended, or the duty became this server's."""
        return self.record.good_age_s(self._clock_s())

    def ages_s(self) -> tuple[float | None, float | None]:
        """How long ago its last round here ended, and its last good one; None: there was none."""
        record, now_s = self.record, self._clock_s()
        last_s, good_s = [None if at_s is None else now_s - at_s for at_s in (record.ended_s, record.good_s)]
        return last_s, good_s

    def start(self) -> None:
        """Begin with the rounds."""
        self._thread.start()

    def rest(self, pause_s: float) -> bool:
        """Pause; whether it is time to break off."""
        return self._closing.wait(pause_s)

    def stop(self, wait_s: float) -> bool:
        """Begin no more rounds, and wait for the one under way, at most this long; whether it has ended."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=wait_s)
        return not self._thread.is_alive()

    def close(self, wait_s: float = CLOSE_S) -> None:
        """End the duty: its rounds, then what it keeps open."""
        wait_s = min(wait_s, self.duty.close_s)
        if not self.stop(wait_s):
            self._logger.warning("%s: a round did not end within %.0f s and is left", self.duty.name, wait_s)
        try:
            self.duty.close()
        except Exception as error:
            self._log(error, "the duty did not end well")

    def round(self) -> float:
        """Take one round, or what comes in its place where another server leads; the pause until the next one."""
        duty, epoch = self.duty, self._epoch()
        began_s = self._clock_s()
        try:
            if duty.leader and epoch is None:
                return self._elsewhere()
            try:
                pause_s = duty.do(Turn(epoch or 0, self.rest))
            except Fenced:
                if not duty.leader:
                    raise
                # Another server has led since the round began.
                return self._elsewhere()
            why = duty.trouble()
        except Exception as error:
            self.record = self.record.after(began_s, self._clock_s(), error_text(error) or repr(error))
            if self.record.why != self._said and not self._closing.is_set():
                self._log(error, duty.undone)
            self._said = self.record.why
            return duty.retry.pause_s(self.record.failed)
        self.record = self.record.after(began_s, self._clock_s(), why)
        if self._said and not why:
            self._logger.info("%s: works again", duty.name)
        self._said = self._said if why else ""
        return duty.every_s if pause_s is None else pause_s

    def _elsewhere(self) -> float:
        self.duty.elsewhere()
        self.record, self._said = self.record.elsewhere(self._clock_s()), ""
        return self.duty.follower_s

    def _log(self, error: Exception, undone: str) -> None:
        text = f"{undone}: {error_text(error)}" if undone else error_text(error)
        if isinstance(error, EXPLAINED):
            self._logger.warning("%s: %s", self.duty.name, text)
        else:
            self._logger.error("%s: %s", self.duty.name, text, exc_info=error)

    def _run(self) -> None:
        pause_s = self.duty.first_s
        while not self.rest(pause_s):
            pause_s = self.round()


class Duties:
    """All duties of one server."""

    def __init__(
        self,
        duties: Sequence[Duty],
        epoch: Callable[[], int | None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock_s = clock_s
        self._running = {duty.name: RunningDuty(duty, epoch, clock_s) for duty in duties}
        if len(self._running) < len(duties):
            raise ValueError(f"two duties have one name: {sorted([duty.name for duty in duties])}")

    def __iter__(self) -> Iterator[RunningDuty]:
        return iter(self._running.values())

    def __getitem__(self, name: str) -> RunningDuty:
        return self._running[name]

    def failing(self) -> dict[str, str]:
        """Why duties fail, by their names; those that do not are left out."""
        return {each.duty.name: why for each in self if (why := each.why)}

    def start(self) -> None:
        """Start all of them, in their order."""
        for each in self:
            each.start()

    def close(self, wait_s: float = CLOSE_S) -> None:
        """End them one by one, the last first. `wait_s` is for all of them together, but for a moment for each."""
        until_s = self._clock_s() + wait_s
        for each in reversed(self._running.values()):
            each.close(max(LEAST_S, until_s - self._clock_s()))
