"""When a slice of a pinned GPU becomes free, if all running jobs end when expected.

Such slices exist already and only change hands. So the jobs that want one size queue for them: each takes the slice
that is free first. A job that could also be served elsewhere is counted in that queue all the same: then the real start
is no later than this estimate.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.shapes import Way
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.state import State
from gpuyard.model.mig import Slice
from gpuyard.model.plans import Grant


class Handed(NamedTuple):
    """When a slice is handed on, and by which job."""

    at_ms: int
    job_id: int
    """0: the slice is free."""


def is_pinned_somewhere(state: State, record: JobRecord) -> bool:
    """Whether any GPU is pinned to slices of the job's profile."""
    pins = [pin for row in state.nodes.pins.values() for pin in row.values()]
    return any([place.profile == record.shape.profile for pin in pins for place in pin.held])


def find_handover(state: State, now_ms: int, record: JobRecord, before: Iterable[JobRecord]) -> Handed | None:
    """When the job gets its slice of a pinned GPU, after the jobs before it in the queue; None: unknown.

    Only if all of them want one slice: several would have to be free at the same time, and on the same node.
    """
    shape = record.shape
    if not shape.profile or shape.slices > 1:
        return None
    free = _free_from(state, now_ms, record)
    heapify(free)
    for other in before:
        if other.shape.profile != shape.profile:
            continue
        if not free or other.shape.slices > 1:
            return None
        heappush(free, Handed(heappop(free).at_ms + other.estimate_ms, other.id))
    return free[0] if free else None


def _free_from(state: State, now_ms: int, record: JobRecord) -> list[Handed]:
    """When each slice of the profile is free, on GPUs that are pinned to such slices and that the job may use."""
    nodes, shape = state.nodes, record.shape
    found: list[Handed] = []
    for way in shape.ways:
        for number in each(nodes.kinds[way.kind].members & way.pools):
            if nodes.closed[number] or number not in nodes.pins or _lacks_quota(state, record, way, now_ms):
                continue
            holders = {
                piece: (end_ms, job_id, grant)
                for job_id, (end_ms, grant) in nodes.attempts_on[number].items()
                for piece in grant.slices
            }
            for gpu, pin in nodes.pins[number].items():
                used = nodes.slices_used.get(number, {}).get(gpu, ())
                for place in pin.held:
                    if place.profile != shape.profile:
                        continue
                    holder = holders.get(Slice(gpu, *place))
                    if holder is not None and _has_room(state, record, number, holder[2]):
                        # An overdue attempt is expected to end right away.
                        found.append(Handed(max(holder[0], now_ms + 1), holder[1]))
                    elif place not in used and _has_room(state, record, number, None):
                        found.append(Handed(now_ms, 0))
    return found


def _has_room(state: State, record: JobRecord, number: int, gone: Grant | None) -> bool:
    """Whether the node has the cores and memory, counting what one job gives back."""
    cpu_milli = state.nodes.cpu_free[number] + (gone.cpu_milli if gone else 0)
    memory_mib = state.nodes.memory_free[number] + (gone.memory_mib if gone else 0)
    return record.shape.cpu_milli <= cpu_milli and record.shape.memory_mib <= memory_mib


def _lacks_quota(state: State, record: JobRecord, way: Way, now_ms: int) -> bool:
    """Whether the job also waits for quota."""
    shape, limit_ms, micro = record.shape, record.limit_ms, state.micro_by(record.shape, way, now_ms)
    refusal = state.tenants.refusal(record.party, way.model, shape.gpu_milli, limit_ms, shape.measure, micro)
    return refusal is not None
