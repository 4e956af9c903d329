"""Attempts of jobs, as they are shown, towards engines: which one to ask about an attempt, and by what name.

The grant of an attempt names nodes, and these are of one cluster. A live attempt has its grant in the replica, the last
one of an ended job in the history, and one that did not end its job in the tries.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.control.clusters import Clusters
from gpuyard.control.reading.publisher import Publisher
from gpuyard.control.replica.labels import attempt_key
from gpuyard.control.replica.replica import Replica
from gpuyard.engines.contract import Engine
from gpuyard.model import Node
from gpuyard.model.jobs import FIRST_EXTERNAL_ID


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

    def at(self, view: Mapping[str, Any], attempt: int) -> At:
        """Of a job, as it is shown. Raises where yard.yaml no longer has the cluster, or it is not known."""
        job_id, submitted_ms = view["id"], view["submitted_ms"]
        if job_id >= FIRST_EXTERNAL_ID:
            cluster, _, label = view["label"].rpartition(":")
            cluster = cluster or self._cluster(job_id, attempt)
            return At(self._clusters.engine_of(cluster), f"{label}@{submitted_ms}")
        return At(self._clusters.engine_of(self._cluster(job_id, attempt)), self.key(view, attempt))

    def key(self, view: Mapping[str, Any], attempt: int) -> str:
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
