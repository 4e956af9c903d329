"""Which quotas forbid a start: every rule of every tenant above the job, with numbers.

`Tenants.refusal` stops at the first rule, because one is enough to wait. Here all of them are listed, from the same
columns.
"""

from dataclasses import replace

from gpuyard.core.explain.admission import (
    amount_counted,
    amount_text,
    gpus_counted,
    gpus_text,
    over_budget_reason,
    raise_budget,
)
from gpuyard.core.explain.remedies import ask_less_time
from gpuyard.core.explain.room_reasons import model_name
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import cores_text, count_text, names_text
from gpuyard.core.quota.budgets import MONEY
from gpuyard.core.quota.percentages import percentage_words
from gpuyard.core.quota.tenants import ROOT
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.state.state import State
from gpuyard.model import (
    Cure,
    LeaveLine,
    LendMore,
    Lift,
    LimitTime,
    Quota,
    RaiseAttempts,
    RaiseBorrow,
    RaiseBudget,
    RaiseClassJobs,
    RaiseClassLimit,
    RaiseCores,
    RaiseLimit,
    RaiseMemory,
    RaiseNamedBudget,
    RaisePerJob,
    RaisePerUser,
    RaiseRunningJobs,
    Reason,
    ReasonCode,
    Remedy,
)
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import ENDLESS_MS, MILLI, NO_LIMIT_MS, SECOND_MS
from gpuyard.quantities import memory_words, span_words

_HELD_BY = ": held back by "


def quota_reasons(current: Pass, record: JobRecord, may_force: bool) -> list[Reason]:
    """All quotas in the way at the job's turn, the job's own tenant first."""
    if not current.policy.spec.quotas:
        return []
    models = sorted({way.model for way in record.shape.ways})
    reasons = [
        *tenant_reasons(current.state, record, models, current.now_ms, may_force),
        *_kept_quota(current, record),
    ]
    return list(dict.fromkeys(reasons))


def tenant_reasons(
    state: State, record: JobRecord, models: list[int], now_ms: int, may_force: bool
) -> list[Reason]:
    """Every rule of every tenant that forbids a start on these GPU models."""
    reasons: list[Reason] = []
    for number in state.tenants.chain[record.leaf]:
        reasons += _amounts(state, record, number, models, may_force)
        reasons += _measures(state, record, number, may_force)
        reasons += _counts(state, record, number)
    for number in state.tenants.chain[record.party]:
        reasons += _budget(state, record, number, now_ms)
    reasons += _per_user(state, record, may_force)
    reasons += _of_class(state, record, may_force)
    for model in models:
        reasons += _held_back(state, record, model, may_force)
    return reasons


def tenant_name(state: State, number: int) -> str:
    """A tenant's path; the root has none."""
    return state.tenants.path[number] or "the whole yard"


def _in_percent(state: State, path: str, kind: str, key: str) -> str:
    """A quota in percent, with what it is a part of; of one in GPUs nothing."""
    own = next((each.quota for each in state.tenants.in_percent if each.path == path), Quota())
    part = own.percentages.get(kind, {}).get(key)
    return percentage_words(part, key, state.count_gpus()) if part else ""


def _amounts(
    state: State, record: JobRecord, number: int, models: list[int], may_force: bool
) -> list[Reason]:
    """Limit and borrowing, in total and by GPU model."""
    tenants, milli = state.tenants, record.shape.gpu_milli
    name, path = tenant_name(state, number), tenants.path[number]
    reasons = []
    for column in (0, *[1 + model for model in models]):
        key = _key(state, column)
        used, limit = tenants.used[number][column], tenants.limit[number][column]
        ceiling, guarantee = tenants.ceiling[number][column], tenants.guarantee[number][column]
        unit = f" {model_name(state, column - 1)}" if column else ""
        asks = f"(uses {gpus_text(used)}, asks for {gpus_text(milli)})"
        ends = Remedy(Cure.JOBS_OF_END, (name,))
        if used + milli > limit:
            over = _amount(used + milli - limit, unit)
            most = f"{gpus_text(limit)}{unit}"
            if part := _in_percent(state, path, "limit", key):
                most += f", which is {part}"
            text = f"{name} would be {over} over its limit of {most} {asks}"
            lifted_by = (ends if milli <= limit else Remedy(Cure.FEWER_GPUS), Remedy(Cure.HIGHER_LIMIT))
            lift: Lift = RaiseLimit(path, key, used + milli)
            reasons.append(Reason(ReasonCode.LIMIT, name, text, may_force, lifted_by, lift))
        if used + milli > ceiling:
            over, borrow = gpus_text(used + milli - ceiling), _amount(ceiling - guarantee, unit)
            promised = gpus_text(guarantee)
            if part := _in_percent(state, path, "borrow", key):
                borrow += f" ({part})"
            if part := _in_percent(state, path, "guarantee", key):
                promised += f" ({part})"
            text = f"{name} may borrow {borrow} above its guarantee of {promised} and would be {over} over that {asks}"
            lift = RaiseBorrow(path, key, used + milli - guarantee)
            lifted_by = (ends, Remedy(Cure.HIGHER_BORROW))
            reasons.append(Reason(ReasonCode.BORROW, name, text, False, lifted_by, lift))
    return reasons


