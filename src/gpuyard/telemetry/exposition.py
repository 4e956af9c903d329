"""Signals in the text that Prometheus reads: DCGM's names as gauges, ours in base units. Pure.

Labels are those that dcgm-exporter has, so that dashboards made for it load. Their number is bounded by the fleet and
the jobs that run; names of jobs and users stand in one `info` row for each job, to be joined.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpuyard.telemetry.samples import Sample
from gpuyard.telemetry.signals import Of, Signal, signal_of
from gpuyard.telemetry.sources import GpuCard

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

    def renamed(line: str) -> str:
        words = line.split(" ", 3)
        if words[2] in counters:
            words[2] = words[2].removesuffix("_total")
        return " ".join(words)

    return written([*[renamed(line) if line.startswith("# ") else line for line in lines], "# EOF"])


def signals(
    samples: Sequence[Sample],
    cards: Mapping[tuple[str, int], GpuCard],
    jobs: Mapping[str, str],
) -> list[str]:
    """The newest samples of all nodes. `jobs`: labels of the attempts that may be shown, by key.

    A large fleet has hundreds of thousands of rows: labels of a subject are made once, and so is each number.
    """
    found: dict[tuple[str, str], _Rows] = {}
    for sample in samples:
        node, before, kind, ours, dcgm = sample.node, "", "", "", ""
        for name, value in sample.values.items():
            subject, _, signal = name.rpartition("/")
            if subject != before:
                # The signals of a subject stand together.
                before, (ours, dcgm) = subject, _labels_of(node, subject, cards, jobs)
                kind = subject.partition("/")[0]
            rows = found.get((kind, signal))
            if rows is None:
                known = signal_of(name)
                if known is None:
                    continue
                rows = found[kind, signal] = _Rows(known)
            if ours:
                rows.ours.append(ours)
                rows.dcgm.append(dcgm)
                rows.values.append(value)
    every = sorted(found.values(), key=lambda each: each.signal.prometheus)
    lines: list[str] = []
    for rows in every:
        lines += rows.in_our_words()
    for rows in sorted([each for each in every if each.signal.dcgm], key=lambda each: each.signal.dcgm):
        lines += rows.in_dcgms_words()
    return lines


class _Rows:
    """One signal of all subjects."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.ours: list[str] = []
        self.dcgm: list[str] = []
        self.values: list[int] = []

    def in_our_words(self) -> list[str]:
        signal = self.signal
        kind, ending = ("counter", "_total") if signal.counts else ("gauge", "")
        texts = self._texts(signal.times, signal.per)
        return _family(f"{PREFIX}{signal.prometheus}{ending}", kind, signal.help, self.ours, texts)

    def in_dcgms_words(self) -> list[str]:
        signal = self.signal
        texts = self._texts(signal.dcgm_times, signal.dcgm_per)
        lines = []
        for name in (signal.dcgm, _OLDER.get(signal.name, "")):
            lines += _family(name, "gauge", signal.help, self.dcgm, texts) if name else []
        return lines

    def _texts(self, times: int, per: int) -> list[str]:
        """The values as numbers. Many of them are the same."""
        made = {value: _number(value * times / per) for value in set(self.values)}
        return [made[value] for value in self.values]


def _family(name: str, kind: str, help: str, labelled: Sequence[str], texts: Sequence[str]) -> list[str]:
    rows = [f"{name}{each} {text}" for each, text in zip(labelled, texts, strict=True)]
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *rows] if rows else []


def _labels_of(
    node: str, subject: str, cards: Mapping[tuple[str, int], GpuCard], jobs: Mapping[str, str]
) -> tuple[str, str]:
    """The labels of a subject in our words and in DCGM's; empty: it is not shown."""
    kind, _, rest = subject.partition("/")
    if kind == Of.GPU.value:
        card = cards.get((node, int(rest)), GpuCard())
        dcgm = labels(
            gpu=rest,
            UUID=card.uuid,
            pci_bus_id=card.pci,
            device=f"nvidia{rest}",
            modelName=card.model,
            Hostname=node,
            DCGM_FI_DRIVER_VERSION=card.driver,
        )
        return labels(node=node, gpu=rest, uuid=card.uuid), dcgm
    if kind == Of.ATTEMPT.value:
        job = jobs.get(rest)
        return "" if job is None else labels(node=node, job_id=job), ""
    return labels(node=node), ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    whole = int(value)
    return str(whole) if whole == value else repr(float(value))
