"""`yard attach` and `yard shell`: this terminal at a job's own, or at a shell beside it."""

import os
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.attached import Attached, need_terminal
from gpuyard.cli.connection.places import client
from gpuyard.cli.connection.visits import NotThere
from gpuyard.cli.line.options import Argument, JobArgument
from gpuyard.errors import YardError

if TYPE_CHECKING:
    from gpuyard.api.client import Client

WordsArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="[--] COMMAND",
        help="What runs there; left out: your login shell.",
        unknown=True,
    ),
]


def attach(job: JobArgument) -> int:
    """Come to the terminal of a job, and go again: the job goes on.

    A job has a terminal if `yard run` was on one when it started it. What it showed last is shown again. Keys go to the
    job, Ctrl-C too; Enter ~ . detaches. The exit code is the job's, or 0 after detaching.
    """
    from gpuyard.cli.commands.jobs.waiting import code_of

    with client() as yard:
        try:
            session = at_terminal(yard, job, {"do": "attach"}, f"job {job}")
        except NotThere as error:
            hint = f"yard logs -f {job} shows what it writes; yard shell {job} opens a shell beside it."
            raise YardError(error.message, error.hint or hint) from error
        if session.detached:
            say_detached(job)
            return 0
        return code_of(session.end)


def shell(job: JobArgument, words: WordsArgument = None) -> int:
    """Open a shell beside a running job: as its user, with its GPUs, its limits and its environment.

    `yard shell 12`, or `yard shell 12 -- nvidia-smi`. The shell ends with the job. Enter ~ . leaves it.
    """
    with client() as yard:
        argv = [*(words or ())]
        if argv[:1] == ["--"]:
            del argv[0]
        asked = {"do": "shell", "argv": argv, "env": {"TERM": os.environ.get("TERM", "dumb")}}
        session = at_terminal(yard, job, asked, f"the shell in job {job}")
        if session.code is not None:
            return session.code
        if session.detached:
            return 0
        raise YardError(f"job {job} has ended, and its shells with it")


def at_terminal(yard: "Client", job: str | int, asked: dict[str, Any], name: str) -> Attached:
    """Be at a terminal of a job until it ends."""
    from gpuyard.cli.commands.jobs.waiting import Waiting

    need_terminal("this")
    with Waiting() as line:
        session = Attached(yard, job, asked, line, name)
        session.run()
    return session


def say_detached(job: str | int) -> None:
    """That it goes on, and how to come back."""
    from gpuyard.cli.terminal.streams import notice

    notice(f"detached from job {job}, which goes on; yard attach {job} comes back to it", before="yard: ")
