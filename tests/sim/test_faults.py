"""The control loop among faults, seed by seed: safety first, then liveness (tests/harness/trial.py).

A failing seed prints the command that repeats it. Seeds that ever failed stay in seeds.txt.
"""

import os
from pathlib import Path

import pytest

from harness.trial import Trial, told

KEPT = [
    int(line.split()[0]) for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines() if line
]
CHUNK = 25
SEEDS = 200


def live(seed: int) -> None:
    """Every other yard has jobs in images, and jobs are changed; seeds that failed once live as they did then."""
    old = seed in KEPT
    told(Trial(seed, images=seed % 2 == 1 and not old, changing=not old), "tests/sim/test_faults.py")


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_every_seed_is_safe_and_comes_to_an_end(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        live(seed)


@pytest.mark.parametrize("seed", KEPT)
def test_seeds_that_failed_once(seed: int) -> None:
    live(seed)


@pytest.mark.skipif("GPUYARD_SEED" not in os.environ, reason="no seed was chosen (GPUYARD_SEED)")
def test_the_chosen_seed() -> None:
    live(int(os.environ["GPUYARD_SEED"]))


@pytest.mark.soak
def test_many_more_seeds() -> None:
    for seed in range(1_000, 1_000 + int(os.environ.get("GPUYARD_SEEDS", "3000"))):
        live(seed)
