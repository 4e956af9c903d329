"""`easy`: the first job that finds no room gets a promise, and others may start only if they do not break it.

A job that will be over by the promised time may use anything that is free; one that runs longer may use only what
the promise leaves over, node by node.
"""

from gpuyard.core.passes import Pass
from gpuyard.core.records import JobRecord
from gpuyard.core.reserve import Promise, promise
from gpuyard.model import Grant, ReasonCode, Reservation

_RESERVATION = ReasonCode.RESERVATION
_WAITS_FOR_ROOM = frozenset({ReasonCode.ROOM, ReasonCode.RESERVATION})


class Easy:
    """One promise."""

    name = "easy"

    def begin(self, current: Pass) -> "EasyPass":
        """One pass."""
        return EasyPass(current)


class EasyPass:
    """Keeps the promise's room out of reach except for jobs that give it back in time."""

    window_ms = 0

    def __init__(self, current: Pass) -> None:
        self._pass = current
        self._promise: Promise | None = None
        self._holds: tuple[Grant, ...] | None = None
        self._promised_nodes: set[int] = set()
        self._beyond: set[int] = set()
        """Ways without room once the promise is kept."""

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room that breaks no promise."""
        current, promised = self._pass, self._promise
        if promised is None:
            return current.find(record)
        ways = record.shape.ways
        in_time = record.estimate_ms <= self.window_ms
        if not in_time and len(ways) == 1 and ways[0].index in self._beyond:
            return _RESERVATION
        found = current.find(record)
        if type(found) is not tuple or in_time:
            return found
        # It has room now and would outlast the promise: it must make do with what the promise leaves.
        if not any(grant[0] in self._promised_nodes for grant in found):
            return found
        nodes = current.state.nodes
        if self._holds is None:
            self._holds = promised.holds(nodes)
        nodes.shift(self._holds, -1)
        kept = current.fits_by_force(record)
        nodes.shift(self._holds, 1)
        if kept is None:
            if len(ways) == 1:
                self._beyond.add(ways[0].index)
            return _RESERVATION
        return kept

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """Promise the first one that waits for room."""
        if self._promise is None and code in _WAITS_FOR_ROOM:
            self._promise = promise(self._pass, record)
            if self._promise is not None:
                self.window_ms = self._promise.at_ms - self._pass.now_ms
                self._promised_nodes = {number for number, _tasks in self._promise.where}
                self._pass.reservations.append(Reservation(record.id, self._promise.at_ms))
        return True

    def started(self, record: JobRecord, grants: tuple[Grant, ...]) -> None:
        """What is left has shrunk; what had no room has none."""
