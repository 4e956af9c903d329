"""Microsoft's Philly jobs on its virtual clusters: what does sharing gain, and what does fairness cost?

    python benchmarks/bench_philly.py --data DIR [--divide 4 1] [--policies fifo fair ...] [--write]

DIR has philly_2017_sep_nov.csv (timestamp, duration, num_gpus, gpu_time, cluster) and philly_vc_nodes.csv (vc,
node num). Every virtual cluster is a tenant. Its nodes, of 8 GPUs, are its guarantee and its weight, as given
or divided by 4. Three layouts of the same nodes:

- `own nodes`: each virtual cluster simulated alone on its nodes;
- `quotas`: one cluster, nobody may borrow or lend (on other nodes than its own, but never more of them);
- `shared`: one cluster, the guarantee kept, borrowing and lending without limit. Only `fair` takes a guarantee
  back from a borrower; the other policies know no tenants.

Assumed, as the list says nothing of it: a time limit of U(1, 3) x duration + 60 s (seeded; all that SJF and SRTF
know of a job's length), a checkpoint every 30 min, and 60 s lost at each restart. Jobs of virtual clusters
without nodes are rejected.

The fairness error is, at a moment, half the sum over tenants of |share of the GPUs in use - share that was
its due|, averaged over the moments at which anything runs or waits (1 - `fairness` of `yard simulate`). Due
is what a tenant asks for up to its guarantee, and then a part of the rest by weight. 0: everybody had its due; 1:
all GPUs in use were used by tenants who were due none.
"""

import argparse
import csv
import sys
from array import array
from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

from figures import Row, publish, table

from gpuyard.cli.fleet import uniform_pool
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
COUNT_ONLY_GPUS_MIN = 32
"""In the count-only figures of others every virtual cluster has room for the largest job."""

Nodes = dict[str, int]


def read(data: Path) -> tuple[Trace, Nodes]:
    """The jobs, with checkpoints, and the nodes of each virtual cluster."""
    trace = load(data / "philly_2017_sep_nov.csv", "philly", gpus_per_node=GPUS_PER_NODE)
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
    pool = uniform_pool(sum(nodes.values()) * GPUS_PER_NODE, "V100", GPUS_PER_NODE)
    return [Simulation(trace, (pool,), settings(trace, nodes, layout), build(PRESETS[policy])).run()]


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
        "preemptions": sum(result.preemptions for result in results),
        "lost_gpu_h": round(sum(result.destroyed_gpu_ms for result in results) / HOUR_MS),
        "cpu_s": round(sum(result.cpu_s for result in results), 2),
    }


def count_only_wait_s(trace: Trace, nodes: Nodes, gpus_min: int = 0) -> float:
    """Mean wait of strict FIFO with one queue per entry of `nodes`, where GPUs are only counted.

    A node's walls do not exist here: any free GPUs will do for any job.
    """
    waits_ms: list[int] = []
    for vcs, count in nodes.items():
        jobs = only(trace, vcs.split("+"))
        free = max(gpus_min, count * GPUS_PER_NODE)
        ends: list[tuple[int, int]] = []
        now_ms = 0
        for row, submit_ms in enumerate(jobs.submit_ms):
            ask = jobs.specs[jobs.spec[row]].ask
            gpus = ask.gpus.count * ask.tasks
            now_ms = max(now_ms, submit_ms)
            while ends and (free < gpus or ends[0][0] <= now_ms):
                end_ms, given_back = heappop(ends)
                now_ms, free = max(now_ms, end_ms), free + given_back
            free -= gpus
            heappush(ends, (now_ms + jobs.run_ms[row], gpus))
            waits_ms.append(now_ms - submit_ms)
    return sum(waits_ms) / len(waits_ms) / 1000


def counted(trace: Trace, nodes: Nodes) -> Row:
    """The count-only figures to hold strict FIFO against."""
    return {
        "own nodes": count_only_wait_s(trace, nodes),
        f"own nodes, {COUNT_ONLY_GPUS_MIN} GPUs at least": count_only_wait_s(trace, nodes, COUNT_ONLY_GPUS_MIN),
        "shared": count_only_wait_s(trace, {"+".join(nodes): sum(nodes.values())}),
    }


HEAD = ["policy", "layout", "wait mean s", "p50", "p95", "JCT mean s", "utilisation"]
HEAD += ["fairness error", "preemptions", "lost GPU-h"]


def shown(rows: list[Row]) -> str:
    """The table of one size."""
    lines = []
    for row in rows:
        wait, cells = row["wait_s"], [row[k] for k in ("fairness_error", "preemptions", "lost_gpu_h")]
        figures = [wait["mean"], wait["p50"], wait["p95"], row["jct_s"]["mean"], row["utilisation"], *cells]
        lines.append([row["policy"], row["layout"], *figures])
    return table(HEAD, lines)


def findings(rows: list[Row]) -> str:
    """What the rows of one size say, in words; only what all of them are there for."""
    by = {(row["policy"], row["layout"]): row for row in rows}
    said = []
    gains = [
        f"{policy} {by[policy, 'own nodes']['wait_s']['mean']:,.0f} s to {by[policy, 'shared']['wait_s']['mean']:,.0f} s"
        for policy in POLICIES
        if {(policy, "own nodes"), (policy, "shared")} <= by.keys()
    ]
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
    errors = [f"{r['policy']} {r['fairness_error']:.3f}" for r in rows if r["layout"] == "shared"]
    if errors:
        said.append(f"**The fairness error**, shared: {', '.join(errors)}.")
    return "\n\n".join(said)


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the two CSV files; without it nothing is measured")
    parser.add_argument("--divide", type=int, nargs="+", default=[4, 1], help="divide the nodes by this")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=sorted(PRESETS))
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
        for policy in options.policies:
            for layout in LAYOUTS:
                rows.append(measure(trace, nodes, layout, policy))
                print(rows[-1], file=sys.stderr)
        waits = counted(trace, nodes)
        figures[f"nodes / {divisor}"] = {"rows": rows, "count_only_fifo_wait_s": waits}
        counts = "; ".join(f"{name} {wait:,.0f} s" for name, wait in waits.items())
        jobs = f"{len(trace):,} jobs, {rows[0]['rejected']} of them rejected, {rows[0]['unfinished']} unfinished"
        title = f"### {sum(nodes.values())} nodes" + (f" (divided by {divisor})" if divisor > 1 else "")
        reference = f"Mean wait of strict FIFO that only counts GPUs: {counts}."
        parts += [title, f"{jobs}.", shown(rows), reference, findings(rows)]
    publish("philly", "\n\n".join(parts), figures, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
