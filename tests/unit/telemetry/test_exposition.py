"""The text for Prometheus: names, labels, units, escapes, and how long ten thousand GPUs take."""

import re
import time

from gpuyard.telemetry.exposition import SignalLines, exposition_text, family_lines, labels_text, open_metrics
from gpuyard.telemetry.samples import Sample
from gpuyard.telemetry.sources import GpuCard

CARD = GpuCard("GPU-1", "NVIDIA H200", "00000000:1B:00.0", "580.159")
SAMPLE = Sample(
    "n1",
    0,
    {
        "gpu/0/busy": 935,
        "gpu/0/memory_used": 4096,
        "gpu/0/power": 612,
        "gpu/0/energy": 1234,
        "gpu/0/sm_active": 870,
        "node/cpu": 1500,
        "attempt/y-1-1/gpu_busy": 500,
        "attempt/y-2-1/gpu_busy_estimated": 250,
    },
)


def signals(samples: list[Sample], cards: dict[tuple[str, int], GpuCard], jobs: dict[str, str]) -> list[str]:
    return "\n".join(SignalLines().of(samples, cards, jobs)).splitlines()


def test_dcgm_names_have_dcgm_exporters_units_and_labels() -> None:
    lines = signals([SAMPLE], {("n1", 0): CARD}, {})
    labelled = (
        '{gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H200",'
        'Hostname="n1",DCGM_FI_DRIVER_VERSION="580.159"}'
    )
    for name, value in (
        ("DCGM_FI_DEV_GPU_UTIL", "93.5"),
        ("DCGM_FI_DEV_FB_USED", "4096"),
        ("DCGM_FI_DEV_POWER_USAGE", "612"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "1234000"),
        ("DCGM_FI_PROF_SM_ACTIVE", "0.87"),
        ("dcgm_gpu_power_usage", "612"),
    ):
        assert f"{name}{labelled} {value}" in lines
        assert f"# TYPE {name} gauge" in lines


def test_our_own_names_are_in_base_units_and_tell_jobs_that_may_be_seen() -> None:
    lines = signals([SAMPLE], {("n1", 0): CARD}, {"y-1-1": "17"})

    assert 'gpuyard_gpu_memory_used_bytes{node="n1",gpu="0",uuid="GPU-1"} 4294967296' in lines
    assert 'gpuyard_gpu_energy_joules_total{node="n1",gpu="0",uuid="GPU-1"} 1234' in lines
    assert "# TYPE gpuyard_gpu_energy_joules_total counter" in lines
    assert 'gpuyard_node_cpu_seconds_total{node="n1"} 1.5' in lines
    assert 'gpuyard_attempt_gpu_busy_ratio{node="n1",job_id="17"} 0.5' in lines
    assert not [line for line in lines if "gpu_busy_estimated" in line], "job 2 is out of sight"
    assert 'gpuyard_attempt_gpu_busy_estimated_ratio{node="n1",job_id="2"} 0.25' in signals(
        [SAMPLE], {}, {"y-2-1": "2"}
    )


def test_every_family_is_told_once_and_together() -> None:
    names = [line.split()[2] for line in signals([SAMPLE, SAMPLE], {}, {}) if line.startswith("# TYPE")]

    assert len(names) == len(set(names))


def test_values_of_labels_are_escaped() -> None:
    assert '{name="a\\"b\\\\c\\nd"}' == labels_text(name='a"b\\c\nd')
    assert [] == family_lines("gpuyard_x", "gauge", "X.", [])
    assert "# HELP x X.\n# TYPE x gauge\nx 1\n" == exposition_text(
        family_lines("x", "gauge", "X.", [("", 1.0)])
    )


def test_ten_thousand_gpus_are_written_in_a_second() -> None:
    names = ("busy", "memory_used", "memory_free", "power", "energy", "temperature", "sm_clock", "sm_active")
    samples = [
        Sample(f"n{n}", 0, {f"gpu/{g}/{name}": n for g in range(8) for name in names}) for n in range(1250)
    ]
    cards = {(f"n{n}", g): CARD for n in range(1250) for g in range(8)}
    told = SignalLines()
    text = exposition_text(told.of(samples, cards, {}))
    again_s = time.process_time()
    again = exposition_text(told.of(samples, cards, {}))

    assert time.process_time() - again_s < 5.0, "a quarter of a second on a machine of its own"
    assert text == again
    assert 10_000 == len(re.findall(r"^DCGM_FI_DEV_GPU_UTIL\{", text, re.MULTILINE))


def test_open_metrics_has_counters_without_their_ending_and_an_end() -> None:
    text = exposition_text(signals([SAMPLE], {("n1", 0): CARD}, {}))
    lines = open_metrics(text.splitlines())

    assert "# TYPE gpuyard_gpu_energy_joules counter" in lines
    assert "# HELP gpuyard_gpu_energy_joules Energy used since the driver was loaded." in lines
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION gauge" in lines
    assert "# EOF" == lines[-1]
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert rows == [line for line in lines if not line.startswith("#")]


def test_what_changes_about_a_node_is_told_at_the_next_question() -> None:
    told = SignalLines()
    two = {"gpu/0/busy": 100, "gpu/1/busy": 200, "attempt/y-1-1/gpu_busy": 100}
    cards = {("n%1", 0): CARD, ("n%1", 1): CARD}

    def busy(values: dict[str, int], jobs: dict[str, str]) -> list[tuple[str, str]]:
        text = "\n".join(told.of([Sample("n%1", 0, values)], cards, jobs))
        return re.findall(r'^gpuyard_[a-z]+_(?:gpu_)?busy_ratio{node="n%1",(.*)} (.*)$', text, re.MULTILINE)

    first = 'gpu="0",uuid="GPU-1"'
    assert [('job_id="7"', "0.1"), (first, "0.1"), ('gpu="1",uuid="GPU-1"', "0.2")] == busy(
        two, {"y-1-1": "7"}
    )
    assert [(first, "0.3"), ('gpu="1",uuid="GPU-1"', "0.4")] == busy(
        {**two, "gpu/0/busy": 300, "gpu/1/busy": 400}, {}
    )
    assert [(first, "0.5")] == busy({"gpu/0/busy": 500}, {})
    cards["n%1", 0] = GpuCard("GPU-2")
    assert [('gpu="0",uuid="GPU-2"', "0.5")] == busy({"gpu/0/busy": 500}, {})
