"""`class`: a job of a higher class takes the room of a lower, preemptible one.

It never takes another tenant below its guarantee: a promise made to a tenant is worth more than a class.
"""

from gpuyard.core.records import JobRecord
from gpuyard.core.state import State
from gpuyard.model import StopCause


class PreemptByClass:
    """Higher priority first."""

    name = "class"
    cause = StopCause.CLASS

    def applies(self, state: State, record: JobRecord, _now_ms: int) -> bool:
        """Whether anything preemptible of a lower priority runs."""
        priority = record.klass.priority
        return any(v.klass.preemptible and v.klass.priority < priority for v in state.running.values())

    def may_stop(self, state: State, record: JobRecord, victim: JobRecord, _now_ms: int) -> bool:
        """A lower class, of the same tenant or of one that stays at its guarantee."""
        if victim.klass.priority >= record.klass.priority:
            return False
        tenants = state.tenants
        ours = tenants.chain[record.leaf]
        milli = victim.shape.gpu_milli
        for number in tenants.chain[victim.leaf]:
            if number in ours:
                return True
            if tenants.used[number][0] - milli < tenants.guarantee[number][0]:
                return False
        return True
