"""Alibaba's GPU trace of 2023 ("openb"): one pod a line, with fractions of GPUs and the suitable models.

Every pod is kept, whatever its phase, as in the published comparisons of placement. It runs from its scheduling (or its
creation, if it was never scheduled) to its deletion. Some lists have no times: their pods all arrive at 0 in the order
of the file and run for an hour.
"""

from gpuyard.model import Ask, GpuRequest, JobSpec, Milli, Whole
from gpuyard.model.units import HOUR_MS, MILLI
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import (
    CPU_MILLI_MAX,
    MEMORY_MIB_MAX,
    RowError,
    name,
    parse_seconds_ms,
    parse_whole,
    show,
)
from gpuyard.sim.traces.options import Options
from gpuyard.sim.traces.source import Source, Table, split

_TENANT = "openb"
_SPEC_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


def matches(lines: list[str]) -> bool:
    """By its header."""
    return set(_SPEC_COLUMNS) <= {cell.strip().lower() for cell in split(lines[0], ",")}


def read(source: Source, builder: Builder, _options: Options) -> None:
    """Hand every row to the builder."""
    table = source.table(builder)
    cpu, memory, gpus, milli = (table.require(column) for column in _SPEC_COLUMNS)
    models = table.column("gpu_spec")
    times = _Times(table)
    known: dict[tuple[str, ...], int] = {}
    for number, cells in table.rows():
        try:
            submit_ms, run_ms = times.of(cells)
            key = (cells[cpu], cells[memory], cells[gpus], cells[milli], cells[models] if models >= 0 else "")
            index = known.get(key)
            if index is None:
                index = known[key] = builder.index(JobSpec(_TENANT, _ask(*key)))
        except RowError as error:
            builder.broken(number, str(error))
        else:
            builder.add(index, submit_ms, run_ms)


class _Times:
    """When a pod was submitted and how long it ran."""

    def __init__(self, table: Table) -> None:
        self.created = table.column("creation_time")
        self.deleted = table.column("deletion_time")
        self.scheduled = table.column("scheduled_time")

    def of(self, cells: list[str]) -> tuple[int, int]:
        if self.created < 0 or self.deleted < 0:
            return 0, HOUR_MS
        created_ms = parse_seconds_ms(cells[self.created], "creation_time")
        deleted_ms = parse_seconds_ms(cells[self.deleted], "deletion_time")
        started_ms = created_ms
        if self.scheduled >= 0 and cells[self.scheduled].strip():
            started_ms = parse_seconds_ms(cells[self.scheduled], "scheduled_time")
        if not created_ms <= started_ms <= deleted_ms:
            raise RowError("creation_time, scheduled_time and deletion_time are not in this order")
        return created_ms, deleted_ms - started_ms


def _ask(cpu: str, memory: str, gpus: str, milli: str, models: str) -> Ask:
    return Ask(
        _gpus(parse_whole(gpus, "num_gpu"), milli),
        cpu_milli=parse_whole(cpu, "cpu_milli", CPU_MILLI_MAX),
        memory_mib=parse_whole(memory, "memory_mib", MEMORY_MIB_MAX),
        models=tuple(dict.fromkeys(name(model, "gpu_spec") for model in models.split("|") if model.strip())),
    )


def _gpus(count: int, text: str) -> GpuRequest:
    if count == 0:
        return Whole(0)
    milli = parse_whole(text, "gpu_milli", MILLI)
    if milli == 0:
        raise RowError(f"gpu_milli is {show(text)} for {count} GPUs")
    return Whole(count) if milli == MILLI else Milli(count, milli)
