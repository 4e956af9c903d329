"""`yard slurm` as an entry of the list of commands; `quick` is the usual way."""

from typing import Annotated

import typer


def slurm(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND [ARGS]...", help="sbatch, squeue, …", show_default=False),
    ] = None,
) -> None:
    """Slurm's own commands over this yard; `yard slurm --help` lists them."""
    from gpuyard.cli.slurm.face import run

    raise typer.Exit(run(words or []))
