"""`yard logs`: what a job wrote."""

import sys
from typing import Annotated

import typer

from gpuyard.cli.places import client


def logs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="17, or 12_3 for a task of array 12.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    stderr: Annotated[
        bool, typer.Option("--stderr", help="Its errors, if they went to a file of their own.")
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", min=1, help="Default: the last one.", show_default=False),
    ] = None,
) -> None:
    """Show what a job wrote, byte by byte as it was written."""
    stream = "stderr" if stderr else "stdout"
    out = sys.stdout.buffer
    with client() as yard:
        pieces = yard.follow(job, stream=stream) if follow else yard.log(job, stream=stream, attempt=attempt)
        for piece in pieces:
            if isinstance(piece, bytes):
                out.write(piece)
                out.flush()
