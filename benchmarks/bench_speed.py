"""How fast gpuyard simulates and decides: rates, memory, growth with jobs and nodes, latency of one decision.

    python benchmarks/bench_speed.py [--quick] [--only rate growth latency] [--write]

Every figure is what a `yard bench` command prints, run in a process of its own, so that anybody can repeat a
single one. Rates are jobs per CPU-second of the simulation, without making the trace. Short runs are the best
of three. `--quick` divides the sizes by 20, to see that everything works.
"""

import argparse
import sys
from collections.abc import Callable

from figures import Row, best, exponent, publish, table, yard

SHORT_CPU_S = 15
"""Runs shorter than this are repeated."""
GPUS_PER_NODE = 8

RATES = (
    # Policy, jobs, GPUs, load, and the floor: jobs per CPU-second, or MiB.
    ("fifo", 100_000, 1024, 1.05, "12,000 jobs/s"),
    ("fifo", 1_000_000, 10_240, 0.9, "under 1,024 MiB"),
    ("default", 100_000, 1024, 1.05, "4,000 jobs/s"),
)
GROWTH_LOAD = 0.9
GROWTH_JOBS = (10_000, 31_600, 100_000)
GROWTH_MORE_JOBS = (100_000, 316_000, 1_000_000)
"""Once a queue has formed: before that, longer traces are also busier ones."""
GROWTH_JOBS_GPUS = 1024
GROWTH_NODES = (128, 404, 1280)
GROWTH_NODES_JOBS = 100_000
WAITING, NODES, PASSES = 10_000, 1250, 1000


