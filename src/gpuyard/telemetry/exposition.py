"""Signals in the text that Prometheus reads: DCGM's names as gauges, ours in base units. Pure.

Labels are those that dcgm-exporter has, so that dashboards made for it load. Their number is bounded by the fleet and
the jobs that run; names of jobs and users stand in one `info` row for each job, to be joined.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

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

_NUMBERS_KEPT = 50_000

Row = tuple[str, int | float]
"""Labels as they are written, with their braces, and a value."""


def labels_text(**named: str) -> str:
    """Labels in braces, in this order."""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in named.items()]) + "}"


def family_lines(name: str, kind: str, help: str, rows: Iterable[Row]) -> list[str]:
    """One metric with all its rows; without any, nothing."""
    lines = [f"{name}{labelled} {_number(value)}" for labelled, value in rows]
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *lines] if lines else []


def exposition_text(lines: Iterable[str]) -> str:
    """The whole text."""
    return "\n".join(lines) + "\n"


def open_metrics(lines: Sequence[str]) -> list[str]:
    """The same as OpenMetrics has it: a counter's family has no ending, and the text says where it ends."""
    counters = {
        line.split(" ")[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" counter")
    }

    def renamed(line: str) -> str:
        words = line.split(" ", 3)
        if words[2] in counters:
            words[2] = words[2].removesuffix("_total")
        return " ".join(words)

    return [*[renamed(line) if line.startswith("# ") else line for line in lines], "# EOF"]


class SignalLines:
    """Signals of all nodes as lines; lines of one node that stand together are one text.

    A large fleet has hundreds of thousands of rows, of which only the numbers change. What stands around the numbers of
    a node is made once, and again when the node tells other series or has other cards.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeLines] = {}
        self._numbers: dict[tuple[int, int], _Numbers] = {}

    def of(
        self,
        samples: Sequence[Sample],
        cards: Mapping[tuple[str, int], GpuCard],
        jobs: Mapping[str, str],
    ) -> list[str]:
        """The newest samples of all nodes. `jobs`: labels of the attempts that may be shown, by key."""
        nodes: dict[str, _NodeLines] = {}
        found: dict[str, _Family] = {}
        for sample in samples:
            values, names = sample.values, list(sample.values)
            node = self._nodes.get(sample.node)
            if (
                node is None
                or node.names != names
                or node.cards != [cards.get(key) for key in node.card_keys]
            ):
                node = _NodeLines(sample.node, names, cards, self._numbers)
            nodes[sample.node] = node
            for signal, taken, our_text, ours, dcgm_text, dcgm in node.rows:
                family = found.get(signal.prometheus) or found.setdefault(signal.prometheus, _Family(signal))
                numbers = taken(values)
                family.ours.append(_filled(ours, map(our_text, numbers)))
                if dcgm:
                    texts = list(map(dcgm_text, numbers))
                    for each in dcgm:
                        family.dcgm.append(_filled(each, texts))
            for key, rows in node.attempts.items():
                # Rows of jobs come and go, and are not for everybody.
                if (job := jobs.get(key)) is not None:
                    labelled = labels_text(node=sample.node, job_id=job)
                    for signal, name, our_text in rows:
                        family = found.get(signal.prometheus) or found.setdefault(
                            signal.prometheus, _Family(signal)
                        )
                        family.ours.append(f"{family.name}{labelled} {our_text(values[name])}")
        self._nodes = nodes
        every = sorted(found.values(), key=lambda each: each.signal.prometheus)
        lines: list[str] = []
        for family in every:
            lines += family.in_our_words()
        for family in sorted([each for each in every if each.dcgm], key=lambda each: each.signal.dcgm):
            lines += family.in_dcgms_words()
        return lines


class _Numbers(dict[int, str]):
    """Fractions that were written before, in one unit: a ratio has few values, which come again and again."""

    def __init__(self, times: int, per: int) -> None:
        self._times, self._per = times, per

    def __missing__(self, value: int) -> str:
        if len(self) >= _NUMBERS_KEPT:
            self.clear()
        text = self[value] = _number(value * self._times / self._per)
        return text


_Text = Callable[[int], str]
_Take = Callable[[Mapping[str, int]], tuple[int, ...]]


class _NodeLines:
    """What stands around the numbers of one node: each signal with the values that it takes, and its texts."""

    def __init__(
        self,
        node: str,
        names: list[str],
        cards: Mapping[tuple[str, int], GpuCard],
        numbers: dict[tuple[int, int], _Numbers],
    ) -> None:
        self.names = names
        self.rows: list[tuple[Signal, _Take, _Text, list[str], _Text, list[list[str]]]] = []
        self.attempts: dict[str, list[tuple[Signal, str, _Text]]] = {}
        """By key: the signals of an attempt."""

        def text(times: int, per: int) -> _Text:
            whole, rest = divmod(times, per)
            if not rest:
                return str if whole == 1 else lambda value: str(value * whole)
            return numbers.setdefault((times, per), _Numbers(times, per)).__getitem__

        labelled: dict[str, tuple[str, str]] = {}
        of: dict[str, tuple[Signal, list[str]]] = {}
        gpus: dict[int, None] = {}
        for name in names:
            subject, _, _signal = name.rpartition("/")
            signal = signal_of(name)
            if signal is None:
                continue
            rest = subject.partition("/")[2]
            if signal.of is Of.ATTEMPT:
                row = (signal, name, text(signal.times, signal.per))
                self.attempts.setdefault(rest, []).append(row)
                continue
            if subject not in labelled:
                if signal.of is Of.GPU:
                    gpus[int(rest)] = None
                    labelled[subject] = _labels_of_gpu(node, rest, cards.get((node, int(rest))) or GpuCard())
                else:
                    labelled[subject] = labels_text(node=node), ""
            of.setdefault(signal.prometheus, (signal, []))[1].append(name)
        self.card_keys = [(node, gpu) for gpu in gpus]
        self.cards = [cards.get(key) for key in self.card_keys]
        for signal, taken in of.values():
            both = [labelled[name.rpartition("/")[0]] for name in taken]
            ours = _around(_name_of(signal), [each for each, _ in both])
            dcgm = [_around(each, [there for _, there in both]) for each in _dcgm_names_of(signal)]
            texts = text(signal.times, signal.per), text(signal.dcgm_times, signal.dcgm_per)
            self.rows.append((signal, _taking(taken), texts[0], ours, texts[1], dcgm))


class _Family:
    """One signal of all subjects."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.name = _name_of(signal)
        self.ours: list[str] = []
        self.dcgm: list[str] = []
        """Of each node the texts of all names that DCGM has for it, one after the other."""

    def in_our_words(self) -> list[str]:
        return _headed(self.name, "counter" if self.signal.counts else "gauge", self.signal.help, self.ours)

    def in_dcgms_words(self) -> list[str]:
        lines, names = [], _dcgm_names_of(self.signal)
        for number, name in enumerate(names):
            lines += _headed(name, "gauge", self.signal.help, self.dcgm[number :: len(names)])
        return lines


