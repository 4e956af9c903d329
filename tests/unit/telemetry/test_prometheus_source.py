"""What a Prometheus has kept, as signals of our nodes: rows of three exporters, and what may be wrong with them."""

from typing import Any

import pytest

from gpuyard.telemetry.collector import Collector
from gpuyard.telemetry.samples import check_sample
from gpuyard.telemetry.sources import AttemptPlace
from gpuyard.telemetry.sources.prometheus import Places, Step, find_lone_attempts, make_query, read_steps

NODES = {"gpu1": "slurm:gpu1", "gpu2": "slurm:gpu2"}
STEP_MS = 15_000


def row(name: str, *values: tuple[float, str], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "values": [list(each) for each in values]}


def found(
    *rows: dict[str, Any], by_uuid: dict[str, tuple[str, int]] | None = None
) -> dict[tuple[int, str], Step]:
    return read_steps(rows, STEP_MS, Places(NODES, by_uuid or {}))


def test_rows_of_dcgm_exporter_and_node_exporter_come_to_one_look() -> None:
    gpu = {
        "gpu": "3",
        "UUID": "GPU-a",
        "Hostname": "gpu1.example.org",
        "modelName": "NVIDIA H200",
        "instance": "10.0.0.9:9400",
    }
    node = {"instance": "10.0.0.9:9100"}
    told = found(
        row("DCGM_FI_DEV_GPU_UTIL", (30.5, "93"), (44.9, "95"), (45.5, "10"), **gpu),
        row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", (30.5, "5000"), **gpu),
        row("DCGM_FI_PROF_SM_ACTIVE", (30.5, "0.25"), **gpu),
        row("node_uname_info", (33.0, "1"), nodename="gpu1", **node),
        row("node_cpu_seconds_total", (33.0, "100.5"), cpu="0", mode="user", **node),
        row("node_cpu_seconds_total", (33.0, "7"), cpu="1", mode="system", **node),
        row("node_cpu_seconds_total", (33.0, "1e6"), cpu="1", mode="idle", **node),
        row("node_memory_MemTotal_bytes", (33.0, str(64 << 30)), **node),
        row("node_memory_MemAvailable_bytes", (33.0, str(60 << 30)), **node),
        row("node_network_receive_bytes_total", (33.0, "999"), device="lo", **node),
        row("node_disk_read_bytes_total", (33.0, "999"), device="dm-0", **node),
        row("node_disk_read_bytes_total", (33.0, "5"), device="nvme0n1", **node),
    )  # fmt: skip

    step = told[30_000, "slurm:gpu1"]
    assert {3: {"busy": 950.0, "energy": 5.0, "sm_active": 250.0}} == step.gpus, (
        "the last scrape of a step counts"
    )
    assert ("GPU-a", "NVIDIA H200") == (step.cards[3].uuid, step.cards[3].model)
    assert {
        "cpu": 107_500.0,
        "memory_available": 61_440.0,
        "memory_used": 4_096.0,
        "disk_read": 5.0,
    } == step.node
    assert {3: {"busy": 100.0}} == told[45_000, "slurm:gpu1"].gpus
    assert 2 == len(told)


def test_rows_of_nvidia_gpu_exporter_find_their_gpu_by_its_uuid() -> None:
    told = found(
        row("nvidia_smi_index", (1.0, "2"), uuid="a", instance="gpu2:9835"),
        row("nvidia_smi_utilization_gpu_ratio", (1.0, "0.5"), uuid="a", instance="gpu2:9835"),
        row("nvidia_smi_memory_used_bytes", (1.0, str(5 << 30)), uuid="a", instance="gpu2:9835"),
        row("nvidia_smi_power_draw_watts", (1.0, "300"), uuid="nobody knows", instance="gpu2:9835"),
    )
    assert {2: {"busy": 500.0, "memory_used": 5120.0}} == told[0, "slurm:gpu2"].gpus

    known = found(
        row("nvidia_smi_power_draw_watts", (1.0, "300"), uuid="b", instance="10.1.1.1:9835"),
        by_uuid={"GPU-b": ("slurm:gpu1", 7)},
    )
    assert {7: {"power": 300.0}} == known[0, "slurm:gpu1"].gpus


