"""When a share finds a GPU that is cut now and whole again then, if the slices on it end when promised.

A share is promised no such GPU: while it is cut, more slices may be cut from it, and each of them puts the share off.
So this is when the share starts at the soonest, told where no other time is known.
"""

from typing import NamedTuple

from gpuyard.core.estimate.room_lifts import obstacles
from gpuyard.core.fleet.shapes import SHARE
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.quota_profile import QuotaProfile
from gpuyard.core.state.state import State


class Uncut(NamedTuple):
    """When a GPU takes the share, and the jobs that end before it does."""

    at_ms: int
    job_ids: tuple[int, ...]


def uncut(
    state: State, quotas: QuotaProfile | None, now_ms: int, from_ms: int, record: JobRecord
) -> Uncut | None:
    """The soonest over all ways to serve the job; None: it is no share, or more than ends are in its way."""
    if record.shape.form != SHARE or not state.nodes.cut:
        return None
    best: Uncut | None = None
    for way in record.shape.ways:
        found = obstacles(state, record, way, now_ms)
        if not found.running or found.kept or found.foreign or found.closed or found.pinned:
            continue
        # Something that should have ended and has not is expected to end right away.
        at_ms = max(from_ms, found.when_ms, now_ms + 1)
        if quotas is not None and quotas.concerns(record):
            at_ms = quotas.earliest(record, way.model, at_ms)
        if best is None or at_ms < best.at_ms:
            best = Uncut(at_ms, found.running)
    return best
