"""What is measured of jobs and nodes, for answers: what attempts used, their curves, lines of kernels, prices."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuyard.control.attempts import Attempts
from gpuyard.control.refusals import Refusal
from gpuyard.control.replica.labels import find_nodes
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch
from gpuyard.control.views.curves import curves_view, kernel_lines_view
from gpuyard.engines.contract import HasUsage, Usage
from gpuyard.model import Node
from gpuyard.wire.replies.jobs import CurvesReply, KernelLineReply


class Measures:
    """What one server can tell."""

    def __init__(self, replica: Replica, attempts: Attempts, watch: Watch, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._attempts = attempts
        self._watch = watch
        self._now_ms = now_ms

    def usage_of(self, view: Mapping[str, Any]) -> Callable[[int], Usage]:
        """What an attempt of a job, as it is shown, used; by its number, as far as its engine knows."""

        def usage(attempt: int) -> Usage:
            try:
                engine, key = self._attempts.at(view, attempt)
            except Refusal:
                # Its cluster is gone, and what the engine knew went with it.
                return Usage()
            return engine.usage(key) if isinstance(engine, HasUsage) else Usage()

        return usage

    def curves_of(self, view: Mapping[str, Any]) -> CurvesReply:
        """What the last try of a job, as it is shown, did over time."""

        def key(attempt: int) -> str:
            return self._attempts.key(view, attempt)

        return curves_view(self._watch, view, key, self._nodes_of(view), self._now_ms())

    def kernel_lines(self, view: Mapping[str, Any]) -> list[KernelLineReply]:
        """Faults that the kernels of a job's nodes wrote during its last try."""
        key = self._attempts.key(view, view["attempts"])
        return kernel_lines_view(self._watch, view, key, self._nodes_of(view), self._now_ms())

    def price_of_node(self, node: str, day: int) -> int:
        """What an hour of a GPU of a node costs on a day in micro-dollars; 0: it is not known."""
        with self._replica.lock:
            found = find_nodes(self._replica.state, node)
            return self._replica.state.gpu_price(found[0], day) if found else 0

    def _nodes_of(self, view: Mapping[str, Any]) -> list[Node]:
        """The nodes that a job, as it is shown, has, or had: of an ended one all of these names."""
        with self._replica.lock:
            state = self._replica.state
            record = state.jobs.get(view["id"])
            if record is not None and record.grants:
                numbers = [grant.node for grant in record.grants]
            else:
                numbers = [number for name in view["nodes"] for number in find_nodes(state, name)]
            return [state.nodes.node[number] for number in numbers]


def find_cluster(replica: Replica, node: str) -> str:
    """The cluster of the only node of this name; empty: there are several, or none."""
    with replica.lock:
        found = find_nodes(replica.state, node)
        return replica.state.nodes.node[found[0]].cluster if len(found) == 1 else ""
