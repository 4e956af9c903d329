"""Budgets in numbers: what is spent by now and by which user, what is set aside, which thresholds were passed."""

from collections import Counter
from dataclasses import dataclass

from gpuyard.core.explain.caps import find_caps
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.budgets import Spend
from gpuyard.core.state.state import State
from gpuyard.model import BudgetReached, NamedBudget
from gpuyard.model.units import MILLI, NO_LIMIT_MS
from gpuyard.quantities import span_words


@dataclass(frozen=True, slots=True)
class NamedUse:
    """One budget, named or a tenant's own. Spent, set aside and left add up to it, in the units of `core/quota`."""

    rule: NamedBudget
    amount: int
    spent: int
    """In this window, including what running jobs have used so far."""
    aside: int
    """What running jobs may still use, up to their time limits."""
    window_start_ms: int
    window_end_ms: int
    by_user: tuple[tuple[str, int], ...]
    """What each user spent, the most first; of a tenant's own budget that is not kept."""
    endless: tuple[str, ...]
    """Labels of running jobs without a time limit: nothing can be set aside for them, and a hard budget is closed."""
    every_ms: int = 0
    """A tenant's own budget has windows of this length; 0: those of the rule."""

    @property
    def left(self) -> int:
        """What new jobs may use; below 0 if the budget was made smaller than what is spent and set aside."""
        return self.amount - self.spent - self.aside


def list_named_uses(state: State, now_ms: int) -> list[NamedUse]:
    """All named budgets, by name."""
    tenants, found = state.tenants, []
    for _name, row in sorted(tenants.budget_row.items()):
        spend = tenants.spend[row]
        assert spend is not None
        assert spend.rule is not None
        found.append(_use(state, spend, spend.rule, row, now_ms))
    return found


def list_own_uses(state: State, now_ms: int) -> list[NamedUse]:
    """The budgets that tenants have of their own, by path, as rules under the path: hard, and of GPU time."""
    tenants, named, found = state.tenants, set(state.tenants.budget_row.values()), []
    for path, number in sorted([(path, number) for number, path in tenants.places() if number not in named]):
        use = find_caps(state, number, now_ms).budget
        if use is None:
            continue
        rule = NamedBudget(path, use.budget_milli_ms // MILLI, tenant=path, warn_at=())
        endless = sorted(
            [
                record.job.label
                for record in state.running.values()
                if record.limit_ms >= NO_LIMIT_MS and number in tenants.chain[record.leaf]
            ]
        )
        amounts = (use.budget_milli_ms, use.spent_milli_ms, use.promised_milli_ms)
        window = (use.window_end_ms - use.window_ms, use.window_end_ms)
        found.append(NamedUse(rule, *amounts, *window, (), tuple(endless), use.window_ms))
    return found


def _use(state: State, spend: Spend, rule: NamedBudget, row: int, now_ms: int) -> NamedUse:
    start_ms, end_ms = spend.window_of(now_ms)
    by_user: Counter[str] = Counter()
    if start_ms == spend.window_start_ms or spend.rolling:
        # Otherwise the window has ended, and no event has closed it yet.
        for (_day, user), part in spend.parts.items():
            by_user[user] += part
    aside, endless = 0, []
    for record in state.running.values():
        if row not in state.tenants.chain[record.party]:
            continue
        rate = spend.rate(record.shape.gpu_milli, state.micro_of(record))
        by_user[record.job.spec.user] += rate * max(0, now_ms - max(record.started_ms, start_ms))
        if record.limit_ms >= NO_LIMIT_MS:
            endless.append(record.job.label)
        else:
            aside += rate * max(0, record.started_ms + record.limit_ms - now_ms)
    users = sorted(by_user.items(), key=lambda each: (-each[1], each[0]))
    spent = sum(by_user.values())
    return NamedUse(rule, spend.amount, spent, aside, start_ms, end_ms, tuple(users), tuple(sorted(endless)))


def behind_text(state: State, record: JobRecord, now_ms: int) -> str:
    """Why a job's turn comes after those of all jobs within their budgets; empty: it does not."""
    spends = [state.tenants.spend[number] for number in state.tenants.chain[record.party]]
    names, ends = [], []
    for spend in spends:
        if spend is not None and spend.rule is not None and spend.softens and spend.left <= 0:
            names.append(spend.rule.name)
            ends.append(spend.window_of(now_ms)[1])
    if not names or record.earmark is not None:
        return ""
    renews = span_words(max(0, max(ends) - now_ms))
    budgets = (
        f"the soft budget {names[0]} is" if len(names) == 1 else f"the soft budgets {', '.join(names)} are"
    )
    return f"behind all jobs within their budgets: {budgets} spent or set aside for {renews} more"


def find_reached(state: State, now_ms: int) -> list[BudgetReached]:
    """The thresholds that were passed and of which nobody was told in this window: of each budget the highest."""
    found = []
    for use in list_named_uses(state, now_ms):
        spend = state.tenants.spend[state.tenants.budget_row[use.rule.name]]
        passed = [part for part in use.rule.warn_at if use.spent * 100 >= use.amount * part]
        if spend is not None and passed and max(passed) > spend.told:
            found.append(BudgetReached(now_ms, use.rule.name, max(passed)))
    return found
