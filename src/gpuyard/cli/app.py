"""The way into every command of `yard`, and the way out of it."""

import sys
from collections.abc import Sequence

from gpuyard.cli.line.commands import ENTRIES, HELP, resolved
from gpuyard.cli.line.complaints import ended


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
        from gpuyard.cli.line.options import called

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
        from gpuyard.cli.line.help import page, print_page

        return print_page(page(), asked=bool(first))
    from gpuyard.cli.line.options import unknown_command, unknown_option

    if first.startswith("-"):
        raise unknown_option("yard", first.partition("=")[0], ["--version"])
    raise unknown_command("yard", first, ENTRIES)
