"""`yard logs`: what a job wrote."""

import sys
from typing import Annotated

from gpuyard.cli.options import JobArgument, Option
from gpuyard.cli.places import client


def logs(
    job: JobArgument,
    follow: Annotated[bool, Option("-f", "--follow", help="Go on until the job ends.")] = False,
    stderr: Annotated[
        bool, Option("--stderr", help="Its errors, if they went to a file of their own.")
    ] = False,
    attempt: Annotated[
        int | None,
        Option("--attempt", metavar="N", min=1, help="Default: the last one.", show_default=False),
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