def _measures(state: State, record: JobRecord, number: int, may_force: bool) -> list[Reason]:
    """Cores and memory."""
    tenants = state.tenants
    name, path = tenant_name(state, number), tenants.path[number]
    (cpus, memory), (used_cpus, used_memory) = record.shape.measure, tenants.measure[number]
    most_cpus, most_memory = tenants.most[number]
    ends = Remedy(Cure.JOBS_OF_END, (name,))
    reasons = []
    if used_cpus + cpus > most_cpus:
        text = (
            f"{name} would be {cores_text(used_cpus + cpus - most_cpus)} over its limit of {cores_text(most_cpus)} "
            f"(uses {used_cpus / MILLI:g}, asks for {cpus / MILLI:g})"
        )
        lifted_by = (
            ends if cpus <= most_cpus else Remedy(Cure.FEWER_CORES),
            Remedy(Cure.MORE_CORES, (name,)),
        )
        lift: Lift = RaiseCores(path, used_cpus + cpus)
        reasons.append(Reason(ReasonCode.LIMIT, name, text, may_force, lifted_by, lift))
    if used_memory + memory > most_memory:
        text = (
            f"{name} would be {memory_words(used_memory + memory - most_memory)} of memory over its limit of "
            f"{memory_words(most_memory)} (uses {memory_words(used_memory)}, asks for {memory_words(memory)})"
        )
        less = ends if memory <= most_memory else Remedy(Cure.LESS_MEMORY)
        lift = RaiseMemory(path, used_memory + memory)
        lifted_by = (less, Remedy(Cure.MORE_MEMORY, (name,)))
        reasons.append(Reason(ReasonCode.LIMIT, name, text, may_force, lifted_by, lift))
    return reasons


def _key(state: State, column: int) -> str:
    """The name under which a quota of this column is set."""
    return next(name for name, number in state.models.items() if number == column - 1) if column else TOTAL


def _per_user(state: State, record: JobRecord, may_force: bool) -> list[Reason]:
    """What the tenants above it, and the yard, allow each user."""
    tenants, milli = state.tenants, record.shape.gpu_milli
    reasons = []
    for seat in tenants.chain[record.party]:
        rule = tenants.rule_of.get(seat)
        if rule is None:
            continue
        name, used, most = tenants.path[seat], tenants.used[seat][0], tenants.limit[seat][0]
        whose, path = tenant_name(state, rule), tenants.path[rule]
        if used + milli > most:
            text = (
                f"each user of {whose} may use {gpus_counted(most)}, and {name} would use "
                f"{gpus_text(used + milli)} (uses {gpus_text(used)}, asks for {gpus_text(milli)})"
            )
            fits = milli <= most
            less = Remedy(Cure.JOBS_OF_END, (name,)) if fits else Remedy(Cure.FEWER_GPUS)
            lifted_by = (less, Remedy(Cure.MORE_PER_USER, (whose,)))
            lift: Lift = RaisePerUser(path, used + milli)
            reasons.append(Reason(ReasonCode.PER_USER, name, text, may_force, lifted_by, lift))
        runs, most_runs = tenants.running[seat], tenants.max_running[seat]
        if runs >= most_runs:
            text = f"{name} runs {count_text(runs, 'job')}, and one user may run {most_runs} at a time"
            lifted_by = (Remedy(Cure.JOB_OF_ENDS, (name,)), Remedy(Cure.MORE_ATTEMPTS))
            lift = RaiseAttempts(runs + 1)
            reasons.append(Reason(ReasonCode.PER_USER, name, text, False, lifted_by, lift))
    return reasons


