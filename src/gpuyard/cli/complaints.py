"""Reports errors in one way: `yard: what`, and on the next line what to do.

Messages go to standard error, so that standard output stays what a script expects.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuyard.cli.streams import give_up_output, notice
from gpuyard.errors import YardError

if TYPE_CHECKING:
    import typer


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
        notice(f"{len(lines)} problems", style="bold red", before="yard: ")
        for line in lines:
            notice(line)
    else:
        notice(lines[0], style="bold red", before="yard: ")
    if error.hint:
        notice(error.hint)
    return error.exit_code


_WORDING = {
    ": Value error, ": ": ",
    ": Input should be a valid integer, unable to parse string as an integer": ": it should be a whole number",
    ": Input should be a valid number, unable to parse string as a number": ": it should be a number",
    ": Input should": ": it should",
    "Got unexpected extra argument(s) ": "it takes no word such as ",
}
"""Typer checks options with pydantic, and its messages are for programmers."""


def complain_of_usage(error: "typer.TyperException") -> int:
    """The command was called in a way it does not know."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "yard"
    if type(error).__name__ == "NoArgsIsHelpError":
        notice(error.format_message())
        return error.exit_code
    param = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and param is not None:
        from gpuyard.cli.helpwords import missing

        question, line = missing(param, command)
        notice(question, style="bold red")
        notice(line)
        return error.exit_code
    message = " ".join(error.format_message().split())
    for theirs, ours in _WORDING.items():
        message = message.replace(theirs, ours)
    notice(message[:1].lower() + message[1:], style="bold red", before="yard: ")
    notice(f"'{command} --help' lists what it takes.")
    return error.exit_code
