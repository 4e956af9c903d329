"""Layouts that GPUs keep: made whatever was there before, gone on with after any crash, never at the cost of a job."""

import json
from pathlib import Path

import pytest

from gpuyard.core.fleet.mig_geometry import PlacedSlice, fit
from gpuyard.engines.contract import Answer, Permanent, Transient
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.gpus.mig import Slices
from gpuyard.engines.local.gpus.mig_emulated import EmulatedCutter
from gpuyard.engines.local.gpus.sharing import IDLE_S, PIN_S_MAX, PINS
from gpuyard.engines.local.hosts import EmulatedGpus, ThisMachine
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model.mig import Slice
from unit.engines.test_slices import GPU, H200, ONE, THREE, TWO, WHOLE, Box, Dies, part, there

BALANCED = (PlacedSlice("2g.35gb", 0), PlacedSlice("1g.18gb", 2), PlacedSlice("1g.18gb", 3), THREE)


def test_a_layout_is_made_from_whatever_is_there_and_what_fits_stays(tmp_path: Path) -> None:
    cutter = EmulatedCutter(str(tmp_path), H200)
    slices = Slices(str(tmp_path), cutter)
    slices.ensure(H200, GPU, WHOLE, ())
    slices.keep(H200, GPU, BALANCED, ())
    assert set(BALANCED) == there(cutter) == slices.own()[GPU]
    with pytest.raises(Transient, match=r"3g\.71gb at slot 4 of GPU-a is in use"):
        slices.keep(H200, GPU, [WHOLE], {THREE})
    assert THREE in (there(cutter) or ())
    slices.keep(H200, GPU, [], ())
    assert there(cutter) is None


def test_what_others_have_cut_is_not_pinned(tmp_path: Path) -> None:
    cutter = EmulatedCutter(str(tmp_path), H200)
    cutter.switch(GPU, True)
    with pytest.raises(Permanent, match="not by this yard"):
        Slices(str(tmp_path), cutter).keep(H200, GPU, BALANCED, ())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(1, 13))
def test_a_server_that_dies_while_it_cuts_leaves_work_that_the_next_one_finishes(
    tmp_path: Path, call: int, after: bool
) -> None:
    dying = Slices(str(tmp_path), Dies(str(tmp_path), call, after))
    seven = fit(H200, (), ["1g.18gb"] * 7).held

    def work() -> None:
        for _ in range(9):
            dying.keep(H200, GPU, seven, ())
            dying.keep(H200, GPU, BALANCED, ())

    with pytest.raises(KeyboardInterrupt):
        work()
    fresh = EmulatedCutter(str(tmp_path), H200)
    heir = Slices(str(tmp_path), fresh)
    # Nothing is there that would not be known for the yard's own.
    assert (there(fresh) or set()) <= heir.own().get(GPU, set())
    heir.keep(H200, GPU, BALANCED, ())
    assert set(BALANCED) == there(fresh)


def pieces(*places: PlacedSlice) -> tuple[Slice, ...]:
    return tuple([Slice(0, *place) for place in places])


def test_a_pinned_layout_outlasts_rest_and_restart_and_is_merged_back_once_released(tmp_path: Path) -> None:
    box = Box(tmp_path)
    assert Answer.DONE is box.sharing.pin(box.readings, {0: pieces(*BALANCED)})[0].answer
    for again in (box, Box(tmp_path)):
        again.now_s += 10 * IDLE_S
        assert [] == again.sharing.tidy(lambda _gpu: H200)
        again.sharing.tidy(lambda _gpu: H200, now=True)
        assert set(BALANCED) == there(again.cutter)
    # A restart of the machine takes slices away; they come back.
    for place in BALANCED:
        box.cutter.destroy(GPU, place)
    box.sharing.tidy(lambda _gpu: H200)
    assert set(BALANCED) == there(box.cutter)
    assert {} == box.sharing.pin(box.readings, {})
    box.sharing.tidy(lambda _gpu: H200)
    assert set(BALANCED) == there(box.cutter)
    box.now_s += IDLE_S + 1
    box.sharing.tidy(lambda _gpu: H200)
    assert there(box.cutter) is None


def test_a_job_on_a_pinned_gpu_gets_the_slice_that_is_there(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.sharing.pin(box.readings, {0: pieces(*BALANCED)})
    assert (box.cutter.uuid(GPU, THREE),) == box.start(part(428, Slice(0, *THREE)))
    reply = box.sharing.pin(box.readings, {0: pieces(ONE)})[0]
    assert Answer.UNSURE is reply.answer
    assert "is in use" in reply.why
    assert THREE in (there(box.cutter) or ())


def test_a_model_without_mig_and_a_call_that_takes_long(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.readings = [GpuReading(GPU, "Tesla T4", 15_360), GpuReading("GPU-b", "NVIDIA H200", 143_771)]
    found = box.sharing.pin(box.readings, {0: pieces(ONE), 1: (Slice(1, *TWO),)})
    assert (Answer.REFUSED, Answer.DONE) == (found[0].answer, found[1].answer)
    times = iter([0.0, 0.0, PIN_S_MAX + 1])
    box.sharing._clock_s = lambda: next(times)
    late = box.sharing.pin(box.readings, {0: pieces(ONE), 1: (Slice(1, *THREE),)})
    assert (Answer.UNSURE, "other GPUs are cut before it") == (late[1].answer, late[1].why)


def test_the_engine_tells_what_is_cut_and_keeps_it_over_a_restart(tmp_path: Path) -> None:
    first = LocalEngine(tmp_path, nodes=ThisMachine("n", emulate=EmulatedGpus(2, "H200")), use_cgroups=False)
    assert {1: Answer.DONE} == {
        gpu: r.answer for gpu, r in first.pin(1, "n", {1: (Slice(1, *THREE),)}).items()
    }
    assert Answer.REFUSED is first.pin(1, "another", {0: pieces(ONE)})[0].answer
    assert 1 == len(json.loads((tmp_path / PINS).read_text()))
    first.pin(1, "n", {1: (Slice(1, *THREE),), 7: (Slice(7, *THREE),)})
    first.close()
    second = LocalEngine(tmp_path, nodes=ThisMachine("n", emulate=EmulatedGpus(2, "H200")), use_cgroups=False)
    assert {"n": (Slice(1, *THREE),)} == second.cuts()
    second.close()
