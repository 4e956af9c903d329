"""The tenant tree in numbers: what each tenant is due, has used, borrows and lends, and what could be taken back.

All values are in the columns of `quota.tenants`. Here they become rows for users, with the inputs of the arithmetic
beside its results.
"""

from dataclasses import dataclass

from gpuyard.core.explain.caps import Caps, find_caps
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT, UNLIMITED
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.schedule.running_jobs import is_preemptible, protected_until_ms
from gpuyard.core.state.state import State
from gpuyard.model import JobState
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import HOUR_MS
from gpuyard.quantities import percent_words, span_words

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
class TenantShare:
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


def share(state: State, policy: Policy, now_ms: int) -> list[TenantShare]:
    """All tenants, each after its parent, members by path. Does not advance the state."""
    tenants = state.tenants
    waiting = [0] * len(tenants.path)
    for record in state.jobs.values():
        if record.state is JobState.PENDING:
            for number in tenants.chain[record.leaf]:
                waiting[number] += 1
    takes_back = "reclaim" in policy.spec.preemption and policy.spec.quotas
    stoppable = [r for r in state.running.values() if _stoppable(state, r, now_ms)] if takes_back else []
    beside = _Beside(state, stoppable)
    rows: dict[int, TenantShare] = {}
    stack = [ROOT]
    while stack:
        number = stack.pop()
        above = rows[tenants.parent[number]].yard_ppm if rows else PPM
        rows[number] = _row(state, number, waiting[number], above, beside, find_caps(state, number, now_ms))
        stack += sorted(tenants.children[number], key=lambda n: tenants.path[n], reverse=True)
    return list(rows.values())


def total_of(state: State, number: int) -> int:
    """Decayed charges plus what runs now, as the fair key counts them."""
    tenants = state.tenants
    return tenants.usage[number] + tenants.rate[number] * tenants.settings.period_ms


@dataclass(frozen=True, slots=True)
class _Members:
    """All members of one tenant together."""

    weights: int
    used: int
    place: dict[int, int]
    """The rank of each by its fair key, from 1."""


class _Beside:
    """What the rows of many tenants have in common, worked out once: a yard may have thousands."""

    def __init__(self, state: State, stoppable: list[JobRecord]) -> None:
        tenants, nodes = state.tenants, state.nodes
        self._state = state
        self._members: dict[int, _Members] = {}
        self.free = [0] * (1 + len(state.models))
        """GPUs that nobody has, in total and by model."""
        for number, kind in enumerate(nodes.kind_of):
            if not nodes.closed[number]:
                left = sum([max(0, free) for free in nodes.gpu_free[number]])
                self.free[0] += left
                self.free[1 + kind.model] += left
        self.may_go: dict[tuple[int, int], int] = {}
        """GPUs of attempts that may be stopped, by tenant and column."""
        for record in stoppable:
            for number in tenants.chain[record.leaf]:
                for column in (0, 1 + record.model):
                    key = (number, column)
                    self.may_go[key] = self.may_go.get(key, 0) + record.shape.gpu_milli
        self.entitled = [
            number
            for number in range(len(tenants.path))
            if any([g > u for g, u in zip(tenants.guarantee[number], tenants.used[number], strict=True)])
        ]
        """Tenants with a guarantee that they do not use."""

    def members_with(self, number: int) -> _Members:
        """A tenant and those beside it, below the same parent."""
        tenants = self._state.tenants
        parent = tenants.parent[number] if number != ROOT else -1
        found = self._members.get(parent)
        if found is None:
            every = tenants.children[parent] if number != ROOT else [ROOT]
            ranked = sorted(every, key=lambda n: (_fair_key(self._state, n), n))
            found = self._members[parent] = _Members(
                sum([tenants.weight[n] for n in every]),
                sum([total_of(self._state, n) for n in every]),
                {n: place for place, n in enumerate(ranked, 1)},
            )
        return found


