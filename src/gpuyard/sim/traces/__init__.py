"""Recorded jobs from other systems, read into a `Trace`. One file per format; the registry is here.

`load` recognises the format by itself. Broken rows are skipped and counted, and the first of them are named, because a
month of history always has some; `strict` raises on the first. docs/how-to/traces.md describes the formats.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import BadInput
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces import history, openb, philly, sacct, swf, yard
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.options import Options
from gpuyard.sim.traces.source import Source, open_source
from gpuyard.sim.traces.yard import save

__all__ = ["FORMATS", "Format", "detect", "load", "save"]


@dataclass(frozen=True, slots=True)
class Format:
    """One file format."""

    summary: str
    matches: Callable[[list[str]], bool]
    """Whether a file with these first lines has this format."""
    read: Callable[[Source, Builder, Options], None]


FORMATS: dict[str, Format] = {
    "swf": Format("Standard Workload Format: 18 numbers a line", swf.matches, swf.read),
    "sacct": Format("Slurm's accounting: sacct --parsable2", sacct.matches, sacct.read),
    "philly": Format("Microsoft Philly: timestamp,duration,num_gpus,...", philly.matches, philly.read),
    "openb": Format("Alibaba openb: name,cpu_milli,memory_mib,num_gpu,...", openb.matches, openb.read),
    "history": Format("a yard's own past: yard history -o csv", history.matches, history.read),
    "yard": Format("gpuyard's own CSV: submit_s,run_s,tenant,gpus,...", yard.matches, yard.read),
}
"""By name, in the order in which they are tried."""


def load(
    path: str | Path,
    format: str | None = None,
    *,
    seed: int = 0,
    strict: bool = False,
    gpus_per_node: int = 8,
    processors_per_gpu: int = 1,
    models: bool = False,
    cpu_jobs: bool = False,
) -> Trace:
    """Read a trace. The options are those of `Options`; each format uses the ones that concern it."""
    options = Options(seed, gpus_per_node, processors_per_gpu, models, cpu_jobs)
    if format is not None and format not in FORMATS:
        raise BadInput(f"there is no trace format {format!r}", hint=f"Choose one of {', '.join(FORMATS)}.")
    with open_source(path) as source:
        builder = Builder(str(path), strict)
        FORMATS[format or _recognise(source)].read(source, builder, options)
        return builder.finish(Path(path).name.removesuffix(".gz").rpartition(".")[0] or Path(path).name)


def detect(path: str | Path) -> str:
    """The name of a file's format."""
    with open_source(path) as source:
        return _recognise(source)


def _recognise(source: Source) -> str:
    lines = source.first_lines()
    for name, format in FORMATS.items():
        if lines and format.matches(lines):
            return name
    raise BadInput(
        f"{source.path}: is of no known format",
        hint=f"Name it ({', '.join(FORMATS)}), or give a CSV file with the columns submit_s and run_s.",
    )