@pytest.mark.parametrize(
    "labels",
    [
        {"Hostname": "elsewhere", "gpu": "0"},
        {"Hostname": "gpu1", "gpu": "0", "GPU_I_ID": "1", "GPU_I_PROFILE": "1g.10gb"},
        {"gpu": "0"},
    ],
    ids=["another node", "a slice", "no node"],
)
def test_what_is_not_about_a_gpu_of_ours_is_left_out(labels: dict[str, str]) -> None:
    assert {} == found(row("DCGM_FI_DEV_GPU_UTIL", (1.0, "50"), **labels))


def test_values_that_cannot_be_are_left_out_and_counted() -> None:
    gpu = {"gpu": "0", "UUID": "GPU-a", "Hostname": "gpu1"}
    (step,) = found(
        row("DCGM_FI_DEV_GPU_UTIL", (1.0, "NaN"), **gpu),
        row("DCGM_FI_DEV_MEMORY_TEMP", (1.0, "9223372036854775794"), **gpu),
        row("DCGM_FI_DEV_POWER_USAGE", (1.0, "-5"), **gpu),
        row("DCGM_FI_DEV_GPU_TEMP", (1.0, "51"), **gpu),
        row("DCGM_FI_DEV_FB_USED", (1.0, "no number"), **gpu),
    ).values()
    told = {f"gpu/0/{name}": value for name, value in step.gpus[0].items()}

    assert ["gpu/0/busy"] == list(step.no_numbers())
    assert "busy" not in step.looks([])[0].values
    sample = check_sample("slurm:gpu1", 0, told, 0)
    assert ({"gpu/0/temperature": 51}, {"no number": 1, "out of bounds": 2}) == (sample.values, sample.faults)


def test_an_attempt_that_has_its_gpus_to_itself_is_told_of_by_them() -> None:
    def one(gpu: int, busy: str, energy: str) -> list[dict[str, Any]]:
        labels = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "Hostname": "gpu1"}
        return [
            row("DCGM_FI_DEV_GPU_UTIL", (1.0, busy), **labels),
            row("DCGM_FI_DEV_FB_USED", (1.0, "1000"), **labels),
            row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", (1.0, energy), **labels),
        ]

    (step,) = found(
        *one(0, "80", "1000000"), *one(1, "40", "2000000"), *one(2, "90", "0"), *one(3, "90", "0")
    ).values()
    held = {"own": ((0, 1), 1000), "half": ((2,), 500), "other half": ((2,), 500), "gone": ((3, 4), 1000)}
    places = find_lone_attempts(step, held)

    class Machine:
        """What a collector asks, in the place of a machine."""

        def __init__(self) -> None:
            self.step = step

        def look(self, _now_ms: int) -> Any:
            return self.step.looks(places)

        def close(self) -> None: ...

        def node(self) -> dict[str, float]:
            return self.step.node

        def attempt(self, _place: AttemptPlace) -> dict[str, int]:
            return {}

        def attempt_of(self, _places: Any) -> Any:
            return lambda _pid: ""

        def name_of(self, _pid: int) -> str:
            return ""

    machine = Machine()
    collector = Collector("gpu1", machine, lambda: places, machine)
    collector.take(0)
    (machine.step,) = found(*one(0, "80", "1003000"), *one(1, "40", "500")).values()
    collector.take(15_000)
    (machine.step,) = found(*one(0, "80", "1006000"), *one(1, "40", "1500")).values()
    told = collector.take(30_000)

    assert ["own"] == [place.key for place in places], "of shared GPUs, and of those not scraped, nobody says"
    assert (600, 2000) == (told["attempt/own/gpu_busy"], told["attempt/own/gpu_memory"])
    assert 5_000 == told["attempt/own/energy"], "3 J of one, 2 J of the other, whose counter began anew at 0"


def test_the_question_names_all_that_is_known() -> None:
    asked = make_query('job!~"gpuyard.*"', 30)
    assert asked.endswith(',job!~"gpuyard.*"}[30s]')
    assert all(
        [name in asked for name in ("DCGM_FI_DEV_GPU_UTIL", "node_cpu_seconds_total", "nvidia_smi_index")]
    )
    assert make_query("", 5).endswith('"}[5s]')
