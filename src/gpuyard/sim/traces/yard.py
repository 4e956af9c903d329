"""gpuyard's own trace: a CSV file with a header, for a history from a system that we do not know.

Columns may be in any order. Times are in seconds with up to three decimals. `load` reads back exactly what `save`
writes; a job that the columns cannot hold is refused when saving, not changed.
"""

import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path

from gpuyard.errors import BadInput, error_text, suggest_end
from gpuyard.model import Ask, GpuRequest, JobSpec, Mig, Milli, Whole
from gpuyard.model.jobs import request_text, thousandths_text
from gpuyard.model.units import MILLI
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import (
    COUNT_MAX,
    CPU_MILLI_MAX,
    MEMORY_MIB_MAX,
    RowError,
    name,
    parse_instant_ms,
    parse_seconds_ms,
    parse_tenant,
    parse_thousandths,
    parse_whole,
    show,
)
from gpuyard.sim.traces.options import Options
from gpuyard.sim.traces.source import Source, Table, split

DEFAULT_TENANT = "default"

SPEC_COLUMNS = (
    "tenant", "class", "name", "gpus", "tasks", "gpu_model", "cpus", "memory_mib",
    "checkpoint_s", "restart_s",
)  # fmt: skip
"""The columns of a spec; jobs with the same cells here share one."""

COLUMNS = ("id", "submit_s", "submit", "run_s", "limit_s", "deadline_s", *SPEC_COLUMNS)

