"""What the engine of a cluster can never do is told by the engine's own keys."""

import pytest

from gpuyard.config.values import Cluster
from gpuyard.engines.local.settings import Fence, LocalSettings
from gpuyard.engines.slurm.cluster import LACKS, Mode, SlurmCluster
from gpuyard.model import Capability


@pytest.mark.parametrize(
    ("cluster", "lacks"),
    [
        (Cluster("c", "slurm", ()), LACKS),
        (Cluster("c", "slurm", (), own=SlurmCluster()), LACKS),
        (Cluster("c", "slurm", (), own=SlurmCluster(mode=Mode.OBSERVE)), frozenset()),
        (Cluster("c", "local", ()), frozenset()),
        (Cluster("c", "local", (), own=LocalSettings(fence=Fence.STRICT)), frozenset({Capability.SHARES})),
        (Cluster("c", "sim", ()), frozenset()),
    ],
)
def test_a_cluster_lacks_what_its_engine_lacks_by_its_keys(
    cluster: Cluster, lacks: frozenset[Capability]
) -> None:
    assert lacks == cluster.lacks
