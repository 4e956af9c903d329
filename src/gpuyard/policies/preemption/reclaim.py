"""`reclaim`: a tenant within its guarantee takes back what others borrow.

A tenant that reclaims ends within its guarantee, so no tenant can reclaim from it in turn: two tenants cannot thrash.
"""

from collections.abc import Callable

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.entitled import lowest_entitled, most_entitled
from gpuyard.core.state.state import State
from gpuyard.model import StopCause


class Reclaim:
    """Keeps guarantees."""

    name = "reclaim"
    cause = StopCause.RECLAIM

    def applies(self, state: State, record: JobRecord, _now_ms: int) -> bool:
        """Whether the job would stay within the guarantee of a tenant above it."""
        if not state.tenants.guaranteed[record.leaf]:
            return False
        return lowest_entitled(state, record, record.shape.models) >= 0

    def within(self, state: State, record: JobRecord, _now_ms: int) -> int:
        """What is left of the guarantees above the job."""
        return most_entitled(state, record.leaf, record.shape.models)

    def rights(self, state: State, record: JobRecord, _now_ms: int) -> Callable[[JobRecord], bool]:
        """Where the two chains meet: the job's side is within its guarantee, the victim's above its own."""
        tenants, borrower = state.tenants, _borrowers(state, record)

        def may_stop(victim: JobRecord) -> bool:
            number = borrower(victim.leaf)
            if number < 0:
                return False
            used, guarantee = tenants.used[number], tenants.guarantee[number]
            column = 1 + victim.usage.model
            return used[0] > guarantee[0] and used[column] > guarantee[column]

        return may_stop

    def reaches(self, state: State, record: JobRecord) -> Callable[[int, int], bool]:
        """The same without the victim's GPU model."""
        tenants, borrower = state.tenants, _borrowers(state, record)

        def reach(leaf: int, _priority: int) -> bool:
            number = borrower(leaf)
            return number >= 0 and tenants.used[number][0] > tenants.guarantee[number][0]

        return reach


def _borrowers(state: State, record: JobRecord) -> Callable[[int], int]:
    """By a victim's tenant: the one that must be borrowing, just below where its chain meets the job's; -1: none."""
    tenants = state.tenants
    entitled_at = _lowest_entitled(state, record)
    ours = tenants.chain[record.leaf]
    known: dict[int, int] = {}

    def borrower(leaf: int) -> int:
        found = known.get(leaf)
        if found is None:
            below = found = -1
            for number in tenants.chain[leaf]:
                if number in ours:
                    found = below if entitled_at < ours.index(number) else -1
                    break
                below = number
            known[leaf] = found
        return found

    return borrower


def _lowest_entitled(state: State, record: JobRecord) -> int:
    return lowest_entitled(state, record, record.shape.models)