class Bench:
    """Runs `yard bench` commands; `shrink` makes everything smaller."""

    def __init__(self, rounds: int, shrink: int) -> None:
        self._rounds = rounds
        self._shrink = shrink
        self._known: dict[tuple[object, ...], Row] = {}

    def size(self, number: int, least: int = 1) -> int:
        """A size as it is measured in this run."""
        return max(least, number // self._shrink)

    def simulate(self, policy: str, jobs: int, gpus: int, load: float) -> Row:
        """The best of some runs of one command, which is named in the row. What is known is not run again."""
        key = (policy, jobs, gpus, load)
        if key in self._known:
            return self._known[key]
        words = ["bench", "simulate", "--jobs", jobs, "--gpus", gpus, "--load", load, "--policy", policy]
        runs: list[Row] = []
        while not runs or (len(runs) < self._rounds and runs[0]["cpu_s"] < SHORT_CPU_S):
            print("yard", *words, file=sys.stderr)
            runs.append(yard(*words))
        row = {**best(runs), "command": f"yard {' '.join(map(str, words))}", "runs": len(runs)}
        if row.get("unfinished") or row.get("rejected"):
            sys.exit(f"bench_speed: not every job ran: {row}")
        self._known[key] = row
        return row

    def rate(self) -> tuple[str, list[Row]]:
        """Jobs per CPU-second and memory."""
        rows, cells = [], []
        for policy, jobs, gpus, load, floor in RATES:
            row = self.simulate(policy, self.size(jobs), gpus, load)
            rows.append(row)
            name = f"{policy}, {row['jobs']:,} jobs, {gpus:,} GPUs, load {load:g}"
            keys = ("cpu_s", "jobs_per_cpu_s", "peak_rss_mib", "mean_wait_s", "preemptions", "runs")
            cells.append([name, *(row.get(key) for key in keys), floor])
        head = [
            "run",
            "CPU s",
            "jobs per CPU-s",
            "peak MiB",
            "mean wait s",
            "preemptions",
            "best of",
            "asked for",
        ]
        return f"### Rate and memory\n\n{table(head, cells)}", rows

    def growth(self) -> tuple[str, list[Row]]:
        """How CPU time grows with the jobs on the same nodes, and with the nodes for the same jobs."""
        by_jobs = [(self.size(jobs), GROWTH_JOBS_GPUS) for jobs in GROWTH_JOBS]
        by_more = [(self.size(jobs), GROWTH_JOBS_GPUS) for jobs in GROWTH_MORE_JOBS]
        nodes = [self.size(count, GPUS_PER_NODE) for count in GROWTH_NODES]
        by_nodes = [(self.size(GROWTH_NODES_JOBS), count * GPUS_PER_NODE) for count in nodes]
        rows: list[Row] = []
        cells: list[list[object]] = []
        said = []
        for what, sizes, column, most, policies in (
            ("jobs", by_jobs, 0, 1.15, ("fifo", "default")),
            ("jobs", by_more, 0, 1.15, ("fifo",)),
            ("nodes", by_nodes, 1, 0.4, ("fifo", "default")),
        ):
            for policy in policies:
                found = [self.simulate(policy, *size, GROWTH_LOAD) for size in sizes]
                rows += found
                costs = [row["cpu_s"] for row in found]
                power = exponent([size[column] for size in sizes], costs)
                rows.append({"policy": policy, "in": what, "exponent": round(power, 3)})
                label = " / ".join(f"{size[column] // (GPUS_PER_NODE if column else 1):,}" for size in sizes)
                seconds = " / ".join(f"{cost:.2f}" for cost in costs)
                waits = " / ".join(f"{row['mean_wait_s']:,.0f}" for row in found)
                cells.append([f"{policy}, in {what}: {label}", seconds, waits, power, f"{most:g}"])
        said.append(
            f"Load {GROWTH_LOAD:g}; in jobs on {GROWTH_JOBS_GPUS // GPUS_PER_NODE} nodes, in nodes with "
            f"{by_nodes[0][0]:,} jobs. Slope through the logarithms of three sizes."
        )
        head = ["sizes", "CPU s", "mean wait s", "exponent", "at most (fifo)"]
        return "\n\n".join(["### Growth", *said, table(head, cells)]), rows

    def latency(self) -> tuple[str, list[Row]]:
        """Wall time of single decisions on a full cluster with a long queue."""
        waiting, nodes, passes = self.size(WAITING), self.size(NODES), self.size(PASSES)
        rows, cells = [], []
        for policy in ("fifo", "default"):
            words = ["bench", "decide", "--waiting", waiting, "--nodes", nodes, "--passes", passes]
            words += ["--policy", policy]
            print("yard", *words, file=sys.stderr)
            row = {**yard(*words), "command": f"yard {' '.join(map(str, words))}"}
            rows.append(row)
            ms = row["decide_ms"]
            counts = [row.get("starts"), row.get("preemptions")]
            cells.append([policy, f"{ms['p50']:.2f}", f"{ms['p99']:.2f}", ms.get("max"), *counts])
        head = ["policy", "p50 ms", "p99 ms", "max ms", "starts", "preemptions"]
        said = f"{waiting:,} waiting jobs, {nodes:,} nodes of 8 GPUs, {passes:,} decisions, wall time."
        return f"### One decision\n\n{said}\n\n{table(head, cells)}", rows


def main() -> int:
    """Measure, print, and publish if asked to."""
    parts: dict[str, Callable[[Bench], tuple[str, list[Row]]]] = {
        "rate": Bench.rate,
        "growth": Bench.growth,
        "latency": Bench.latency,
    }
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    parser.add_argument("--rounds", type=int, default=3, help="how often a short run is repeated")
    parser.add_argument("--quick", action="store_true", help="sizes divided by 20, one round")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and set(options.only) != set(parts):
        parser.error("--write replaces all of it: leave --only out")
    bench = Bench(1, 20) if options.quick else Bench(options.rounds, 1)
    done = {name: parts[name](bench) for name in options.only}
    text = "\n\n".join(said for said, _ in done.values())
    rows = [row for _, found in done.values() for row in found]
    commands = "\n".join(dict.fromkeys(row["command"] for row in rows if "command" in row))
    publish("speed", f"{text}\n\nThe commands:\n\n```sh\n{commands}\n```", rows, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
