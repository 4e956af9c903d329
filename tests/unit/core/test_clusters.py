"""Clusters in the core: jobs may name them in an order of preference, and a gang stays in one."""

from collections import Counter
from dataclasses import replace

import pytest

from gpuyard.config.reading import loads
from gpuyard.control.wording import remedies_text
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.model import ClusterPreference, JobSpec, Node
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
def test_a_job_that_names_no_cluster_goes_to_the_preferred_one_that_has_room(policy: str) -> None:
    spec = replace(PRESETS[policy], clusters=(ClusterPreference("east", 1),))
    here = Yard(spec, EAST + WEST)
    assert [["west"], ["west"], ["east"]] == [placed(here, gpus=4) for _ in range(3)]
    assert ["east"] == placed(here, gpus=4, clusters=("east", "west"))


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_clusters_of_one_preference_are_filled_by_their_weights(policy: str) -> None:
    weights = (ClusterPreference("east", weight=1), ClusterPreference("west", weight=3))
    here = Yard(replace(PRESETS[policy], clusters=weights), EAST + WEST)
    found = [placed(here, gpus=1)[0] for _ in range(8)]
    assert {"east": 2, "west": 6} == Counter(found)
    # A cluster that is full is no reason to wait.
    assert {"east": 6, "west": 2} == Counter([placed(here, gpus=1)[0] for _ in range(8)])


def test_a_file_says_which_clusters_are_preferred() -> None:
    box = "gpus: 4 x H100, emulate: true"
    clusters = f"{{east: {{{box}, preference: 2}}, west: {{{box}, weight: 3}}}}"
    config = loads(f"version: 1\nclusters: {clusters}\n")
    assert (ClusterPreference("east", 2), ClusterPreference("west", 0, 3)) == config.settings.policy.clusters
    assert {config.settings.policy.clusters} == {policy.clusters for policy in config.policies.values()}


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_a_gang_stays_in_one_cluster(policy: str) -> None:
    here = Yard(policy, EAST + WEST)
    assert ["west"] == placed(here, gpus=4, clusters=("west",))
    assert ["east"] == placed(here, gpus=4, clusters=("east",))
    assert [] == placed(here, gpus=4, tasks=2)


def test_a_yard_without_gpus_says_so() -> None:
    bare = Yard("default", [replace(node, gpus=0, gpu_model="") for node in EAST])
    reason = impossible_reason(bare.state, JobSpec("t", ask(1)))
    assert reason is not None
    assert "asks for 1 GPU; the yard has no GPUs" == reason.text
    assert (Remedy(Cure.NO_GPUS),) == reason.lifted_by
    shown = remedies_text(reason.lifted_by).split("`")[1]
    (cluster,) = loads(f"version: 1\n{shown}\n").clusters.values()
    assert (8, "A100-80GB") == cluster.gpus, "the file that it shows"


def test_more_gpus_than_a_node_has_name_the_most_to_ask_for() -> None:
    reason = impossible_reason(Yard("default", EAST).state, JobSpec("t", ask(64)))
    assert reason is not None
    assert "--gpus 4 or less, or several tasks (--tasks)" == remedies_text(reason.lifted_by)


def test_a_job_that_no_node_of_its_clusters_can_hold_is_told_of_others() -> None:
    here = Yard("default", [*EAST, *[replace(node, gpus=8) for node in WEST]])
    reason = impossible_reason(here.state, JobSpec("t", ask(8, clusters=("east",))))
    assert reason is not None
    assert "the largest node has 4" in reason.text
    assert (Remedy(Cure.OTHER_CLUSTER, ("west",)),) == reason.lifted_by
    assert impossible_reason(here.state, JobSpec("t", ask(8, clusters=("east", "west")))) is None
