"""The example of a training script keeps what it promises, under the local engine."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch, moments
from gpuyard.engines.contract import Recipe, StopRequest
from gpuyard.model import Outcome

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train.py"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    made = LocalRig(tmp_path)
    yield made
    made.close()


def train(steps: int, *extra: str) -> Recipe:
    argv = (sys.executable, str(TRAIN), "--plain", "--steps", str(steps), *extra)
    return Recipe(argv=argv, warn_signal=signal.SIGUSR1, warn_ms=1_000)


def output(rig: LocalRig, key: str) -> str:
    return rig.engine.log(key, "stdout", "", 10_000).content.decode()


def test_preempted_and_started_again_it_ends_as_if_never_interrupted(rig: LocalRig) -> None:
    rig.keys |= {"y-1-1", "y-1-2", "y-2-1"}
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=train(200, "--step-s", "0.005"))])
    for _ in moments(rig):
        if output(rig, "y-1-1"):
            break
        rig.let_pass(10)
    rig.let_pass(100)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 10_000)])
    first = ended(rig, "y-1-1")
    rig.engine.start(
        EPOCH,
        [
            launch(rig, "y-1-2", recipe=train(200, "--step-s", "0"), restarts=1),
            launch(rig, "y-2-1", recipe=train(200, "--step-s", "0"), job_id=2),
        ],
    )
    second = ended(rig, "y-1-2")
    ended(rig, "y-2-1")
    results = [json.loads((rig.data / "jobs" / job / "checkpoint").read_text()) for job in "12"]

    assert (Outcome.PREEMPTED, 0) == (first.outcome, first.exit_code)
    assert first.started_ms < first.checkpoint_ms
    assert "SIGUSR1: saved at step" in output(rig, "y-1-1")
    assert Outcome.COMPLETED is second.outcome
    assert "start 1: from step 0" not in output(rig, "y-1-2")
    assert "start 1: from step" in output(rig, "y-1-2")
    assert results[0] == results[1]
    assert 200 == results[0]["step"]
