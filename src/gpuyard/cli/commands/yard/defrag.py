"""`yard defrag`: which jobs could move so that whole GPUs or nodes become free, and what that would destroy."""

from collections.abc import Mapping
from typing import Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Option, Output, OutputOption
from gpuyard.errors import BadInput, count_text


def defrag(
    plan: Annotated[bool, Option("--plan", help="List the moves; this release cannot make them.")] = False,
    moves: Annotated[
        int | None, Option("--moves", metavar="N", min=1, max=10_000, help="List at most N moves.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List moves of jobs that would free whole GPUs or nodes, best first, with the work that they would destroy.

    A job can be moved if it saves its work, may be preempted and holds whole GPUs or shares on one node. A move costs
    the work since the job's last checkpoint and a restart, counted in GPU-seconds. This command moves nothing: `yard
    requeue JOB` stops a job, and the scheduler then starts it where it fits best, which may differ from the plan.
    """
    from gpuyard.cli.listings.tables import print_records, write_document

    if not plan:
        raise BadInput("this release lists moves but cannot make them", "Use `yard defrag --plan`.")
    with open_client() as yard:
        found = yard.defrag(moves)
    if output is Output.CSV:
        print_records([_flat(row, move) for row in found["plan"] for move in row["moves"]], [], output)
    elif output not in (Output.TABLE, Output.WIDE):
        write_document(found, output)
    elif not found["plan"]:
        print("nothing to gain: no moves of jobs that save their work would free a whole GPU or node")
    else:
        for row in found["plan"]:
            _tell(row)


def _flat(row: Mapping[str, Any], move: Mapping[str, Any]) -> dict[str, Any]:
    """A move, with what it is part of."""
    whole = {name: value for name, value in row.items() if name != "moves"}
    return whole | {f"job_{name}" if name in whole else name: value for name, value in move.items()}


def _tell(row: Mapping[str, Any]) -> None:
    from gpuyard.reports.table import number

    gpus = ", ".join(map(str, row["gpus"]))
    what = f"node {row['node']}" if row["frees"] == "node" else f"{row['node']} GPU {gpus}"
    gained = count_text(row["gained_gpus"], "GPU")
    print(f"{what}: {gained} for {number(row['lost_gpu_s'])} GPU-seconds of work")
    for move in row["moves"]:
        source = f"{move['from_node']} GPU {','.join(map(str, move['from_gpus']))}"
        target = f"{move['to_node']} GPU {','.join(map(str, move['to_gpus']))}"
        lost = number(move["lost_gpu_s"])
        print(
            f"  job {move['job']} of {move['user']} ({number(move['gpus'])} GPU): {source} -> {target}, loses {lost}"
        )
