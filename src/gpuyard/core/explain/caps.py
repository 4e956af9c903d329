"""A tenant's budget and caps, and how much of each is used: what `refusal` in `quota.tenants` compares, in numbers."""

from dataclasses import dataclass

from gpuyard.core.quota.tenants import UNLIMITED
from gpuyard.core.state.state import State
from gpuyard.model import Bounds, ClassLimit, Quota


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget of GPU time: spent, promised and left add up to it. Amounts are milli-GPU x ms."""

    budget_milli_ms: int
    spent_milli_ms: int
    """In this window, including what running jobs have used so far."""
    promised_milli_ms: int
    """What running jobs may still use, up to their time limits."""
    window_ms: int
    window_end_ms: int
    """When the next window begins."""

    @property
    def left_milli_ms(self) -> int:
        """What new jobs may use; below 0 if the budget was made smaller than what is promised."""
        return self.budget_milli_ms - self.spent_milli_ms - self.promised_milli_ms


@dataclass(frozen=True, slots=True)
class Caps:
    """The caps of one tenant; None: no cap."""

    budget: BudgetUse | None
    max_running_jobs: int | None
    max_gpus_per_job_milli: int | None
    max_gpus_per_user_milli: int | None
    """For each user below it."""
    most_per_user_milli: int
    """The most that one user below it uses."""
    max_jobs: int | None
    """Jobs that wait or run."""
    refuses: bool
    """Whether it refuses jobs that would be over a limit, instead of letting them wait."""
    per_job: dict[str, Bounds]
    """What one job may ask for."""
    classes: dict[str, ClassLimit]
    """What jobs of a class may have."""
    max_cpu_milli: int | None
    max_memory_mib: int | None
    cpu_milli: int
    """What its running jobs have, as much as they name; counted where any tenant has such a cap."""
    memory_mib: int


def find_caps(state: State, number: int, now_ms: int) -> Caps:
    """What a tenant may use besides its GPU quotas, and what it uses of that."""
    tenants = state.tenants
    tenant = next((t for t in state.settings.tenants if t.path == tenants.path[number]), None)
    quota = tenant.quota if tenant is not None else Quota()
    per_user = quota.max_gpus_per_user
    users = [tenants.used[seat][0] for seat, rule in tenants.rule_of.items() if rule == number]
    most, jobs = tenants.max_job[number], tenants.max_running[number]
    cpus, memory = tenants.most[number]
    return Caps(
        _budget(state, number, now_ms),
        None if jobs >= UNLIMITED else jobs,
        None if most >= UNLIMITED else most,
        per_user,
        max(users, default=0),
        quota.max_jobs,
        quota.refuses,
        quota.per_job,
        quota.classes,
        None if cpus >= UNLIMITED else cpus,
        None if memory >= UNLIMITED else memory,
        *tenants.measure[number],
    )


def _budget(state: State, number: int, now_ms: int) -> BudgetUse | None:
    tenants = state.tenants
    spend = tenants.spend[number]
    if spend is None:
        return None
    start_ms, spent = spend.window_start_ms, spend.spent
    if now_ms >= spend.window_end_ms:
        # The window has ended, and no event has closed it yet.
        start_ms, spent = spend.window_of(now_ms)[0], 0
    running = [
        record.shape.gpu_milli * max(0, now_ms - max(record.started_ms, start_ms))
        for record in state.running.values()
        if number in tenants.chain[record.leaf]
    ]
    used = sum(running)
    return BudgetUse(
        spend.amount,
        spent + used,
        max(0, spend.committed - used),
        spend.window_ms,
        start_ms + spend.window_ms,
    )
