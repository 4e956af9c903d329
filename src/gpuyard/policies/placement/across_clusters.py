"""Which cluster a job gets that names none: the preferred one that has room; of equal ones by their weights."""

from collections.abc import Iterable

from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.placing import Ranker
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.model import ClusterPreference
from gpuyard.model.units import MILLI

_SCALE = 1 << 20
_LIKE_ANY = ClusterPreference("")


def rank_by_cluster(clusters: tuple[ClusterPreference, ...], rank: Ranker | None) -> Ranker:
    """The ranking of a placement, cluster by cluster."""
    known = {each.cluster: each for each in clusters}
    weighted = any([each.weight for each in clusters])

    def ranked(nodes: Nodes, shape: Shape) -> Iterable[Way]:
        ways = shape.ways if rank is None else rank(nodes, shape)
        if shape.ask.clusters or len(shape.ways) < 2:
            return ways
        used = _used_milli(nodes) if weighted else {}

        def place(way: Way) -> tuple[int, int]:
            cluster = nodes.kinds[way.kind].cluster
            own = known.get(cluster, _LIKE_ANY)
            return own.preference, used.get(cluster, 0) * _SCALE // max(1, own.weight)

        # Sorting is stable: within a cluster, and among equal ones, the placement has its way.
        return sorted(ways, key=place)

    return ranked


def _used_milli(nodes: Nodes) -> dict[str, int]:
    """For each cluster: which part of the GPUs of its schedulable nodes is taken, in thousandths."""
    taken: dict[str, list[int]] = {}
    for kind in nodes.kinds:
        row = taken.setdefault(kind.cluster, [0, 0])
        for free, bucket in enumerate(kind.buckets):
            count = bucket.bit_count()
            row[0] += (kind.gpus - free) * count
            row[1] += kind.gpus * count
    return {cluster: MILLI * used // max(1, total) for cluster, (used, total) in taken.items()}
