"""`yard run`: a command on the yard as if it were here: its output as it comes, its exit code as ours."""

import os
import signal as signals
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.commands.submit import jobfields as f
from gpuyard.cli.commands.submit.scripts import (
    is_file_to_read,
    read_command,
    read_piped,
    refuse_command,
    refuse_folder,
)
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Called, Option, with_options
from gpuyard.errors import BadInput, YardError

if TYPE_CHECKING:
    from gpuyard.api.client import Client

Quiet = Annotated[bool, Option("-q", "--quiet", help="Do not show what the job waits for and where it runs.")]
Interactive = Annotated[
    bool, Option("-i", "--interactive", help="Give the job a terminal; the default if you are at one.")
]
INTERRUPTED = 130
BROKEN_PIPE = 141


@with_options(f.job_options(run=True))
def run(
    ctx: Called,
    words: f.WordsArgument = None,
    *,
    interactive: Interactive = False,
    quiet: Quiet = False,
    **options: Any,
) -> int:
    """Run a command, show its output as it is written, and exit with its exit code.

    `yard run -g 1 -- python3 train.py`, or `yard run -g 1 -- bash`. On a terminal the job has one too: it receives all
    keys, Ctrl-C included. Enter ~ . detaches; the job keeps running, and `yard attach` returns to it. While the job
    waits, and if it has no terminal, Ctrl-C cancels it; a second Ctrl-C does not wait for that.
    """
    through = read_piped(words, ctx.dashes)
    at_terminal = interactive or (through is None and options["tasks"] == 1 and os.isatty(0) and os.isatty(1))
    if interactive:
        from gpuyard.cli.connection.terminal_session import need_terminal

        need_terminal("`yard run -i`", "Leave -i out to see the output alone")
    if through is None:
        _look_at_input()
        _look_at_file(words, ctx.dashes)
    fields = read_command("run", words, ctx, through, image=bool(options["image"]))
    fields = f.complete_request(ctx, fields | f.build_request(ctx, options))
    # If its node is lost, the job waits again, and this command with it.
    fields["requeue"] = True
    for number in (signals.SIGTERM, signals.SIGHUP):
        signals.signal(number, _interrupt)
    with open_client() as yard:
        if yard.here:
            refuse_folder(fields)
            refuse_command("run", fields, ctx.options)
        gpus_said = "gpus" in ctx.given
        if at_terminal:
            return _attached(yard, fields, quiet, gpus_said, must=interactive)
        return _watched(yard, fields, quiet, gpus_said)


def _look_at_input() -> None:
    """A job reads nothing from here. Warn if the user sends it something."""
    import fcntl
    import stat
    import termios

    try:
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode):
            # An input that was read from already belongs to a loop around us, as in `while read …; done < list`.
            unread = 0 if os.lseek(0, 0, os.SEEK_CUR) else status.st_size
        elif stat.S_ISFIFO(status.st_mode):
            unread = int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, bytes(4)), sys.byteorder)
        else:
            return
    except OSError:
        return
    if unread and stat.S_ISREG(status.st_mode):
        raise BadInput(
            "a job reads no standard input, so the file given with < would not be read",
            "Let the job open it: yard run … -- sh -c 'COMMAND < FILE'",
        )
    if unread:
        from gpuyard.cli.terminal.streams import print_notice

        print_notice(
            "a job reads no standard input: what comes through the pipe is not passed on", before="yard: "
        )


def _look_at_file(words: list[str] | None, dashes: bool) -> None:
    """Warn if the user runs a file with directives: those are for `yard submit`."""
    if words and is_file_to_read(words, dashes):
        if Path(words[0]).suffix in (".yaml", ".yml"):
            raise BadInput(f"{words[0]} holds jobs, and `yard run` runs commands", f"yard submit {words[0]}")
        from gpuyard.cli.terminal.streams import print_notice

        print_notice("`yard run` does not heed #SBATCH lines, `yard submit` does", before="yard: ")


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _submitted(
    yard: "Client", fields: dict[str, Any], quiet: bool, gpus_said: bool, keys: str = "Ctrl-C cancels it"
) -> Any:
    from gpuyard.cli.terminal.streams import print_aside

    try:
        job = yard.submit(fields)
    except YardError as error:
        raise f.blame_default(error, fields) from error
    if not quiet:
        print_aside(f"job {job['label']} is submitted; {keys}")
        if not gpus_said and sys.stderr.isatty():
            f.say_if_no_gpus(job["label"], fields)
        if f.wants_notes():
            from gpuyard.cli.commands.submit.notes import say

            say(yard, fields, job["label"])
    return job


def _attached(yard: "Client", fields: dict[str, Any], quiet: bool, gpus_said: bool, *, must: bool) -> int:
    """Run it at this terminal. `must`: it is not to run without one."""
    from gpuyard.cli.commands.inside.attach import say_detached
    from gpuyard.cli.commands.jobs.waiting import Waiting, exit_code_of
    from gpuyard.cli.connection.terminal_session import Attached
    from gpuyard.cli.connection.visits import NotThere
    from gpuyard.cli.terminal.escapes import DETACH

    env = {"TERM": os.environ.get("TERM", "dumb"), **fields.get("env", {})}
    fields = {**fields, "terminal": True, "env": env}
    job = _submitted(
        yard, fields, quiet, gpus_said, f"{DETACH} detaches from it, Ctrl-C cancels it while it waits"
    )
    try:
        with Waiting(quiet=quiet, look=lambda: yard.job(job["label"], explain=False)) as line:
            session = Attached(yard, job["label"], {"do": "attach", "seen": 0}, line, f"job {job['label']}")
            session.run()
    except KeyboardInterrupt:
        return _cancelled(yard, job)
    except NotThere as error:
        if not must:
            return _followed(yard, job, quiet)
        yard.cancel(job["label"])
        raise YardError(
            f"{error.message}; it is cancelled", "Leave -i out to run it without a terminal."
        ) from error
    if session.detached:
        say_detached(job["label"])
        return 0
    return exit_code_of(session.end)


def _watched(yard: "Client", fields: dict[str, Any], quiet: bool, gpus_said: bool) -> int:
    return _followed(yard, _submitted(yard, fields, quiet, gpus_said), quiet)


def _followed(yard: "Client", job: Any, quiet: bool) -> int:
    from gpuyard.cli.commands.jobs.waiting import copy_output, exit_code_of
    from gpuyard.cli.terminal.streams import print_notice

    try:
        return exit_code_of(copy_output(yard, job["label"], quiet=quiet, submitted=True))
    except KeyboardInterrupt:
        return _cancelled(yard, job)
    except BrokenPipeError:
        # The reader has gone, as in `yard run … | head`: the rest is not wanted.
        print_notice(f"nobody reads on: cancelling job {job['label']}", before="yard: ")
        yard.cancel(job["label"])
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _cancelled(yard: "Client", job: Any) -> int:
    from gpuyard.cli.commands.jobs.waiting import copy_output
    from gpuyard.cli.terminal.streams import print_notice

    print_notice(f"cancelling job {job['label']}", before="yard: ")
    try:
        yard.cancel(job["label"])
        copy_output(yard, job["label"], quiet=True, silent=True)
    except KeyboardInterrupt:
        print_notice(f"job {job['label']} is being cancelled", before="yard: ")
    return INTERRUPTED
