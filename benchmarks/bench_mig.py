"""MIG slices cut on demand against static layouts, on the same random streams of requests.

    python benchmarks/bench_mig.py [--seeds 5] [--first-seed 0] [--gpus 100] [--write]

Needs numba and scipy for the search of the best static layout; `make setup` installs both.
"""

import argparse
import sys
from statistics import mean

from figures import Row, publish, table
from mig_static import Replay
from mig_streams import MIXES, Played, stream, through_core

LOADS = (0.9, 1.0, 1.15, 1.3)
DYNAMIC = ("pack", "best-fit")


def measure(mix: str, load: float, gpus: int, seeds: range) -> Row:
    """All opponents on the streams of one mix and load: means over the seeds."""
    found: dict[str, list[Played]] = {}
    requests = 0
    for seed in seeds:
        day = stream(mix, load, gpus, seed)
        requests += len(day)
        replay = Replay(day, gpus)
        for placement in DYNAMIC:
            found.setdefault(placement, []).append(through_core(day, gpus, placement))
        cuts = {
            "all-1g": replay.uniform(7, 0, 0, 0, 0, 0),
            "all-balanced": replay.uniform(2, 0, 1, 1, 0, 0),
            "best by acceptance": replay.best(lambda each: each.acceptance, seed),
            "best by utilisation": replay.best(lambda each: each.utilisation, seed),
        }
        for name, cut in cuts.items():
            found.setdefault(name, []).append(replay.on(cut))
    row: Row = {"mix": mix, "load": load, "requests": requests}
    for name, outcomes in found.items():
        row[name] = {
            "acceptance": 100 * mean([each.acceptance for each in outcomes]),
            "utilisation": 100 * mean([each.utilisation for each in outcomes]),
        }
        if name in DYNAMIC:
            row[name]["per_cpu_s"] = requests / sum([each.cpu_s for each in outcomes])
    # In how many of the days it was not behind: the mean could hide one.
    for what, rival in (("acceptance", "best by acceptance"), ("utilisation", "best by utilisation")):
        pairs = zip(found["pack"], found[rival], strict=True)
        row[f"days ahead in {what}"] = sum([getattr(a, what) > getattr(b, what) for a, b in pairs])
    return row


def shown(rows: list[Row], what: str, seeds: int) -> str:
    """The table of one figure."""
    head = [
        "requests, load",
        "all-1g",
        "all-balanced",
        "best static",
        "best-fit",
        "pack",
        "pack over best static",
    ]
    rival = f"best by {what}"
    lines = []
    for row in rows:
        cells = [f"{row[name][what]:.2f}" for name in ("all-1g", "all-balanced", rival, "best-fit")]
        gain = row["pack"][what] - row[rival][what]
        ahead = f"{gain:+.2f} ({row[f'days ahead in {what}']} of {seeds} days)"
        lines.append([f"{row['mix']}, {row['load']}", *cells, f"**{row['pack'][what]:.2f}**", ahead])
    return table(head, lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=100, help="GPUs, four to a node")
    parser.add_argument("--seeds", type=int, default=5, help="days of each mix and load")
    parser.add_argument("--first-seed", type=int, default=0, help="that of the first day")
    parser.add_argument("--mix", choices=sorted(MIXES), help="only this one")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/benchmarks.md")
    args = parser.parse_args()
    rows = []
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    for mix in [args.mix] if args.mix else MIXES:
        for load in LOADS:
            rows.append(measure(mix, load, args.gpus, seeds))
            print(rows[-1], file=sys.stderr)
    behind = [
        f"{what} of {row['mix']} at {row['load']}"
        for what in ("acceptance", "utilisation")
        for row in rows
        if row["pack"][what] < row[f"best by {what}"][what]
    ]
    speeds = {name: mean([row[name]["per_cpu_s"] for row in rows]) for name in DYNAMIC}
    text = (
        f"{args.gpus} H100, {args.seeds} days of each; {sum([row['requests'] for row in rows]):,} requests in all.\n\n"
        f"Accepted %: requests that found room when they came\n\n{shown(rows, 'acceptance', args.seeds)}\n\n"
        f"Utilised %: compute slices asked for and in use\n\n{shown(rows, 'utilisation', args.seeds)}\n\n"
        f"`pack` is behind the best static layout in: {', '.join(behind) or 'nothing'}. Requests per CPU second, from "
        f"submission to end: `pack` {speeds['pack']:,.0f}, `best-fit` {speeds['best-fit']:,.0f}."
    )
    publish("mig", text, rows, write=args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
