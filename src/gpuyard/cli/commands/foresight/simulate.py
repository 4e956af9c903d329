"""`yard simulate`: what would these policies have made of that history?"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from gpuyard.cli.line.options import (
    PRESETS,
    Option,
    OutputOption,
    ReportOption,
    SeedOption,
    SizesOption,
)
from gpuyard.cli.listings.listing import Output
from gpuyard.job_sizes import SIZES_TEXT

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
ConfigOption = Annotated[Path | None, Option("--config", metavar="FILE", help="A yard.yaml.", section=_FLEET)]
GpusOption = Annotated[
    int | None,
    Option(
        "--gpus",
        metavar="N",
        min=1,
        help="Instead of --config: one pool with this many GPUs and no quotas.",
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
    seed: SeedOption = 0,
    sizes: SizesOption = SIZES_TEXT,
    output: OutputOption = Output.TABLE,
    report: ReportOption = None,
) -> int:
    """Replay recorded jobs under one or several policies and compare the results.

    Ctrl-C prints the results so far and exits with code 130.

    \b
    Examples:
      yard simulate --trace jobs.csv --config yard.yaml --policy fifo --policy default
      yard simulate --trace sacct.txt --gpus 64 --policy fair -o json
      yard simulate --history 30d --policy fifo --policy default
    """
    from gpuyard.cli.commands.foresight import caveats, comparison, fleet, own_past
    from gpuyard.cli.terminal.progress import Bar, show_busy
    from gpuyard.sim import traces
    from gpuyard.sim.study import Faults, Study, cut_trace, plan_node_changes

    ranges = comparison.read_sizes(sizes)
    own_past.check(trace, history)
    yard = own_past.read_fleet(config, gpus) if history else None
    yard = yard or fleet.choose_config(config, gpus, gpu_model, gpus_per_node, spot=spot_trace is not None)
    specs = fleet.choose_policies(yard, policy or [])
    faults = Faults(node_mtbf, node_repair, spot_trace)
    if report is not None:
        comparison.check(report)
    with show_busy(f"reading {trace or 'the history'}"):
        jobs = (
            own_past.read_trace(history)
            if trace is None
            else traces.load(
                trace,
                format.value if format else None,
                seed=seed,
                strict=strict,
                gpus_per_node=gpus_per_node,
                processors_per_gpu=processors_per_gpu,
                models=keep_gpu_models,
                cpu_jobs=keep_cpu_jobs,
            )
        )
    caveats.print_trace_caveats(jobs, trace or Path("history"), yard.settings)
    jobs = cut_trace(jobs, limit_jobs or len(jobs))
    changes = plan_node_changes(jobs, yard.pools, faults, seed)
    study = Study(jobs, yard.pools, fleet.settings_of_today(yard), changes, fleet.find_lacking(yard))
    with Bar(len(jobs)) as bar:
        whole = study.run(specs, bar.begin)
    comparison.publish(study, seed, output, report, ranges)
    caveats.print_study_caveats(study, [spec.name for spec in specs])
    return 0 if whole else INTERRUPTED
