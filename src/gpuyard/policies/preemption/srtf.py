"""`srtf`: a job takes the room of a job that has far more left to do.

Far more is four times as much: with less, two jobs of similar length would stop each other in turn and redo work.
"""

from collections.abc import Callable

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import UNLIMITED
from gpuyard.core.schedule.running_jobs import find_running
from gpuyard.core.state.state import State
from gpuyard.model import StopCause

_RATIO = 4


class PreemptLonger:
    """Shortest remaining time first, with hysteresis."""

    name = "srtf"
    cause = StopCause.SHORTER

    def applies(self, state: State, _record: JobRecord, now_ms: int) -> bool:
        """Whether a preemptible job runs."""
        return any([group.count for group in find_running(state, now_ms).groups.values()])

    def within(self, state: State, record: JobRecord, now_ms: int) -> int:
        """The size of a job makes no difference."""
        return UNLIMITED if self.applies(state, record, now_ms) else -1

    def rights(self, _state: State, record: JobRecord, now_ms: int) -> Callable[[JobRecord], bool]:
        """The victim has no higher class, and much more left to do."""
        priority = record.klass.priority
        much_more_ms = _RATIO * record.estimate_ms

        def may_stop(victim: JobRecord) -> bool:
            return victim.klass.priority <= priority and victim.end_ms - now_ms > much_more_ms

        return may_stop

    def reaches(self, _state: State, record: JobRecord) -> Callable[[int, int], bool]:
        """The victim has no higher class."""
        priority = record.klass.priority
        return lambda _leaf, victim_priority: victim_priority <= priority
