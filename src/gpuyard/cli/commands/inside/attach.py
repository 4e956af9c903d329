"""`yard attach` and `yard shell`: this terminal at a job's own, or at a shell beside it."""

import os
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.connection.terminal_session import Attached, is_terminal, need_terminal
from gpuyard.cli.connection.visits import NotThere
from gpuyard.cli.line.options import Argument, JobArgument, Option
from gpuyard.errors import BadInput, YardError

if TYPE_CHECKING:
    from gpuyard.api.client import Client

WordsArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="[--] COMMAND",
        help="The command to run. Default: your login shell.",
        unknown=True,
    ),
]


def attach(job: JobArgument) -> int:
    """Attach to the terminal of a job; when you detach, the job keeps running.

    A job has a terminal if `yard run` was started on one. The terminal's last contents appear again. All keys go to
    the job, Ctrl-C included; Enter ~ . detaches. The exit code is the job's, or 0 after detaching.
    """
    from gpuyard.cli.commands.jobs.waiting import exit_code_of

    need_terminal("`yard attach`", f"`yard logs -f {job}` shows what the job writes")
    with open_client() as yard:
        try:
            session = at_terminal(yard, job, {"do": "attach"}, f"job {job}")
        except NotThere as error:
            hint = f"yard logs -f {job} shows what it writes; yard shell {job} opens a shell beside it."
            raise YardError(error.message, error.hint or hint) from error
        if session.detached:
            say_detached(job)
            return 0
        return exit_code_of(session.end)


def shell(
    job: JobArgument,
    words: WordsArgument = None,
    _interactive: Annotated[
        bool, Option("-i", "--interactive", help="Accepted as in docker; input is always read.")
    ] = False,
    terminal: Annotated[bool, Option("-t", "--tty", help="Run with a terminal, or fail.")] = False,
    plain: Annotated[
        bool, Option("-T", "--no-tty", help="Run without a terminal, even if you are at one.")
    ] = False,
    unread: Annotated[bool, Option("-n", "--no-stdin", help="Run without input; implies --no-tty.")] = False,
) -> int:
    """Open a shell beside a running job, or run a command there: as its user, with its GPUs, limits and environment.

    `yard shell 12`, or `yard shell 12 -- nvidia-smi`. If you are at a terminal the command has one too; Enter ~ .
    leaves it. In a pipe, from cron or CI it has none, as with ssh: it reads your input to its end, output and errors
    come back separately, byte for byte, and the exit code is the command's. The shell ends with the job.
    """
    argv = [*(words or ())]
    if argv[:1] == ["--"]:
        del argv[0]
    plain = plain or unread
    if plain and terminal:
        raise BadInput("--tty and --no-tty contradict each other", "Give one of them, or neither.")
    if terminal:
        need_terminal("`yard shell -t`", "Leave -t out: without a terminal the command runs in pipes")
    with open_client() as yard:
        if terminal or (is_terminal() and not plain):
            return attach_shell(yard, job, argv)
        from gpuyard.cli.connection.piped_command import run

        return run(yard, job, argv, reads=not unread)


def attach_shell(yard: "Client", job: str | int, argv: list[str]) -> int:
    """Be at the terminal of a shell beside a job, or of a command there; gives its exit code."""
    asked = {"do": "shell", "argv": argv, "env": {"TERM": os.environ.get("TERM", "dumb")}}
    session = at_terminal(yard, job, asked, f"the shell in job {job}")
    if session.code is not None:
        return session.code
    if session.detached:
        return 0
    raise YardError(f"job {job} has ended, and its shells with it", f"Its output: yard logs {job}")


def at_terminal(yard: "Client", job: str | int, asked: dict[str, Any], name: str) -> Attached:
    """Be at a terminal of a job until it ends."""
    from gpuyard.cli.commands.jobs.waiting import Waiting

    with Waiting() as line:
        session = Attached(yard, job, asked, line, name)
        session.run()
    return session


def say_detached(job: str | int) -> None:
    """That it goes on, and how to come back."""
    from gpuyard.cli.terminal.streams import print_notice

    print_notice(
        f"detached from job {job}, which goes on; yard attach {job} comes back to it", before="yard: "
    )
