"""Nodes that do not start what they are given: left out for a while, longer each time."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class _Left:
    """What is known of a node that failed."""

    at_ms: int
    """When it failed last."""
    times: int = 0
    """How often in a row."""
    pause_s: float = 0.0
    until_s: float = 0.0
    why: str = ""


class NodeBackoff:
    """The nodes of one engine. A node that has failed more than `free` times in a row is left out."""

    def __init__(
        self,
        first_s: float,
        max_s: float,
        now_ms: Callable[[], int],
        *,
        free: int = 0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_ms` is the time at which attempts start, too; pauses go by `clock_s`, which is never set."""
        self._first_s, self._max_s, self._free = first_s, max_s, free
        self._now_ms, self._clock_s = now_ms, clock_s
        self._left: dict[str, _Left] = {}

    def __bool__(self) -> bool:
        """Whether any node has failed lately."""
        return bool(self._left)

    def put(self, nodes: Iterable[str], why: str) -> None:
        """They have failed."""
        now_s, at_ms = self._clock_s(), self._now_ms()
        for node in nodes:
            left = self._left.setdefault(node, _Left(at_ms))
            left.at_ms = at_ms
            if left.until_s > now_s:
                continue
            left.times += 1
            if left.times > self._free:
                left.pause_s = min(self._max_s, 2 * left.pause_s or self._first_s)
                left.until_s, left.why = now_s + left.pause_s, why

    def why(self, node: str) -> str:
        """Why a node is left out; empty: it is not."""
        left = self._left.get(node)
        return f"left out for a while: {left.why}" if left and left.until_s > self._clock_s() else ""

    def clear(self, nodes: Iterable[str], started_ms: int) -> None:
        """Something started there. What had started before the last failure shows nothing."""
        for node in nodes:
            left = self._left.get(node)
            if left is not None and started_ms > left.at_ms:
                del self._left[node]
