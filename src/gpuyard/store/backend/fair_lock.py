"""Hands out turns to write, in the order in which threads asked.

Python's own lock goes to the thread that grabs it first, usually the one that has just released it. A busy stream of
submissions would then keep the leader waiting. Here the turn goes to the thread that has waited longest.
"""

import threading
from collections import deque


class FairLock:
    """A lock that is handed on in order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._holder = 0
        self._gates: deque[threading.Lock] = deque()

    def take(self, timeout_s: float) -> bool:
        """Wait for the turn; false if it did not come in time."""
        if self._holder == threading.get_ident():
            raise RuntimeError("the store was called from inside its own transaction")
        with self._guard:
            gate = None
            if self._taken:
                gate = threading.Lock()
                gate.acquire()
                self._gates.append(gate)
            self._taken = True
        if gate is not None and not gate.acquire(timeout=timeout_s):
            with self._guard:
                # It may have come between the end of the wait and now; then it is ours to use.
                if gate in self._gates:
                    self._gates.remove(gate)
                    return False
        self._holder = threading.get_ident()
        return True

    def give(self) -> None:
        """Hand the turn to the next thread, if one waits."""
        with self._guard:
            self._holder = 0
            if self._gates:
                self._gates.popleft().release()
            else:
                self._taken = False