def _fair_key(state: State, number: int) -> int:
    return (total_of(state, number) << 16) // state.tenants.weight[number]


def _row(state: State, number: int, waiting: int, above: int, beside: _Beside, own: Caps) -> TenantShare:
    tenants = state.tenants
    members = beside.members_with(number)
    weights, used = members.weights, members.used
    share_ppm = PPM * tenants.weight[number] // weights
    columns = [0, *sorted([1 + n for name, n in state.models.items() if name])]
    return TenantShare(
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
        fair_key=_fair_key(state, number),
        place=members.place[number],
        members=len(members.place),
        running=tenants.running[number],
        waiting=waiting,
        amounts=tuple(
            [
                _amount(state, number, column, beside)
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


def _amount(state: State, number: int, column: int, beside: _Beside) -> Amount:
    tenants = state.tenants
    used, guarantee = tenants.used[number][column], tenants.guarantee[number][column]
    limit, ceiling = tenants.limit[number][column], tenants.ceiling[number][column]
    borrowed = max(0, used - guarantee) if number != ROOT else 0
    idle = max(0, guarantee - used)
    lendable = min(idle, max(0, guarantee - tenants.held_back[number][column]))
    return Amount(
        model=next(name for name, n in state.models.items() if n == column - 1) if column else TOTAL,
        used=used,
        guarantee=guarantee,
        limit=limit if limit < UNLIMITED else None,
        borrow=ceiling - guarantee if ceiling < UNLIMITED else None,
        borrowed=borrowed,
        lendable=lendable,
        lent=min(lendable, max(0, idle - beside.free[column])),
        exposure=min(borrowed, beside.may_go.get((number, column), 0))
        if _others_entitled(state, number, beside)
        else 0,
    )


def _others_entitled(state: State, number: int, beside: _Beside) -> bool:
    """Whether a tenant outside this part of the tree has a guarantee that it does not use."""
    chain = state.tenants.chain
    return any(n not in chain[number] and number not in chain[n] for n in beside.entitled)


def _stoppable(state: State, record: JobRecord, now_ms: int) -> bool:
    """Whether an attempt may be stopped for another job: class and pool allow it, and it has run long enough."""
    return is_preemptible(state, record) and record.cause is None and protected_until_ms(record) <= now_ms


def position_text(state: State, record: JobRecord) -> str:
    """How a job's tenant stands in the fair share, at the level that holds it back most; empty: no level does.

    A job that goes by age in its team is held back only from there up.
    """
    tenants, queue = state.tenants, state.queue
    line = queue.line(record) if queue.order.fair else record.leaf
    by_age = ""
    if line != record.leaf:
        waited = span_words(state.now_ms - record.job.submitted_ms)
        by_age = f"after {waited} it comes by age in {tenants.path[line]}, whichever member submitted it"
    worst: tuple[int, int] | None = None
    for number in tenants.chain[line]:
        siblings = tenants.children[tenants.parent[number]] if number != ROOT else []
        used = sum([total_of(state, n) for n in siblings])
        if len(siblings) > 1 and used:
            # How far it is above its share; of equals, the lowest level.
            share_ppm = PPM * tenants.weight[number] // sum([tenants.weight[n] for n in siblings])
            over = PPM * total_of(state, number) // used - share_ppm
            if worst is None or over > worst[0]:
                worst = (over, number)
    if worst is None:
        return by_age
    number = worst[1]
    siblings = tenants.children[tenants.parent[number]]
    used = sum([total_of(state, n) for n in siblings])
    used_ppm = PPM * total_of(state, number) // used
    share_ppm = PPM * tenants.weight[number] // sum([tenants.weight[n] for n in siblings])
    parent = tenants.path[tenants.parent[number]] or "the yard"
    return (f"{by_age}; " if by_age else "") + (
        f"{tenants.path[number]} has had {percent_words(used_ppm)} of what the members of {parent} were charged, "
        f"against its share of {percent_words(share_ppm)}"
    )
