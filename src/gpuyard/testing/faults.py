"""What can go wrong between a control plane and an engine, drawn from one source of chance to be repeatable."""

from dataclasses import dataclass, field
from enum import Enum
from random import Random


class Misfortune(Enum):
    """What befalls the request for one attempt."""

    NONE = "none"
    LOST = "lost"
    """It failed, and nothing happened."""
    UNSAID = "unsaid"
    """It failed for the caller, but it happened."""
    LATE = "late"
    """It happens after the caller has given up."""
    TWICE = "twice"
    """It happens, and later once more."""


@dataclass(slots=True)
class Faults:
    """Rates in thousandths, consulted at every call. `stop()` ends all of them for good."""

    rng: Random = field(default_factory=lambda: Random(0))
    lost_milli: int = 0
    unsaid_milli: int = 0
    late_milli: int = 0
    twice_milli: int = 0
    late_ms_max: int = 10_000
    """The longest delay of a late request."""
    breaks_milli: int = 0
    """A whole call raises Transient, before or after it happened."""
    forgets_milli: int = 0
    """A finished attempt is forgotten when asked for."""
    old_news_milli: int = 0
    """The answer about an attempt is the one given before."""
    half_gang_milli: int = 0
    """Only half of the tasks start; the engine notices and ends them."""
    half_gang_ms: int = 2_000
    deaf_milli: int = 0
    """TERM is ignored."""
    ends_first_milli: int = 0
    """A job ends well by itself just before it is stopped."""
    flap_milli: int = 0
    """A node goes out of reach when nodes are asked for."""
    crash_milli: int = 0
    """How many of the nodes that go out of reach have crashed."""
    flap_ms_max: int = 60_000
    pull_fails_milli: int = 0
    """The registry does not answer at the end of a pull."""
    refuses_limit_milli: int = 0
    """The site refuses a running job another time limit."""

    @classmethod
    def none(cls) -> "Faults":
        """A world without faults."""
        return cls()

    def stop(self) -> None:
        """From now on nothing goes wrong; what is under way still arrives."""
        for name in self.__slots__:
            if name.endswith("_milli"):
                setattr(self, name, 0)

    def _draw(self, rate_milli: int) -> bool:
        return rate_milli > 0 and self.rng.randrange(1000) < rate_milli

    def befall(self) -> tuple[Misfortune, int]:
        """What befalls one request, and the delay of a late one."""
        for rate_milli, misfortune in (
            (self.lost_milli, Misfortune.LOST),
            (self.unsaid_milli, Misfortune.UNSAID),
            (self.late_milli, Misfortune.LATE),
            (self.twice_milli, Misfortune.TWICE),
        ):
            if self._draw(rate_milli):
                return misfortune, self.rng.randrange(1, self.late_ms_max + 1)
        return Misfortune.NONE, 0

    def breaks(self) -> bool:
        """Whether the call as a whole fails here."""
        return self._draw(self.breaks_milli)

    def forgets(self) -> bool:
        """Whether the engine forgets this finished attempt now."""
        return self._draw(self.forgets_milli)

    def old_news(self) -> bool:
        """Whether the answer is the previous one."""
        return self._draw(self.old_news_milli)

    def half_gang(self) -> bool:
        """Whether only half of a gang starts."""
        return self._draw(self.half_gang_milli)

    def deaf(self) -> bool:
        """Whether the job ignores TERM this time."""
        return self._draw(self.deaf_milli)

    def ends_first(self) -> bool:
        """Whether the job ends by itself before the stop reaches it."""
        return self._draw(self.ends_first_milli)

    def pull_fails(self) -> bool:
        """Whether this pull ends without an image."""
        return self._draw(self.pull_fails_milli)

    def refuses_limit(self) -> bool:
        """Whether another time limit is refused."""
        return self._draw(self.refuses_limit_milli)

    def flap(self, names: list[str]) -> tuple[str, bool, int] | None:
        """Which node goes out of reach now, whether it crashed, and for how long."""
        if not names or not self._draw(self.flap_milli):
            return None
        return (
            self.rng.choice(names),
            self._draw(self.crash_milli),
            self.rng.randrange(1, self.flap_ms_max + 1),
        )
