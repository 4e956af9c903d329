"""The tenant tree in numbers: what each tenant is due, has used, borrows and lends, and what could be taken back.

All values are in the columns of `quota.tenants`. Here they become rows for users, with the inputs of the arithmetic
beside its results.
"""

from dataclasses import dataclass

from gpuyard.core.explain.caps import Caps, caps
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT, UNLIMITED
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.schedule.running_jobs import protected_until_ms
from gpuyard.core.state.state import State
from gpuyard.model import JobState
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import HOUR_MS

PPM = 1_000_000
"""A share of one, in parts per million."""


@dataclass(frozen=True, slots=True)
class Amount:
    """GPUs of one model, or under `total`, in milli-GPU; None: no limit."""

    model: str
    used: int
    guarantee: int
    limit: int | None
    borrow: int | None
    """How far above its guarantee it may go."""
    borrowed: int
    """What it uses above its guarantee."""
    lendable: int
    """Idle guarantee that other tenants may use meanwhile."""
    lent: int
    """The part of `lendable` that is in use: other tenants have it, and it would have to be taken back."""
    exposure: int
    """What it uses above its guarantee and could be forced to give back now."""


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant."""

    path: str
    depth: int
    weight: int
    weights: int
    """The weights of all members of its parent, its own included."""
    share_ppm: int
    """Its due part of what its parent gets: its weight divided by theirs."""
    yard_ppm: int
    """Its due part of the whole yard: the product of the shares on its path to the root."""
    usage_milli_usd: int
    """Charges of closed periods, decayed."""
    current_milli_usd: int
    """The charge of what runs now, as if it ran to the end of the current period."""
    siblings_milli_usd: int
    """The sum of both over all members of its parent, its own included."""
    used_ppm: int
    """Its part of that sum."""
    fair_key: int
    """Usage over weight, as the order compares it: the smallest goes first."""
    place: int
    """Its rank by that key among the members of its parent, from 1."""
    members: int
    """How many members its parent has."""
    running: int
    waiting: int
    amounts: tuple[Amount, ...]
    """In total, and for each GPU model for which it has a quota."""
    caps: Caps


def share(state: State, policy: Policy, now_ms: int) -> list[Row]:
    """All tenants, each after its parent, members by path. Does not advance the state."""
    tenants = state.tenants
    waiting = [0] * len(tenants.path)
    for record in state.jobs.values():
        if record.state is JobState.PENDING:
            for number in tenants.chain[record.leaf]:
                waiting[number] += 1
    takes_back = "reclaim" in policy.spec.preemption and policy.spec.quotas
    stoppable = [r for r in state.running.values() if _stoppable(r, now_ms)] if takes_back else []
    rows: list[Row] = []
    stack = [ROOT]
    while stack:
        number = stack.pop()
        rows.append(_row(state, number, waiting[number], stoppable, rows, caps(state, number, now_ms)))
        stack += sorted(tenants.children[number], key=lambda n: tenants.path[n], reverse=True)
    return rows


def total_of(state: State, number: int) -> int:
    """Decayed charges plus what runs now, as the fair key counts them."""
    tenants = state.tenants
    return tenants.usage[number] + tenants.rate[number] * tenants.settings.period_ms


def _row(
    state: State, number: int, waiting: int, stoppable: list[JobRecord], rows: list[Row], own: Caps
) -> Row:
    tenants = state.tenants
    siblings = tenants.children[tenants.parent[number]] if number != ROOT else [ROOT]
    weights = sum([tenants.weight[n] for n in siblings])
    used = sum([total_of(state, n) for n in siblings])
    share_ppm = PPM * tenants.weight[number] // weights
    above = PPM
    if number != ROOT:
        parent = tenants.path[tenants.parent[number]]
        above = next(row.yard_ppm for row in rows if row.path == parent)
    keys = {n: (total_of(state, n) << 16) // tenants.weight[n] for n in siblings}
    columns = [0, *sorted([1 + n for name, n in state.models.items() if name])]
    return Row(
        path=tenants.path[number],
        depth=len(tenants.chain[number]) - 1,
        weight=tenants.weight[number],
        weights=weights,
        share_ppm=share_ppm,
        yard_ppm=above * tenants.weight[number] // weights,
        usage_milli_usd=tenants.usage[number] // HOUR_MS,
        current_milli_usd=tenants.rate[number] * tenants.settings.period_ms // HOUR_MS,
        siblings_milli_usd=used // HOUR_MS,
        used_ppm=PPM * total_of(state, number) // used if used else 0,
        fair_key=keys[number],
        place=1 + sum([(keys[n], n) < (keys[number], number) for n in siblings]),
        members=len(siblings),
        running=tenants.running[number],
        waiting=waiting,
        amounts=tuple(
            [
                _amount(state, number, column, stoppable)
                for column in columns
                if not column or _matters(state, number, column)
            ]
        ),
        caps=own,
    )


def _matters(state: State, number: int, column: int) -> bool:
    """Whether a tenant has a quota for a GPU model."""
    tenants = state.tenants
    return bool(
        tenants.guarantee[number][column]
        or tenants.limit[number][column] < UNLIMITED
        or tenants.ceiling[number][column] < UNLIMITED
    )


def _amount(state: State, number: int, column: int, stoppable: list[JobRecord]) -> Amount:
    tenants, nodes = state.tenants, state.nodes
    used, guarantee = tenants.used[number][column], tenants.guarantee[number][column]
    limit, ceiling = tenants.limit[number][column], tenants.ceiling[number][column]
    borrowed = max(0, used - guarantee) if number != ROOT else 0
    idle = max(0, guarantee - used)
    lendable = min(idle, max(0, guarantee - tenants.held_back[number][column]))
    numbers = [
        n for n, kind in enumerate(nodes.kind_of) if not nodes.closed[n] and column in (0, 1 + kind.model)
    ]
    free = sum([max(0, left) for n in numbers for left in nodes.gpu_free[n]])
    may_go = sum(
        [
            r.shape.gpu_milli
            for r in stoppable
            if number in tenants.chain[r.leaf] and column in (0, 1 + r.model)
        ]
    )
    return Amount(
        model=next(name for name, n in state.models.items() if n == column - 1) if column else TOTAL,
        used=used,
        guarantee=guarantee,
        limit=limit if limit < UNLIMITED else None,
        borrow=ceiling - guarantee if ceiling < UNLIMITED else None,
        borrowed=borrowed,
        lendable=lendable,
        lent=min(lendable, max(0, idle - free)),
        exposure=min(borrowed, may_go) if _others_entitled(state, number) else 0,
    )


def _others_entitled(state: State, number: int) -> bool:
    """Whether a tenant outside this part of the tree has a guarantee that it does not use."""
    tenants = state.tenants
    mine = set(tenants.chain[number])
    return any(
        [
            n not in mine
            and number not in tenants.chain[n]
            and any([g > u for g, u in zip(tenants.guarantee[n], tenants.used[n], strict=True)])
            for n in range(len(tenants.path))
        ]
    )


def _stoppable(record: JobRecord, now_ms: int) -> bool:
    """Whether an attempt may be stopped for another job: its class allows it, and it has run long enough."""
    return record.klass.preemptible and record.cause is None and protected_until_ms(record) <= now_ms


def position(state: State, record: JobRecord) -> str:
    """How a job's tenant stands in the fair share, at the level that holds it back most; empty: no level does."""
    tenants = state.tenants
    worst: tuple[int, int] | None = None
    for number in tenants.chain[record.leaf]:
        siblings = tenants.children[tenants.parent[number]] if number != ROOT else []
        used = sum([total_of(state, n) for n in siblings])
        if len(siblings) > 1 and used:
            # How far it is above its share; of equals, the lowest level.
            share_ppm = PPM * tenants.weight[number] // sum([tenants.weight[n] for n in siblings])
            over = PPM * total_of(state, number) // used - share_ppm
            if worst is None or over > worst[0]:
                worst = (over, number)
    if worst is None:
        return ""
    number = worst[1]
    siblings = tenants.children[tenants.parent[number]]
    used = sum([total_of(state, n) for n in siblings])
    used_ppm = PPM * total_of(state, number) // used
    share_ppm = PPM * tenants.weight[number] // sum([tenants.weight[n] for n in siblings])
    parent = tenants.path[tenants.parent[number]] or "the yard"
    return (
        f"{tenants.path[number]} has had {percent(used_ppm)} of what the members of {parent} were charged, "
        f"against its share of {percent(share_ppm)}"
    )


def percent(ppm: int) -> str:
    """`41 %`, `0.5 %`."""
    tenths = (ppm + 500) // 1000
    whole, part = divmod(tenths, 10)
    return f"{whole}.{part} %" if part else f"{whole} %"
