"""`class`: a job of a higher class takes the room of a lower, preemptible one.

It never brings another tenant below its guarantee: a promise to a tenant is worth more than a class.
"""

from collections.abc import Callable

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import UNLIMITED
from gpuyard.core.schedule.running_jobs import find_running
from gpuyard.core.state.state import State
from gpuyard.model import StopCause


class PreemptByClass:
    """Higher priority first."""

    name = "class"
    cause = StopCause.CLASS

    def applies(self, state: State, record: JobRecord, now_ms: int) -> bool:
        """Whether a preemptible job of a lower priority runs."""
        priority, lowest = record.klass.priority, state.lowest_preemptible
        if lowest is None or priority <= lowest:
            return False
        groups = find_running(state, now_ms).groups.values()
        return any([group.count and group.klass.priority < priority for group in groups])

    def within(self, state: State, record: JobRecord, now_ms: int) -> int:
        """The size of a job makes no difference."""
        lowest = state.lowest_preemptible
        if lowest is None or record.klass.priority <= lowest:
            return -1
        return UNLIMITED if self.applies(state, record, now_ms) else -1

    def rights(self, state: State, record: JobRecord, _now_ms: int) -> Callable[[JobRecord], bool]:
        """The victim has a lower class, and the same tenant or one that stays at its guarantee."""
        tenants = state.tenants
        ours = tenants.chain[record.leaf]
        priority = record.klass.priority

        def may_stop(victim: JobRecord) -> bool:
            if victim.klass.priority >= priority:
                return False
            milli = victim.shape.gpu_milli
            for number in tenants.chain[victim.leaf]:
                if number in ours:
                    return True
                if tenants.used[number][0] - milli < tenants.guarantee[number][0]:
                    return False
            return True

        return may_stop

    def reaches(self, state: State, record: JobRecord) -> Callable[[int, int], bool]:
        """The same without the victim's size."""
        tenants = state.tenants
        ours = tenants.chain[record.leaf]
        priority = record.klass.priority

        def reach(leaf: int, victim_priority: int) -> bool:
            if victim_priority >= priority:
                return False
            for number in tenants.chain[leaf]:
                if number in ours:
                    return True
                if tenants.used[number][0] < tenants.guarantee[number][0]:
                    return False
            return True

        return reach
