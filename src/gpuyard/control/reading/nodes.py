"""The nodes as they were at one event, for readers without a lock: only nodes that have changed since are made anew.

A reader sees what was written before it asked. Where nothing is new it takes no lock; where the replica is busy for
longer than `WAIT_S`, it has what was published last.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import cast

from gpuyard.control.reading.plain_views import node_view
from gpuyard.control.reading.publisher import UNREAD_S, WAIT_S
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State
from gpuyard.core.fleet.nodes import DirtyNodes
from gpuyard.model import Settings
from gpuyard.wire.replies.fleet import NodeReply

PIECE = 500
"""Nodes that are made in one hold of the replica's lock."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes, and the settings that name them, at one event."""

    seq: int
    views: tuple[NodeReply, ...]
    settings: Settings


class NodesReading:
    """The published nodes of one process. Any thread may ask, as long as it does not hold the replica's lock."""

    def __init__(self, replica: Replica, now_s: Callable[[], float] = time.monotonic) -> None:
        self._replica = replica
        self._now_s = now_s
        self._read_s = now_s()
        self._lock = Lock()
        """Taken before the replica's lock, by the reader that makes what is new."""
        self._state: State | None = None
        self._dirty = DirtyNodes()
        self._views: list[NodeReply] = []
        self._nodes: Nodes | None = None

    def latest(self) -> Nodes:
        """The nodes as they are now; where the replica is busy for long, as they were published last."""
        self._read_s = self._now_s()
        replica, known = self._replica, self._nodes
        if known is not None and known.seq == replica.store.head() and replica.state is self._state:
            return known
        wait_s = -1 if known is None else WAIT_S
        if not self._lock.acquire(timeout=wait_s):
            return self._nodes or self.latest()
        try:
            if not replica.lock.acquire(timeout=wait_s):
                assert known is not None
                return self._nodes or known
            try:
                replica.catch_up()
                return self._publish()
            except BaseException:
                # What has changed may be half made: all of it is made anew.
                self._state = None
                raise
            finally:
                replica.lock.release()
        finally:
            self._lock.release()

    def drop_unread(self) -> None:
        """Forget what was published if nobody has read it for long: it is made anew for the next reader."""
        if self._now_s() - self._read_s >= UNREAD_S and self._lock.acquire(blocking=False):
            self._state, self._nodes, self._views = None, None, []
            self._lock.release()

    def _publish(self) -> Nodes:
        """Called with both locks. Others have the replica between pieces; what changes meanwhile is made once more."""
        replica = self._replica
        while True:
            state = replica.state
            if state is not self._state:
                self._state, self._dirty, self._views = state, DirtyNodes(), []
            changed = self._changed()
            for first in range(PIECE, len(changed), PIECE):
                self._make(changed[first - PIECE : first])
                replica.pause()
                if replica.state is not state:
                    break
            else:
                self._make(changed[-(len(changed) % PIECE or PIECE) :])
                self._make(self._changed())
                self._nodes = Nodes(replica.seq, tuple(self._views), state.settings)
                return self._nodes

    def _changed(self) -> list[int]:
        assert self._state is not None
        return sorted(self._dirty.changed(self._state.nodes))

    def _make(self, numbers: list[int]) -> None:
        state, views = self._state, self._views
        assert state is not None
        # A node that has come is among the numbers, of this piece or of a later one.
        views += [cast("NodeReply", {})] * (len(state.nodes.node) - len(views))
        for number in numbers:
            views[number] = node_view(state, number)
