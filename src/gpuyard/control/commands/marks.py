"""Labels and taints of nodes, looked at and set by people, over the replica. What is set is an event of the log."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from gpuyard.control.access.people import Person
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.refusals import Forbidden, Unacceptable
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.labels import find_node
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.fleet.marks import UNMARKED
from gpuyard.errors import quote, suggest
from gpuyard.model import NodeMarked, Taint
from gpuyard.model.placement import check_label, parse_taint
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.fleet import LiveMarksReply, MarkedReply, NodeLabelReply, NodeMarksReply


@dataclass(frozen=True, slots=True)
class WantedMarks:
    """What is to be set on some nodes."""

    nodes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    labels: tuple[tuple[str, str | None], ...] = ()
    """None: the node is to have no such label."""
    taints: tuple[str, ...] = ()
    untaint: tuple[str, ...] = ()
    """`key` for every taint of that key, or `key:Effect`."""
    reset: bool = False
    """Whether first everything is as the configuration says."""


class MarkRequests:
    """What people may know and want of labels and taints."""

    def __init__(
        self,
        replica: Replica,
        committer: Committer,
        now_ms: Callable[[], int],
        observed: ObservedClusters | None = None,
    ) -> None:
        self._replica = replica
        self._committer = committer
        self._now_ms = now_ms
        self._observed = observed or None

    # -- looking -------------------------------------------------------------------------------------------------

    def view(self, name: str) -> NodeMarksReply:
        """Every label and taint of a node, and where it comes from."""
        with self._replica.lock:
            self._replica.catch_up()
            state = self._replica.state
            return _view(state, find_node(state, name))

    def live(self) -> LiveMarksReply:
        """What is set live, by node."""
        with self._replica.lock:
            self._replica.catch_up()
            nodes = self._replica.state.nodes
            return {
                "nodes": [
                    {
                        "node": nodes.node[number].name,
                        "cluster": nodes.node[number].cluster,
                        "labels": {key: value for key, value in live.labels if value is not None},
                        "unlabelled": [key for key, value in live.labels if value is None],
                        "taints": [str(taint) for taint, there in live.taints if there],
                        "untainted": [str(taint) for taint, there in live.taints if not there],
                    }
                    for number, live in sorted(nodes.marks.live.items())
                ]
            }

    # -- setting -------------------------------------------------------------------------------------------------

    def mark(self, person: Person, wanted: WantedMarks) -> "Future[MarkedReply]":
        """Set labels and taints of nodes: on all that are named, or on none."""
        if self._observed is not None:
            self._observed.check_driven("nodes")
        if not person.may(Action.MANAGE_NODES, ""):
            raise Forbidden(
                f"{person.name} may not set labels and taints of nodes", "Ask the owner of the yard, or root."
            )
        labels, taints = _checked(wanted)

        def make(draft: Draft) -> MarkedReply:
            state = draft.state
            numbers = _numbers(state, wanted)
            if self._observed is not None:
                self._observed.check(tuple({state.nodes.node[n].cluster for n in numbers}), "nodes")
            now_ms = max(self._now_ms(), state.now_ms)
            events = [
                NodeMarked(
                    now_ms,
                    number,
                    tuple([(key, value) for key, value in labels if value is not None]),
                    tuple([key for key, value in labels if value is None]),
                    taints,
                    _to_remove(state, number, wanted.untaint),
                    wanted.reset,
                    person.signature,
                )
                for number in numbers
            ]
            for event in events:
                if _changes(state, event):
                    draft.add(event)
            return {"nodes": [state.nodes.node[number].name for number in numbers]}

        return self._committer.write(make)


def _checked(wanted: WantedMarks) -> tuple[tuple[tuple[str, str | None], ...], tuple[Taint, ...]]:
    """Labels and taints that can be; `Unacceptable` otherwise."""
    if not (wanted.labels or wanted.taints or wanted.untaint or wanted.reset):
        raise Unacceptable("sets nothing", "Write KEY=VALUE, KEY- or --reset.")
    try:
        for key, value in wanted.labels:
            check_label(key, value or "")
        taints = tuple([parse_taint(text) for text in wanted.taints])
    except ValueError as error:
        raise Unacceptable(f"a label or a taint {error}") from error
    marks = [(taint.key, taint.effect) for taint in taints]
    if twice := next((key for key, effect in marks if marks.count((key, effect)) > 1), ""):
        raise Unacceptable(f"taint {quote(twice)} is set twice with one effect", "Leave one of them out.")
    return wanted.labels, taints


def _numbers(state: State, wanted: WantedMarks) -> list[int]:
    found = {find_node(state, name): None for name in wanted.nodes}
    pools = sorted(state.nodes.by_pool)
    for pool in wanted.pools:
        there = [number for number, node in enumerate(state.nodes.node) if node.pool == pool]
        if not there:
            raise Unacceptable(f"unknown pool {quote(pool)}; {suggest(pool, pools, 'pools')}")
        found |= dict.fromkeys(there)
    if not found:
        raise Unacceptable("names no node", "Name nodes, or pools with --pool.")
    return sorted(found)


def _to_remove(state: State, number: int, texts: Sequence[str]) -> tuple[Taint, ...]:
    """The taints of a node that these texts mean; one that is not there is removed already."""
    there = state.nodes.marks.tainted.get(number, ())
    found: dict[Taint, None] = {}
    for text in texts:
        key, _, effect = text.partition(":")
        key = key.partition("=")[0]
        found.update(
            {taint: None for taint in there if taint.key == key and effect in ("", taint.effect.value)}
        )
    return tuple(found)


def _changes(state: State, event: NodeMarked) -> bool:
    live = state.nodes.marks.live.get(event.node, UNMARKED)
    before = UNMARKED if event.reset else live
    return before.label(event.labels, event.unlabelled).taint(event.taints, event.untainted) != live


# -- views -----------------------------------------------------------------------------------------------------------


def _view(state: State, number: int) -> NodeMarksReply:
    marks, node = state.nodes.marks, state.nodes.node[number]
    live = marks.live.get(number, UNMARKED)
    configured, said = marks.configured_labels(number), marks.derived(number)
    engine = {**dict.fromkeys(node.features, ""), **dict(node.labels)}
    set_live = dict(live.labels)

    def source(key: str, value: str) -> str:
        if key in set_live:
            return "live"
        sources: list[tuple[str, Mapping[str, Any]]] = [("every node", said), ("engine", engine)]
        return next((name for name, labels in reversed(sources) if labels.get(key) == value), "yard.yaml")

    labels: list[NodeLabelReply] = [
        {"key": key, "value": value, "from": source(key, value)}
        for key, value in sorted(marks.labels(number).items())
    ]
    own = {taint for taint, there in live.taints if there}
    return {
        "node": node.name,
        "cluster": node.cluster,
        "labels": labels,
        "taints": [
            {
                "taint": str(taint),
                "from": "live" if taint in own else "engine" if taint in node.taints else "yard.yaml",
            }
            for taint in marks.tainted.get(number, ())
        ],
        "removed": sorted([key for key, value in live.labels if value is None and key in configured]),
    }
