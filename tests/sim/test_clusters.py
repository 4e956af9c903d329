"""The control loop over two clusters, one of which dies, lies and comes back (tests/harness/clusters.py)."""

import os

import pytest

from harness.clusters import ClustersTrial
from harness.trial import told

CHUNK = 25
SEEDS = 200
QUICK, LONG = 100, 220
"""How many steps a life among faults takes."""


def live(seed: int, steps: int = QUICK) -> None:
    told(ClustersTrial(seed, steps=steps), "tests/sim/test_clusters.py")


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_two_clusters_are_safe_and_every_job_comes_to_an_end(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        live(seed)


@pytest.mark.skipif("GPUYARD_SEED" not in os.environ, reason="no seed was chosen (GPUYARD_SEED)")
def test_the_chosen_seed() -> None:
    seed = int(os.environ["GPUYARD_SEED"])
    live(seed, QUICK if seed < SEEDS else LONG)


@pytest.mark.soak
def test_many_more_seeds_of_two_clusters() -> None:
    for seed in range(1_000, 1_000 + int(os.environ.get("GPUYARD_SEEDS", "2000"))):
        live(seed, LONG)
