"""What is left of packing when nothing is known before: openb again, with demand learned from the arrivals.

    python benchmarks/bench_learned.py --data DIR [--seeds 3] [--write]

DIR is that of bench_pack.py. Every pod goes the way of a real job through `apply` and `decide`; demand is learned by
the rule of the control loop. Beside it stands the kernel on the same orders, told the published statistics beforehand.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean

from bench_openb import arrivals, read_nodes, read_pods, run
from bench_pack import NODES
from figures import Row, publish, table
from placing import lists
from placing.compiled import numba_is_here
from placing.protocol import FIRST_SEED, Comparison


def measure(data: Path, pods: Path, seeds: int) -> Row:
    """One list, told and learned."""
    told = Comparison(lists.read_nodes(data / NODES), lists.read_pods(pods))
    board = told.board("pack", compile_it=numba_is_here())
    nodes, order = read_nodes(data / NODES), read_pods(pods)
    range_ = range(FIRST_SEED, FIRST_SEED + seeds)
    runs = [run(nodes, arrivals(order, told.capacity_milli, seed), None, "pack") for seed in range_]
    return {
        "workload": pods.stem.removeprefix("openb_pod_list_"),
        "told": mean([told.run(board, seed).allocation_pct[100] for seed in range_]),
        "learned": mean([each.allocated[100] for each in runs]),
        "times": mean([each.learned for each in runs]),
        "per_cpu_s": sum([each.arrivals for each in runs]) / sum([each.total_s for each in runs]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the node and pod lists")
    parser.add_argument("--seeds", type=int, default=3, help="how many orders; the first has seed 42")
    parser.add_argument("--write", action="store_true", help="write the table into docs/benchmarks.md")
    args = parser.parse_args()
    if args.data is None:
        print("skipped: --data names the folder with the openb lists (see --help for where they are)")
        return 0
    rows = []
    for pods in sorted(args.data.glob("openb_pod_list_*.csv")):
        rows.append(measure(args.data, pods, args.seeds))
        print(rows[-1], file=sys.stderr)
    shown = [
        [
            row["workload"],
            f"{row['told']:.2f}",
            f"**{row['learned']:.2f}**",
            f"{row['learned'] - row['told']:+.2f}",
            round(row["times"]),
            round(row["per_cpu_s"]),
        ]
        for row in rows
    ]
    head = ["workload", "told before", "learned", "difference", "times learned", "arrivals per CPU-s"]
    gap = mean([row["learned"] - row["told"] for row in rows])
    text = (
        f"Allocated % at 100 % arrived, mean of {args.seeds} orders.\n\n{table(head, shown)}\n\n"
        f"Learned is {gap:+.2f} points from told, on average."
    )
    publish("learned", text, rows, write=args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
