"""When a share finds a GPU that is cut now and whole again by then, if the slices on it end when expected.

No such GPU is promised to a share: while it is cut, more slices may be cut from it, and each of them delays the share.
So this is the earliest start, given only where no other time is known.
"""

from typing import NamedTuple

from gpuyard.core.estimate.room_lifts import find_obstacles
from gpuyard.core.fleet.shapes import SHARE
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.quota_profile import QuotaProfile
from gpuyard.core.state.state import State


class ShareStart(NamedTuple):
    """When a GPU can take the share, and the jobs that end before that."""

    at_ms: int
    job_ids: tuple[int, ...]


def find_uncut_start(
    state: State, quotas: QuotaProfile | None, now_ms: int, from_ms: int, record: JobRecord
) -> ShareStart | None:
    """The soonest over all ways to serve the job; None: it is no share, or not only running jobs are in its way."""
    if record.shape.form != SHARE or not state.nodes.slices_used:
        return None
    best: ShareStart | None = None
    for way in record.shape.ways:
        found = find_obstacles(state, record, way, now_ms)
        if not found.running or found.kept or found.foreign or found.closed or found.pinned:
            continue
        # An overdue attempt is expected to end right away.
        at_ms = max(from_ms, found.when_ms, now_ms + 1)
        if quotas is not None and quotas.concerns(record):
            at_ms = quotas.earliest(record, way.model, at_ms)
        if best is None or at_ms < best.at_ms:
            best = ShareStart(at_ms, found.running)
    return best
