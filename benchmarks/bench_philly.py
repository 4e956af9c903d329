"""Microsoft's Philly jobs on its virtual clusters: what does sharing gain, and what does fairness cost?

    python benchmarks/bench_philly.py --data DIR [--divide 4 1] [--policies fifo fair ...] [--slow] [--write]

DIR has philly_2017_sep_nov.csv (timestamp, duration, num_gpus, gpu_time, cluster) and philly_vc_nodes.csv (vc,
node num). Every virtual cluster is a tenant. Its nodes, of 8 GPUs, are its guarantee and its weight, as given
or divided by 4. Three layouts of the same nodes:

- `own nodes`: each virtual cluster simulated alone on its nodes;
- `quotas`: one cluster, on which nobody may borrow or lend GPUs;
- `shared`: one cluster, borrowing and lending without limit; `fair` takes guarantees back, the others know none.

Assumed, as the list says nothing of it: a time limit of U(1, 3) x duration + 60 s (seeded; all that SJF and SRTF
know of a job's length), a checkpoint every 30 min, and 60 s lost at each restart. Jobs of virtual clusters
without nodes are rejected.

The fairness error is half the sum over tenants of |share of the GPUs in use - share that was its due|, averaged
over the moments at which anything runs or waits (1 - `fairness` of `yard simulate`). Due is what a tenant asks
for up to its guarantee, and then a part of the rest by weight. 0: everybody has its due; 1: nobody has any of it.
GPUs short are those that tenants lack to what they ask for within their guarantees.
"""

import argparse
import csv
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import count_only
from figures import Row, publish, table

from gpuyard.cli.commands.foresight.fleet import make_uniform_pool
from gpuyard.model import Quota, Settings, Tenant
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import HOUR_MS, MILLI, MINUTE_MS
from gpuyard.policies.registry import PRESETS, build
from gpuyard.sim.result import Result
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.summary import fairness, spread
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces import load

GPUS_PER_NODE = 8
CHECKPOINT_MS = 30 * MINUTE_MS
RESTART_COST_MS = MINUTE_MS
LAYOUTS = ("own nodes", "quotas", "shared")
POLICIES = ("strict-fifo", "fifo", "sjf", "srtf", "fair")

SLOW = ("srtf", "quotas")
"""By far the slowest, so it is left out unless asked for."""

Nodes = dict[str, int]


def read(data: Path, gpus_per_node: int = GPUS_PER_NODE) -> tuple[Trace, Nodes]:
    """The jobs, with checkpoints, and the nodes of each virtual cluster."""
    trace = load(data / "philly_2017_sep_nov.csv", "philly", gpus_per_node=gpus_per_node)
    specs = [replace(s, checkpoint_ms=CHECKPOINT_MS, restart_cost_ms=RESTART_COST_MS) for s in trace.specs]
    with (data / "philly_vc_nodes.csv").open(encoding="utf-8", newline="") as file:
        nodes = {row["vc"]: int(row["node num"]) for row in csv.DictReader(file)}
    return replace(trace, specs=specs), nodes


def settings(trace: Trace, nodes: Nodes, layout: str) -> Settings:
    """The tenants. One without nodes may use nothing, which rejects its jobs."""
    tenants = []
    for path in sorted({*nodes, *(spec.tenant for spec in trace.specs)}):
        own = {TOTAL: nodes.get(path, 0) * GPUS_PER_NODE * MILLI}
        quota = Quota(guarantee=own)
        if layout != "shared":
            quota = Quota(guarantee=own, limit=own, borrow={TOTAL: 0}, lend={TOTAL: 0})
        elif path not in nodes:
            quota = Quota(limit=own)
        tenants.append(Tenant(path, max(1, nodes.get(path, 0)), quota))
    return Settings(tenants=tuple(tenants))


def only(trace: Trace, tenants: Iterable[str]) -> Trace:
    """The jobs of some tenants, at the times they have in the whole trace."""
    wanted = set(tenants)
    rows = [row for row, spec in enumerate(trace.spec) if trace.specs[spec].tenant in wanted]
    names = ("spec", "submit_ms", "run_ms", "limit_ms", "deadline_ms")
    columns = {name: getattr(trace, name) for name in names}
    picked = {name: array(column.typecode, [column[r] for r in rows]) for name, column in columns.items()}
    return replace(trace, rows=len(rows), **picked)


