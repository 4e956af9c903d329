"""Where a guarantee meets a promise: a promise to a job that borrows does not bind a job within its guarantee.

The rule is the one of `reclaim`, applied before the borrower runs: were the promised job running, the other one could
take the room back. So it applies where the policy reclaims, and nowhere else.
"""

from collections.abc import Sequence

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.running_jobs import find_running
from gpuyard.core.state.state import State
from gpuyard.model import StopCause


def lowest_entitled(state: State, record: JobRecord, models: Sequence[int]) -> int:
    """The height in its chain of the first tenant that stays within a guarantee if the job starts; -1: none does."""
    tenants = state.tenants
    milli = record.shape.gpu_milli
    guaranteed, used_of = tenants.guaranteed, tenants.used
    for height, number in enumerate(tenants.chain[record.leaf]):
        if not guaranteed[number]:
            # No tenant from here up has a guarantee.
            return -1
        guarantee, used = tenants.guarantee[number], used_of[number]
        if guarantee[0] and used[0] + milli <= guarantee[0]:
            return height
        for model in models:
            column = 1 + model
            if guarantee[column] and used[column] + milli <= guarantee[column]:
                return height
    return -1


def most_entitled(state: State, leaf: int, models: Sequence[int]) -> int:
    """The largest ask, in milli-GPU, with which a job of a tenant stays within a guarantee; -1: there is none."""
    tenants, most = state.tenants, -1
    guaranteed, used_of = tenants.guaranteed, tenants.used
    for number in tenants.chain[leaf]:
        if not guaranteed[number]:
            break
        guarantee, used = tenants.guarantee[number], used_of[number]
        if guarantee[0] and guarantee[0] - used[0] > most:
            most = guarantee[0] - used[0]
        for model in models:
            column = 1 + model
            if guarantee[column] and guarantee[column] - used[column] > most:
                most = guarantee[column] - used[column]
    return most


def unbound(
    current: Pass, record: JobRecord, model: int, promised: JobRecord, promised_model: int, at_ms: int
) -> bool:
    """Whether a job that would start on `model` stays within a guarantee, against which the promised job borrows."""
    state = current.state
    tenants = state.tenants
    if not tenants.guaranteed[record.leaf]:
        return False
    if not any([rule.cause is StopCause.RECLAIM for rule in current.policy.rules]):
        return False
    entitled_at = lowest_entitled(state, record, (model,))
    if entitled_at < 0:
        return False
    ours, below = tenants.chain[record.leaf], -1
    for number in tenants.chain[promised.leaf]:
        if number in ours:
            # Within one tenant, whose turn it is decides.
            return (
                below >= 0
                and entitled_at < ours.index(number)
                and _borrows(current, below, promised, promised_model, at_ms)
            )
        below = number
    return False


def _borrows(current: Pass, number: int, promised: JobRecord, model: int, at_ms: int) -> bool:
    """Whether a tenant will be above its guarantee when the promised job starts, when what is due by then has ended."""
    state = current.state
    used, guarantee = state.tenants.used[number], state.tenants.guarantee[number]
    total = used[0] + promised.shape.gpu_milli
    alike = used[1 + model] + promised.shape.gpu_milli
    for each, ends in find_running(state, current.now_ms).ends_below(state, number).items():
        milli, _count = ends.until(at_ms)
        total -= milli
        alike -= milli if each == model else 0
    for record in current.started:
        if record.end_ms <= at_ms and number in state.tenants.chain[record.leaf]:
            total -= record.shape.gpu_milli
            alike -= record.shape.gpu_milli if record.model == model else 0
    return total > guarantee[0] and alike > guarantee[1 + model]
