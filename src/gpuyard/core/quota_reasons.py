"""Every quota that stands in a job's way, at every level of the tree."""

from gpuyard.core.admission import gpus_text
from gpuyard.core.policy import Policy
from gpuyard.core.records import JobRecord
from gpuyard.core.state import State
from gpuyard.core.tenants import UNLIMITED, Spend
from gpuyard.core.words import span
from gpuyard.model import Reason, ReasonCode
from gpuyard.model.units import HOUR_MS, MILLI, NO_LIMIT_MS


def quota_reasons(state: State, policy: Policy, record: JobRecord) -> list[Reason]:
    """All refusals on all levels, if every way to serve the job meets one; nothing if one way is open."""
    if not policy.spec.quotas:
        return []
    by_way = [_of_model(state, record, way.model) for way in record.shape.ways]
    if any(not reasons for reasons in by_way):
        return []
    found: list[Reason] = []
    for reasons in by_way:
        found += [reason for reason in reasons if reason not in found]
    return found


def _of_model(state: State, record: JobRecord, model: int) -> list[Reason]:
    tenants, milli = state.tenants, record.shape.gpu_milli
    found: list[Reason] = []
    for number in tenants.chain[record.leaf]:
        name = tenants.path[number] or "the yard"
        for column, what in ((0, "GPUs"), (1 + model, f"{_model_name(state, model)} GPUs")):
            found += _amounts(state, number, column, what, name, milli)
        if tenants.running[number] >= tenants.max_running[number]:
            text = f"{name} runs {tenants.running[number]} jobs and may run {tenants.max_running[number]}"
            found.append(Reason(ReasonCode.RUNNING_JOBS, name, text, True, f"the end of a job of {name}"))
        spend = tenants.spend[number]
        if spend is not None:
            found += _budget(state, record, spend, name, milli)
    if tenants.held_back_refusal(record.leaf, model, milli, state.nodes.up_milli):
        text = f"what is free of {gpus_text(sum(state.nodes.up_milli))} GPUs is guaranteed to others who do not lend it"
        found.append(Reason(ReasonCode.HELD_BACK, "guarantees", text, True, "the end of a running job"))
    return found


def _amounts(state: State, number: int, column: int, what: str, name: str, milli: int) -> list[Reason]:
    tenants = state.tenants
    used, limit = tenants.used[number][column], tenants.limit[number][column]
    ceiling, guarantee = tenants.ceiling[number][column], tenants.guarantee[number][column]
    found = []
    if used + milli > limit:
        over = gpus_text(used + milli - limit)
        text = f"{name} would be {over} {what} over its limit of {gpus_text(limit)} (uses {gpus_text(used)})"
        found.append(Reason(ReasonCode.LIMIT, name, text, True, f"{over} {what} of {name} coming free"))
    if ceiling < UNLIMITED and used + milli > ceiling:
        over = gpus_text(used + milli - ceiling)
        text = (
            f"{name} would borrow {over} {what} more than it may: {gpus_text(guarantee)} guaranteed, "
            f"{gpus_text(ceiling - guarantee)} to borrow, {gpus_text(used)} in use"
        )
        found.append(Reason(ReasonCode.BORROW, name, text, True, f"{over} {what} of {name} coming free"))
    return found


def _budget(state: State, record: JobRecord, spend: Spend, name: str, milli: int) -> list[Reason]:
    if record.limit_ms >= NO_LIMIT_MS:
        text = f"{name} has a budget of GPU-hours, and a job without a time limit cannot be counted against it"
        return [Reason(ReasonCode.NO_TIME_LIMIT, name, text, False, "a time limit")]
    after = spend.spent_milli_ms + spend.committed_milli_ms + milli * record.limit_ms
    if after <= spend.budget_milli_ms:
        return []
    ends_ms = spend.window_start_ms + spend.window_ms - state.now_ms
    text = (
        f"{name} has {_hours(spend.budget_milli_ms)} GPU-hours: {_hours(spend.spent_milli_ms)} spent, "
        f"{_hours(spend.committed_milli_ms)} committed to what runs, and this job may take "
        f"{_hours(milli * record.limit_ms)}"
    )
    return [Reason(ReasonCode.BUDGET, name, text, False, f"the next window, in {span(max(0, ends_ms))}")]


def _hours(milli_ms: int) -> str:
    return f"{milli_ms / (MILLI * HOUR_MS):,.1f}"


def _model_name(state: State, model: int) -> str:
    return next(name for name, number in state.models.items() if number == model)
