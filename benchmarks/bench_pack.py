"""Packing on Alibaba's GPU trace of 2023 ("openb"), by the protocol of the FGD paper (ATC'23), list by list.

    python benchmarks/bench_pack.py --data DIR [--seeds 10] [--write]
    python benchmarks/bench_pack.py --nodes FILE --pods FILE [--seeds 10]

DIR holds `openb_node_list_gpu_node.csv` and any number of `openb_pod_list_<workload>.csv`. They are public, in
github.com/hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0) and github.com/alibaba/clusterdata; gpuyard does not
ship them. Where DIR has `published_fgd.csv` (workload, policy, metric, arrived_pct, mean), the published FGD is shown.
With --nodes and --pods the lists are your own, and the table is printed alone.

The bound is what could have been allocated with all arrivals known and any of them left out. The bound beside it takes,
of each kind of pod (the models it names, how many GPUs), every arrival before the first one that `pack` had to refuse,
as a policy must that refuses nothing that fits.
"""

import argparse
import csv
import sys
from pathlib import Path
from statistics import mean, stdev
from time import process_time

from bench_place import place
from figures import publish, table
from placing.bound import Bound, bound_pct
from placing.compiled import numba_is_here
from placing.lists import read_nodes, read_pods
from placing.protocol import FIRST_SEED, Comparison

from gpuyard.errors import YardError

NODES = "openb_node_list_gpu_node.csv"
DECISIONS = 100_000
POLICIES = ("random", "best-fit", "fgd", "pack")
PUBLISHED = {"random": "01-Random", "best-fit": "05-BestFit", "fgd": "06-FGD"}


def published(path: Path, workload: str) -> dict[str, float]:
    """The published means at 100 % arrived, by policy; empty where there are none."""
    if not path.exists():
        return {}
    names = {name: policy for policy, name in PUBLISHED.items()}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            names[row["policy"]]: float(row["mean"])
            for row in csv.DictReader(file)
            if row["workload"] == f"openb_pod_list_{workload}"
            and row["policy"] in names
            and (row["metric"], row["arrived_pct"]) == ("alloc_pct", "100")
        }


def measure(nodes: Path, pods: Path, seeds: int) -> dict[str, object]:
    """All policies on one list."""
    lists = Comparison(read_nodes(nodes), read_pods(pods))
    limit = Bound(lists.nodes, lists.tasks)
    row: dict[str, object] = {"workload": pods.stem.removeprefix("openb_pod_list_"), "seeds": seeds}
    refused = 0
    range_ = range(FIRST_SEED, FIRST_SEED + seeds)
    for policy in POLICIES:
        board = lists.board(policy, compile_it=numba_is_here())
        outcomes = [lists.run(board, seed) for seed in range_]
        at_100 = [outcome.allocation_pct[100] for outcome in outcomes]
        row[policy] = mean(at_100)
        row[f"{policy} sd"] = stdev(at_100) if seeds > 1 else 0.0
        row[f"{policy} at 130"] = mean([outcome.allocation_pct[130] for outcome in outcomes])
        refused += sum([outcome.refused_while_fitting for outcome in outcomes])
        if policy == "pack":
            row["bound"] = mean([bound_pct(lists, limit, seed) or 0.0 for seed in range_])
            taking = [
                bound_pct(lists, limit, seed, outcome.first_refused)
                for seed, outcome in zip(range_, outcomes, strict=True)
            ]
            row["bound taking"] = mean(taking) if None not in taking else None  # type: ignore[type-var]
    row["refused while fitting"] = refused
    return row


def figure(value: object) -> str:
    """Two decimals; a dash for nothing."""
    return f"{value:.2f}" if isinstance(value, float) else "–"


