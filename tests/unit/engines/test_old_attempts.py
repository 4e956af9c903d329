"""Attempts on disk as a server and a supervisor of an earlier release left them, under the engine of this one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.engines.contract import Launch, Part, Phase, Recipe
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import EmulatedGpus, ThisMachine
from gpuyard.engines.machine.processes import boot_id
from gpuyard.model import Outcome
from harness.patience import until

KEY = "c7tuvu3m-1a1e4413a6a-1-1"
GPUS = ["GPU-emulated-194aaf6f7c06-0", "GPU-emulated-ed8b45871505-1"]


class Old:
    """The folder of the engine, with what an earlier release wrote there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "attempts" / KEY
        self.folder.mkdir(parents=True)
        self.effects = root / "effects"
        self.argv = ["sh", "-c", f"echo ran >>{self.effects}; exit 7"]
        self.put("launch.json", self.plan())

    def plan(self) -> dict[str, object]:
        """A launch without rooms, names of nodes, a umask and a count of restarts: none of these was known."""
        job = self.root / "jobs" / "1"
        job.mkdir(parents=True)
        environment = {"PATH": os.environ["PATH"], "YARD_ATTEMPT_DIR": str(self.folder), "YARD_ATTEMPT": "1"}
        return {
            "key": KEY, "job_id": 1, "node": "n", "boot": boot_id(), "argv": self.argv,
            "script": "", "cwd": str(job), "stdout": "", "stderr": "", "append": False,
            "uid": os.getuid(), "gid": os.getgid(), "user": "", "drop": False, "envs": [environment],
            "held": {"gpus": GPUS}, "limit_ms": 0, "grace_ms": 30_000, "warn_signal": 0, "warn_ms": 0,
            "checkpoint": str(job / "checkpoint"), "cgroup": "", "memory_mib": 0, "cpu_milli": 0,
        }  # fmt: skip

    def put(self, name: str, content: object, width: int = 0) -> None:
        (self.folder / name).write_text(json.dumps(content).ljust(width), encoding="utf-8")

    def claimed(self) -> None:
        """A supervisor had it, which is gone by now."""
        gone = {"pid": 2**22 - 1, "ticks": 1, "boot": boot_id(), "claimed_ms": 1_794_830_842_638}
        self.put("claim.json", gone)
        self.put("running.json", {"phase": "RUNNING", "started_ms": 1_794_830_842_639, "pids": [2**22 - 1]})

    def ended(self) -> None:
        """The supervisor wrote the end, over as much room as it had kept for that."""
        end = {
            "outcome": "FAILED", "exit_code": 7, "why": "exit code 7", "started_ms": 1_794_830_842_639,
            "ended_ms": 1_794_830_848_674, "checkpoint_ms": 0,
        }  # fmt: skip
        self.put("end.json", end, width=4096)


@pytest.fixture
def old(tmp_path: Path) -> Old:
    return Old(tmp_path / "engine")


@pytest.fixture
def engine(old: Old) -> Iterator[LocalEngine]:
    made = LocalEngine(
        old.root, nodes=ThisMachine("n", emulate=EmulatedGpus(8, "A100-80GB")), use_cgroups=False
    )
    yield made
    made.close()


def test_an_attempt_that_ended_under_the_release_before_has_its_exit_code(
    old: Old, engine: LocalEngine
) -> None:
    old.claimed()
    old.ended()
    (report,) = engine.status([KEY])

    assert (Phase.ENDED, Outcome.FAILED, 7) == (report.phase, report.outcome, report.exit_code)
    assert (1_794_830_842_639, 1_794_830_848_674) == (report.started_ms, report.ended_ms)
    assert KEY in [each.key for each in engine.listing()]


def test_an_attempt_whose_supervisor_was_lost_does_not_count_as_one_that_ended_well(
    old: Old, engine: LocalEngine
) -> None:
    old.claimed()
    (report,) = engine.status([KEY])

    assert Phase.ENDED == report.phase
    assert report.outcome not in (None, Outcome.COMPLETED)


def test_a_launch_that_the_release_before_put_on_disk_is_started_once(old: Old, engine: LocalEngine) -> None:
    recipe = Recipe(argv=tuple(old.argv), cwd="", uid=os.getuid(), gid=os.getgid())
    launch = Launch(KEY, 1, 1, "1", "seven", recipe, (Part("n", (0, 1), 1000, 0, 0, 1),), 0, 30_000)
    for _ in range(2):
        engine.start(1, [launch])
    until(lambda: engine.status([KEY])[0].phase is Phase.ENDED)
    report = engine.status([KEY])[0]

    assert (Outcome.FAILED, 7) == (report.outcome, report.exit_code)
    assert "ran\n" == old.effects.read_text()