def simulate(trace: Trace, nodes: Nodes, layout: str, policy: str) -> list[Result]:
    """One run, or one for each virtual cluster."""
    if layout == "own nodes":
        alone = [({vc: count}, only(trace, [vc])) for vc, count in nodes.items()]
        return [simulate(jobs, own, "shared", policy)[0] for own, jobs in alone if len(jobs)]
    pool = make_uniform_pool(sum(nodes.values()) * GPUS_PER_NODE, "V100", GPUS_PER_NODE)
    return [Simulation(trace, (pool,), settings(trace, nodes, layout), build(PRESETS[policy])).run()]


def short_gpus(result: Result, nodes: Nodes) -> float:
    """GPUs that tenants lack to what they ask for within their guarantees: the mean over all moments."""
    samples, short = result.samples, 0
    columns = zip(result.tenants, samples.tenant_used_milli, samples.tenant_entitled_milli, strict=True)
    for path, used, due in columns:
        own = nodes[path] * GPUS_PER_NODE * MILLI
        short += sum(max(0, min(d, own) - u) for u, d in zip(used, due, strict=True))
    return round(short / len(samples.at_ms) / MILLI, 2)


def measure(trace: Trace, nodes: Nodes, layout: str, policy: str) -> Row:
    """The figures of one policy in one layout."""
    results = simulate(trace, nodes, layout, policy)
    seen = sum(result.jobs for result in results)
    start_ms = min(result.first_submit_ms for result in results)
    offered_gpu_ms = sum(nodes.values()) * GPUS_PER_NODE * (max(r.last_end_ms for r in results) - start_ms)
    fair = fairness(results[0].samples) if len(results) == 1 else None
    return {
        "policy": policy,
        "layout": layout,
        "jobs": len(trace),
        "finished": sum(result.finished for result in results),
        "timeouts": sum(result.timeouts for result in results),
        "rejected": len(trace) - seen + sum(result.rejected for result in results),
        "unfinished": sum(result.unfinished for result in results),
        "wait_s": spread(sorted(wait for result in results for wait in result.wait_ms)),
        "jct_s": spread(sorted(jct for result in results for jct in result.jct_ms)),
        "makespan_h": round(max(result.last_end_ms for result in results) / HOUR_MS - start_ms / HOUR_MS, 1),
        "utilisation": round(sum(result.used_gpu_ms for result in results) / offered_gpu_ms, 4),
        "fairness_error": None if fair is None else round(1 - fair, 4),
        "short_gpus": None if fair is None else short_gpus(results[0], nodes),
        "preemptions": sum(result.preemptions for result in results),
        "lost_gpu_h": round(sum(result.destroyed_gpu_ms for result in results) / HOUR_MS),
        "cpu_s": round(sum(result.cpu_s for result in results), 2),
    }


def counted_ms(jobs: Trace, gpus: int) -> list[int]:
    """The waits of strict FIFO where GPUs are only counted."""
    wanted = [spec.ask.gpus.count * spec.ask.tasks for spec in jobs.specs]
    rows = zip(jobs.submit_ms, jobs.run_ms, [wanted[spec] for spec in jobs.spec], strict=True)
    return count_only.waits_ms(rows, gpus)


def one_node_ms(jobs: Trace, gpus: int) -> Sequence[int]:
    """The same from gpuyard: `strict-fifo` on one node that has all the GPUs. The jobs must not be gangs."""
    pool = make_uniform_pool(gpus, "V100", gpus)
    return Simulation(jobs, (pool,), Settings(), build(PRESETS["strict-fifo"])).run().wait_ms


def reference(data: Path, nodes: Nodes) -> Row:
    """Mean waits of strict FIFO without nodes' walls, to hold the first rows of the table against."""
    trace, _ = read(data, sum(nodes.values()) * GPUS_PER_NODE)
    alone = [(only(trace, [vc]), count * GPUS_PER_NODE) for vc, count in nodes.items()]
    # A figure known from elsewhere gives every virtual cluster room for the largest job.
    larger = [(jobs, max(gpus, 32)) for jobs, gpus in alone]
    together = [(only(trace, nodes), sum(nodes.values()) * GPUS_PER_NODE)]

    def mean_s(waits_ms: Callable[[Trace, int], Sequence[int]], parts: list[tuple[Trace, int]]) -> float:
        waits = [wait for jobs, gpus in parts if len(jobs) for wait in waits_ms(jobs, gpus)]
        return sum(waits) / len(waits) / 1000

    sizes = {"own nodes": alone, "own nodes, 32 GPUs at least": larger, "shared": together}
    return {
        "count-only": {name: mean_s(counted_ms, parts) for name, parts in sizes.items()},
        "gpuyard on one large node": {name: mean_s(one_node_ms, parts) for name, parts in sizes.items()},
    }


