"""Attempts of jobs, as they are shown, towards engines: which one to ask about an attempt, and what is measured of it.

The grant of an attempt names nodes, and these are of one cluster. A live attempt has its grant in the replica, the last
one of an ended job in the history, and one that did not end its job in the tries. What an attempt used, its curves and
lines of kernels come from its engine and from the watch of this server.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gpuyard.control.clusters import Clusters
from gpuyard.control.reading.publisher import Publisher
from gpuyard.control.refusals import Refusal
from gpuyard.control.replica.labels import attempt_key, find_nodes
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch
from gpuyard.control.views.curves import curves_view, kernel_lines_view
from gpuyard.engines.contract import Engine, HasUsage, Usage
from gpuyard.model import Node
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.wire.replies.jobs import CurvesReply, KernelLineReply, ListedJob


class At(NamedTuple):
    """Where an attempt is known."""

    engine: Engine
    key: str
    """The engine's name of it; of a job that another scheduler runs, the name that its observer has."""


class Attempts:
    """Those of one yard."""

    def __init__(self, replica: Replica, reading: Publisher, clusters: Clusters) -> None:
        self._replica = replica
        self._reading = reading
        self._clusters = clusters

    def at(self, view: ListedJob, attempt: int) -> At:
        """Of a job, as it is shown. Raises where yard.yaml no longer has the cluster, or it is not known."""
        job_id, submitted_ms = view["id"], view["submitted_ms"]
        if job_id >= FIRST_EXTERNAL_ID:
            cluster, _, label = view["label"].rpartition(":")
            cluster = cluster or self._cluster(job_id, attempt)
            return At(self._clusters.engine_of(cluster), f"{label}@{submitted_ms}")
        return At(self._clusters.engine_of(self._cluster(job_id, attempt)), self.key(view, attempt))

    def key(self, view: ListedJob, attempt: int) -> str:
        """The engine's name of an attempt that the yard started."""
        return attempt_key(self._replica.store.yard, view["id"], attempt, view["submitted_ms"])

    def _cluster(self, job_id: int, attempt: int) -> str:
        """Empty: there is no such attempt, or not enough is known of it."""
        model, store = self._reading.latest(), self._replica.store
        nodes = model.nodes
        live = model.jobs.get(job_id)
        if live is not None and live.record.attempt == attempt and live.record.grants:
            return nodes[live.record.grants[0].node].cluster
        ended = store.history.find(job_id) if live is None else None
        if ended is not None and ended.attempts == attempt:
            grants: Any = ended.detail.get("grants") or ()
            if grants:
                return nodes[grants[0]["node"]].cluster
        for tried in store.tries.of_job(job_id, attempt, 1):
            if tried.attempt == attempt:
                return nodes[tried.numbers[0]].cluster if tried.numbers else self._named(nodes, tried.nodes)
        return ""

    def _named(self, nodes: Sequence[Node], names: Sequence[str]) -> str:
        """The only cluster that has nodes of all these names: an older release kept no more of a try."""
        found = set.intersection(*[{node.cluster for node in nodes if node.name == name} for name in names])
        return found.pop() if len(found) == 1 else ""


class Measures:
    """What one server can tell."""

    def __init__(self, replica: Replica, attempts: Attempts, watch: Watch, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._attempts = attempts
        self._watch = watch
        self._now_ms = now_ms

    def usage_of(self, view: ListedJob) -> Callable[[int], Usage]:
        """What an attempt of a job, as it is shown, used; by its number, as far as its engine knows."""

        def usage(attempt: int) -> Usage:
            try:
                engine, key = self._attempts.at(view, attempt)
            except Refusal:
                # Its cluster is gone, and what the engine knew went with it.
                return Usage()
            return engine.usage(key) if isinstance(engine, HasUsage) else Usage()

        return usage

    def curves_of(self, view: ListedJob) -> CurvesReply:
        """What the last try of a job, as it is shown, did over time."""

        def key(attempt: int) -> str:
            return self._attempts.key(view, attempt)

        return curves_view(self._watch, view, key, self._nodes_of(view), self._now_ms())

    def kernel_lines(self, view: ListedJob) -> list[KernelLineReply]:
        """Faults that the kernels of a job's nodes wrote during its last try."""
        key = self._attempts.key(view, view["attempts"])
        return kernel_lines_view(self._watch, view, key, self._nodes_of(view), self._now_ms())

    def price_of_node(self, node: str, day: int) -> int:
        """What an hour of a GPU of a node costs on a day in micro-dollars; 0: it is not known."""
        with self._replica.lock:
            found = find_nodes(self._replica.state, node)
            return self._replica.state.gpu_price(found[0], day) if found else 0

    def _nodes_of(self, view: ListedJob) -> list[Node]:
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
