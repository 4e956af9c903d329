"""The way into every command of `yard`, and the way out of it."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpuyard.cli.commands import ENTRIES, Entry, resolved
from gpuyard.cli.complaints import Misuse, ended
from gpuyard.cli.reading import HELP, HelpWanted, read, unknown_option

BAD_USE = 2


def run(arguments: Sequence[str]) -> int:
    """Run `yard` with these arguments and return its exit code. Only defects of ours escape as exceptions."""

    def call() -> int:
        code = _run(resolved(arguments))
        sys.stdout.flush()
        return code

    return ended(call)


def _run(words: list[str]) -> int:
    first, *rest = words or [""]
    if first in ENTRIES and first != "slurm":
        return called(f"yard {first}", first, ENTRIES[first], rest)
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
        from gpuyard.cli.help import page

        return _shown(page(), asked=bool(first))
    if first.startswith("-"):
        raise unknown_option("yard", first.partition("=")[0], ["--version"])
    raise _unknown("yard", first, ENTRIES)


def called(path: str, name: str, entry: Entry, words: list[str]) -> int:
    """Run a command, or one of a group, with the words that follow its name; its exit code."""
    first = words[0] if words else ""
    if first in entry.below:
        return called(f"{path} {first}", first, entry.below[first], words[1:])
    if entry.below and first and not first.startswith("-"):
        raise _unknown(path, first, entry.below)
    command = None if entry.about else entry.function(name)
    if not words and (entry.no_args_is_help or command is None):
        return _shown(_page(path, entry, command), asked=False)
    if command is None:
        if first in HELP:
            return _shown(_page(path, entry, command), asked=True)
        raise unknown_option(path, first.partition("=")[0], ())
    try:
        values = read(command, words, path, carries=entry.words)
    except HelpWanted:
        return _shown(_page(path, entry, command), asked=True)
    code = command(**values)
    return code if isinstance(code, int) else 0


def _page(path: str, entry: Entry, command: Callable[..., Any] | None) -> str:
    from gpuyard.cli.help import command_page

    return command_page(path, entry, command)


def _shown(page: str, *, asked: bool) -> int:
    """A page of help: the answer if it was asked for; else what is said instead of one."""
    print(page, file=sys.stdout if asked else sys.stderr, flush=True)
    return 0 if asked else BAD_USE


def _unknown(path: str, name: str, known: Iterable[str]) -> Misuse:
    from gpuyard.errors import quoted, remedy

    close = remedy(name, known, "commands")
    meant = f"; {close}" if close.startswith("did") else ""
    return Misuse(path, f"there is no command {quoted(name)}{meant}")
