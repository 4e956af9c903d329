"""The command line, `yard`: an interface without rules of its own.

A command reads its options, calls the packages below and prints. What takes long to import (pydantic, the simulator) is
imported by the command that needs it, so that `yard --help` answers at once. Here is the way into every command, and
the way out of it.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence

from gpuyard.errors import Misuse, YardError, error_text, find_hint


def main() -> None:
    """The entry point of `yard`."""
    _prepare_streams()
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _prepare_streams() -> None:
    """A closed stream swallows what is written; one that is not UTF-8 shows `?` for characters that it lacks.

    Nothing else gets the number of a closed one: what is opened first would be read as standard input.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the end)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def run(arguments: Sequence[str]) -> int:
    """Run `yard` with these arguments and return its exit code. Only defects of ours escape as exceptions."""
    from gpuyard.cli.line.commands import resolve_alias

    def call() -> int:
        code = _run(resolve_alias(arguments))
        sys.stdout.flush()
        return code

    return ended(call)


def ended(call: Callable[[], int]) -> int:
    """Run a command to its end and return its exit code. Only defects of ours escape as exceptions."""
    try:
        return call()
    except YardError as error:
        return _complain(error)
    except OSError as error:
        from gpuyard.cli.terminal.streams import give_up_output

        code = give_up_output()
        if not isinstance(error, BrokenPipeError):
            _complain(YardError(error_text(error), find_hint(error)))
        return code


def _complain(error: YardError) -> int:
    """Say what is wrong on standard error, and on the next line what to do; return the exit code."""
    from gpuyard.cli.terminal.streams import print_notice

    lines = error.message.splitlines() or ["failed"]
    if len(lines) > 1:
        # Each line has its own place in a file, which editors find at the start of a line only.
        print_notice(f"{error.problem_count or len(lines):,} problems", style="bold red", before="yard: ")
        for line in lines:
            print_notice(line)
    else:
        command = error.command if isinstance(error, Misuse) else "yard"
        print_notice(lines[0], style="bold red", before=f"{command}: ")
    if error.hint:
        print_notice(error.hint)
    return error.exit_code


def _run(words: list[str]) -> int:
    from gpuyard.cli.line.commands import ALIASES, ENTRIES, HELP

    first, *rest = words or [""]
    if first in ENTRIES and first != "slurm":
        from gpuyard.cli.line.options import call_command

        return call_command(f"yard {first}", first, ENTRIES[first], rest)
    if first == "slurm":
        # Slurm's commands read their own options.
        from gpuyard.cli.slurm.face import run as run_slurm

        return run_slurm(rest)
    if first == "_complete":
        from gpuyard.cli import completing

        return completing.run(rest)
    if first == "--version":
        from gpuyard import __version__, compiled

        print(f"yard {__version__}{' (compiled core)' if compiled() else ''}")
        return 0
    if not first or first in HELP:
        from gpuyard.cli.line.help import help_page, print_page

        return print_page(help_page(), asked=bool(first))
    from gpuyard.cli.line.options import unknown_command, unknown_option

    if first.startswith("-"):
        raise unknown_option("yard", first.partition("=")[0], ["--version"])
    from gpuyard.engines.machine.job_commands import INSTEAD, PROGRAMS

    if first in PROGRAMS or first in INSTEAD:
        raise Misuse("yard", f"{first} is a command of Slurm", f"Type it as 'yard slurm {first}'.")
    raise unknown_command("yard", first, [*ENTRIES, *ALIASES, "help"])
