"""`yard simulate`: what would these policies have made of that history?"""

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import (
    PRESETS,
    Option,
    OutputOption,
    ReportOption,
    SizesOption,
)
from gpuyard.cli.listings.listing import Output
from gpuyard.job_sizes import SIZES_TEXT

if TYPE_CHECKING:
    from gpuyard.sim.trace import Trace

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


class Format(StrEnum):
    """Trace formats, as `gpuyard.sim.traces.FORMATS` has them (a test holds the two equal)."""

    YARD = "yard"
    HISTORY = "history"
    PHILLY = "philly"
    OPENB = "openb"
    SACCT = "sacct"
    SWF = "swf"


# ----------------------------------------------------------------------
# Options, by the section of the help in which they stand

_FLEET, _TRACE, _FAULTS = "Fleet", "Trace", "What goes wrong"

TraceOption = Annotated[
    Path | None, Option("--trace", metavar="FILE", help="A file of recorded jobs, plain or gzipped.")
]
HistoryOption = Annotated[
    str,
    Option(
        "--history",
        metavar="TIME",
        help="Instead of --trace: the jobs of your yard that ended within this time, such as 30d, on "
        "the yard's fleet and configuration unless you give --config or --gpus.",
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    Option(
        "--policy",
        metavar="NAME",
        help=f"One of {', '.join(PRESETS)}, or a policy of --config; repeat it to compare. Default: the "
        f"configuration's policy.",
    ),
]
ConfigOption = Annotated[
    list[Path] | None,
    Option("--config", metavar="FILE", help="A yard.yaml; repeat it to compare fleets.", section=_FLEET),
]
GpusOption = Annotated[
    list[int] | None,
    Option(
        "--gpus",
        metavar="N",
        min=1,
        help="Instead of --config: one pool with this many GPUs and no quotas; repeat it to compare fleets.",
        section=_FLEET,
    ),
]
GpuModelOption = Annotated[
    str | None,
    Option("--gpu-model", metavar="NAME", help="With --gpus: the GPU model. Default: H100.", section=_FLEET),
]
GpusPerNodeOption = Annotated[
    int,
    Option(
        "--gpus-per-node",
        metavar="N",
        min=1,
        max=64,
        help="With --gpus: GPUs per node. Larger jobs of philly and swf traces become gangs.",
        section=_FLEET,
    ),
]
FormatOption = Annotated[
    Format | None, Option("--format", help="Default: recognised from the file.", section=_TRACE)
]
StrictOption = Annotated[
    bool, Option("--strict", help="Stop at a broken row instead of skipping it.", section=_TRACE)
]
LimitJobsOption = Annotated[
    int | None,
    Option("--limit-jobs", metavar="N", min=1, help="Take only the first N jobs.", section=_TRACE),
]
ProcessorsOption = Annotated[
    int,
    Option(
        "--processors-per-gpu",
        metavar="N",
        min=1,
        help="swf: how many processors stand for one GPU.",
        section=_TRACE,
    ),
]
KeepModelsOption = Annotated[
    bool,
    Option("--keep-gpu-models", help="sacct: let jobs keep the GPU model that they had.", section=_TRACE),
]
KeepCpuJobsOption = Annotated[
    bool, Option("--keep-cpu-jobs", help="sacct: keep jobs without GPUs.", section=_TRACE)
]
MtbfOption = Annotated[
    float | None,
    Option(
        "--node-mtbf",
        metavar="HOURS",
        help="Mean time between failures of one node. Default: none fails.",
        section=_FAULTS,
    ),
]
RepairOption = Annotated[
    float, Option("--node-repair", metavar="HOURS", help="Time until a failed node is back.", section=_FAULTS)
]
SpotTraceOption = Annotated[
    Path | None,
    Option(
        "--spot-trace",
        metavar="FILE",
        help="A file of recorded availability, which spot nodes follow.",
        section=_FAULTS,
    ),
]

SeedsOption = Annotated[
    list[int] | None,
    Option(
        "--seed",
        metavar="N",
        min=0,
        help="For what is drawn: failures, and time limits that a trace lacks. The same seed gives the same result; "
        "repeat it, and the seeds are also taken together.  [default: 0]",
    ),
]
CoresOption = Annotated[
    int | None,
    Option(
        "--cores",
        metavar="N",
        min=1,
        help="How many simulations at a time. Default: one per core; with fewer than 5,000 jobs in all, one.",
    ),
]
KeepOption = Annotated[
    Path | None,
    Option(
        "--keep",
        metavar="FOLDER",
        help="Keep each result in this folder, and simulate nothing whose result is there: a comparison that was "
        "stopped goes on where it was.",
    ),
]


def simulate(
    *,
    trace: TraceOption = None,
    history: HistoryOption = "",
    policy: PolicyOption = None,
    config: ConfigOption = None,
    gpus: GpusOption = None,
    gpu_model: GpuModelOption = None,
    gpus_per_node: GpusPerNodeOption = 8,
    format: FormatOption = None,
    strict: StrictOption = False,
    limit_jobs: LimitJobsOption = None,
    processors_per_gpu: ProcessorsOption = 1,
    keep_gpu_models: KeepModelsOption = False,
    keep_cpu_jobs: KeepCpuJobsOption = False,
    node_mtbf: MtbfOption = None,
    node_repair: RepairOption = 1.0,
    spot_trace: SpotTraceOption = None,
    seed: SeedsOption = None,
    sizes: SizesOption = SIZES_TEXT,
    output: OutputOption = Output.TABLE,
    report: ReportOption = None,
    cores: CoresOption = None,
    keep: KeepOption = None,
) -> int:
    """Replay recorded jobs under one or several policies and compare the results.

    Each policy, seed and fleet is a simulation, and as many run at a time as there are cores. Ctrl-C prints the
    results so far and exits with code 130.

    \b
    Examples:
      yard simulate --trace jobs.csv --config yard.yaml --policy fifo --policy default
      yard simulate --trace sacct.txt --gpus 64 --policy fair -o json
      yard simulate --history 30d --policy fifo --policy default
      yard simulate --trace jobs.csv --gpus 64 --node-mtbf 500 --seed 0 --seed 1 --seed 2 --keep kept
    """
    from gpuyard.cli.commands.foresight import caveats, comparison, own_past, studies
    from gpuyard.cli.terminal.progress import Bar
    from gpuyard.sim import traces
    from gpuyard.sim.study import Faults

    ranges, seeds = comparison.read_sizes(sizes), seed or [0]
    own_past.check(trace, history)
    fleets = studies.choose_fleets(
        config or [], gpus or [], gpu_model, gpus_per_node, policy or [],
        spot=spot_trace is not None, own=bool(history),
    )  # fmt: skip
    faults = Faults(node_mtbf, node_repair, spot_trace)
    if report is not None:
        comparison.check(report, alone=len(fleets) * len(set(seeds)) == 1)

    # Nothing of it is drawn, and it grows: all seeds are of one past.
    past = cache(own_past.read_trace)

    def read_trace(drawn: int) -> "Trace":
        if trace is None:
            return past(history)
        return traces.load(
            trace, format.value if format else None, seed=drawn, strict=strict, gpus_per_node=gpus_per_node,
            processors_per_gpu=processors_per_gpu, models=keep_gpu_models, cpu_jobs=keep_cpu_jobs,
        )  # fmt: skip

    made = studies.make_studies(fleets, seeds, read_trace, trace or Path("history"), faults, limit_jobs)
    with Bar(sum([len(each.study.trace) * len(each.fleet.policies) for each in made])) as bar:
        whole = studies.run(made, cores, keep, bar.begin)
    comparison.publish(made, output, report, ranges)
    for each in made:
        caveats.print_study_caveats(each.study, [spec.name for spec in each.fleet.policies], each.title)
    return 0 if whole else INTERRUPTED
