"""`yard bench place`: how many tasks a second the packing kernel finds a place for."""

from pathlib import Path
from typing import Annotated, Any

from gpuyard.cli.commands.bench.bench_pack import Placement, PlacementOption
from gpuyard.cli.line.options import Option, OutputOption, SeedOption
from gpuyard.cli.listings.listing import Output

PASSES_MAX = 1000


def bench_place(
    *,
    nodes: Annotated[
        int, Option("--nodes", metavar="N", min=1, max=200_000, help="Nodes of the fleet.")
    ] = 1213,
    decisions: Annotated[
        int, Option("--decisions", metavar="N", min=1, max=10_000_000, help="Decide at least so often.")
    ] = 100_000,
    policy: PlacementOption = Placement.PACK,
    fleet: Annotated[
        Path | None,
        Option(
            "--fleet",
            metavar="FILE",
            help="Node list to repeat until there are N, instead of the built-in mix.",
        ),
    ] = None,
    pods: Annotated[
        Path | None, Option("--pods", metavar="FILE", help="Pod list, instead of the built-in mix.")
    ] = None,
    seed: SeedOption = 42,
    output: OutputOption = Output.TABLE,
) -> None:
    """Fill a fleet again and again with tasks that arrive one by one, and count decisions per CPU second.

    Each is a full one: every node is compared, and what changed since is scored again. Fleets are filled until 130 % of
    the GPUs have been asked for, so the last quarter of the decisions are refusals. Reading and compiling do not count.
    """  # fmt: skip
    from time import process_time

    from gpuyard.cli.commands.bench.bench import print_figures
    from gpuyard.cli.commands.bench.placement_mix import mixed_nodes, mixed_tasks
    from gpuyard.cli.terminal.progress import busy
    from gpuyard.packing.compiled import numba_is_here
    from gpuyard.sim.packing.lists import read_nodes, read_pods
    from gpuyard.sim.packing.protocol import Comparison

    given = read_nodes(fleet) if fleet is not None else mixed_nodes(nodes)
    shapes = [given[i % len(given)] for i in range(nodes)]
    lists = Comparison(shapes, read_pods(pods) if pods is not None else mixed_tasks())
    compile_it = numba_is_here()
    with busy("preparing the kernel"):
        board = lists.board(policy.value, compile_it=compile_it)
        board.run([0])
    made, cpu_s = 0, 0.0
    for turn in range(PASSES_MAX):
        with busy(f"{made:,} decisions"):
            play, went = board.ready(lists.order(seed + turn), check=False)
            started_s = process_time()
            play()
            cpu_s += process_time() - started_s
        made += len(went)
        if made >= decisions:
            break
    figures: dict[str, Any] = {
        "decisions": made,
        "cpu_s": round(cpu_s, 4),
        "decisions_per_cpu_s": round(made / cpu_s) if cpu_s else None,
        "policy": policy.value,
        "nodes": nodes,
        "kernel": "numba" if compile_it else "python",
    }
    print_figures(figures, output)
