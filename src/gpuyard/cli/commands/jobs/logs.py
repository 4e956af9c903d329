"""`yard logs`: what a job wrote."""

import sys
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.api.client import Client


def logs(
    jobs: Annotated[list[str], Argument(metavar="JOB...", help="17, or 12_3 for a task of array 12.")],
    follow: Annotated[bool, Option("-f", "--follow", help="Follow the log until the job ends.")] = False,
    stderr: Annotated[
        bool, Option("--stderr", help="Show its errors, if they go to a file of their own.")
    ] = False,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Default: the last one.")
    ] = None,
    quiet: Annotated[
        bool, Option("-q", "--quiet", help="With -f: do not show what the job waits for and where it runs.")
    ] = False,
) -> None:
    """Show what a job wrote, byte for byte; for several jobs, one after the other."""
    if follow and len(jobs) > 1:
        raise BadInput(
            f"-f follows one job, and {len(jobs)} are named", f"For example: yard logs -f {jobs[0]}"
        )
    with open_client() as yard:
        for place, job in enumerate(jobs):
            if len(jobs) > 1:
                sys.stdout.write(f"{chr(10) if place else ''}==> job {job} <==\n")
                sys.stdout.flush()
            _show(yard, job, follow=follow, stderr=stderr, attempt=attempt, quiet=quiet)


def _show(yard: "Client", job: str, *, follow: bool, stderr: bool, attempt: int | None, quiet: bool) -> None:
    from gpuyard.cli.commands.jobs.waiting import Waiting

    stream = "stderr" if stderr else "stdout"
    out, silent = sys.stdout.buffer, True
    with Waiting(quiet=quiet) as line:
        told = None if quiet else line.told
        pieces = (
            yard.follow(job, stream=stream, standing=told)
            if follow
            else yard.log(job, stream=stream, attempt=attempt)
        )
        for piece in pieces:
            if isinstance(piece, bytes):
                line.clear()
                out.write(piece)
                out.flush()
                silent = False
        if silent and sys.stderr.isatty():
            _say_why(yard, job)


def _say_why(yard: "Client", job: str) -> None:
    """For an empty log, say whether there is more to come."""
    from gpuyard.cli.terminal.streams import print_aside

    found = yard.job(job, explain=False)
    if "array" in found:
        return
    why = f": {found['reason']}" if found["reason"] else ""
    began = "has written nothing" if found["started_ms"] else "has not begun"
    print_aside(f"job {found['label']} {began}; it is {found['state']}{why}")
