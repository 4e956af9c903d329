"""Nodes in sets by a key, kept up to date node by node: the least key is found without visiting all nodes."""

from bisect import bisect_left, insort
from collections.abc import Callable

from gpuyard.core.fleet.nodes import DirtyNodes, Nodes
from gpuyard.packing.values import NO_ROOM


class Ranking:
    """The nodes by the key that they have for one kind of task."""

    __slots__ = ("_keys", "_order", "_sets", "_watch")

    def __init__(self, nodes: int) -> None:
        self._keys = [NO_ROOM] * nodes
        self._sets: dict[int, int] = {}
        """The nodes by key."""
        self._order: list[int] = []
        """The keys that at least one node has, sorted."""
        self._watch = DirtyNodes()

    def bring_up(self, nodes: Nodes, key_of: Callable[[int], int]) -> None:
        """Compute the keys of the nodes that have changed."""
        keys, sets, order = self._keys, self._sets, self._order
        for number in self._watch.changed(nodes):
            key, before = key_of(number), keys[number]
            if key == before:
                continue
            keys[number] = key
            bit = 1 << number
            if before != NO_ROOM:
                sets[before] ^= bit
                if not sets[before]:
                    del sets[before]
                    del order[bisect_left(order, before)]
            if key != NO_ROOM:
                if key not in sets:
                    sets[key] = 0
                    insort(order, key)
                sets[key] |= bit

    def least(self, nodes: Nodes, cpu_milli: int, memory_mib: int, members: int) -> tuple[int, int]:
        """Of a set of nodes with enough cores and memory: 1. least key, 2. lowest number. As (key, node)."""
        sets, cpu_free, memory_free = self._sets, nodes.cpu_free, nodes.memory_free
        for key in self._order:
            found = sets[key] & members
            while found:
                low = found & -found
                number = low.bit_length() - 1
                if memory_mib <= memory_free[number] and cpu_milli <= cpu_free[number]:
                    return key, number
                found ^= low
        return NO_ROOM, 0
