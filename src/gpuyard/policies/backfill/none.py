"""`none`: no job overtakes. The first job without room ends the pass; a job that lacks quota stops its tenant."""

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass
from gpuyard.model import Grant, ReasonCode

_BLOCKS_ALL = frozenset({ReasonCode.ROOM, ReasonCode.RESERVATION})


class NoBackfill:
    """Strict order."""

    name = "none"
    promises_all = False

    def begin(self, current: Pass) -> "NoBackfillPass":
        """Begin a pass."""
        return NoBackfillPass(current)


class NoBackfillPass:
    """Ends at the first job without room."""

    window_ms = 0
    settled = False

    def __init__(self, current: Pass) -> None:
        self._pass = current

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Free room."""
        return self._pass.find(record)

    def holds(self) -> tuple[Grant, ...]:
        """Nothing is promised."""
        return ()

    def blocked(self, _record: JobRecord, code: ReasonCode) -> bool:
        """Continue only past jobs that lack quota."""
        return code not in _BLOCKS_ALL
