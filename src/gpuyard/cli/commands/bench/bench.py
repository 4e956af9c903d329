"""`yard bench`: how fast is it here? The figures of docs/benchmarks.md come from these commands."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.line.options import PRESETS, Option, OutputOption, SeedOption
from gpuyard.cli.listings.listing import Output

if TYPE_CHECKING:
    from gpuyard.sim.trace import Trace

LATENCY_JOBS_MAX = 20_000
"""Timing every decision takes time itself, so it is done apart, on at most this many jobs of the same trace."""


PolicyOption = Annotated[
    str,
    Option(
        "--policy",
        metavar="NAME",
        help=f"One of {', '.join(PRESETS)}. The policy default is measured with tenants, quotas, classes and "
        f"preemption, fifo with none of them.",
    ),
]


def bench_simulate(
    *,
    jobs: Annotated[int, Option("--jobs", metavar="N", min=1, help="Jobs to generate.")] = 10_000,
    gpus: Annotated[
        int, Option("--gpus", metavar="N", min=1, help="GPUs of the fleet, in nodes of 8.")
    ] = 1024,
    load: Annotated[
        float, Option("--load", metavar="L", help="GPU time that the jobs ask for, as a part of the fleet's.")
    ] = 0.9,
    policy: PolicyOption = "default",
    seed: SeedOption = 0,
    save_trace: Annotated[
        Path | None,
        Option(
            "--save-trace",
            metavar="FILE",
            help="Also write the trace: as SWF if it ends in .swf, else as CSV.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Simulate a generated trace and measure CPU time and memory.

    The CPU time is that of the simulation, without making the trace.
    """
    from gpuyard.cli.commands.bench.bench_yard import bench_yard
    from gpuyard.cli.terminal.progress import Bar, show_busy
    from gpuyard.policies.registry import build
    from gpuyard.sim.simulate import Simulation, percentile_ms
    from gpuyard.sim.study import cut_trace

    yard = bench_yard(gpus, policy)
    with show_busy("generating the trace"):
        trace = yard.trace(jobs, load, seed)
    if save_trace is not None:
        _save(trace, save_trace)
    parts = (yard.config.pools, yard.config.settings, build(yard.policy))
    with Bar(jobs) as bar:
        result = Simulation(trace, *parts).run(bar.begin(policy))
    rss_mib = peak_rss_mib()
    if result.interrupted:
        raise KeyboardInterrupt
    with show_busy("timing decisions"):
        timed = Simulation(cut_trace(trace, LATENCY_JOBS_MAX), *parts, time_decisions=True).run()
    if timed.interrupted:
        raise KeyboardInterrupt
    ended = len(result.wait_ms)
    figures = {
        "jobs": jobs,
        "gpus": gpus,
        "load": load,
        "policy": policy,
        "seed": seed,
        "cpu_s": round(result.cpu_s, 4),
        "jobs_per_cpu_s": round(jobs / result.cpu_s, 1) if result.cpu_s else None,
        "peak_rss_mib": rss_mib,
        "mean_wait_s": round(sum(result.wait_ms) / ended / 1000, 3) if ended else None,
        "decide_ms": _percentiles(timed.decide_ns, percentile_ms),
        "timed_jobs": timed.jobs,
        "finished": result.finished,
        "unfinished": result.unfinished,
        "timeouts": result.timeouts,
        "rejected": result.rejected,
        "preemptions": result.preemptions,
    }
    print_figures(figures, output)


def bench_decide(
    *,
    waiting: Annotated[
        int, Option("--waiting", metavar="N", min=1, max=1_000_000, help="Jobs in the queue.")
    ] = 10_000,
    nodes: Annotated[
        int, Option("--nodes", metavar="N", min=1, max=1_000_000, help="Nodes of 8 GPUs, all busy.")
    ] = 1250,
    passes: Annotated[
        int, Option("--passes", metavar="N", min=1, max=1_000_000, help="Decisions to time.")
    ] = 200,
    budgets: Annotated[
        int,
        Option(
            "--budgets", metavar="N", min=0, max=100, help="Budgets that count the jobs; none is ever spent."
        ),
    ] = 0,
    policy: PolicyOption = "default",
    seed: SeedOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Time single decisions on a full cluster with a long queue.

    Between two decisions some jobs end and others arrive; every plan is carried out.
    """
    from gpuyard.cli.commands.bench.bench_yard import GPUS_PER_NODE, bench_yard
    from gpuyard.cli.commands.bench.crowd import LoadedState
    from gpuyard.cli.terminal.progress import show_busy
    from gpuyard.sim.simulate import percentile_ms

    yard = bench_yard(nodes * GPUS_PER_NODE, policy, budgets)
    with show_busy(f"filling {nodes:,} nodes and a queue of {waiting:,} jobs"):
        crowd = LoadedState(yard, waiting, passes, seed)
    with show_busy(f"timing {passes:,} decisions"):
        for _ in range(passes):
            crowd.step()
    figures = {
        "waiting": waiting,
        "nodes": nodes,
        "gpus": yard.gpus,
        "budgets": budgets,
        "policy": policy,
        "seed": seed,
        "passes": passes,
        "decide_ms": {
            **_percentiles(crowd.decide_ns, percentile_ms),
            "max": round(max(crowd.decide_ns) / 1e6, 4),
        },
        "running": len(crowd.state.running),
        "starts": crowd.starts,
        "preemptions": crowd.stops,
    }
    print_figures(figures, output)


def _percentiles(times_ns: Any, percentile_ms: Any) -> dict[str, float]:
    return {f"p{percent}": round(percentile_ms(times_ns, percent), 4) for percent in (50, 99)}


def _save(trace: "Trace", path: Path) -> None:
    from gpuyard.sim.traces import save
    from gpuyard.sim.traces.swf_write import save_swf

    if path.suffix == ".swf":
        save_swf(trace, path)
    else:
        save(trace, path)


def print_figures(figures: dict[str, Any], output: Output) -> None:
    """Figures by name, in any form of output."""
    from gpuyard.cli.listings.listing import Listing, flatten_record, print_listing
    from gpuyard.tables import Column, Grid, grid

    def grids(_wide: bool) -> list[Grid]:
        columns = [
            Column("figure", lambda row: row[0]), Column("value", lambda row: _said(row[1]), right=True)
        ]  # fmt: skip
        return [grid(columns, flatten_record(figures), turns=False)]

    print_listing(Listing(figures, lambda: [figures], grids), output)


def _said(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def peak_rss_mib() -> float:
    """The most memory this process has held so far.

    Linux's own figure for this program where there is one: `getrusage` includes the process that started this one, if
    that was larger.
    """
    import resource

    kib = _high_water_kib()
    if kib is None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kib = most // 1024 if sys.platform == "darwin" else most
    return round(kib / 1024, 1)


def _high_water_kib() -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            lines = [line.split() for line in status if line.startswith("VmHWM:")]
        return int(lines[0][1])
    except (OSError, ValueError, IndexError):
        return None