def _of_class(state: State, record: JobRecord, may_force: bool) -> list[Reason]:
    """What the tenants above it allow the jobs of its class."""
    tenants, milli = state.tenants, record.shape.gpu_milli
    reasons = []
    for seat in tenants.chain[record.party]:
        rule, klass = tenants.class_of.get(seat, (-1, ""))
        if rule < 0:
            continue
        whose, path = tenant_name(state, rule), tenants.path[rule]
        more = Remedy(Cure.MORE_OF_CLASS, (whose,))
        used, most = tenants.used[seat][0], tenants.limit[seat][0]
        if used + milli > most:
            text = (
                f"jobs of class {klass} of {whose} may use {gpus_counted(most)} and would use "
                f"{gpus_text(used + milli)} (use {gpus_text(used)}, it asks for {gpus_text(milli)})"
            )
            less = (
                Remedy(Cure.JOBS_OF_END, (tenants.path[seat],)) if milli <= most else Remedy(Cure.FEWER_GPUS)
            )
            lift: Lift = RaiseClassLimit(path, klass, used + milli)
            reasons.append(Reason(ReasonCode.LIMIT, whose, text, may_force, (less, more), lift))
        runs, most_runs = tenants.running[seat], tenants.max_running[seat]
        if runs >= most_runs:
            text = f"{whose} runs {count_text(runs, 'job')} of class {klass} and may run {most_runs}"
            lift = RaiseClassJobs(path, klass, runs + 1)
            lifted_by = (Remedy(Cure.JOB_OF_ENDS, (tenants.path[seat],)), more)
            reasons.append(Reason(ReasonCode.RUNNING_JOBS, whose, text, False, lifted_by, lift))
    return reasons


def _amount(milli: int, unit: str) -> str:
    """`1 GPU`, `4 GPUs`, `4 H100`."""
    return f"{gpus_text(milli)}{unit}" if unit else gpus_counted(milli)


def _counts(state: State, record: JobRecord, number: int) -> list[Reason]:
    """GPUs of one job, and running jobs."""
    tenants, milli = state.tenants, record.shape.gpu_milli
    name = tenant_name(state, number)
    reasons = []
    if milli > tenants.max_job[number]:
        most = gpus_text(tenants.max_job[number])
        text = f"asks for {gpus_counted(milli)}; a job of {name} may have {most}"
        lifted_by = (Remedy(Cure.FEWER_GPUS), Remedy(Cure.MORE_PER_JOB))
        lift: Lift = RaisePerJob(tenants.path[number], milli)
        reasons.append(Reason(ReasonCode.JOB_TOO_LARGE, name, text, False, lifted_by, lift))
    if tenants.running[number] >= tenants.max_running[number]:
        runs = count_text(tenants.running[number], "job")
        text = f"{name} runs {runs} and may run {tenants.max_running[number]}"
        lifted_by = (Remedy(Cure.JOB_OF_ENDS, (name,)), Remedy(Cure.MORE_RUNNING))
        lift = RaiseRunningJobs(tenants.path[number], tenants.running[number] + 1)
        reasons.append(Reason(ReasonCode.RUNNING_JOBS, name, text, False, lifted_by, lift))
    return reasons


