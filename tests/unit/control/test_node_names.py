"""A node is its cluster and its name: two clusters with nodes of the same names stay apart."""

from dataclasses import replace

import pytest

from gpuyard.control.loop.observe import node_events
from gpuyard.control.refusals import NotFound, Unacceptable
from gpuyard.control.replica.labels import find_node, find_nodes
from gpuyard.core import State, apply
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.engines.contract import NodeReport
from gpuyard.model import Ask, Event, Node, NodeAdded, NodeChanged, Whole

EAST = Node("n1", "east", "p", "H100", 2, 64_000, 1 << 18)
WEST = replace(EAST, cluster="west", pool="q")


def told(state: State, *nodes: Node, up: bool = True, others: frozenset[str] = frozenset()) -> list[Event]:
    """What one engine reports, folded."""
    events = node_events(state, [NodeReport(node, up) for node in nodes], state.now_ms, others)
    for event in events:
        apply(state, event)
    return events


def both() -> State:
    state = State()
    told(state, EAST, others=frozenset({"west"}))
    told(state, WEST, others=frozenset({"east"}))
    return state


def test_two_clusters_may_each_have_a_node_of_one_name() -> None:
    state = both()
    assert {("east", "n1"): 0, ("west", "n1"): 1} == state.node_number
    assert canonical(load(dump(state))) == canonical(state)
    assert load(dump(state)).node_number == state.node_number


def test_an_engine_judges_the_nodes_of_its_own_cluster_only() -> None:
    state = both()
    assert [] == told(state, EAST, others=frozenset({"west"}))
    told(state, others=frozenset({"west"}))
    assert ["the engine no longer has it", ""] == state.nodes.down


def test_a_cluster_that_got_another_name_keeps_its_nodes() -> None:
    state = State()
    told(state, EAST)
    (event,) = told(state, WEST)
    assert isinstance(event, NodeChanged)
    assert {("west", "n1"): 0} == state.node_number
    assert [""] == state.nodes.down


def test_people_name_the_cluster_where_the_name_of_a_node_is_not_enough() -> None:
    state = both()
    apply(state, NodeAdded(0, replace(EAST, name="n2")))
    assert [0, 1] == find_nodes(state, "n1")
    assert 2 == find_node(state, "n2")
    assert 1 == find_node(state, "west:n1")
    with pytest.raises(Unacceptable, match="clusters east and west each have a node 'n1'") as refused:
        find_node(state, "n1")
    assert "Say which one: east:n1." == refused.value.hint
    with pytest.raises(NotFound, match="did you mean"):
        find_node(state, "n11")


def test_a_job_may_ask_for_a_node_of_one_cluster() -> None:
    state = both()
    shape = state.shape_of(Ask(Whole(1), on_nodes=("west:n1",)))
    assert [0b10] == [way.pools for way in shape.ways]
    shape = state.shape_of(Ask(Whole(1), not_nodes=("west:n1",)))
    assert [0b01] == [way.pools for way in shape.ways]
