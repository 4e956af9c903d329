"""Nodes by what people call them: a name, or `cluster:name` where several clusters have a node of that name."""

from gpuyard.control.refusals import NotFound, Unacceptable
from gpuyard.core import State
from gpuyard.errors import quoted, remedy


def numbers_named(state: State, text: str) -> list[int]:
    """The nodes that a text may mean, in the order of their clusters."""
    cluster, _, name = text.rpartition(":")
    there = [cluster] if cluster else sorted({kind.cluster for kind in state.nodes.kinds})
    return [state.node_number[each, name] for each in there if (each, name) in state.node_number]


def number_of(state: State, text: str) -> int:
    """The one node that a text means; raises where there is none, or more than one."""
    found = numbers_named(state, text)
    if not found:
        known = [name for _cluster, name in state.node_number]
        raise NotFound(f"there is no node {quoted(text)}; {remedy(text, known, 'nodes')}")
    if len(found) > 1:
        clusters = [state.nodes.node[number].cluster for number in found]
        raise Unacceptable(
            f"clusters {' and '.join(clusters)} each have a node {quoted(text)}",
            f"Say which one: {clusters[0]}:{text}.",
        )
    return found[0]
