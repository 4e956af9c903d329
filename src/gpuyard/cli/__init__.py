"""The command line, `yard`: an interface without rules of its own.

A command reads its options, calls the packages below and prints. What takes long to import (pydantic, the simulator) is
imported by the command that needs it, so that `yard --help` answers at once.
"""

import io
import os
import sys


def main() -> None:
    """The entry point of `yard`."""
    _prepare_streams()
    try:
        from gpuyard.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _prepare_streams() -> None:
    """A closed stream swallows what is written; one that is not UTF-8 shows `?` for characters that it lacks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the end)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
