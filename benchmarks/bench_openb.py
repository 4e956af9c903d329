"""Placement on Alibaba's GPU trace of 2023 ("openb"), by the protocol of the FGD paper (ATC'23).

    python benchmarks/bench_openb.py --data DIR [--workload default] [--seeds 1] [--policies best-fit,fgd] [--learn]

DIR holds `openb_node_list_gpu_node.csv` and `openb_pod_list_<workload>.csv`. They are public, in
github.com/hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0) and github.com/alibaba/clusterdata; gpuyard does
not ship them. Where DIR has `published_fgd.csv`, the published means are printed beside ours.

1. All pods, shuffled by the seed; then clones drawn from them until 130 % of the GPUs have been asked for.
2. Pods arrive one by one and never leave. One that fits nowhere is dropped, but counts as arrived.
3. Expected tasks are the most frequent (cores, GPUs, models) until 95 % of the pods are covered. With `--learn` nothing
   is known before: demand is learned from the arrivals, as a live yard does.
4. Allocation is averaged over the arrivals that round to the same percentage of the GPUs.

Every pod goes the way of a real job: `JobSubmitted`, `decide`, `AttemptStarted` (or `JobCancelled`), so what is timed
is the scheduler and not a model of it. The orders are those of Python's generator, not of the paper's. The published
BestFit weighs cores and GPUs together and over all nodes; `best-fit` here goes by GPUs, the cheapest model first.
"""

import argparse
import csv
import random
import sys
from collections import Counter
from pathlib import Path
from statistics import mean
from time import process_time, process_time_ns
from typing import NamedTuple

from gpuyard.core import State, apply, decide
from gpuyard.core.quota.tenants import ROOT
from gpuyard.model import (
    Ask,
    AttemptStarted,
    ConfigSet,
    DemandLearned,
    Job,
    JobCancelled,
    JobSpec,
    JobSubmitted,
    Milli,
    Node,
    NodeAdded,
    PolicySpec,
    Settings,
    Whole,
)
from gpuyard.packing.learning import Learner
from gpuyard.policies.registry import build

INFLATION_PERCENT = 130
TYPICAL_PERCENT = 95
SHOWN = (90, 100, 130)
PUBLISHED = {"best-fit": "05-BestFit", "fgd": "06-FGD"}


class Pod(NamedTuple):
    """One line of a pod list. Fields are in the order in which the paper's code breaks ties between task types."""

    cpu_milli: int
    gpu_milli: int
    gpus: int
    models: str
    memory_mib: int

    @property
    def asked_milli(self) -> int:
        return self.gpus * self.gpu_milli

    def ask(self, memory_mib: int) -> Ask:
        gpus = Whole(self.gpus) if self.gpu_milli in (0, 1000) else Milli(self.gpus, self.gpu_milli)
        models = tuple(model for model in self.models.split("|") if model)
        return Ask(gpus, cpu_milli=self.cpu_milli, memory_mib=memory_mib, models=models)


class Run(NamedTuple):
    """What one order of arrivals gave."""

    allocated: dict[int, float]
    """Percent of the GPUs, by percent arrived."""
    arrivals: int
    decide_s: float
    total_s: float
    learned: int
    """How often demand was learned."""


def read_nodes(path: Path) -> list[Node]:
    """Sorted by name: the lowest number wins ties, which the paper gives to the smallest name."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["sn"])
    return [
        Node(
            row["sn"],
            "openb",
            "openb",
            row["model"],
            int(row["gpu"]),
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
        )
        for row in rows
    ]


def read_pods(path: Path) -> list[Pod]:
    """Sorted by name."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["name"])
    return [
        Pod(
            int(row["cpu_milli"]),
            int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
            int(row["num_gpu"]),
            row.get("gpu_spec") or "",
            int(row["memory_mib"]),
        )
        for row in rows
    ]


def typical(pods: list[Pod]) -> tuple[tuple[Ask, int], ...]:
    """The expected tasks with their counts. Memory does not tell them apart."""
    counts = Counter(pod._replace(memory_mib=0) for pod in pods)
    ranked = sorted(counts.items(), key=lambda row: (row[1], row[0]), reverse=True)
    found, covered = [], 0
    for pod, count in ranked:
        if covered * 100 >= TYPICAL_PERCENT * len(pods):
            break
        found.append((pod.ask(0), count))
        covered += count
    return tuple(found)


