"""What a Prometheus has kept of nodes and GPUs, put into our signals. Pure: answers of its API come as arguments.

Raw samples are read with the times at which they were scraped (a range selector), so that a hole there is a hole here.
Rows of dcgm-exporter (`DCGM_FI_*`), of node_exporter (`node_*`) and of nvidia_gpu_exporter (`nvidia_smi_*`) are known.
What was scraped within one step counts as one look. Values that cannot be are left to `believed`, which counts them.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.telemetry.signals import SIGNALS, gpu_subject
from gpuyard.telemetry.sources import AttemptPlace, GpuCard, GpuLook, ProcessOnGpu

_MIB, _MS = 1 / (1 << 20), 1000.0
_OF_DCGM = {
    signal.dcgm: (signal.name, signal.dcgm_per / signal.dcgm_times)
    for signal in SIGNALS.values()
    if signal.dcgm
}
_OF_SMI = {
    "nvidia_smi_utilization_gpu_ratio": ("busy", 1000.0),
    "nvidia_smi_utilization_memory_ratio": ("memory_busy", 1000.0),
    "nvidia_smi_memory_used_bytes": ("memory_used", _MIB),
    "nvidia_smi_memory_free_bytes": ("memory_free", _MIB),
    "nvidia_smi_power_draw_watts": ("power", 1.0),
    "nvidia_smi_temperature_gpu": ("temperature", 1.0),
    "nvidia_smi_temperature_memory": ("memory_temperature", 1.0),
    "nvidia_smi_clocks_current_sm_clock_hz": ("sm_clock", 1e-6),
    "nvidia_smi_clocks_current_memory_clock_hz": ("memory_clock", 1e-6),
}
_INDEX, _INFO, _UNAME = "nvidia_smi_index", "nvidia_smi_gpu_info", "node_uname_info"
_TOTAL = "node_memory_MemTotal_bytes"
_IDLE = ("idle", "iowait", "guest", "guest_nice")
"""Modes of a core that are no work, or are counted in another mode already."""
_NO_DISKS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d*")
_NODE: dict[str, tuple[str, float, Callable[[Mapping[str, str]], bool]]] = {
    "node_cpu_seconds_total": ("cpu", _MS, lambda row: row.get("mode") not in _IDLE),
    "node_memory_MemAvailable_bytes": ("memory_available", _MIB, lambda _row: True),
    _TOTAL: ("memory_total", _MIB, lambda _row: True),
    "node_disk_read_bytes_total": ("disk_read", 1.0, lambda row: not _NO_DISKS.match(row.get("device", ""))),
    "node_disk_written_bytes_total": ("disk_written", 1.0, lambda row: not _NO_DISKS.match(row.get("device", ""))),
    "node_network_receive_bytes_total": ("net_received", 1.0, lambda row: row.get("device") != "lo"),
    "node_network_transmit_bytes_total": ("net_sent", 1.0, lambda row: row.get("device") != "lo"),
    "node_infiniband_port_data_received_bytes_total": ("ib_received", 1.0, lambda _row: True),
    "node_infiniband_port_data_transmitted_bytes_total": ("ib_sent", 1.0, lambda _row: True),
    "node_pressure_cpu_waiting_seconds_total": ("cpu_stalled", _MS, lambda _row: True),
    "node_pressure_memory_waiting_seconds_total": ("memory_stalled", _MS, lambda _row: True),
    "node_pressure_io_waiting_seconds_total": ("io_stalled", _MS, lambda _row: True),
}  # fmt: skip
"""Rows of node_exporter: the signal, what a value is multiplied with, and which rows are summed up."""
_HOSTS = ("Hostname", "hostname", "nodename", "node", "host", "instance")
"""Labels that name a node, the surest first."""


def make_query(match: str, span_s: int) -> str:
    """The expression for all that is known, over so many seconds. `match`: further conditions."""
    names = "|".join([*_OF_DCGM, *_OF_SMI, _INDEX, _INFO, _UNAME, *_NODE])
    return f'{{__name__=~"{names}"{"," if match else ""}{match}}}[{span_s}s]'


@dataclass(slots=True)
class Step:
    """What was scraped of one node within one step."""

    gpus: dict[int, dict[str, float]] = field(default_factory=dict)
    cards: dict[int, GpuCard] = field(default_factory=dict)
    node: dict[str, float] = field(default_factory=dict)

    def looks(self, places: Sequence[AttemptPlace]) -> list[GpuLook]:
        """The GPUs, as a collector sees them; an attempt that has one to itself has all that is on it."""
        found = []
        for gpu, values in sorted(self.gpus.items()):
            card = self.cards.get(gpu, GpuCard())
            uuid = device(gpu, card)
            good = {name: value for name, value in values.items() if math.isfinite(value)}
            memory = good.get("memory_used")
            holders = [place for place in places if uuid in place.devices]
            processes = [
                ProcessOnGpu(number, round(memory), attempt=place.key)
                for number, place in enumerate(holders)
                if memory is not None
            ]
            found.append(
                GpuLook(gpu, uuid, good, tuple(processes), model=card.model, pci=card.pci, driver=card.driver)
            )
        return found

    def no_numbers(self) -> dict[str, float]:
        """Values of GPUs that are none, by series: they are counted, and nothing is worked out from them."""
        return {
            f"{gpu_subject(gpu)}/{name}": value
            for gpu, values in self.gpus.items()
            for name, value in values.items()
            if not math.isfinite(value)
        }


def device(gpu: int, card: GpuCard) -> str:
    """The name of a GPU on its node."""
    return card.uuid or f"gpu-{gpu}"


class Places:
    """Which node a row is about: by its labels, by the host behind its instance, or by the UUID of its GPU."""

    def __init__(self, nodes: Mapping[str, str], by_uuid: Mapping[str, tuple[str, int]]) -> None:
        """`nodes`: keys of nodes by their names; `by_uuid`: node and place of the GPUs that are known."""
        self._nodes = nodes
        self._by_uuid = by_uuid
        self._behind: dict[str, str] = {}

    def learn(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What node_exporter says of its machines: `instance` may be an address."""
        for row in rows:
            labels = row["metric"]
            if labels.get("__name__") == _UNAME and labels.get("instance"):
                self._behind[labels["instance"]] = labels.get("nodename", "")

    def node(self, labels: Mapping[str, str]) -> str:
        """The key of the node; empty: none that is here."""
        for label in _HOSTS:
            text = labels.get(label, "")
            names = [text]
            if label == "instance":
                names = [self._behind.get(text, ""), text.rpartition(":")[0] or text]
            for name in names:
                key = self._nodes.get(name) or self._nodes.get(name.partition(".")[0])
                if name and key:
                    return key
        return self._by_uuid.get(_uuid(labels), ("", 0))[0]

    def gpu(self, labels: Mapping[str, str], index: Mapping[str, int]) -> int | None:
        """The place of a GPU on its node; None: nobody says."""
        if labels.get("gpu", "").isdecimal():
            return int(labels["gpu"])
        uuid = _uuid(labels)
        return index.get(uuid, self._by_uuid[uuid][1] if uuid in self._by_uuid else None)


