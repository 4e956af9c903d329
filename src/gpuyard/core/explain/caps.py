"""A tenant's budget and caps, and how much of each is used: what `refusal` of `quota.tenants` compares, in numbers."""

from dataclasses import dataclass

from gpuyard.core.quota.tenants import UNLIMITED
from gpuyard.core.state.state import State


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget of GPU time: spent, promised and left are all of it. Amounts are milli-GPU x ms."""

    budget_milli_ms: int
    spent_milli_ms: int
    """In this window, what runs has used so far included."""
    promised_milli_ms: int
    """What runs may still use, up to its time limits."""
    window_ms: int
    window_end_ms: int
    """When it begins anew."""

    @property
    def left_milli_ms(self) -> int:
        """What new jobs may ask for; below 0 where a budget was made smaller than what is promised."""
        return self.budget_milli_ms - self.spent_milli_ms - self.promised_milli_ms


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps of one tenant; None where there is none."""

    budget: BudgetUse | None
    max_running_jobs: int | None
    max_gpus_per_job_milli: int | None
    max_gpus_per_user_milli: int | None
    """Of each user below it."""
    most_per_user_milli: int
    """What the user below it has that uses most."""


def caps(state: State, number: int, now_ms: int) -> Caps:
    """What a tenant may use besides its quotas in GPUs, and what it uses of that."""
    tenants = state.tenants
    tenant = next((t for t in state.settings.tenants if t.path == tenants.path[number]), None)
    per_user = tenant.quota.max_gpus_per_user if tenant is not None else None
    users = [tenants.used[seat][0] for seat, rule in tenants.rule_of.items() if rule == number]
    most, jobs = tenants.max_job[number], tenants.max_running[number]
    return Caps(
        _budget(state, number, now_ms),
        None if jobs >= UNLIMITED else jobs,
        None if most >= UNLIMITED else most,
        per_user,
        max(users, default=0),
    )


def _budget(state: State, number: int, now_ms: int) -> BudgetUse | None:
    tenants = state.tenants
    spend = tenants.spend[number]
    if spend is None:
        return None
    start_ms, spent = spend.window_start_ms, spend.spent_milli_ms
    if now_ms >= start_ms + spend.window_ms:
        # It has closed, and no event has told of it yet.
        start_ms, spent = now_ms // spend.window_ms * spend.window_ms, 0
    running = [
        record.shape.gpu_milli * max(0, now_ms - max(record.started_ms, start_ms))
        for record in state.running.values()
        if number in tenants.chain[record.leaf]
    ]
    used = sum(running)
    return BudgetUse(
        spend.budget_milli_ms,
        spent + used,
        max(0, spend.committed_milli_ms - used),
        spend.window_ms,
        start_ms + spend.window_ms,
    )