def _headed(name: str, kind: str, help: str, rows: Sequence[str]) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *rows] if rows else []


def _name_of(signal: Signal) -> str:
    return f"{PREFIX}{signal.prometheus}{'_total' if signal.counts else ''}"


def _dcgm_names_of(signal: Signal) -> list[str]:
    """DCGM's own name and the one that older rules have; none: DCGM does not have this signal."""
    return [name for name in (signal.dcgm, _OLDER.get(signal.name, "")) if name] if signal.dcgm else []


def _around(name: str, labelled: Sequence[str]) -> list[str]:
    """Lines in pieces, with an empty place for each number."""
    return [
        piece
        for number, each in enumerate(labelled)
        for piece in ("\n" * (number > 0) + f"{name}{each} ", "")
    ]


def _filled(around: list[str], numbers: Iterable[str]) -> str:
    pieces = around[:]
    pieces[1::2] = numbers
    return "".join(pieces)


def _taking(names: Sequence[str]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    if len(names) == 1:
        return lambda values: (values[names[0]],)
    taken: Callable[[Mapping[str, int]], tuple[int, ...]] = itemgetter(*names)
    return taken


def _labels_of_gpu(node: str, gpu: str, card: GpuCard) -> tuple[str, str]:
    """The labels of a GPU in our words and in DCGM's."""
    dcgm = labels_text(
        gpu=gpu,
        UUID=card.uuid,
        pci_bus_id=card.pci,
        device=f"nvidia{gpu}",
        modelName=card.model,
        Hostname=node,
        DCGM_FI_DRIVER_VERSION=card.driver,
    )
    return labels_text(node=node, gpu=gpu, uuid=card.uuid), dcgm


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    whole = int(value)
    return str(whole) if whole == value else repr(float(value))
