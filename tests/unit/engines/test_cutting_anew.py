"""Scheduler and engine together, over GPUs on paper: how often a GPU is cut anew while demand comes and goes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.engines.contract import Part
from gpuyard.engines.local.gpus.mig_emulated import EmulatedCutter
from gpuyard.engines.local.gpus.mps import NoMps
from gpuyard.engines.local.gpus.sharing import IDLE_S, Sharing
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import Ask, Mig
from gpuyard.model.mig import MIG_MODELS
from gpuyard.testing import ask, nodes, share
from harness.yard import Yard

H200 = MIG_MODELS["H200"]
ANA = UnixAccount(1001, 1001, "ana", "/home/ana", "/bin/sh")


class Counting(EmulatedCutter):
    """Counts what takes time on a real GPU."""

    made = destroyed = switched = 0

    def make(self, gpu: str, place: PlacedSlice) -> None:
        self.made += 1
        super().make(gpu, place)

    def destroy(self, gpu: str, place: PlacedSlice) -> None:
        self.destroyed += 1
        super().destroy(gpu, place)

    def switch(self, gpu: str, on: bool) -> None:
        self.switched += 1
        super().switch(gpu, on)

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.made, self.destroyed, self.switched


class Machine:
    """One node: what the core decides, the engine makes ready at once."""

    def __init__(self, folder: Path, gpus: int, policy: str = "default") -> None:
        self.yard = Yard(policy, nodes(1, gpus=gpus, model="H200"))
        self.cutter = Counting(str(folder), H200)
        self.held: dict[int, dict[str, Any]] = {}
        self.readings = [GpuReading(f"GPU-{n}", "NVIDIA H200", 143_771) for n in range(gpus)]
        self.now_s = 0.0
        mps = NoMps(str(folder))
        self.sharing = Sharing(
            str(folder), lambda _geometry: self.cutter, mps, self._plans, lambda: self.now_s
        )

    def _plans(self) -> Iterator[dict[str, Any]]:
        yield from [{"held": held} for held in self.held.values()]

    def start(self, wanted: Ask | Mig | int) -> int:
        job = self.yard.submit(ask(wanted) if isinstance(wanted, Mig) else wanted)
        for found in self.yard.step().starts:
            (grant,) = found.grants
            part = Part("n", positions[grant.gpus], grant.milli, 0, 0, 1, grant.slices)
            self.held[found.job_id] = self.sharing.prepare(part, self.readings, ANA).held
        return job

    def end(self, job: int) -> None:
        self.yard.end(job)
        del self.held[job]
        self.now_s += 5
        self.sharing.tidy(lambda _gpu: H200)

    def run(self, wanted: Ask | Mig | int) -> None:
        job = self.start(wanted)
        assert job in self.held, "it waits"
        self.end(job)


def test_slices_of_one_size_are_cut_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    for _ in range(20):
        machine.run(Mig(1, "2g.35gb"))
    assert (1, 0, 1) == machine.cutter.counts


@pytest.mark.parametrize("whole", [1, share(500)], ids=["whole", "share"])
def test_slices_and_whole_gpus_by_turns_leave_each_other_alone_while_there_is_room(
    tmp_path: Path, whole: Ask | int
) -> None:
    machine = Machine(tmp_path, 2)
    for _ in range(20):
        machine.run(Mig(1, "1g.18gb"))
        machine.run(whole)
    # Cut once, for the first slice; never made whole in between.
    assert (1, 0, 1) == machine.cutter.counts
    machine.sharing.tidy(lambda _gpu: H200, now=True)


def test_whoever_needs_the_whole_gpu_gets_it_at_once_and_at_one_repartition_a_turn(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    turns = 10
    for _ in range(turns):
        machine.run(Mig(3, "1g.18gb"))
        # No rest of a minute is waited for.
        machine.run(1)
    assert (3 * turns, 3 * turns, 2 * turns) == machine.cutter.counts


def test_a_mix_that_fits_settles(tmp_path: Path) -> None:
    """Sizes that alternate beside a third one are cut once each: the idle ones are left alone and used again."""
    machine = Machine(tmp_path, 1)
    large = machine.start(Mig(1, "3g.71gb"))
    for _ in range(20):
        machine.run(Mig(1, "1g.18gb"))
        machine.run(Mig(1, "2g.35gb"))
    machine.end(large)
    made, destroyed, switched = machine.cutter.counts
    assert 1 == switched
    assert (3, 0) == (made, destroyed)


def test_idle_slices_are_merged_after_a_rest_and_not_before(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    machine.run(Mig(1, "1g.18gb"))
    machine.now_s += IDLE_S - 6
    machine.sharing.tidy(lambda _gpu: H200)
    assert (1, 0, 1) == machine.cutter.counts
    machine.now_s += 10
    machine.sharing.tidy(lambda _gpu: H200)
    assert (1, 1, 2) == machine.cutter.counts