def quality(data: Path, seeds: int) -> tuple[str, list[dict[str, object]]]:
    """The table of all lists, and its rows."""
    rows = []
    for pods in sorted(data.glob("openb_pod_list_*.csv")):
        began_s = process_time()
        row = measure(data / NODES, pods, seeds)
        row["published"] = published(data / "published_fgd.csv", str(row["workload"]))
        rows.append(row)
        print(f"{row['workload']}: {process_time() - began_s:.0f} CPU s", file=sys.stderr)
    return shown_as_text(rows, seeds), rows


def shown_as_text(rows: list[dict[str, object]], seeds: int) -> str:
    """The rows as a table, and what they come to."""
    shown = []
    for row in rows:
        known = row["published"]
        assert isinstance(known, dict)
        cells = [
            f"{figure(row[policy])} ({figure(known.get(policy))})" for policy in ("random", "best-fit", "fgd")
        ]
        reference = known.get("fgd", row["fgd"])
        gain = f"{row['pack'] - reference:+.2f}"  # type: ignore[operator]
        shown.append(
            [
                row["workload"],
                *cells,
                f"**{figure(row['pack'])}**",
                gain,
                figure(row["bound taking"]),
                figure(row["bound"]),
            ]
        )
    head = ["workload", "random", "best-fit", "fgd", "pack", "pack over FGD", "bound, taking", "bound"]
    gains = [row["pack"] - row["published"].get("fgd", row["fgd"]) for row in rows]  # type: ignore[union-attr, operator]
    wrong = sum([row["refused while fitting"] for row in rows])  # type: ignore[misc]
    return (
        f"Allocated % at 100 % arrived, mean of {seeds} orders; the published mean in parentheses.\n\n"
        f"{table(head, shown)}\n\n"
        f"`pack` is {mean(gains):.2f} points above FGD on average (published where there is a figure, else our run); "
        f"refused while fitting: {wrong}."
    )


def speed(data: Path) -> tuple[str, list[dict[str, object]]]:
    """Decisions per CPU second on the nodes and pods of the trace, and on ten times as many."""
    rows = []
    lists = (data / NODES, data / "openb_pod_list_default.csv")
    for policy in ("fgd", "pack"):
        for nodes in (1213, 12130):
            rows.append(place(nodes, DECISIONS, policy, *lists))
            rows.append(place(nodes, DECISIONS, policy, None, None) | {"mix": "built in"})
    head = ["policy, nodes, tasks", "decisions", "CPU s", "decisions per CPU-s"]
    shown = [
        [
            f"{row['policy']}, {row['nodes']:,}, {row.get('mix', 'openb default')}",
            row["decisions"],
            row["cpu_s"],
            row["decisions_per_cpu_s"],
        ]
        for row in rows
    ]
    return table(head, shown), rows


def own_lists(nodes: Path, pods: Path, seeds: int) -> int:
    """Print what the placements make of lists that are not openb's."""
    try:
        row = measure(nodes, pods, seeds)
    except (YardError, OSError) as error:
        print(f"bench_pack: {error}", file=sys.stderr)
        return 2
    print(shown_as_text([row | {"published": {}}], seeds))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the openb lists")
    parser.add_argument(
        "--nodes", type=Path, help="node list of your own: sn, cpu_milli, memory_mib, gpu, model"
    )
    parser.add_argument(
        "--pods",
        type=Path,
        help="pod list: name, cpu_milli, memory_mib, num_gpu, gpu_milli, and gpu_spec if any",
    )
    parser.add_argument("--seeds", type=int, default=10, help="how many orders; the first has seed 42")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/benchmarks.md")
    args = parser.parse_args()
    if (args.nodes is None) is not (args.pods is None):
        parser.error("--nodes and --pods go together")
    if args.nodes is not None:
        return own_lists(args.nodes, args.pods, args.seeds)
    if args.data is None:
        print("skipped: --data names the folder with the openb lists (see --help for where they are)")
        return 0
    packed, rows = quality(args.data, args.seeds)
    placed, speeds = speed(args.data)
    text = f"### How much is allocated\n\n{packed}\n\n### How fast\n\n{placed}"
    publish("pack", text, {"quality": rows, "speed": speeds}, write=args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
