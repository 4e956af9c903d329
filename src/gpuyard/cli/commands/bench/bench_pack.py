"""`yard bench pack`: how much of the GPUs a placement fills, by the protocol FGD was published with."""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.line.options import Option, OutputOption
from gpuyard.cli.listings.listing import Output

if TYPE_CHECKING:
    from gpuyard.sim.packing.bound import Bound
    from gpuyard.sim.packing.protocol import Comparison, PodKind


class Placement(StrEnum):
    """What can be compared (a test holds it equal to the board's list)."""

    PACK = "pack"
    FGD = "fgd"
    BEST_FIT = "best-fit"
    RANDOM = "random"


PlacementOption = Annotated[Placement, Option("--policy", help="The placement to measure.")]


def bench_pack(
    *,
    nodes: Annotated[
        Path, Option("--nodes", metavar="FILE", help="Node list, CSV: sn, cpu_milli, memory_mib, gpu, model.")
    ],
    pods: Annotated[
        Path,
        Option(
            "--pods",
            metavar="FILE",
            help="Pod list, CSV: name, cpu_milli, memory_mib, num_gpu, gpu_milli, and gpu_spec if there is one.",
        ),
    ],
    policy: PlacementOption = Placement.PACK,
    seeds: Annotated[
        int, Option("--seeds", metavar="N", min=1, max=1000, help="Orders of arrival; the first has seed 42.")
    ] = 10,
    bound: Annotated[
        bool,
        Option("--bound/--no-bound", help="Work out what could have been reached with all known before."),
    ] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Fill the nodes with pods that arrive one by one, and measure how much of the GPUs is allocated.

    Pods never leave and one that fits nowhere is dropped. Allocation is given where 90, 100 and 130 % of the GPUs
    have been asked for. The lists are those of Alibaba's GPU trace of 2023 ("openb"), or any like them.
    """
    from gpuyard.cli.commands.bench.bench import print_figures
    from gpuyard.cli.terminal.progress import busy
    from gpuyard.packing.compiled import numba_is_here
    from gpuyard.sim.packing.lists import read_nodes, read_pods
    from gpuyard.sim.packing.protocol import FIRST_SEED, SHOWN, Comparison

    lists = Comparison(read_nodes(nodes), read_pods(pods))
    limit = _bound(lists) if bound else None
    with busy("preparing the kernel"):
        board = lists.board(policy.value, compile_it=numba_is_here())
    outcomes, bounds = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        with busy(f"{policy.value}, seed {seed}"):
            outcomes.append(lists.run(board, seed))
            if limit is not None:
                bounds.append(bound_pct(lists, limit, seed) or 0.0)
    figures: dict[str, Any] = {
        "policy": policy.value,
        "seeds": seeds,
        "allocation_pct": {str(x): round(mean([o.allocation_pct[x] for o in outcomes]), 3) for x in SHOWN},
        "bound_pct": {"100": round(mean(bounds), 3) if bounds else None},
        "refused_while_fitting": sum([outcome.refused_while_fitting for outcome in outcomes]),
    }
    print_figures(figures, output)


def _bound(lists: "Comparison") -> "Bound | None":
    from gpuyard.cli.terminal.streams import notice
    from gpuyard.sim.packing.bound import Bound, scipy_is_here

    if not scipy_is_here():
        from gpuyard.extras import installing

        notice(f"no bound: it needs scipy, which comes with {installing('pack')}")
        return None
    return Bound(lists.nodes, lists.tasks)


def bound_pct(
    lists: "Comparison", limit: "Bound", seed: int, refused: "dict[PodKind, int] | None" = None
) -> float | None:
    """The best possible allocation of the arrivals until 100 %, with all of them known in advance.

    With `refused` (the first refusal of each kind of pod), all pods that came before the first refusal of their kind
    are taken.
    """
    from gpuyard.sim.packing.protocol import kind_of

    order = lists.until(lists.order(seed), 100)
    numbers = range(len(lists.tasks))
    arrived, must = Counter(order), None
    if refused is not None:
        first = [refused.get(kind_of(task), len(order)) for task in lists.tasks]
        taken = Counter([number for at, number in enumerate(order) if at < first[number]])
        must = [taken[number] for number in numbers]
    milli = limit.most_milli([arrived[number] for number in numbers], must)
    return None if milli is None else 100 * milli / lists.capacity_milli
