"""The published protocol: pods arrive one by one, never leave, and a pod that fits nowhere is dropped.

1. What a policy may know: the nodes, the arrivals as they come, and the typical pods, which are the most frequent
   (cores, GPUs, models) until 95 % of the list are covered.
2. An order of arrivals is the list, shuffled by the seed, and then clones drawn from it until 130 % of the GPUs have
   been asked for. A list that asks for more loses pods at random instead. The orders are those of Python's generator.
3. Arrived is what has been asked for, in percent of the GPUs, refused or not; allocation is averaged over the arrivals
   that round to the same percentage.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.errors import BadInput
from gpuyard.model.units import MILLI
from gpuyard.packing.tasks import NodeShape, Task
from placing.board import Board

FIRST_SEED = 42
INFLATION_PERCENT = 130
TYPICAL_PERCENT = 95
SHOWN = (90, 100, 130)
ARRIVALS_MAX = 5_000_000


def typical(pods: Sequence[Task]) -> list[tuple[Task, int]]:
    """The expected tasks with their counts. Memory does not distinguish them."""
    counts = Counter((pod.cpu_milli, pod.gpu_milli, pod.gpus, "|".join(pod.models)) for pod in pods)
    found, covered = [], 0
    for key, count in sorted(counts.items(), key=lambda row: (row[1], row[0]), reverse=True):
        if covered * 100 >= TYPICAL_PERCENT * len(pods):
            break
        cpu_milli, gpu_milli, gpus, models = key
        found.append((Task(cpu_milli, 0, gpus, gpu_milli, tuple(filter(None, models.split("|")))), count))
        covered += count
    return found


def arrivals(
    pods: Sequence[Task], capacity_milli: int, seed: int, pods_max: int = ARRIVALS_MAX
) -> list[Task]:
    """One order of arrivals, inflated."""
    rng = random.Random(seed)
    order = list(pods)
    rng.shuffle(order)
    most = capacity_milli * INFLATION_PERCENT // 100
    asked = sum([pod.asked_milli for pod in order])
    while asked > most:
        asked -= order.pop(rng.randrange(len(order))).asked_milli
    while True:
        clone = rng.choice(pods)
        # Without the number of GPUs, as in the published code.
        if asked + clone.gpu_milli > most:
            return order
        if len(order) >= pods_max:
            raise BadInput(
                f"filling these nodes takes more than {pods_max:,} pods of this list",
                hint="Give fewer nodes, or pods that ask for more of a GPU.",
            )
        asked += clone.asked_milli
        order.append(clone)


PodKind = tuple[tuple[str, ...], int]
"""The models that a pod names and how many GPUs it wants: which nodes are suitable, whatever its size."""


def kind_of(pod: Task) -> PodKind:
    """What decides which nodes could have room for a pod."""
    return pod.models, pod.gpus


class Outcome(NamedTuple):
    """What one order gave."""

    allocation_pct: dict[int, float]
    """By percent arrived."""
    refused_while_fitting: int
    first_refused: dict[PodKind, int]
    """By kind of pod: the position of the first one that was refused. Kinds that never were refused are missing."""


class Comparison:
    """A node list and a pod list, ready for any policy and seed."""

    def __init__(self, nodes: Sequence[NodeShape], pods: Sequence[Task]) -> None:
        self.nodes = list(nodes)
        self.pods = list(pods)
        self.capacity_milli = sum([node.gpus for node in nodes]) * MILLI
        self.tasks = sorted(set(pods))
        self.expected = typical(pods)
        self._number = {task: i for i, task in enumerate(self.tasks)}

    def board(self, policy: str, *, compile_it: bool) -> Board:
        """The columns for one policy."""
        return Board(self.nodes, self.tasks, self.expected, policy, compile_it=compile_it)

    def order(self, seed: int) -> list[int]:
        """One order of arrivals, as numbers into `tasks`."""
        return [self._number[pod] for pod in arrivals(self.pods, self.capacity_milli, seed)]

    def until(self, order: Sequence[int], percent: int) -> list[int]:
        """The arrivals until `percent` of the capacity has been asked for."""
        asked, most = 0, self.capacity_milli * percent // 100
        for at, number in enumerate(order):
            asked += self.tasks[number].asked_milli
            if asked > most:
                return list(order[:at])
        return list(order)

    def run(self, board: Board, seed: int) -> Outcome:
        """Let one order arrive."""
        order = self.order(seed)
        rng = random.Random(seed)
        went = board.run(order, [rng.getrandbits(40) for _ in order])
        arrived = used = 0
        first_refused: dict[PodKind, int] = {}
        buckets: dict[int, list[int]] = {}
        for at, (number, node) in enumerate(zip(order, went, strict=True)):
            asked = self.tasks[number].asked_milli
            arrived += asked
            if node >= 0:
                used += asked
            else:
                first_refused.setdefault(kind_of(self.tasks[number]), at)
            buckets.setdefault(round(100 * arrived / self.capacity_milli), []).append(used)
        return Outcome(
            {percent: self._mean(buckets, percent) for percent in SHOWN},
            board.refused_while_fitting,
            first_refused,
        )

    def _mean(self, buckets: dict[int, list[int]], percent: int) -> float:
        """The mean of a bucket. On a few nodes one arrival may skip it: then the last value before."""
        used = buckets.get(percent)
        if used is None:
            before = [reached for reached in buckets if reached < percent]
            used = buckets[max(before)][-1:] if before else [0]
        return 100 * sum(used) / len(used) / self.capacity_milli
