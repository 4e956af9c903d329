"""What budgets cost a decision: the same passes with and without them, side by side, in CPU time.

    python benchmarks/bench_budgets.py [--budgets 4] [--rounds 7] [--passes 200]

Two yards of 10,000 GPUs with 10,000 waiting jobs get the same ends and arrivals, and since the budgets have enough for
all jobs, both take the same decisions. Passes alternate; of each pass the least of all rounds counts, which other work
on the machine disturbs least. What is told is the sum over all passes, and the middle one.
"""

import argparse
import gc
import statistics
import time

from gpuyard.cli.commands.bench.bench_yard import bench_yard
from gpuyard.cli.commands.bench.crowd import LoadedState


class Timed(LoadedState):
    """A loaded yard whose decisions are timed by CPU time."""

    clock = staticmethod(time.thread_time_ns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--passes", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--policy", default="default")
    args = parser.parse_args()
    least: dict[int, list[int]] = {}
    starts = set()
    for round_ in range(args.rounds):
        crowds = {
            budgets: Timed(bench_yard(8 * args.nodes, args.policy, budgets), args.waiting, args.passes, 0)
            for budgets in (0, args.budgets)
        }
        gc.collect()
        gc.disable()
        for number in range(args.passes):
            # Whichever is first has the colder caches.
            for budgets in (0, args.budgets) if (number + round_) % 2 else (args.budgets, 0):
                crowds[budgets].step()
        gc.enable()
        for budgets, crowd in crowds.items():
            before = least.get(budgets, crowd.decide_ns)
            least[budgets] = [min(pair) for pair in zip(before, crowd.decide_ns, strict=True)]
            starts.add((crowd.starts, crowd.stops))
    assert len(starts) == 1, f"not the same decisions: {starts}"
    print("budgets  all passes ms  middle pass ms")
    for budgets, times in least.items():
        print(f"{budgets:7}  {sum(times) / 1e6:13.2f}  {statistics.median(times) / 1e6:14.4f}")
    without, with_them = [sum(least[budgets]) for budgets in (0, args.budgets)]
    middle = statistics.median(least[args.budgets]) / statistics.median(least[0])
    print(f"with budgets: {with_them / without:.4f} of all passes, {middle:.4f} of the middle one")


if __name__ == "__main__":
    main()
