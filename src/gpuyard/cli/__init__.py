"""The command line, `yard`: a face without rules of its own.

A command reads its options, calls the packages below and prints. What takes long to import (Typer, Rich,
pydantic, the simulator) is imported by the command that needs it, so that `yard --help` answers at once.
"""

import sys


def main() -> None:
    """The entry point of `yard`."""
    try:
        from gpuyard.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
