"""How long one decision takes on a large fleet: several clusters, thousands of nodes, a long queue.

    python benchmarks/bench_fleet.py [--clusters 2] [--nodes 5000] [--waiting 10000] [--rounds 40] [--write]

The state is built from events, as a live one is. Then, round by round, one thing happens after the other (a job ends, a
job arrives, a hundred arrive, a node is drained or fails, a gang or an urgent job comes), each followed by one `decide`
that is timed and carried out. Times are CPU time of the thread: other work on the machine counts little. Each mix of
jobs is measured in a process of its own.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from figures import Row, json_of, publish, table
from fleet_yard import MIXES, Fleet


def measured(mix: str, clusters: int, nodes: int, waiting: int, rounds: int) -> Row:
    """Percentiles of the decisions on one fleet, of all of them and by what happened before."""
    empty_kib = _resident_kib()
    fleet = Fleet(MIXES[mix], clusters, nodes, waiting)
    full_kib = _resident_kib()
    fleet.round()
    first = max(max(times) for times in fleet.decide_ns.values())
    fleet.decide_ns.clear()
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
        "first_ms": round(first / 1e6, 1),
        "empty_mib": empty_kib // 1024,
        "full_mib": full_kib // 1024,
        "end_mib": _resident_kib() // 1024,
        "all": _percentiles(every),
        "by_event": {name: _percentiles(times) for name, times in fleet.decide_ns.items()},
    }


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * (os.sysconf("SC_PAGE_SIZE") // 1024)


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
    events = list(first["by_event"])
    head = [
        "mix",
        "running jobs",
        "p50 ms",
        "p99 ms",
        "max ms",
        "first ms",
        "passes",
        "starts",
        "preemptions",
        "MiB",
    ]
    cells = [
        [
            row["mix"],
            row["running"],
            *row["all"].values(),
            row["first_ms"],
            row["passes"],
            row["starts"],
            row["preemptions"],
            f"{row['empty_mib']} → {row['full_mib']} → {row['end_mib']}",
        ]
        for row in rows
    ]
    by_event = [[name, *[_pair(row["by_event"][name]) for row in rows]] for name in events]
    return (
        f"{first['clusters']} clusters of {first['nodes']:,} nodes of 8 GPUs, {first['waiting']:,} waiting jobs; "
        f"CPU time of one `decide`.\n\n{table(head, cells)}\n\nBy what happened before it, p50 / p99 in ms:\n\n"
        f"{table(['before it', *[row['mix'] for row in rows]], by_event)}"
    )


def _pair(times: dict[str, float]) -> str:
    return f"{times['p50']:.3g} / {times['p99']:.3g}"


if __name__ == "__main__":
    sys.exit(main())
