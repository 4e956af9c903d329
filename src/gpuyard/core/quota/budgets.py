"""Budgets: what a window has spent, what running attempts may still spend, and which jobs a budget is about.

An attempt counts with all that it may spend (its rate times its time limit) from its start to its end, and with what it
did spend after that. Amounts are integers: milli-GPU x ms of GPU time, or micro-dollars x milli-GPU x ms / hour of
money, so that no product is rounded.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from gpuyard.model.settings import BudgetAction, NamedBudget, Window
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI

MONEY = MILLI * HOUR_MS
"""What a micro-dollar is in the amounts of budgets of money."""

_EPOCH = date(1970, 1, 1)
_MONTHS = {Window.MONTH: 1, Window.QUARTER: 3}


def window_at(window: Window, days: int, at_ms: int) -> tuple[int, int]:
    """When the window of a time begins, and when the next one does: whole UTC days, weeks from Monday on.

    A rolling window has a day that is not over yet and the days before it; the next one begins with the next day.
    """
    today = at_ms // DAY_MS
    if window is Window.ROLLING:
        return (today - days + 1) * DAY_MS, (today + 1) * DAY_MS
    here = datetime.fromtimestamp(today * 86_400, UTC).date()
    if window is Window.WEEK:
        first = here - timedelta(days=here.weekday())
        after = first + timedelta(days=7)
    else:
        months = _MONTHS[window]
        first = date(here.year, (here.month - 1) // months * months + 1, 1)
        year, month = divmod(first.month - 1 + months, 12)
        after = date(first.year + year, month + 1, 1)
    return (first - _EPOCH).days * DAY_MS, (after - _EPOCH).days * DAY_MS


@dataclass(slots=True)
class Spend:
    """A budget's state: what this window has spent and what running attempts may still spend."""

    amount: int
    window_ms: int = 0
    """Windows of this length, aligned to the epoch; 0: those of the named budget."""
    rule: NamedBudget | None = None
    window_start_ms: int = 0
    window_end_ms: int = 0
    spent: int = 0
    """By attempts that have ended."""
    committed: int = 0
    """What running attempts may spend, from their starts on."""
    parts: dict[tuple[int, str], int] = field(default_factory=dict)
    """A named budget only: what of `spent` belongs to which user, and in a rolling window to which day, else 0."""
    told: int = 0
    """The highest threshold, in percent, that was told in this window."""
    soft: bool = field(init=False, default=False)
    """Whether no job is refused for it."""
    softens: bool = field(init=False, default=False)
    """Whether jobs go behind all others once everything is spent or set aside."""
    of_money: bool = field(init=False, default=False)
    """Whether it counts money, and not GPU time."""

    def __post_init__(self) -> None:
        # Asked for every job at every decision: what the rule says is kept.
        rule = self.rule
        if rule is not None:
            self.soft = rule.action is not BudgetAction.HARD
            self.softens = rule.action is BudgetAction.SOFT
            self.of_money = rule.micro_usd > 0
        self.open(0)

    @property
    def rolling(self) -> bool:
        """Whether its window slides day by day."""
        return self.rule is not None and self.rule.window is Window.ROLLING

    @property
    def left(self) -> int:
        """What is neither spent nor set aside."""
        return self.amount - self.spent - self.committed

    @property
    def longest_ms(self) -> int:
        """How long it takes at most until everything that is spent now no longer counts."""
        if self.rule is None:
            return self.window_ms
        return max(self.rule.days, 92) * DAY_MS

    def window_of(self, at_ms: int) -> tuple[int, int]:
        """The window of a time."""
        if self.rule is None:
            start_ms = at_ms // self.window_ms * self.window_ms
            return start_ms, start_ms + self.window_ms
        return window_at(self.rule.window, self.rule.days, at_ms)

    def open(self, at_ms: int) -> None:
        """Go on to the window of a time."""
        self.window_start_ms, self.window_end_ms = self.window_of(at_ms)
        if not self.rolling:
            self.spent = self.told = 0
            self.parts.clear()
            return
        first = self.window_start_ms // DAY_MS
        self.parts = {key: part for key, part in self.parts.items() if key[0] >= first}
        self.spent = sum(self.parts.values())
        if self.rule is not None and self.spent < self.amount * min(self.rule.warn_at, default=0) // 100:
            self.told = 0

    def pay(self, rate: int, started_ms: int, at_ms: int, user: str = "") -> None:
        """An attempt of a user has ended: add what it spent in the open window."""
        from_ms = max(started_ms, self.window_start_ms)
        self.spent += rate * max(0, at_ms - from_ms)
        while self.rule is not None and rate and from_ms < at_ms:
            day = from_ms // DAY_MS if self.rolling else 0
            until_ms = min(at_ms, (day + 1) * DAY_MS) if self.rolling else at_ms
            self.parts[day, user] = self.parts.get((day, user), 0) + rate * (until_ms - from_ms)
            from_ms = until_ms

    def keep(self, before: "Spend") -> None:
        """Take over what was spent under earlier settings, if it was counted alike."""
        if before.rule is not None and self.rule is not None:
            mine, theirs = self.rule, before.rule
            alike = (mine.window, mine.days) == (theirs.window, theirs.days)
            alike = alike and self.of_money == before.of_money
        else:
            alike = before.rule is self.rule and before.window_ms == self.window_ms
        if alike:
            self.window_start_ms, self.window_end_ms = before.window_start_ms, before.window_end_ms
            self.spent, self.parts, self.told = before.spent, dict(before.parts), before.told

    def resume(self, window_start_ms: int, spent: int) -> None:
        """Go on in a tenant's own window, as a dump has it."""
        self.window_start_ms = window_start_ms
        self.window_end_ms = window_start_ms + self.window_ms
        self.spent = spent

    def resume_named(self, at_ms: int, spent: int, parts: dict[tuple[int, str], int], told: int) -> None:
        """Go on in the window of a time, as a dump has a named budget."""
        self.open(at_ms)
        self.spent, self.parts, self.told = spent, parts, told

    def rate(self, milli: int, micro: int) -> int:
        """What an attempt spends of it in a millisecond."""
        return micro if self.of_money else milli


def make_spend(rule: NamedBudget) -> Spend:
    """A named budget, unspent."""
    return Spend(rule.micro_usd * MONEY if rule.micro_usd else rule.gpu_ms * MILLI, rule=rule)


Labels = Collection[tuple[str, str]]


def is_about(rule: NamedBudget, tenant: str, klass: str, user: str, labels: Labels) -> bool:
    """Whether a budget counts the jobs of a tenant, a class and a user that have these labels."""
    return (
        (not rule.tenant or tenant == rule.tenant or tenant.startswith(f"{rule.tenant}/"))
        and rule.klass in ("", klass)
        and (not rule.users or user in rule.users)
        and (not rule.labels or all([each in labels for each in rule.labels]))
    )