def _budget(state: State, record: JobRecord, number: int, now_ms: int) -> list[Reason]:
    spend = state.tenants.spend[number]
    if spend is None:
        return []
    name = tenant_name(state, number)
    gpu_milli, micro = record.shape.gpu_milli, state.micro_least(record.shape, now_ms)
    rate = spend.rate(gpu_milli, micro)
    asked = rate * record.limit_ms
    if asked <= spend.left or spend.soft:
        return []
    after = spend.amount - spend.left + asked
    raised: Lift = RaiseBudget(state.tenants.path[number], -(-after // MILLI))
    if spend.rule is not None:
        raised = RaiseNamedBudget(name, -(-after // (MONEY if spend.of_money else MILLI)))
    alone = over_budget_reason(name, spend, gpu_milli, micro, record.limit_ms)
    if alone is not None and alone.code is ReasonCode.NO_TIME_LIMIT:
        limit_ms = max(SECOND_MS, spend.left // rate // SECOND_MS * SECOND_MS)
        return [replace(alone, lift=LimitTime(record.id, limit_ms))]
    if alone is not None:
        return [replace(alone, text=f"it can never start: {alone.text}", lift=raised)]
    ends = span_words(max(0, spend.window_end_ms - now_ms))
    told = (spend.spent, spend.committed, asked, spend.amount)
    spent, aside, takes = [amount_text(spend, each, told) for each in told[:3]]
    owner = f"{name} has a budget of" if spend.rule is None else f"the budget {name} is"
    amount = amount_counted(spend, spend.amount, told)
    promised = (
        "promised to what runs" if spend.rule is None else "set aside for what runs or is promised room"
    )
    renews = (
        "the window ends"
        if spend.rule is None
        else "it drops its oldest day"
        if spend.rolling
        else "it renews"
    )
    text = f"{owner} {amount}: {spent} spent, {aside} {promised}, and this job may take {takes}; {renews} in {ends}"
    lifted_by = (Remedy(Cure.NEXT_WINDOW), Remedy(Cure.LESS_TIME), raise_budget(spend))
    return [Reason(ReasonCode.BUDGET, name, text, False, lifted_by, raised)]


def _held_back(state: State, record: JobRecord, model: int, may_force: bool) -> list[Reason]:
    """GPUs that are free, but guaranteed to tenants that do not lend them."""
    tenants, milli = state.tenants, record.shape.gpu_milli
    if not tenants.held_back_refusal(record.leaf, model, milli, state.nodes.up_milli):
        return []
    up_milli, mine = state.nodes.up_milli, set(tenants.chain[record.leaf])
    reasons = []
    for column, capacity in ((0, sum(up_milli)), (1 + model, up_milli[model])):
        claimed = tenants.claimed[ROOT][column]
        if not tenants.eats_held_back(record.leaf, column, milli, capacity):
            continue
        unit = f" {model_name(state, model)}" if column else ""
        use = _use_up(state, column)
        idle = [
            (held - used, n)
            for n in range(len(tenants.path))
            for held, used in [(tenants.held_back[n][column], use[n])]
            if n not in mine and held > used
        ]
        idle.sort(key=lambda each: (-each[0], each[1]))
        holders = [
            f"{tenant_name(state, n)} ({gpus_text(tenants.held_back[n][column])}, uses {gpus_text(use[n])})"
            for _idle, n in idle
        ]
        text = (
            f"{gpus_text(claimed)} of {_amount(capacity, unit)} that are up are in use or held back, "
            f"and it asks for {gpus_text(milli)}"
        )
        if holders:
            text += f"{_HELD_BY}{names_text(holders)}"
        lifted_by = (Remedy(Cure.LESS_USE), Remedy(Cure.MORE_GPUS), Remedy(Cure.HIGHER_LEND))
        lift = _lend(state, record, column, capacity, idle)
        reasons.append(Reason(ReasonCode.HELD_BACK, "guarantees", text, may_force, lifted_by, lift))
    return reasons


def mask_names(reason: Reason) -> Reason:
    """A reason for a user who may not see every tenant: only held-back reasons name tenants of others."""
    if reason.code is not ReasonCode.HELD_BACK:
        return reason
    said, held, _holders = reason.text.partition(_HELD_BY)
    return replace(reason, text=f"{said}{held}other tenants" if held else said, lift=None)


def _use_up(state: State, column: int) -> list[int]:
    """What each tenant uses on nodes that are up."""
    use = [row[column] for row in state.tenants.used]
    for record in state.running.values():
        if column in (0, 1 + record.model) and (stranded := state.stranded_milli(record)):
            for number in state.tenants.chain[record.party]:
                use[number] -= stranded
    return use


def _lend(
    state: State, record: JobRecord, column: int, capacity: int, idle: list[tuple[int, int]]
) -> LendMore:
    """The fewest tenants that would have to lend, those with most to spare first; if they are not enough, all."""
    tenants, lenders = state.tenants, []
    over = tenants.claimed[ROOT][column] + record.shape.gpu_milli - capacity
    for spare, number in idle:
        if over <= 0:
            break
        over -= spare
        lenders.append(number)
    if over > 0:
        lenders = [n for n in range(len(tenants.path)) if tenants.held_back[n][column]]
    return LendMore(tuple([tenants.path[n] for n in lenders]), _key(state, column))


def _kept_quota(current: Pass, record: JobRecord) -> list[Reason]:
    """Earlier jobs of the same tenants that wait for quota and that this job would delay."""
    state, now_ms = current.state, current.now_ms
    reasons = []
    for number in state.tenants.chain[record.party]:
        kept = current.kept_quota.get(number)
        if kept is None or kept.for_job == record.id or not current.delays(record, kept):
            continue
        name, first = tenant_name(state, number), state.jobs[kept.for_job].job.label
        text = f"job {first}, ahead of it, waits for the quota of {name}"
        if kept.at_ms - now_ms < ENDLESS_MS:
            text += f", which is free in {span_words(max(0, kept.at_ms - now_ms))}"
        if record.estimate_ms < NO_LIMIT_MS:
            text += f"; this one may run for {span_words(record.estimate_ms)}"
        lifted_by = (Remedy(Cure.JOBS_START, (first,)), ask_less_time(record))
        lift = LeaveLine((kept.for_job,))
        reasons.append(Reason(ReasonCode.QUOTA_AHEAD, name, text, False, lifted_by, lift))
    return reasons
