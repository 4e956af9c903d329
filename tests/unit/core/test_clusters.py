"""Clusters in the core: jobs may name them in an order of preference, and a gang stays in one."""

from dataclasses import replace

import pytest

from gpuyard.core.explain.admission import never
from gpuyard.model import JobSpec, Node
from gpuyard.model.remedies import Cure, Remedy
from gpuyard.policies.registry import PRESETS
from gpuyard.testing import Yard, ask

EAST = [Node(f"n{i}", "east", "e", "H100", 4, 64_000, 1 << 18) for i in range(2)]
WEST = [replace(node, cluster="west", pool="w") for node in EAST]


def placed(here: Yard, **wanted: object) -> list[str]:
    """Where a job that is submitted now starts, by cluster."""
    job_id = here.submit(ask(**wanted))  # type: ignore[arg-type]
    here.step()
    record = here.state.running.get(job_id)
    return [] if record is None else [here.state.nodes.node[grant.node].cluster for grant in record.grants]


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_a_job_goes_to_the_first_of_its_clusters_that_has_room(policy: str) -> None:
    here = Yard(policy, EAST + WEST)
    assert ["west"] == placed(here, gpus=4, clusters=("west", "east"))
    assert ["west"] == placed(here, gpus=4, clusters=("west", "east"))
    assert ["east"] == placed(here, gpus=4, clusters=("west", "east"))
    assert ["east"] == placed(here, gpus=4)
    assert [] == placed(here, gpus=4, clusters=("west",))


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_a_gang_stays_in_one_cluster(policy: str) -> None:
    here = Yard(policy, EAST + WEST)
    assert ["west"] == placed(here, gpus=4, clusters=("west",))
    assert ["east"] == placed(here, gpus=4, clusters=("east",))
    assert [] == placed(here, gpus=4, tasks=2)


def test_a_job_that_no_node_of_its_clusters_can_hold_is_told_of_others() -> None:
    here = Yard("default", [*EAST, *[replace(node, gpus=8) for node in WEST]])
    reason = never(here.state, JobSpec("t", ask(8, clusters=("east",))))
    assert reason is not None
    assert "the largest node has 4" in reason.text
    assert (Remedy(Cure.OTHER_CLUSTER, ("west",)),) == reason.lifted_by
    assert never(here.state, JobSpec("t", ask(8, clusters=("east", "west")))) is None
