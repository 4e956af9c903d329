"""Reports errors in one way: `yard: what`, and on the next line what to do.

Messages go to standard error, so that standard output stays what a script expects.
"""

from collections.abc import Callable

from gpuyard.cli.terminal.streams import give_up_output, notice
from gpuyard.errors import BadInput, YardError


class Misuse(BadInput):
    """A command was called in a way that it does not know."""

    def __init__(self, command: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint or f"'{command} --help' lists what it takes.")
        self.command = command
        """As it was typed, with `yard` before it."""


def ended(call: Callable[[], int]) -> int:
    """Run a command to its end and return its exit code. Only defects of ours escape as exceptions."""
    try:
        return call()
    except YardError as error:
        return complain(error)
    except OSError as error:
        code = give_up_output()
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else ""
            complain(YardError(f"{where}{error.strerror or error}"))
        return code


def complain(error: YardError) -> int:
    """Say what is wrong and return the exit code."""
    lines = error.message.splitlines() or ["failed"]
    if len(lines) > 1:
        # Each line has its own place in a file, which editors find at the start of a line only.
        notice(f"{error.problem_count or len(lines):,} problems", style="bold red", before="yard: ")
        for line in lines:
            notice(line)
    else:
        command = error.command if isinstance(error, Misuse) else "yard"
        notice(lines[0], style="bold red", before=f"{command}: ")
    if error.hint:
        notice(error.hint)
    return error.exit_code
