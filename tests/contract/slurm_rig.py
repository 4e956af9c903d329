"""The Slurm engine over real daemons: every test has its own yard on a cluster that all of them share."""

import time
from contextlib import suppress
from pathlib import Path

from contract.rigs import GPUS, Program, pids_of, recipe_of, seen_lines
from gpuyard.engines.contract import Recipe
from gpuyard.engines.slurm.calls.client import CommandClient
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.cluster import ContainerRuntime
from gpuyard.engines.slurm.engine import SlurmEngine
from gpuyard.engines.slurm.fleet import SlurmSettings
from harness.patience import Patience, patient
from rigs.slurm.cluster import SlurmCluster

TYPES = {"a100": "A100-80GB"}


class SlurmRig:
    """Real jobs of a real Slurm, with fake GPUs. Every job appends a line to a file when it starts."""

    name = "slurm"
    slack = 6
    """Slurm takes about a second to start, to suspend and to clear away, and more on a busy machine."""
    settle_s = 60.0
    processes = True

    def __init__(
        self,
        folder: Path,
        cluster: SlurmCluster,
        *,
        handoff_ms: int = 60_000,
        containers: ContainerRuntime = ContainerRuntime.PODMAN,
    ) -> None:
        self.cluster = cluster
        self.data = folder.resolve() / "shared"
        self.effects = folder.resolve() / "effects"
        self.effects.mkdir()
        self.site = SlurmSettings("slurm", gpu_types=TYPES, handoff_ms=handoff_ms, containers=containers)
        self.keys: set[str] = set()
        self.engines: list[SlurmEngine] = []
        self.engine = self.reopen()
        self.node = cluster.layout.nodes[0]
        assert GPUS == cluster.layout.gpus

    def commands(self) -> Commands:
        return Commands(conf=str(self.cluster.folder / "slurm.conf"), timeout_s=patient(30))

    def reopen(self) -> SlurmEngine:
        engine = SlurmEngine(self.data, CommandClient(self.commands(), as_user=True), self.site)
        self.engines.append(engine)
        return engine

    def recipe(self, key: str, program: Program) -> Recipe:
        self.keys.add(key)
        return recipe_of(self.effects, key, program)

    def starts(self, key: str) -> int:
        return len(seen_lines(self.effects, key))

    def gpus_seen(self, key: str) -> list[list[int]]:
        seen = [line.partition(" ")[2] for line in seen_lines(self.effects, key)]
        return [[int(index) for index in indices.split(",") if index] for indices in seen]

    def alive(self, key: str) -> int:
        return len(pids_of(self.data, key))

    def let_pass(self, ms: int) -> None:
        # Each look costs a command of Slurm, and the machine has other things to do.
        time.sleep(max(ms, 50) / 1000)

    def live_jobs(self) -> list[str]:
        """What Slurm still has of this rig: numbers and states."""
        lines = self.cluster.command("squeue", "-h", "-a", "-o", "%A %T %k").splitlines()
        tag = self.engines[0]._folder.tag
        return [line for line in lines if line.endswith(f"@{tag}") and "COMPLETING" not in line]

    def close(self) -> None:
        """End whatever a failed test left and say so: nothing may be left behind."""
        patience = Patience(90)
        while (left := self.live_jobs()) and patience:
            # An end is on disk a moment before Slurm has noticed.
            time.sleep(0.1)
        for line in left:
            with suppress(RuntimeError):
                self.cluster.command("scancel", "--signal=KILL", "--full", line.split()[0])
                self.cluster.command("scancel", line.split()[0])
        for engine in self.engines:
            engine.close()
        assert [] == left
        assert {} == {key: pids for key in self.keys if (pids := pids_of(self.data, key))}
