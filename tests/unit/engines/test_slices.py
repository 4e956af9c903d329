"""The yard's own MIG slices: made where told, nothing of others touched, nothing left behind by a crash."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.engines.contract import Part, Permanent, Transient
from gpuyard.engines.local.gpus.mig import Slices
from gpuyard.engines.local.gpus.mig_emulated import EmulatedCutter
from gpuyard.engines.local.gpus.mps import Mps, NoMps, share_limits
from gpuyard.engines.local.gpus.sharing import IDLE_S, Sharing
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model.mig import MIG_MODELS, Slice

H200 = MIG_MODELS["H200"]
GPU = "GPU-a"
ONE, TWO, THREE, WHOLE = (
    PlacedSlice("1g.18gb", 0),
    PlacedSlice("2g.35gb", 0),
    PlacedSlice("3g.71gb", 4),
    PlacedSlice("7g.141gb", 0),
)
ANA = UnixAccount(1001, 1001, "ana", "/home/ana", "/bin/sh")


class Dies(EmulatedCutter):
    """A driver during whose n-th call the server dies, before or after the call had its effect."""

    def __init__(self, folder: str, call: int, after: bool) -> None:
        super().__init__(folder, H200)
        self._left, self._after = call, after

    def _maybe(self, effect: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise KeyboardInterrupt
        found = effect()
        if self._left == 0:
            raise KeyboardInterrupt
        return found

    def switch(self, gpu: str, on: bool) -> None:
        self._maybe(lambda: super(Dies, self).switch(gpu, on))

    def make(self, gpu: str, place: PlacedSlice) -> None:
        self._maybe(lambda: super(Dies, self).make(gpu, place))

    def destroy(self, gpu: str, place: PlacedSlice) -> None:
        self._maybe(lambda: super(Dies, self).destroy(gpu, place))


@pytest.fixture
def cutter(tmp_path: Path) -> EmulatedCutter:
    return EmulatedCutter(str(tmp_path), H200)


@pytest.fixture
def slices(tmp_path: Path, cutter: EmulatedCutter) -> Slices:
    return Slices(str(tmp_path), cutter)


def there(cutter: EmulatedCutter) -> set[PlacedSlice] | None:
    found = cutter.places(GPU)
    return None if found is None else set(found)


def test_a_slice_is_made_once_and_found_again(slices: Slices, cutter: EmulatedCutter) -> None:
    uuid = slices.ensure(H200, GPU, THREE, ())
    assert uuid == slices.ensure(H200, GPU, THREE, {THREE})
    assert uuid != slices.ensure(H200, GPU, TWO, {THREE})
    assert {THREE, TWO} == there(cutter)


def test_what_is_idle_and_in_the_way_goes_and_what_is_used_stays(
    slices: Slices, cutter: EmulatedCutter
) -> None:
    slices.ensure(H200, GPU, THREE, ())
    slices.ensure(H200, GPU, TWO, {THREE})
    slices.ensure(H200, GPU, ONE, {THREE})
    assert {THREE, ONE} == there(cutter)
    with pytest.raises(Transient):
        slices.ensure(H200, GPU, WHOLE, {THREE})
    assert there(cutter) is not None
    assert THREE in (there(cutter) or set())
    slices.ensure(H200, GPU, WHOLE, ())
    assert {WHOLE} == there(cutter)


def test_a_gpu_is_made_whole_only_when_nobody_uses_it(slices: Slices, cutter: EmulatedCutter) -> None:
    slices.ensure(H200, GPU, THREE, ())
    with pytest.raises(Transient, match="in use"):
        slices.whole(GPU, {THREE})
    slices.whole(GPU, ())
    assert there(cutter) is None
    assert {} == slices.own()


def test_slices_of_others_are_never_touched(slices: Slices, cutter: EmulatedCutter) -> None:
    cutter.switch(GPU, True)
    with pytest.raises(Permanent, match="not by this yard"):
        slices.whole(GPU, ())
    cutter.make(GPU, THREE)
    assert (THREE,) == slices.foreign(GPU)
    with pytest.raises(Permanent, match="not by this yard"):
        slices.ensure(H200, GPU, WHOLE, ())
    slices.sweep({})
    assert {THREE} == there(cutter)


def _work(slices: Slices) -> None:
    for _ in range(9):
        slices.ensure(H200, GPU, TWO, ())
        slices.ensure(H200, GPU, THREE, {TWO})
        slices.ensure(H200, GPU, ONE, {THREE})
        slices.whole(GPU, ())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(1, 9))
def test_a_server_that_dies_at_any_call_leaves_nothing_that_the_next_does_not_find(
    tmp_path: Path, call: int, after: bool
) -> None:
    dying = Slices(str(tmp_path), Dies(str(tmp_path), call, after))
    with pytest.raises(KeyboardInterrupt):
        _work(dying)
    fresh = EmulatedCutter(str(tmp_path), H200)
    heir = Slices(str(tmp_path), fresh)
    made = there(fresh)
    assert made is None or made <= heir.own().get(GPU, set())
    heir.ensure(H200, GPU, THREE, ())
    heir.sweep({})
    assert there(fresh) is None


class Box:
    """Sharing over one pretended GPU, with plans and a clock set by hand."""

    def __init__(self, folder: Path) -> None:
        self.plans: list[dict[str, Any]] = []
        self.now_s = 0.0
        self.cutter = EmulatedCutter(str(folder), H200)
        self.readings = [GpuReading(GPU, "NVIDIA H200", 143_771)]
        self.sharing = Sharing(
            str(folder), lambda _geometry: self.cutter, NoMps(str(folder)), self._all, lambda: self.now_s
        )

    def _all(self) -> Iterator[dict[str, Any]]:
        yield from self.plans

    def start(self, part: Part) -> tuple[str, ...]:
        ready = self.sharing.prepare(part, self.readings, ANA)
        self.plans.append({"held": ready.held})
        return ready.devices


def part(milli: int = 1000, *slices: Slice) -> Part:
    return Part("n", (0,), milli, 0, 0, 1, slices)


def test_gpus_are_made_ready_and_put_back_after_a_while(tmp_path: Path) -> None:
    box = Box(tmp_path)
    (device,) = box.start(part(428, Slice(0, *THREE)))
    assert device.startswith("MIG-")
    with pytest.raises(Transient, match="in use"):
        box.start(part())
    box.plans.clear()
    assert [] == box.sharing.tidy(lambda _gpu: H200)
    box.now_s += IDLE_S - 1
    box.sharing.tidy(lambda _gpu: H200)
    assert {THREE} == there(box.cutter)
    box.now_s += 2
    box.sharing.tidy(lambda _gpu: H200)
    assert there(box.cutter) is None
    assert (GPU,) == box.start(part())


def test_a_whole_job_does_not_wait_for_idle_slices_to_be_put_back(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.start(part(428, Slice(0, *THREE)))
    box.plans.clear()
    assert (GPU,) == box.start(part())
    assert there(box.cutter) is None


def test_a_share_has_its_caps(tmp_path: Path) -> None:
    box = Box(tmp_path)
    ready = box.sharing.prepare(part(250), box.readings, ANA)
    assert (GPU,) == ready.devices
    assert {"mps": [[GPU, 1001]]} == ready.held
    assert "25" == ready.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    assert f"0={143_771 // 4}M" == ready.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
    assert ready.environment.keys() >= share_limits(250, 1).keys() | {"CUDA_MPS_PIPE_DIRECTORY"}
    folder = Path(ready.environment["CUDA_MPS_PIPE_DIRECTORY"]).parent
    assert folder.is_dir()
    box.sharing.tidy(lambda _gpu: H200, now=True)
    assert not folder.exists()


def test_a_model_without_mig_is_not_cut(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.readings = [GpuReading(GPU, "Tesla T4", 15_360)]
    with pytest.raises(Permanent, match="no MIG"):
        box.start(part(428, Slice(0, *THREE)))


def test_without_mps_shares_take_turns_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sharing(mps: Mps) -> Sharing:
        return Sharing(
            str(tmp_path), lambda _geometry: EmulatedCutter(str(tmp_path), H200), mps, lambda: iter(())
        )

    part = Part("here", (0,), 250, 0, 0, 1)
    readings = [GpuReading(GPU, "NVIDIA H200", 143_771)]
    monkeypatch.setenv("PATH", str(tmp_path))
    without = sharing(Mps(str(tmp_path)))
    ready = without.prepare(part, readings, ANA)
    assert ((GPU,), {"YARD_SHARED_THROUGH": "time-slicing"}) == (ready.devices, ready.environment)
    assert "not capped" in without.notes(readings)[-1]
    assert [] == without.daemons()
    (tmp_path / "nvidia-cuda-mps-control").touch(mode=0o755)
    assert not [note for note in without.notes(readings) if "not capped" in note]
    mps = NoMps(str(tmp_path))
    assert "mps" == sharing(mps).prepare(part, readings, ANA).environment["YARD_SHARED_THROUGH"]
    mps.stop_unused(set())
