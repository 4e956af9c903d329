"""A duty: something that a server does by itself, again and again, beside its requests and its loop.

A duty is a value. It says how often its rounds come, whether they are the leader's, what one round does, and how the
duty is watched and closed. What it needs are the parameters of the function that makes it. It knows no thread:
`rounds` runs it. It reads no clock for its rounds either: `DutyRecord` is told when a round began and ended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

FOLLOWER_S = 1.0
"""How often a server that does not lead looks whether a duty of the leader has become its own."""
CLOSE_S = 30.0


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