def arrivals(pods: list[Pod], capacity_milli: int, seed: int) -> list[Pod]:
    """One order, inflated."""
    rng = random.Random(seed)
    order = list(pods)
    rng.shuffle(order)
    most = capacity_milli * INFLATION_PERCENT // 100
    asked = sum(pod.asked_milli for pod in order)
    while asked > most:
        asked -= order.pop(rng.randrange(len(order))).asked_milli
    while True:
        clone = rng.choice(pods)
        # Without the number of GPUs, as in the published code.
        if asked + clone.gpu_milli > most:
            return order
        asked += clone.asked_milli
        order.append(clone)


def run(
    nodes: list[Node], order: list[Pod], demand: tuple[tuple[Ask, int], ...] | None, placement: str
) -> Run:
    """Let the pods arrive. Without a demand it is learned from them."""
    state = State()
    apply(state, ConfigSet(0, Settings()))
    for node in nodes:
        apply(state, NodeAdded(0, node))
    learner = Learner()
    if demand is not None:
        apply(state, DemandLearned(0, demand))
    policy = build(PolicySpec(placement, order=("fifo",), placement=placement, backfill="none"))
    specs = {pod: JobSpec("openb", pod.ask(pod.memory_mib)) for pod in order}
    capacity_milli = sum(node.gpus for node in nodes) * 1000
    arrived, decide_ns, learned = 0, 0, 0
    buckets: dict[int, list[int]] = {}
    started_s = process_time()
    for at_ms, pod in enumerate(order, start=1):
        apply(state, JobSubmitted(at_ms, Job(at_ms, specs[pod], at_ms)))
        before_ns = process_time_ns()
        if demand is None and (asks := learner.look(state)) is not None:
            apply(state, DemandLearned(at_ms, asks))
            learned += 1
        plan = decide(state, policy, at_ms)
        decide_ns += process_time_ns() - before_ns
        if plan.starts:
            apply(state, AttemptStarted(at_ms, at_ms, 1, plan.starts[0].grants))
        else:
            apply(state, JobCancelled(at_ms, at_ms))
        arrived += pod.asked_milli
        buckets.setdefault(round(100 * arrived / capacity_milli), []).append(state.tenants.used[ROOT][0])
    total_s = process_time() - started_s
    allocated = {percent: 100 * mean(used) / capacity_milli for percent, used in buckets.items()}
    return Run(allocated, len(order), decide_ns / 1e9, total_s, learned)


def published(path: Path, workload: str, policy: str) -> dict[int, float]:
    """The published means, by percent arrived; empty where there are none."""
    if not path.exists() or policy not in PUBLISHED:
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            int(row["arrived_pct"]): float(row["mean"])
            for row in csv.DictReader(file)
            if (row["workload"], row["policy"], row["metric"])
            == (f"openb_pod_list_{workload}", PUBLISHED[policy], "alloc_pct")
        }


def line(name: str, allocated: dict[int, float]) -> str:
    """A row of the table."""
    return f"{name:<22}" + "".join(f"{allocated[x]:>10.2f}" if x in allocated else f"{'':>10}" for x in SHOWN)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the node and pod lists")
    parser.add_argument("--workload", default="default")
    parser.add_argument("--seeds", type=int, default=1, help="how many orders; the first has seed 42")
    parser.add_argument("--learn", action="store_true", help="nothing is known before; demand is learned")
    parser.add_argument("--policies", default="first-fit,best-fit,fgd")
    args = parser.parse_args()
    if args.data is None:
        print("skipped: --data names the folder with the openb lists (see --help for where they are)")
        return 0
    nodes = read_nodes(args.data / "openb_node_list_gpu_node.csv")
    pods = read_pods(args.data / f"openb_pod_list_{args.workload}.csv")
    demand = None if args.learn else typical(pods)
    capacity_milli = sum(node.gpus for node in nodes) * 1000
    print(
        f"{args.workload}: {len(nodes)} nodes, {capacity_milli // 1000} GPUs, {len(pods)} pods, "
        f"{len(demand) if demand else 'unknown'} task types, {args.seeds} orders"
    )
    print(f"{'allocated % at':<22}" + "".join(f"{x:>9}%" for x in SHOWN) + "  arrivals/CPU s   decide alone")
    for policy in args.policies.split(","):
        runs = [run(nodes, arrivals(pods, capacity_milli, 42 + i), demand, policy) for i in range(args.seeds)]
        allocated = {x: mean(r.allocated[x] for r in runs) for x in SHOWN}
        count = sum(r.arrivals for r in runs)
        print(
            f"{line(policy, allocated)}{count / sum(r.total_s for r in runs):>16,.0f}"
            f"{count / sum(r.decide_s for r in runs):>15,.0f}"
        )
        known = published(args.data / "published_fgd.csv", args.workload, policy)
        if known:
            print(line(f"  published {PUBLISHED[policy][3:]}", known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
