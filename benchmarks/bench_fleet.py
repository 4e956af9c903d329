"""How long one decision takes on a large fleet: several clusters, thousands of nodes, a long queue.

    python benchmarks/bench_fleet.py [--clusters 2] [--nodes 5000] [--waiting 10000] [--rounds 40] [--write]

The state is built from events, as a live one is. Then, round by round, one thing happens after the other (a job ends, a
job arrives, a hundred arrive, a node is drained or fails, a gang or an urgent job comes), each followed by one `decide`
that is timed and carried out. Times are CPU time of the thread: other work on the machine counts little. Each mix of
jobs is measured in a process of its own.
"""

import argparse
import json
import sys
from pathlib import Path

from figures import Row, json_of, publish, table
from fleet_yard import MIXES, Fleet


def measured(mix: str, clusters: int, nodes: int, waiting: int, rounds: int) -> Row:
    """Percentiles of the decisions on one fleet, of all of them and by what happened before."""
    fleet = Fleet(MIXES[mix], clusters, nodes, waiting)
    for _ in range(rounds):
        fleet.round()
    every = [ns for times in fleet.decide_ns.values() for ns in times]
    return {
        "mix": mix,
        "clusters": clusters,
        "nodes": nodes,
        "waiting": waiting,
        "running": len(fleet.state.running),
        "passes": len(every),
        "starts": fleet.starts,
        "preemptions": fleet.stops,
        "all": _percentiles(every),
        "by_event": {name: _percentiles(times) for name, times in fleet.decide_ns.items()},
    }


def _percentiles(times_ns: list[int]) -> dict[str, float]:
    ranked = sorted(times_ns)
    return {
        name: round(ranked[min(len(ranked) - 1, len(ranked) * percent // 100)] / 1e6, 3)
        for name, percent in (("p50", 50), ("p99", 99), ("max", 100))
    }


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=5000, help="of each cluster, with 8 GPUs each")
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40, help="of twelve decisions each")
    parser.add_argument("--only", nargs="+", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--one", choices=list(MIXES), help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    size = [options.clusters, options.nodes, options.waiting, options.rounds]
    if options.one:
        print(json.dumps(measured(options.one, *size)))
        return 0
    words = [
        f"--{name}={value}"
        for name, value in zip(("clusters", "nodes", "waiting", "rounds"), size, strict=True)
    ]
    rows = []
    for mix in options.only:
        print(mix, file=sys.stderr)
        rows.append(json_of([sys.executable, Path(__file__), *words, "--one", mix]))
    publish("fleet", _said(rows), rows, write=options.write)
    return 0


def _said(rows: list[Row]) -> str:
    first = rows[0]
    cells = []
    for row in rows:
        name = f"**{row['mix']}**, {row['running']:,} run"
        cells.append([name, *row["all"].values(), row["passes"], row["starts"], row["preemptions"]])
        for event, times in row["by_event"].items():
            cells.append([event, *times.values(), None, None, None])
    head = ["mix, and what happened before", "p50 ms", "p99 ms", "max ms", "passes", "starts", "preemptions"]
    return (
        f"{first['clusters']} clusters of {first['nodes']:,} nodes of 8 GPUs, {first['waiting']:,} waiting jobs; "
        f"CPU time of one `decide`.\n\n{table(head, cells)}"
    )


if __name__ == "__main__":
    sys.exit(main())