_COUNTED = re.compile(r"(?:(\d{1,7})x)?(.+)", re.ASCII)
_PROFILE = re.compile(r"\d{1,2}g\.\d{1,4}gb(\+[a-z.]{1,12})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def matches(lines: list[str]) -> bool:
    """By one of its columns, so that a misspelt other column is reported and not the whole file."""
    return not {"submit_s", "run_s"}.isdisjoint(cell.strip().lower() for cell in split(lines[0], ","))


def read(source: Source, builder: Builder, _options: Options) -> None:
    """Hand every row to the builder."""
    table = source.table(builder)
    _check_header(table)
    at = table.column("submit_s", "submit")
    parse_submit = parse_seconds_ms if "submit_s" in table.header else parse_instant_ms
    if parse_submit is parse_instant_ms:
        builder.epoch_ms = 0
    run, limit, due = table.column("run_s"), table.column("limit_s"), table.column("deadline_s")
    places = [(column, table.header.index(column)) for column in SPEC_COLUMNS if column in table.header]
    key_of = itemgetter(*(place for _, place in places)) if places else lambda _: ""
    known: dict[object, int] = {}
    for number, cells in table.rows():
        try:
            submit_ms = parse_submit(cells[at], "submit")
            run_ms = parse_seconds_ms(cells[run], "run_s")
            limit_ms = parse_seconds_ms(cells[limit], "limit_s") if limit >= 0 and cells[limit].strip() else 0
            due_ms = parse_seconds_ms(cells[due], "deadline_s") if due >= 0 and cells[due].strip() else 0
            key = key_of(cells)
            index = known.get(key)
            if index is None:
                spec = _spec({column: cells[place].strip() for column, place in places})
                index = known[key] = builder.index(spec)
        except RowError as error:
            builder.broken(number, str(error))
        else:
            builder.add(index, submit_ms, run_ms, limit_ms, due_ms)


def _check_header(table: Table) -> None:
    where = f"{table.path}:{table.header_line}"
    for column in table.header:
        if column not in COLUMNS:
            close = suggest_end(column, COLUMNS)
            hint = f"Known: {', '.join(COLUMNS)}."
            raise BadInput(f"{where}: unknown column {show(column)}{close}", hint=hint)
    if len(set(table.header)) != len(table.header):
        raise BadInput(f"{where}: a column stands there twice", hint="Keep one of the two.")
    if {"submit_s", "submit"} <= set(table.header):
        raise BadInput(f"{where}: has both submit_s and submit", hint="Keep the one with the right times.")
    table.require("submit_s", "submit")
    table.require("run_s")


def _spec(cells: dict[str, str]) -> JobSpec:
    """The spec in the cells of a row; an empty cell counts as an absent column."""
    given = {column: cell for column, cell in cells.items() if cell}
    models = given.get("gpu_model", "").split("|")
    ask = Ask(
        parse_gpus(given.get("gpus", "1")),
        tasks=parse_whole(given.get("tasks", "1"), "tasks"),
        cpu_milli=parse_thousandths(given.get("cpus", "0"), "cpus", CPU_MILLI_MAX),
        memory_mib=parse_whole(given.get("memory_mib", "0"), "memory_mib", MEMORY_MIB_MAX),
        models=tuple(dict.fromkeys(name(model, "gpu_model") for model in models if model.strip())),
    )
    if ask.tasks == 0:
        raise RowError("tasks is 0")
    return JobSpec(
        parse_tenant(given.get("tenant", DEFAULT_TENANT)),
        ask,
        klass=name(given.get("class", ""), "class"),
        name=name(given.get("name", ""), "name"),
        checkpoint_ms=parse_seconds_ms(given.get("checkpoint_s", "0"), "checkpoint_s"),
        restart_cost_ms=parse_seconds_ms(given.get("restart_s", "0"), "restart_s"),
    )


def parse_gpus(text: str) -> GpuRequest:
    """`4` whole GPUs, `0.25` of one, `2x0.25` of two, a MIG slice `1g.18gb`, or `2x1g.18gb`."""
    match = _COUNTED.fullmatch(text.lower())
    times, rest = match.groups() if match else (None, text)
    count = parse_whole(times or "1", "gpus")
    if _PROFILE.fullmatch(rest) and count:
        return Mig(count, rest)
    milli = parse_thousandths(rest, "gpus", COUNT_MAX * MILLI)
    if times is None and milli % MILLI == 0:
        return Whole(milli // MILLI)
    if count and 0 < milli <= MILLI:
        return Milli(count, milli)
    raise RowError(f"gpus is {show(text)}; a part of a GPU is less than 1, and 2x0.5 is half of each of two")


def save(trace: Trace, path: str | Path) -> None:
    """Write a trace as CSV, compressed if the name ends in `.gz`. An old file stays until the new one is done."""
    target = str(path)
    part = Path(target + ".part")
    try:
        with part.open("wb") as raw:
            if target.endswith(".gz"):
                # No name and no time inside the compressed file, so that equal traces make equal files.
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                    packed.writelines(_lines(trace, target))
            else:
                raw.writelines(_lines(trace, target))
        part.replace(target)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{target}: cannot be written: {error_text(error)}", hint="Choose another place."
        ) from None
    finally:
        with suppress(OSError, ValueError):
            part.unlink(missing_ok=True)


def _lines(trace: Trace, target: str) -> Iterator[bytes]:
    """Header and rows. Only columns that some job needs are written."""
    cells = [_cells(spec, target) for spec in trace.specs]
    needed = {"tenant", "gpus"} | {column for row in cells for column, cell in row.items() if cell}
    columns = [column for column in SPEC_COLUMNS if column in needed]
    tails = [_csv([row[column] for column in columns]) for row in cells]
    deadlines = any(trace.deadline_ms)
    head = ["submit" if trace.origin_ms else "submit_s", "run_s", "limit_s"]
    head += ["deadline_s"] if deadlines else []
    yield (",".join(head + columns) + "\n").encode()
    for row, at in enumerate(trace.submit_ms):
        when = _iso(trace.origin_ms + at, target) if trace.origin_ms else thousandths_text(at)
        due = _due(trace.deadline_ms[row], at, target) + "," if deadlines else ""
        times = f"{when},{thousandths_text(trace.run_ms[row])},{thousandths_text(trace.limit_ms[row])},{due}"
        yield f"{times}{tails[trace.spec[row]]}\n".encode()


def _cells(spec: JobSpec, target: str) -> dict[str, str]:
    """The cells of a spec, empty if they equal the default."""
    ask = spec.ask
    cells = {
        "tenant": spec.tenant,
        "class": spec.klass,
        "name": spec.name,
        "gpus": request_text(ask.gpus),
        "tasks": str(ask.tasks) if ask.tasks != 1 else "",
        "gpu_model": "|".join(ask.models),
        "cpus": thousandths_text(ask.cpu_milli) if ask.cpu_milli else "",
        "memory_mib": str(ask.memory_mib) if ask.memory_mib else "",
        "checkpoint_s": thousandths_text(spec.checkpoint_ms) if spec.checkpoint_ms else "",
        "restart_s": thousandths_text(spec.restart_cost_ms) if spec.restart_cost_ms else "",
    }
    try:
        same = _spec({column: cell.strip() for column, cell in cells.items()}) == spec
    except RowError:
        same = False
    if not same:
        raise BadInput(
            f"{target}: a job of tenant {show(spec.tenant)} does not fit the columns of a trace: {ask}",
            hint="Pools, commands, memory requests and names of several lines cannot be saved.",
        )
    return cells


def _iso(at_ms: int, target: str) -> str:
    try:
        when = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise BadInput(f"{target}: a submission is after the year 9999", hint="Set origin_ms to 0.") from None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _due(deadline_ms: int, submit_ms: int, target: str) -> str:
    if not deadline_ms:
        return ""
    if deadline_ms <= submit_ms:
        raise BadInput(f"{target}: a job has its deadline before its submission", hint="Give it none.")
    return thousandths_text(deadline_ms - submit_ms)


def _csv(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
