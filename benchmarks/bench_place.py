"""How many tasks a second the packing kernel finds a place for.

    python benchmarks/bench_place.py [--nodes 1213] [--decisions 100000] [--policy pack] [--fleet FILE] [--pods FILE]

A fleet is filled again and again with tasks that arrive one by one, until 130 % of its GPUs have been asked for, so the
last quarter of the decisions are refusals. Each decision is a full one: every node is compared, and what changed since
is scored again. Reading and compiling do not count. FILEs are lists of the openb format (docs/how-to/packing.md);
without them the fleet and the tasks are a built-in mix in about the proportions of a large production cluster.
"""

import argparse
import json
import sys
from pathlib import Path
from time import process_time

from figures import Row
from placing.board import POLICIES
from placing.compiled import numba_is_here
from placing.lists import read_nodes, read_pods
from placing.protocol import FIRST_SEED, Comparison

from gpuyard.errors import YardError
from gpuyard.packing.tasks import NodeShape, Task

# Nodes in about the proportions of a large production cluster (Alibaba's of 2023), and tasks in rounder ones than real.
_KINDS = (
    # GPU model, GPUs, cores, GiB, and how many of a thousand nodes.
    ("G2", 8, 96, 384, 453),
    ("T4", 2, 104, 512, 319),
    ("P100", 2, 16, 120, 90),
    ("G3", 8, 128, 768, 32),
    ("V100M16", 4, 32, 128, 23),
    ("P100", 2, 64, 256, 18),
    ("V100M32", 8, 96, 768, 17),
    ("V100M16", 1, 8, 32, 16),
    ("T4", 4, 96, 384, 14),
    ("V100M32", 4, 48, 368, 8),
    ("V100M16", 8, 64, 256, 6),
    ("P100", 1, 8, 60, 3),
    ("A10", 1, 128, 1024, 1),
)

_TASKS = (
    # Milli-cores, MiB, GPUs, milli of each, and how many of a thousand tasks.
    (3_000, 6_144, 1, 800, 130), (11_500, 49_152, 1, 1000, 120), (11_000, 49_152, 1, 1000, 100),
    (3_000, 6_144, 1, 1000, 90), (12_000, 48_128, 1, 480, 70), (8_000, 30_720, 1, 480, 60),
    (12_500, 57_344, 0, 0, 55), (32_000, 65_536, 0, 0, 45), (12_000, 24_576, 1, 1000, 45),
    (18_000, 65_536, 1, 1000, 40), (12_000, 47_104, 1, 650, 40), (4_000, 22_528, 1, 320, 35),
    (8_000, 30_720, 0, 0, 30), (10_000, 41_984, 1, 1000, 25), (8_000, 16_384, 1, 1000, 22),
    (16_000, 59_392, 1, 1000, 20), (4_000, 16_384, 1, 240, 16), (6_000, 6_144, 1, 460, 14),
    (24_000, 98_304, 1, 1000, 10), (4_000, 10_240, 1, 550, 8), (4_000, 10_240, 1, 160, 8),
    (4_000, 10_240, 1, 360, 6), (64_000, 262_144, 8, 1000, 5), (16_000, 65_536, 2, 1000, 3),
    (32_000, 131_072, 4, 1000, 3),
)  # fmt: skip


def mixed_nodes(count: int) -> list[NodeShape]:
    """`count` nodes of all kinds, those of a kind together."""
    total = sum([many for *_rest, many in _KINDS])
    shapes: list[NodeShape] = []
    reached = 0
    for model, gpus, cores, gib, many in _KINDS:
        reached += many
        shape = NodeShape(model, gpus, cores * 1000, gib * 1024)
        shapes.extend([shape] * (-(-count * reached // total) - len(shapes)))
    return shapes


_VARIANTS = 6
"""Variants of each row, slightly apart: jobs for the same GPU ask for different cores and memory."""


def mixed_tasks() -> list[Task]:
    """A thousand tasks, of some 150 sizes: about as many as a large production cluster sees."""
    return [
        Task(cpu - i % _VARIANTS // 2 * 100, memory - i % _VARIANTS * 512, gpus, milli)
        for cpu, memory, gpus, milli, many in _TASKS
        for i in range(many)
    ]


PASSES_MAX = 1000


def place(
    nodes: int, decisions: int, policy: str, fleet: Path | None, pods: Path | None, seed: int = FIRST_SEED
) -> Row:
    """Fill `nodes` nodes until that many decisions are made. A shorter list of nodes is repeated."""
    given = read_nodes(fleet) if fleet is not None else mixed_nodes(nodes)
    shapes = [given[i % len(given)] for i in range(nodes)]
    lists = Comparison(shapes, read_pods(pods) if pods is not None else mixed_tasks())
    compile_it = numba_is_here()
    board = lists.board(policy, compile_it=compile_it)
    # Once before the clock runs: the first call compiles.
    board.run([0])
    made, cpu_s = 0, 0.0
    for turn in range(PASSES_MAX):
        play, went = board.ready(lists.order(seed + turn), check=False)
        started_s = process_time()
        play()
        cpu_s += process_time() - started_s
        made += len(went)
        if made >= decisions:
            break
    return {
        "decisions": made,
        "cpu_s": round(cpu_s, 4),
        "decisions_per_cpu_s": round(made / cpu_s) if cpu_s else None,
        "policy": policy,
        "nodes": nodes,
        "kernel": "numba" if compile_it else "python",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1213, help="nodes of the fleet")
    parser.add_argument("--decisions", type=int, default=100_000, help="decide at least this often")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="pack", help="the placement to measure")
    parser.add_argument("--fleet", type=Path, help="node list, repeated until there are --nodes")
    parser.add_argument("--pods", type=Path, help="pod list")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="the same seed gives the same orders")
    args = parser.parse_args()
    if args.nodes < 1:
        parser.error("--nodes has to be at least 1")
    try:
        found = place(args.nodes, args.decisions, args.policy, args.fleet, args.pods, args.seed)
    except (YardError, OSError) as error:
        print(f"bench_place: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
