"""Node lists and pod lists of the openb format. A line that cannot be used is an error, with its number."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpuyard.errors import BadInput
from gpuyard.model.units import MILLI
from gpuyard.packing.tasks import NodeShape, Task
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import RowError, name, parse_whole, show
from gpuyard.sim.traces.source import Table, open_source

_MOST = 10**9
"""Milli-cores or MiB of one node or pod: the kernel's products must stay within 64 bits."""
_GPUS_MAX = 1024
"""GPUs of one node."""

Read = TypeVar("Read", NodeShape, Task)


@dataclass(slots=True)
class _Strict(Builder):
    """Every line counts here: a comparison on half a list would be a different comparison."""

    def broken(self, line: int, why: str) -> None:
        """Raise instead of skipping the row."""
        raise BadInput(f"{self.path}:{line}: {why}", hint="Correct the line or take it out.")


def read_nodes(path: Path) -> list[NodeShape]:
    """The nodes, sorted by name: the first wins ties, as in the published runs."""
    with open_source(path) as source:
        table = source.table(_Strict(str(path)))
        cpu, memory = table.require("cpu_milli"), table.require("memory_mib")
        gpus, model = table.require("gpu"), table.require("model")

        def node(cells: list[str]) -> NodeShape:
            return NodeShape(
                name(cells[model], "model"),
                parse_whole(cells[gpus], "gpu", _GPUS_MAX),
                parse_whole(cells[cpu], "cpu_milli", _MOST),
                parse_whole(cells[memory], "memory_mib", _MOST),
            )

        found = [shape for _name, _line, shape in _each(table, node)]
    if not any(shape.gpus for shape in found):
        raise BadInput(f"{path}: no node in it has a GPU", hint="Give a list of nodes with GPUs, one a line.")
    return found


def read_pods(path: Path) -> list[Task]:
    """The pods, sorted by name."""
    with open_source(path) as source:
        table = source.table(_Strict(str(path)))
        cpu, memory = table.require("cpu_milli"), table.require("memory_mib")
        gpus, milli, models = table.require("num_gpu"), table.require("gpu_milli"), table.column("gpu_spec")

        def pod(cells: list[str]) -> Task:
            count = parse_whole(cells[gpus], "num_gpu", _GPUS_MAX)
            share = parse_whole(cells[milli], "gpu_milli", MILLI) if count else 0
            if count and not share:
                raise RowError(f"gpu_milli is {show(cells[milli])} for {count} GPUs")
            names = cells[models].split("|") if models >= 0 else []
            return Task(
                parse_whole(cells[cpu], "cpu_milli", _MOST),
                parse_whole(cells[memory], "memory_mib", _MOST),
                count,
                share,
                tuple(dict.fromkeys(name(each, "gpu_spec") for each in names if each.strip())),
            )

        found = [task for _name, _line, task in _each(table, pod)]
    if not any(task.gpus for task in found):
        raise BadInput(
            f"{path}: no pod in it asks for a GPU", hint="Give a list with pods that do, one a line."
        )
    return found


def _each(table: Table, read: Callable[[list[str]], Read]) -> list[tuple[str, int, Read]]:
    """Every row as (name, line, value), sorted."""
    title = table.require("sn", "name")
    found = []
    for line, cells in table.rows():
        try:
            found.append((name(cells[title], table.header[title]), line, read(cells)))
        except RowError as error:
            table.builder.broken(line, str(error))
    return sorted(found, key=lambda row: row[:2])
