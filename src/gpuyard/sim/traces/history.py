"""A yard's own past: the output of `yard history -o csv`, or the same rows from its API.

The row of a job says when it was submitted, started and ended, and what one task of it asked for. The job runs as long
as its last attempt did; a job that never ran is left out. What held a job back besides room (a begin time, a
dependency, a hold) is not in the row, so the job is replayed from its submission on.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.model import Ask, JobSpec
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import (
    CPU_MILLI_MAX,
    MEMORY_MIB_MAX,
    TIME_MS_MAX,
    RowError,
    name,
    parse_seconds_ms,
    parse_tenant,
    parse_thousandths,
    parse_whole,
)
from gpuyard.sim.traces.options import Options
from gpuyard.sim.traces.source import Source, split
from gpuyard.sim.traces.yard import parse_gpus

MARKS = ("submitted_ms", "started_ms", "ended_ms")
"""Columns by which the format is recognised."""
_SPEC = ("tenant", "class", "gpus_per_task", "tasks", "gpu_models", "cpus", "memory_mib")
_TIMES = (*MARKS, "time_limit_s")


def matches(lines: list[str]) -> bool:
    """By its header."""
    return set(MARKS) <= {cell.strip().lower() for cell in split(lines[0], ",")}


def read(source: Source, builder: Builder, _options: Options) -> None:
    """Hand every row to the builder."""
    table = source.table(builder)
    for column in (*MARKS, "gpus_per_task"):
        table.require(column)
    places = [(column, table.header.index(column)) for column in (*_SPEC, *_TIMES) if column in table.header]
    rows = _Rows(builder)
    for number, cells in table.rows():
        rows.add(number, {column: cells[place].strip() for column, place in places})


def of_rows(rows: Iterable[Mapping[str, Any]], title: str) -> Trace:
    """The same from the rows of the API."""
    builder = Builder(title)
    taken = _Rows(builder)
    for number, row in enumerate(rows, start=1):
        taken.add(number, {column: _text(row.get(column)) for column in (*_SPEC, *_TIMES)})
    return builder.finish(title)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


class _Rows:
    """Collects rows for a trace."""

    def __init__(self, builder: Builder) -> None:
        builder.epoch_ms = 0
        self._builder = builder
        self._known: dict[tuple[str, ...], int] = {}

    def add(self, number: int, row: Mapping[str, str]) -> None:
        """Add one job."""
        if not row["started_ms"]:
            self._builder.left_out(number, "never started")
            return
        try:
            submit_ms, start_ms, end_ms = [parse_whole(row[column], column, TIME_MS_MAX) for column in MARKS]
            if end_ms < start_ms:
                raise RowError("ends before it starts")
            limit_ms = parse_seconds_ms(row["time_limit_s"], "time_limit_s") if row.get("time_limit_s") else 0
            key = tuple(row.get(column, "") for column in _SPEC)
            index = self._known.get(key)
            if index is None:
                index = self._known[key] = self._builder.index(_spec(dict(zip(_SPEC, key, strict=True))))
        except RowError as error:
            self._builder.broken(number, str(error))
        else:
            self._builder.add(index, submit_ms, max(1, end_ms - start_ms), limit_ms)


def _spec(row: Mapping[str, str]) -> JobSpec:
    models = [model for model in re.split(r"[ |;]", row["gpu_models"]) if model]
    ask = Ask(
        parse_gpus(row["gpus_per_task"] or "0"),
        tasks=parse_whole(row["tasks"] or "1", "tasks"),
        cpu_milli=parse_thousandths(row["cpus"] or "0", "cpus", CPU_MILLI_MAX),
        memory_mib=parse_whole(row["memory_mib"] or "0", "memory_mib", MEMORY_MIB_MAX),
        models=tuple(dict.fromkeys(name(model, "gpu_models") for model in models)),
    )
    if ask.tasks == 0:
        raise RowError("tasks is 0")
    return JobSpec(parse_tenant(row["tenant"] or "default"), ask, klass=name(row["class"], "class"))