def read_steps(
    rows: Sequence[Mapping[str, Any]], step_ms: int, places: Places
) -> dict[tuple[int, str], Step]:
    """What an answer comes to, by step and node. Of several scrapes in a step the last one counts."""
    places.learn(rows)
    index = {
        _uuid(row["metric"]): int(float(row["values"][-1][1]))
        for row in rows
        if row["metric"].get("__name__") == _INDEX and row.get("values") and _whole(row["values"][-1][1])
    }
    found: dict[tuple[int, str], Step] = {}
    for row in rows:
        labels = row["metric"]
        name = labels.get("__name__", "")
        # A row of a MIG slice says nothing of the whole GPU.
        node = "" if labels.get("GPU_I_ID") else places.node(labels)
        if not node:
            continue
        for at_ms, value in _last(row.get("values", ()), step_ms).items():
            step = found.setdefault((at_ms, node), Step())
            if name in _NODE:
                signal, times, counts = _NODE[name]
                if counts(labels):
                    step.node[signal] = step.node.get(signal, 0.0) + value * times
            elif name in _OF_DCGM or name in _OF_SMI:
                gpu = places.gpu(labels, index)
                if gpu is not None:
                    signal, times = _OF_DCGM.get(name) or _OF_SMI[name]
                    step.gpus.setdefault(gpu, {})[signal] = value * times
                    if _uuid(labels) and gpu not in step.cards:
                        step.cards[gpu] = _card(labels)
    for step in found.values():
        total = step.node.pop("memory_total", math.nan)
        free = step.node.get("memory_available", math.nan)
        if math.isfinite(total) and math.isfinite(free):
            step.node["memory_used"] = total - free
    return found


def _last(values: Iterable[Sequence[Any]], step_ms: int) -> dict[int, float]:
    """The last value in each step, by its begin."""
    found = {}
    for at_s, text in values:
        try:
            found[int(float(at_s) * 1000) // step_ms * step_ms] = float(text)
        except ValueError:
            continue
    return found


def _whole(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _uuid(labels: Mapping[str, str]) -> str:
    uuid = labels.get("UUID") or labels.get("uuid") or ""
    return uuid if not uuid or uuid.startswith("GPU-") else f"GPU-{uuid}"


def _card(labels: Mapping[str, str]) -> GpuCard:
    driver = labels.get("DCGM_FI_DRIVER_VERSION", "")
    return GpuCard(_uuid(labels), labels.get("modelName", ""), labels.get("pci_bus_id", ""), driver)


def find_lone_attempts(step: Step, held: Mapping[str, tuple[Sequence[int], int]]) -> list[AttemptPlace]:
    """Attempts of which the GPUs tell: each has its GPUs to itself, and all of them were scraped.

    `held`: the GPUs of each attempt here, and how much it has of each. Of shared ones nobody says whose is which.
    """
    owners: dict[int, int] = {}
    for gpus, _milli in held.values():
        for gpu in gpus:
            owners[gpu] = owners.get(gpu, 0) + 1
    return [
        AttemptPlace(key, devices=tuple([device(gpu, step.cards.get(gpu, GpuCard())) for gpu in gpus]))
        for key, (gpus, milli) in sorted(held.items())
        if gpus and milli >= 1000 and all([gpu in step.gpus and owners[gpu] == 1 for gpu in gpus])
    ]
