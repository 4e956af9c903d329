"""`reclaim`: a tenant within its guarantee takes back what others borrow.

Who reclaims ends within its guarantee, so nobody can reclaim from it in turn: two tenants cannot thrash.
"""

from gpuyard.core.records import JobRecord
from gpuyard.core.state import State
from gpuyard.model import StopCause


class Reclaim:
    """Guarantees are kept."""

    name = "reclaim"
    cause = StopCause.RECLAIM

    def applies(self, state: State, record: JobRecord, _now_ms: int) -> bool:
        """Whether it would stay within a guarantee on its way up the tree."""
        return bool(_entitled(state, record))

    def may_stop(self, state: State, record: JobRecord, victim: JobRecord, _now_ms: int) -> bool:
        """Where their ways up meet: the one within its guarantee, the other above its own."""
        tenants = state.tenants
        ours = tenants.chain[record.leaf]
        entitled = _entitled(state, record)
        if not entitled:
            return False
        theirs = tenants.chain[victim.leaf]
        shared = set(ours) & set(theirs)
        mine = next((n for n in reversed(ours) if n not in shared), None)
        other = next((n for n in reversed(theirs) if n not in shared), None)
        if mine is None or other is None or not any(n in entitled for n in ours[: ours.index(mine) + 1]):
            return False
        column = 1 + victim.model
        used, guarantee = tenants.used[other], tenants.guarantee[other]
        return used[0] > guarantee[0] and used[column] > guarantee[column]


def _entitled(state: State, record: JobRecord) -> set[int]:
    """Tenants on the job's way up that stay within their guarantee if it starts."""
    tenants = state.tenants
    milli = record.shape.gpu_milli
    columns = {0} | {1 + way.model for way in record.shape.ways}
    return {
        number
        for number in tenants.chain[record.leaf]
        if any(
            tenants.guarantee[number][c] and tenants.used[number][c] + milli <= tenants.guarantee[number][c]
            for c in columns
        )
    }
