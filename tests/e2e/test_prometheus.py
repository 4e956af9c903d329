"""A real Prometheus scrapes a yard and what its collectors hand in: every query of every dashboard has data."""

import math
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box, until
from gpuyard.telemetry.exports.panels import DASHBOARDS, Dashboard
from gpuyard.telemetry.signals import SIGNALS, Of
from rigs.components import Missing, skip_or_fail
from rigs.receivers.prometheus import Prometheus

pytestmark = pytest.mark.rig

CONFIG = """
version: 1
clusters:
  main:
    allow_root: true
    pools:
      h100: {nodes: 2, gpus: 4 x H100, cpus: 16, memory: 64G, nodes_per_switch: 1, switches_per_rack: 1, emulate: true}
tenants: {research: {}, product: {}}
"""
CARD = {
    "uuid": "GPU-handed-in",
    "model": "NVIDIA H100 80GB HBM3",
    "pci": "00000000:1B:00.0",
    "driver": "580.1",
}
LOAD = "80% 20GiB"

DCGM_DEFAULTS = frozenset(
    [
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_MEM_CLOCK",
        "DCGM_FI_DEV_MEMORY_TEMP",
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
        "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "DCGM_FI_DEV_ENC_UTIL",
        "DCGM_FI_DEV_DEC_UTIL",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    ]
)
"""What dcgm-exporter tells without being told to."""
DCGM_LACKING = frozenset(["DCGM_FI_DEV_VGPU_LICENSE_STATUS"])
"""Of those, what a yard does not tell: it is about guests of vGPU."""
DCGM_MORE = frozenset(
    [
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_PROF_SM_ACTIVE",
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "DCGM_FI_PROF_DRAM_ACTIVE",
    ]
)
"""Fields of DCGM that dcgm-exporter tells where its counters name them."""
DCGM_LABELS = frozenset(
    {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"}
)


class Watched:
    """A yard with jobs and a collector, and the Prometheus that scrapes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.box = Box(folder / "yard", CONFIG)
        self.box.up()
        token = self.box.data / "token"
        done = self.box("export", "prometheus", "--credentials", token, "--to", folder)
        assert 0 == done.code, done.err
        self.scrape_file = folder / "gpuyard.yml"
        text = self.scrape_file.read_text(encoding="utf-8")
        assert "scrape_interval: 15s" in text
        quick = text.replace("scrape_interval: 15s", "scrape_interval: 1s").replace(
            "timeout: 10s", "timeout: 1s"
        )
        self.prometheus = Prometheus(folder / "prometheus", quick)

    def hand_in(self) -> None:
        """All signals of a GPU, as the collector of the second node would; its clock is a minute behind."""
        now_ms = time.time_ns() // 1_000_000 - 60_000
        with self.box.client() as client:
            series = {f"gpu/0/{signal.name}": [1] for signal in SIGNALS.values() if signal.of is Of.GPU}
            client.hand_in(
                "h100-0002",
                {
                    "sent_ms": now_ms,
                    "steady_ms": now_ms,
                    "at_ms": [now_ms],
                    "series": series,
                    "cards": [{"gpu": 0, **CARD}],
                },
            )

    def text(self) -> str:
        with self.box.client() as client:
            _head, content = client._exchange("GET", "/metrics", None, {})
        return content.decode()

    def close(self) -> None:
        self.prometheus.kill()
        self.box("down", "--jobs")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    try:
        made = Watched(tmp_path_factory.mktemp("prometheus"))
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    try:
        box = made.box
        with box.client() as client:
            assert ["h100-0001", "h100-0002"] == [node["name"] for node in client.nodes()]
            client.submit(
                command=["sleep", "600"],
                gpus=4,
                tenant="research",
                name="train",
                env={"YARD_EMULATED_LOAD": LOAD},
            )
        for command in ("true", "false"):
            # Rates want two scrapes with something between them.
            until(lambda: made.prometheus.query("gpuyard_jobs"), 60)
            job = box.submit("--tenant", "research", "-g", "1", "--", command)
            box.wait(job, "COMPLETED", "FAILED")
            until(lambda: made.prometheus.query("gpuyard_jobs_ended_total"))
            time.sleep(2.5)
        with box.client() as client:
            client.submit(command=["true"], gpus=4, tasks=2, tenant="product", name="wide")
        yield made
    finally:
        made.close()


def asked(query: str) -> str:
    """As Grafana asks, with all nodes and tenants chosen."""
    query = re.sub(r"\$__(rate_interval|range)\b", "1m", query)
    return re.sub(r"\$(node|tenant)\b", ".*", query)


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_every_query_of_a_dashboard_has_data(watched: Watched, board: Dashboard) -> None:
    missing: list[str] = []

    def all_there() -> bool:
        watched.hand_in()
        time.sleep(0.5)
        missing[:] = [
            panel.title
            for panel in board.panels
            if not [
                value
                for _labels, value in watched.prometheus.query(asked(panel.query))
                if not math.isnan(value)
            ]
        ]
        return not missing

    with suppress(AssertionError):
        until(all_there, 60)
    assert [] == missing
    for each in board.variables:
        assert watched.prometheus.get(f"label/{each.label}/values", **{"match[]": each.metric})
    for panel in board.panels:
        # A label that no series has would leave a hole in the legend.
        names = set(re.findall(r"\{\{(\w+)\}\}", panel.legend))
        rows = watched.prometheus.query(asked(panel.query))
        assert any([names <= set(labels) | {"state"} for labels, _value in rows]), panel.title


def test_jobs_are_seen_with_their_users_and_racks_with_their_heat(watched: Watched) -> None:
    (memory,) = [each for each in DASHBOARDS["jobs"].panels if each.title == "GPU memory"]
    ((labels, value),) = watched.prometheus.query(asked(memory.query))
    (heat,) = [each for each in DASHBOARDS["racks"].panels if each.title == "Mean temperature"]
    watched.hand_in()
    racks = {labels["rack"] for labels, _value in watched.prometheus.query(heat.query)}

    assert ("train", 4 * 20 << 30) == (labels["name"], value)
    assert {"h100-rack1", "h100-rack2"} == racks


def test_promtool_finds_nothing_wrong(watched: Watched) -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", watched.scrape_file], capture_output=True, text=True, check=False
    )
    assert 0 == checked.returncode, checked.stderr
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=watched.text(), capture_output=True, text=True, check=False
    )
    # These names are dcgm-exporter's own, and dashboards want them just so.
    theirs = re.compile(
        r"(DCGM_FI|dcgm)_\S+ (label names should be written in 'snake_case' not 'camelCase'"
        r"|metric name should not include type 'counter')"
    )
    assert [] == [line for line in (found.stderr + found.stdout).splitlines() if not theirs.fullmatch(line)]


def test_dcgms_names_and_labels_are_dcgm_exporters(watched: Watched) -> None:
    watched.hand_in()
    rows = re.findall(r'^(DCGM_FI_\w+)\{(.*UUID="GPU-handed-in".*)\} \S+$', watched.text(), re.MULTILINE)

    assert (DCGM_DEFAULTS - DCGM_LACKING) | DCGM_MORE == {name for name, _labels in rows}
    assert {DCGM_LABELS} == {frozenset(re.findall(r'(\w+)="', labels)) for _name, labels in rows}
    assert all(['modelName="NVIDIA H100 80GB HBM3",Hostname="h100-0002"' in labels for _name, labels in rows])


class Exporters:
    """dcgm-exporter and node_exporter of one node in one: what a Prometheus scrapes is as it is told to be."""

    def __init__(self) -> None:
        self.rows = ""
        self.silent = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.rows.encode()
                self.send_response(503 if outer.silent else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tell(self, busy: str, energy_mj: int, cpu_s: int) -> None:
        lines = []
        for gpu in range(4):
            labels = f'gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100",Hostname="h100-0002"'
            for name, value in (
                ("GPU_UTIL", busy),
                ("FB_USED", 1024),
                ("TOTAL_ENERGY_CONSUMPTION", energy_mj),
                ("MEMORY_TEMP", 9223372036854775794),
            ):
                lines.append(f"DCGM_FI_DEV_{name}{{{labels}}} {value}")
        lines += [
            'node_uname_info{nodename="h100-0002"} 1',
            f'node_cpu_seconds_total{{cpu="0",mode="user"}} {cpu_s}',
            'node_cpu_seconds_total{cpu="0",mode="idle"} 99999',
        ]
        self.rows = "\n".join(lines) + "\n"


SCRAPES = """
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: exporters, static_configs: [{targets: ["127.0.0.1:PORT"]}]}
"""
READING = """
telemetry: {prometheus: {url: "http://127.0.0.1:PORT", clusters: [main], every: 1s}}
"""


def test_a_prometheus_is_read_in_the_place_of_collectors(tmp_path: Path) -> None:
    """Real Prometheus, a stand-in for its exporters. Numbers that are none, a counter that begins anew, silence."""
    exporters = Exporters()
    exporters.tell("80", 1_000_000, 100)
    port = str(exporters.server.server_address[1])
    try:
        prometheus = Prometheus(tmp_path / "prometheus", SCRAPES.replace("PORT", port))
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    box = Box(tmp_path / "yard", CONFIG + READING.replace("PORT", str(prometheus.port)))
    box.up()
    try:

        def row(start: str) -> float | None:
            with box.client() as client:
                _head, content = client._exchange("GET", "/metrics", None, {})
            found = [line for line in content.decode().splitlines() if line.startswith(start)]
            return float(found[0].rpartition(" ")[2]) if found else None

        def busy() -> float | None:
            return row('gpuyard_gpu_busy_ratio{node="h100-0002",gpu="3",')

        def curves() -> dict[str, Any]:
            with box.client() as client:
                return {each["signal"]: each for each in client.curves(filler)["curves"]}

        def times_told(thousandths: int) -> int:
            return curves().get("gpu_busy", {"values": []})["values"].count(thousandths)

        filler = box.submit("--tenant", "research", "-g", "4", "--node", "h100-0002", "--", "sleep", "600")
        until(lambda: busy() == 0.8, 30)
        assert 1 == row("gpuyard_prometheus_source_up")
        mine = f'{{node="h100-0002",job_id="{filler}"}}'
        until(lambda: row(f"gpuyard_attempt_gpu_busy_ratio{mine}") == 0.8, 30)
        assert 4 * 1024 << 20 == row(f"gpuyard_attempt_gpu_memory_bytes{mine}")
        assert row("gpuyard_gpu_memory_temperature_celsius") is None, (
            "DCGM's word for a value that is not known"
        )
        refused = 'gpuyard_values_refused_total{node="h100-0002",cause="out of bounds"}'
        assert row(refused)

        # The counter grows between two samples of the attempt.
        until(lambda: times_told(800) >= 2, 30)
        exporters.tell("NaN", 1_500_000, 110)
        until(lambda: row('gpuyard_values_refused_total{node="h100-0002",cause="no number"}'), 30)
        # The counters begin anew, as after a restart of the node.
        exporters.tell("20", 1_000, 5)
        until(lambda: busy() == 0.2, 30)
        exporters.tell("20", 3_000, 8)
        time.sleep(4)
        exporters.silent = True
        time.sleep(6)
        exporters.silent = False
        exporters.tell("60", 4_000, 9)
        until(lambda: busy() == 0.6, 30)

        until(lambda: times_told(600) >= 1, 30)

        found = curves()
        times, values = found["gpu_busy"]["times_ms"], found["gpu_busy"]["values"]
        told = [value for value in values if value is not None]
        assert {200, 600, 800} == set(told), "what was told, and nothing between"
        seen = [at for at, value in zip(times, values, strict=True) if value is not None]
        assert max([after - before for before, after in pairwise(seen)]) >= 5_000, "silence is a hole"
        joules = sum([value for value in found["energy"]["values"] if value is not None]) / 1000
        assert 4 * 500 <= joules <= 4 * (500 + 4), "what a counter had before it began anew is not taken away"

        prometheus.kill()
        until(lambda: row("gpuyard_prometheus_source_up") == 0, 30)
        with box.client() as client:
            after = {each["signal"]: each for each in client.curves(filler)["curves"]}
        last = [
            at
            for at, value in zip(after["gpu_busy"]["times_ms"], after["gpu_busy"]["values"], strict=True)
            if value
        ]
        assert max(last) <= time.time_ns() // 1_000_000 - 1_000
    finally:
        box("down", "--jobs")
        prometheus.kill()
        exporters.server.shutdown()
        exporters.server.server_close()
