"""Signals in the text that Prometheus reads: DCGM's names as gauges, ours in base units. Pure.

Labels are those that dcgm-exporter has, so that dashboards made for it load. Their number is bounded by the fleet and
the jobs that run; names of jobs and users stand in one `info` row for each job, to be joined.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gpuyard.telemetry.samples import Sample
from gpuyard.telemetry.signals import Of, Signal, signal_of

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_MEDIA_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PREFIX = "gpuyard_"
_OLDER = {
    "power": "dcgm_gpu_power_usage",
    "temperature": "dcgm_temperature_gpu",
    "memory_temperature": "dcgm_memory_temp",
    "ecc_uncorrected": "dcgm_ecc_errors",
}
"""Names that older rules have for signals of GPUs, besides DCGM's own."""

Row = tuple[str, int | float]
"""Labels as they are written, with their braces, and a value."""


@dataclass(frozen=True, slots=True)
class GpuCard:
    """What a GPU is, for labels."""

    uuid: str = ""
    model: str = ""
    pci: str = ""
    driver: str = ""


def labels(**named: str) -> str:
    """Labels in braces, in this order."""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in named.items()]) + "}"


def family(name: str, kind: str, help: str, rows: Iterable[Row]) -> list[str]:
    """One metric with all its rows; without any, nothing."""
    lines = [f"{name}{labelled} {_number(value)}" for labelled, value in rows]
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *lines] if lines else []


def written(lines: Iterable[str]) -> str:
    """The whole text."""
    return "\n".join(lines) + "\n"


def open_metrics(text: str) -> str:
    """The same as OpenMetrics has it: a counter's family has no ending, and the text says where it ends."""
    lines = text.splitlines()
    counters = {
        line.split(" ")[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" counter")
    }
    renamed = []
    for line in lines:
        words = line.split(" ", 3)
        if line.startswith("# ") and words[2] in counters:
            words[2] = words[2].removesuffix("_total")
        renamed.append(" ".join(words))
    return written([*renamed, "# EOF"])


def signals(
    samples: Sequence[Sample],
    cards: Mapping[tuple[str, int], GpuCard],
    jobs: Mapping[str, str],
) -> list[str]:
    """The newest samples of all nodes. `jobs`: labels of the attempts that may be shown, by key."""
    found: dict[Signal, list[tuple[str, str, int]]] = {}
    for sample in samples:
        for name, value in sample.values.items():
            signal = signal_of(name) if name.startswith(Of.ATTEMPT.value) else _signal_of(name)
            if signal is not None:
                found.setdefault(signal, []).append((sample.node, name, value))
    plain = _Labels(cards, jobs)
    lines: list[str] = []
    for signal in sorted(found, key=lambda each: each.prometheus):
        rows = [
            (labelled, value) for node, name, value in found[signal] if (labelled := plain.ours(node, name))
        ]
        kind, ending = ("counter", "_total") if signal.counts else ("gauge", "")
        scaled = [(each, value * signal.times / signal.per) for each, value in rows]
        lines += family(f"{PREFIX}{signal.prometheus}{ending}", kind, signal.help, scaled)
    for signal in sorted([each for each in found if each.dcgm], key=lambda each: each.dcgm):
        told: list[Row] = [
            (plain.dcgm(node, name), value * signal.dcgm_times / signal.dcgm_per)
            for node, name, value in found[signal]
        ]
        for name in (signal.dcgm, _OLDER.get(signal.name, "")):
            lines += family(name, "gauge", signal.help, told) if name else []
    return lines


class _Labels:
    """Labels of subjects, each made once: a GPU has two dozen signals."""

    def __init__(self, cards: Mapping[tuple[str, int], GpuCard], jobs: Mapping[str, str]) -> None:
        self._cards = cards
        self._jobs = jobs
        self._ours: dict[tuple[str, str], str] = {}
        self._dcgm: dict[tuple[str, str], str] = {}

    def ours(self, node: str, name: str) -> str:
        subject = name[: name.rindex("/")]
        made = self._ours.get((node, subject))
        if made is None:
            kind, _, rest = subject.partition("/")
            if kind == Of.GPU.value:
                uuid = self._cards.get((node, int(rest)), GpuCard()).uuid
                made = labels(node=node, gpu=rest, uuid=uuid)
            elif kind == Of.ATTEMPT.value:
                job = self._jobs.get(rest)
                made = "" if job is None else labels(node=node, job_id=job)
            else:
                made = labels(node=node)
            self._ours[node, subject] = made
        return made

    def dcgm(self, node: str, name: str) -> str:
        subject = name[: name.rindex("/")]
        made = self._dcgm.get((node, subject))
        if made is None:
            gpu = subject.partition("/")[2]
            card = self._cards.get((node, int(gpu)), GpuCard())
            made = labels(
                gpu=gpu,
                UUID=card.uuid,
                pci_bus_id=card.pci,
                device=f"nvidia{gpu}",
                modelName=card.model,
                Hostname=node,
                DCGM_FI_DRIVER_VERSION=card.driver,
            )
            self._dcgm[node, subject] = made
        return made


@cache
def _signal_of(name: str) -> Signal | None:
    """Of GPUs and nodes: as many names as there are places on a node."""
    return signal_of(name)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    whole = int(value)
    return str(whole) if whole == value else repr(float(value))
