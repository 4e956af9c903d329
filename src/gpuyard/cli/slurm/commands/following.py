"""Follows a job until it ends, by its output or at its terminal, as `srun` and `salloc` do."""

import os
import signal as signals
import sys
from typing import Any

from gpuyard.api.client import Client
from gpuyard.cli.commands.jobs.waiting import copy_output
from gpuyard.cli.slurm.language.stopping import make_stop
from gpuyard.cli.terminal.visible_text import visible_text

_CODES = {"COMPLETED": 0, "TIMEOUT": 124, "OUT_OF_MEMORY": 137, "CANCELLED": 143}
_BROKEN_PIPE = 141


def heed_signals() -> None:
    """Let TERM and HUP do what an interrupt does."""
    for number in (signals.SIGTERM, signals.SIGHUP):
        signals.signal(number, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def watch_output(program: str, yard: Client, job: Any, *, quiet: bool) -> int:
    """Show a job's output until it ends; gives the exit code. An interrupt cancels it."""
    try:
        return exit_code_of(program, copy_output(yard, job["label"], before=f"{program}: ", quiet=quiet))
    except KeyboardInterrupt:
        print(f"{program}: interrupt: cancelling job {job['label']}", file=sys.stderr)
        yard.cancel(job["label"])
        return 130
    except BrokenPipeError:
        yard.cancel(job["label"])
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def has_terminal() -> bool:
    """Whether this command has a terminal, for what is typed and for what is shown."""
    return os.isatty(0) and os.isatty(1)


def need_terminal(program: str) -> None:
    """Refuse a command that has none."""
    if not has_terminal():
        raise make_stop(program, "--pty needs a terminal, but input or output is a file or a pipe")


def terminal_request(fields: dict[str, Any]) -> dict[str, Any]:
    """A request for a job that runs once, at a terminal, with room for what it starts there."""
    env = {"TERM": os.environ.get("TERM", "dumb"), **fields.get("env", {})}
    kept = {name: value for name, value in fields.items() if name not in ("stdout", "stderr", "open_mode")}
    return kept | {"terminal": True, "batch": True, "slurm_commands": True, "env": env}


def attach_terminal(program: str, yard: Client, job: Any, *, quiet: bool) -> int:
    """Be at a job's terminal until it ends; gives the exit code. An interrupt while it waits cancels it."""
    from gpuyard.cli.commands.jobs.waiting import Waiting
    from gpuyard.cli.connection.terminal_session import Attached
    from gpuyard.cli.connection.visits import NotThere

    try:
        with Waiting(f"{program}: ", quiet=quiet) as line:
            session = Attached(yard, job["label"], {"do": "attach", "seen": 0}, line, f"job {job['label']}")
            session.run()
    except (KeyboardInterrupt, NotThere) as why:
        yard.cancel(job["label"])
        if isinstance(why, NotThere):
            raise make_stop(program, f"{why.message}; it is cancelled") from None
        print(f"{program}: interrupt: cancelling job {job['label']}", file=sys.stderr)
        return 130
    if session.detached:
        print(
            f"{program}: detached from job {job['label']}, which goes on; yard attach {job['label']} comes back",
            file=sys.stderr,
        )
        return 0
    return exit_code_of(program, session.end)


def exit_code_of(program: str, end: Any) -> int:
    """The exit code of the command for the end of its job; an end that is no success is told on standard error."""
    code = int(end["exit_code"] or 0)
    state = end["state"]
    if state == "TIMEOUT":
        code = _CODES[state]
        print(f"{program}: error: job {end['label']} reached its time limit", file=sys.stderr)
    elif state == "FAILED" and code > 128:
        print(
            f"{program}: error: job {end['label']}: {signals.strsignal(code - 128) or 'Killed'}",
            file=sys.stderr,
        )
    elif state == "FAILED" and code:
        print(f"{program}: error: job {end['label']}: Exited with exit code {code}", file=sys.stderr)
    elif state != "COMPLETED":
        print(
            f"{program}: error: job {end['label']} ended with {state}: {visible_text(end['reason'])}",
            file=sys.stderr,
        )
        code = code or _CODES.get(state, 1)
    return code
