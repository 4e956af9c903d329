"""What GPUs do, joined with the jobs on them: an attempt's memory is its job's, and what nobody told is null."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.access.rights import Sight
from gpuyard.control.replica.labels import current_key, node_key
from gpuyard.control.upkeep import watching
from gpuyard.control.upkeep.handed_in_samples import Batch
from gpuyard.control.upkeep.watching import Watch
from gpuyard.control.views.gpus import gpus_view
from gpuyard.control.views.scheduler_metrics import NodeNames
from gpuyard.engines.contract import GpuSignals, NoMig, Transient, Whereabouts
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import Node, NodeAdded, Settings
from gpuyard.model.units import DAY_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.reports.gpus import REPORT
from gpuyard.telemetry.exposition import SignalLines
from rigs.request_service import Rig, rig


class Tells(NoMig):
    """An engine that sees what it is told."""

    found: tuple[GpuSignals, ...] | Exception = ()

    def signals(self) -> tuple[GpuSignals, ...]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Rehearses(NoMig):
    """An engine of emulated nodes with a GPU each; an attempt is on the first."""

    pretends = (True, True)

    def __init__(self) -> None:
        self.nodes = 2

    def gpus(self) -> dict[str, tuple[GpuReading, ...]]:
        return {f"n{i}": (GpuReading(f"GPU-{i}", "H100", 81_920),) for i in range(self.nodes)}

    def whereabouts(self) -> list[Whereabouts]:
        return [Whereabouts("y-1-1-1", {"n0": ("GPU-0",)})]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, Settings(policy=PRESETS["default"])) as under:
        yield under


def test_a_job_has_the_memory_of_its_attempt(service: Rig) -> None:
    job = service.submit(gpus=2)
    service.start(job, 0b11)
    key = current_key("y", service.replica.state.jobs[job])
    engine = Tells()
    engine.found = (GpuSignals("n1", 1, 81_920, 87, 9000, 412, 61, ((key, 7000), ("z-1-1-1", 5)), 2000),)
    view = gpus_view(service.replica, {"box": engine}, "y")  # type: ignore[arg-type]
    none, one, other = view["gpus"][:3]
    assert (None, None) == (none["busy_pct"], none["memory_mib"])
    state = service.replica.state
    assert state.gpu_price(0, state.now_ms // DAY_MS) == none["price_micro_usd_h"] > 0
    spec = service.replica.state.jobs[job].job.spec
    mine = {"label": str(job), "user": spec.user, "tenant": spec.tenant}
    assert [mine | {"share": 1.0, "slices": [], "memory_used_mib": None}] == none["jobs"]
    assert (None, 0) == (none["age_s"], one["age_s"]), "nobody tells of one, the other was read now"
    (unseen,) = gpus_view(service.replica, {"box": engine}, "y", sight=Sight(("elsewhere",)))["gpus"][0][
        "jobs"
    ]
    assert (str(job), "", "") == (unseen["label"], unseen["user"], unseen["tenant"])
    assert (87, 9000, 2000, False) == (
        one["busy_pct"], one["memory_used_mib"], one["others_mib"], one["emulated"],
    )  # fmt: skip
    assert [7000] == [each["memory_used_mib"] for each in one["jobs"]]
    assert [] == other["jobs"]


def test_nodes_of_one_name_in_two_clusters_have_their_own_signals(service: Rig) -> None:
    here, there = Tells(), Tells()
    cluster = service.replica.state.nodes.node[0].cluster
    here.found = (GpuSignals("n1", 0, 81_920, 10),)
    there.found = (GpuSignals("n1", 0, 81_920, 90),)
    view = gpus_view(service.replica, {"other": there, cluster: here}, "y")  # type: ignore[dict-item]
    assert (cluster, 10) == (view["gpus"][0]["cluster"], view["gpus"][0]["busy_pct"])


def test_samples_of_nodes_of_one_name_in_two_clusters_are_told_apart(service: Rig, tmp_path: Path) -> None:
    service.add(NodeAdded(0, Node("n1", "west", "p", "H100", 8, 16_000, 64_000)))
    service.add(NodeAdded(0, Node("n2", "west", "p", "H100", 8, 16_000, 64_000)))
    watch = Watch(str(tmp_path / "series.db"), {}, service.now_ms, lambda: True)
    now_ms = service.now_ms()
    for key, busy in (("c:n1", 100), ("west:n1", 900), ("west:n2", 500)):
        watch.take(
            key, Batch(now_ms, 0, [now_ms], {"gpu/0/busy": [busy], "attempt/y-1-1-1/memory": [busy]}), ()
        )
    names = NodeNames(service.replica.state)
    told = "\n".join(
        SignalLines().of([replace(each, node=names(each.node)) for each in watch.latest()], {}, {})
    )
    found = dict(re.findall(r'gpuyard_gpu_busy_ratio{node="(.*?)",.*} (.*)', told))
    curve = watch.curves("y-1-1-1", ["west:n1"], now_ms - 1, now_ms + 1)["memory"].values
    watch.close()

    assert {"c:n1": "0.1", "west:n1": "0.9", "n2": "0.5"} == found
    assert [900] == curve


def test_what_a_collector_told_last_stands_with_its_age_and_what_it_left_out_is_unknown(
    service: Rig, tmp_path: Path
) -> None:
    job = service.submit(gpus=1)
    service.start(job, 0b1)
    key = current_key("y", service.replica.state.jobs[job])
    clock = [service.now_ms()]
    watch = Watch(str(tmp_path / "series.db"), {}, lambda: clock[0], lambda: True)
    told = {"gpu/0/busy": [934], "gpu/0/memory_used": [3000], "gpu/0/memory_free": [78_920]}
    told |= {"gpu/1/temperature": [31], f"attempt/{key}/gpu_memory": [2900]}
    node = service.replica.state.nodes.node[0]
    watch.take(f"{node.cluster}:{node.name}", Batch(clock[0], 0, [clock[0]], told), ())
    clock[0] += 300_000
    one, other, third = gpus_view(service.replica, {"box": NoMig()}, "y", watch)["gpus"][:3]  # type: ignore[dict-item]
    watch.close()

    assert (93, 3000, 81_920, None, 300) == tuple(
        [one[name] for name in ("busy_pct", "memory_used_mib", "memory_mib", "power_w", "age_s")]  # type: ignore[literal-required]
    )
    assert [2900] == [each["memory_used_mib"] for each in one["jobs"]]
    assert (None, 31, None) == (other["busy_pct"], other["temperature_c"], other["memory_mib"])
    assert (None, None) == (third["busy_pct"], third["age_s"])
    rows: list[Any] = [one, other, third]
    assert ["NODE", "GPU", "MODEL", "BUSY", "MEMORY", "POWER", "TEMP", "AGE", "JOBS"] == [
        each.header for each in REPORT.columns({"gpus": rows}) if not each.wide
    ]
    assert ["5m00s old", "5m00s old", ""] == [
        next(each.cell(row) for each in REPORT.columns({"gpus": rows}) if each.header == "AGE")
        for row in rows
    ]
    assert "AGE" not in [each.header for each in REPORT.columns({"gpus": [third]})]
    assert ["nobody tells what the GPUs of n1 do: `yard collect` there does"] == REPORT.notes(
        {"gpus": [third], "trouble": ""}
    )


def test_metrics_are_asked_for_while_cards_and_kernel_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer of `/metrics` looks at idle emulated nodes itself, in a thread of its own."""
    engine = Rehearses()
    watch = Watch(str(tmp_path / "series.db"), {"c": engine}, lambda: DAY_MS, lambda: True)  # type: ignore[dict-item]
    (eyes,) = watch._eyes
    eyes.look(DAY_MS)
    watch.shown()
    cards = iter(eyes.cards)
    first, engine.nodes = next(cards), 3
    watch.shown()
    assert {("c:n0", 0), ("c:n1", 0)} == {first, *cards}
    assert {("c:n0", 0), ("c:n1", 0), ("c:n2", 0)} == watch.cards().keys()

    def key(cluster: str, node: str) -> str:
        monkeypatch.undo()
        engine.nodes += 1
        watch.shown()
        return node_key(cluster, node)

    monkeypatch.setattr(watching, "node_key", key)
    assert [] == eyes.lines("c:n1")
    watch.close()


def test_trouble_is_told_and_an_engine_that_sees_nothing_is_none(service: Rig) -> None:
    engine = Tells()
    engine.found = Transient("the GPUs cannot be read: Driver Not Loaded")
    view = gpus_view(service.replica, {"box": engine}, "y")  # type: ignore[arg-type]
    assert ("the GPUs cannot be read: Driver Not Loaded", None) == (
        view["trouble"],
        view["gpus"][0]["busy_pct"],
    )
    assert "" == gpus_view(service.replica, {"box": NoMig()}, "y")["trouble"]  # type: ignore[arg-type]
