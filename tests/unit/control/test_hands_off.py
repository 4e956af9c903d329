"""`card_settings: leave`: slices that are there are given out, none is made, and no setting of a GPU is touched."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.admission.wanted import make_job
from gpuyard.control.clusters import Clusters
from gpuyard.control.commands.layouts import LayoutRequests, WantedLayout
from gpuyard.control.commands.requests import RequestService
from gpuyard.control.loop.loop import Controller
from gpuyard.control.refusals import Impossible, Unacceptable
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.replica import Replica
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.engines.local.engine import GpuTools, LocalEngine
from gpuyard.engines.local.gpus.mig_emulated import EmulatedCutter
from gpuyard.engines.local.gpus.mps import NoMps
from gpuyard.engines.local.hosts import MachineReader, ThisMachine
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import ConfigSet, Isolation, Mig, Settings, Whole
from gpuyard.model.mig import MIG_MODELS
from gpuyard.policies.registry import PRESETS
from gpuyard.testing import MemoryStore
from harness.patience import until
from rigs.request_service import ROOT
from unit.engines.test_outsiders import Driver

GPUS = [GpuReading(f"GPU-{name}", "NVIDIA H200", 143_771) for name in "ab"]
CUT = (PlacedSlice("1g.18gb", 0), PlacedSlice("1g.18gb", 1), PlacedSlice("3g.71gb", 4))


class Machine:
    """Two H200 whose owner has cut the first, under the real engine and a driver on paper."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.driver = Driver({"GPU-a": 0, "GPU-b": 0})
        (folder / "card").mkdir()
        self.card = EmulatedCutter(str(folder / "card"), MIG_MODELS["H200"])
        self.card.switch("GPU-a", True)
        for place in CUT:
            self.card.make("GPU-a", place)
        monkeypatch.setitem(sys.modules, "pynvml", self.driver)
        self.replica = Replica(MemoryStore())  # type: ignore[arg-type]
        self.committer = Committer(self.replica, lambda: time.time_ns() // 1_000_000)
        self.replica.commit(None, lambda draft: draft.add(ConfigSet(0, Settings(policy=PRESETS["default"]))))
        self.committer.start()
        self.requests = RequestService(self.replica, self.committer, self.committer._now_ms, allow_root=True)
        self.up(hands_off=True)

    def up(self, *, hands_off: bool) -> None:
        self.engine = LocalEngine(
            self.folder / "engine",
            nodes=ThisMachine(reader=MachineReader(gpus=lambda *_: list(GPUS))),
            hands_off=hands_off,
            gpu_tools=GpuTools(lambda _geometry: self.card, NoMps),
        )
        lease = self.replica.store.elect("me")
        assert lease is not None
        self.loop = Controller(self.replica, self.engine, lease.epoch)
        self.step()

    def step(self) -> None:
        self.loop.step(time.time_ns() // 1_000_000)

    def submit(self, **fields: Any) -> int:
        return (
            self.requests.submit(ROOT, make_job(command=fields.pop("command", ("true",)), **fields), Future())
            .result(10)
            .first_id
        )

    def until(self, what: Callable[[], bool]) -> None:
        def stepped() -> bool:
            self.step()
            return what()

        until(lambda: what() or stepped())

    @property
    def untouched(self) -> bool:
        on_card = json.loads((self.folder / "card" / "emulated-mig.json").read_text())
        return on_card == {"GPU-a": [list(place) for place in CUT]} and set(self.driver.modes.values()) == {0}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path, monkeypatch)
    yield made
    made.engine.close()
    made.committer.close()


def test_jobs_get_the_slices_that_are_there_and_the_whole_gpu_and_nothing_is_changed(here: Machine) -> None:
    see = ("sh", "-c", f'echo $CUDA_VISIBLE_DEVICES > "{here.folder}/$YARD_JOB_ID"; sleep 0.2')
    asked = [{"mig": "1g.18gb"}, {"mig": "1g.18gb"}, {"mig": "3g.71gb"}, {"gpus": 1}, {"mig": "1g.18gb"}]
    jobs = [here.submit(command=see, **each) for each in asked]
    here.until(lambda: all((here.folder / str(job)).exists() for job in jobs))
    seen = [(here.folder / str(job)).read_text().strip() for job in jobs]

    names = {here.card.uuid("GPU-a", place) for place in CUT}
    assert "GPU-b" == seen[3]
    assert names == {*seen[:3]}
    assert seen[4] in names
    here.until(lambda: not here.replica.state.running)
    assert here.untouched
    here.engine.close()
    assert here.untouched
    (note,) = [each for each in here.engine.notes if "card_settings" in each]
    assert "`card_settings: leave`: MIG and persistence mode of the GPUs stay as they are" == note


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"mig": "2g.35gb"},
            "asks for 1 x 2g.35gb, and the GPUs of a node here have slices of 1g.18gb, 3g.71gb",
        ),
        ({"mig": "1g.18gb", "gpus": 3}, "asks for 3 x 1g.18gb, and the GPUs of a node here have 2 x 1g.18gb"),
        ({"mig": "3g.71gb", "tasks": 2}, "asks for 2 x 3g.71gb"),
    ],
)
def test_slices_that_would_have_to_be_cut_are_refused_with_the_reason(
    here: Machine, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unacceptable) as refused:
        here.submit(**fields)
    assert why in str(refused.value)
    assert "`card_settings: leave`" in str(refused.value)
    assert "nvidia-smi mig" in refused.value.hint


def test_memory_strictly_apart_means_a_slice_that_is_there_or_a_whole_gpu(here: Machine) -> None:
    asked = {10_000: Mig(1, "1g.18gb"), 30_000: Mig(1, "3g.71gb"), 80_000: Whole(1)}
    for mib, request in asked.items():
        job = here.submit(gpu_memory_mib=mib, isolation=Isolation.STRICT, hold=True)
        here.replica.catch_up()
        assert request == here.replica.state.jobs[job].job.spec.ask.gpus


def test_nobody_pins_or_releases_a_gpu_that_is_left_alone(here: Machine) -> None:
    parts = LayoutRequests(here.replica, here.committer, Clusters({"c": here.engine}), lambda: 1)
    node = here.replica.state.nodes.node[0].name
    for wish in (
        lambda: parts.pin(ROOT, node, [WantedLayout("7x1g.18gb", (1,))]),
        lambda: parts.release(ROOT, node, None),
    ):
        with pytest.raises(
            Impossible, match=r"stays cut as it was found: yard\.yaml says `card_settings: leave`"
        ):
            wish().result(10)
    assert here.untouched


def test_what_the_owner_cuts_anew_is_seen_and_once_the_yard_may_it_cuts_again(here: Machine) -> None:
    node = here.replica.state.nodes
    assert {0: set(CUT), 1: set()} == {gpu: set(pin.held) for gpu, pin in node.pins[0].items()}
    here.card.destroy("GPU-a", CUT[1])
    here.loop.drivers[""]._nodes_ms = None
    here.step()
    assert {CUT[0], CUT[2]} == set(here.replica.state.nodes.pins[0][0].held)
    here.engine.close()
    here.up(hands_off=False)
    assert {} == here.replica.state.nodes.pins
    here.submit(mig="7g.141gb", command=("true",))
    here.until(lambda: here.card.places("GPU-b") == (PlacedSlice("7g.141gb", 0),))
