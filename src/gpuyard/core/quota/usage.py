"""What tenants have used: decayed period by period, worked out when somebody reads it.

Usage is charged and decayed at the end of each period, and a running attempt counts as if it ran to the end of the
current one. So the fair order changes only when an attempt starts or ends or a period ends, never by the mere passing
of time, and all values are integers. Only the fair share reads usage. Without it, changes are logged in order and
worked out on the first read; the arithmetic and its order are the same, so it makes no difference when that happens.
"""

from gpuyard.model import Settings

_FIXED = 32
"""Fraction bits of the decay factor."""
_CLOSED = -1
_LOG_MAX = 10_000
"""Entries that may be logged before they are worked out."""
_STEPS_UNSEEN = 16
"""Periods that are closed between two checks whether usage still changes."""


class UsageDelta:
    """The charge for each attempt of one shape, tenant and kind of node, and its changes that `Tenants` lacks so far.

    `jobs` is how many more attempts run than the columns of `Tenants` say; `since_ms` is the sum of their start times
    less the sum of the end times.
    """

    __slots__ = ("jobs", "key", "leaf", "measure", "milli", "model", "rate", "settled", "since_ms")

    def __init__(self, leaf: int, model: int, milli: int, rate: int, measure: tuple[int, int]) -> None:
        self.key = (leaf, model)
        """The columns it is entered in: of this tenant and GPU model."""
        self.leaf = leaf
        self.model = model
        self.milli = milli
        self.rate = rate
        self.measure = measure
        """Cores and memory."""
        self.jobs = self.since_ms = 0
        self.settled = True


class DecayedUsage:
    """Three columns by tenant's number. Read them after `catch_up`."""

    __slots__ = ("_chain", "_factor", "_period_ms", "accrued", "log", "rate", "usage")

    def __init__(self, settings: Settings, chain: list[tuple[int, ...]]) -> None:
        self._period_ms = settings.period_ms
        self._factor = round(2 ** (-settings.period_ms / settings.half_life_ms) * (1 << _FIXED))
        self._chain = chain
        self.rate: list[int] = []
        """Charge per millisecond of the attempts that run now."""
        self.accrued: list[int] = []
        """Correction for attempts that started or ended inside the current period."""
        self.usage: list[int] = []
        """Decayed charge of closed periods."""
        self.log: list[tuple[int, int, int]] = []
        """Entries yet to be worked out: a tenant and the changes of its rate and its correction; or `_CLOSED` and how
        many periods were closed."""

    def add(self) -> None:
        """Add a row for one more tenant."""
        for column in (self.rate, self.accrued, self.usage):
            column.append(0)

    def enter(self, leaf: int, rate: int, accrued: int) -> None:
        """Change the charge of a tenant and of all tenants above it."""
        if self.log:
            self.log.append((leaf, rate, accrued))
        else:
            self._enter(leaf, rate, accrued)

    def _enter(self, leaf: int, rate: int, accrued: int) -> None:
        rates, accrued_of = self.rate, self.accrued
        for number in self._chain[leaf]:
            rates[number] += rate
            accrued_of[number] += accrued

    def close(self, closed: int, at_once: bool) -> None:
        """Close `closed` periods."""
        self.log.append((_CLOSED, closed, 0))
        if at_once or len(self.log) > _LOG_MAX:
            self.catch_up()

    def catch_up(self) -> None:
        """Work out the logged entries."""
        log, self.log = self.log, []
        for leaf, rate, accrued in log:
            if leaf == _CLOSED:
                self._close(rate)
            else:
                self._enter(leaf, rate, accrued)

    def _close(self, closed: int) -> None:
        rates, accrued, usages, factor = self.rate, self.accrued, self.usage, self._factor
        for number in range(len(usages)):
            rate = rates[number] * self._period_ms
            usage = usages[number] + accrued[number]
            accrued[number] = 0
            # Step by step, so that the result does not depend on when it is worked out.
            left = closed
            while left:
                before, usage = usage, (usage + rate) * factor >> _FIXED
                if usage == before:
                    # A value that did not change has settled.
                    break
                left -= 1
                for _ in range(min(left, _STEPS_UNSEEN)):
                    usage = (usage + rate) * factor >> _FIXED
                left = max(0, left - _STEPS_UNSEEN)
            usages[number] = usage