def shown(rows: list[Row]) -> str:
    """The table of one size."""
    head = ["policy, layout", "wait mean s", "p50", "p95", "JCT mean s"]
    lines = []
    for row in rows:
        wait, plain = row["wait_s"], ("utilisation", "fairness_error", "short_gpus")
        waits = [wait[key] for key in ("mean", "p50", "p95")]
        name = f"{row['policy']}, {row['layout']}"
        lost = [row[key] for key in ("preemptions", "lost_gpu_h")]
        lines.append([name, *waits, row["jct_s"]["mean"], *(row[key] for key in plain), *lost])
    return table([*head, "utilisation", "fairness error", "GPUs short", "preemptions", "lost GPU-h"], lines)


def findings(rows: list[Row]) -> str:
    """What the rows of one size say, in words; only what all of them are there for."""
    by = {(row["policy"], row["layout"]): row for row in rows}
    said = []
    gains = []
    for policy in POLICIES:
        if {(policy, "own nodes"), (policy, "shared")} <= by.keys():
            alone, shared = (by[policy, layout]["wait_s"]["mean"] for layout in ("own nodes", "shared"))
            gains.append(f"{policy} {alone:,.0f} s to {shared:,.0f} s")
    if gains:
        said.append(f"**What sharing gains over isolation**, in mean wait: {'; '.join(gains)}.")
    if {("fair", "shared"), ("srtf", "shared")} <= by.keys():
        fair, srtf = by["fair", "shared"], by["srtf", "shared"]
        waits = [row["wait_s"]["mean"] for row in (fair, srtf)]
        ends = [row["jct_s"]["mean"] for row in (fair, srtf)]
        said.append(
            f"**What `fair` costs against SRTF**, shared: mean wait {waits[0]:,.0f} s against {waits[1]:,.0f} s, mean "
            f"JCT {ends[0]:,.0f} s against {ends[1]:,.0f} s ({100 * (ends[0] / ends[1] - 1):+.1f} %), with "
            f"{fair['preemptions']:,} preemptions and {fair['lost_gpu_h']:,} GPU-h lost against "
            f"{srtf['preemptions']:,} and {srtf['lost_gpu_h']:,}."
        )
    errors = [
        f"{row['policy']} {row['fairness_error']:.3f} ({row['short_gpus']:.1f})"
        for row in rows
        if row["layout"] == "shared"
    ]
    if errors:
        said.append(f"**The fairness error** (and GPUs short), shared: {', '.join(errors)}.")
    return "\n\n".join(said)


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the two CSV files")
    parser.add_argument("--divide", type=int, nargs="+", default=[4, 1], help="divide the nodes by this")
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=sorted(PRESETS))
    parser.add_argument("--slow", action="store_true", help="also srtf under quotas")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.data is None:
        print("bench_philly: skipped; give --data DIR with the Philly files")
        return 0
    trace, given = read(options.data)
    parts, figures = [], {}
    for divisor in options.divide:
        nodes = {vc: -(-count // divisor) for vc, count in given.items()}
        rows = []
        for policy, layout in product(options.policies, options.layouts):
            if options.slow or (policy, layout) != SLOW:
                rows.append(measure(trace, nodes, layout, policy))
                print(rows[-1], file=sys.stderr)
        without_walls = reference(options.data, nodes)
        figures[f"nodes / {divisor}"] = {"rows": rows, "strict_fifo_wait_s": without_walls}
        said = {who: [f"{at} {s:,.3f} s" for at, s in found.items()] for who, found in without_walls.items()}
        waits = [f"{who}: {', '.join(found)}" for who, found in said.items()]
        rejected, unfinished = (max(row[key] for row in rows) for key in ("rejected", "unfinished"))
        jobs = f"{len(trace):,} jobs, {rejected} of them rejected, at most {unfinished} unfinished"
        title = f"### {sum(nodes.values())} nodes" + (f" (divided by {divisor})" if divisor > 1 else "")
        walls = f"Mean wait of strict FIFO if nodes had no walls. {'; '.join(waits)}."
        parts += [title, f"{jobs}.", shown(rows), walls, findings(rows)]
    publish("philly", "\n\n".join(parts), figures, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
