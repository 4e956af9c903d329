"""Runs commands in plain words without the option parser: nearly all calls."""

import sys
from collections.abc import Sequence
from importlib import import_module

from gpuyard.cli.lazy import ENTRIES, resolved


def run(words: Sequence[str]) -> int | None:
    """Run a command that can be read without Typer; None: this one cannot."""
    words = resolved(words)
    if words in (["--help"], ["-h"]):
        return _help()
    if words[:1] == ["slurm"]:
        # Slurm's commands read their own options.
        from gpuyard.cli.slurm.face import run as run_slurm

        return run_slurm(words[1:])
    if words and words[0] == "_complete":
        from gpuyard.cli import completing
        from gpuyard.cli.complaints import ended

        return ended(lambda: completing.run(words[1:]))
    entry = ENTRIES.get(words[0]) if words else None
    if entry is None or not entry.plain or (entry.no_args_is_help and len(words) == 1):
        return None
    from gpuyard.cli.plain import NotPlain, read

    command = getattr(import_module(f"gpuyard.cli.{entry.module}"), entry.attribute or words[0])
    try:
        values = read(command, words[1:], carries=entry.words)
    except NotPlain:
        return None
    from gpuyard.cli.complaints import ended

    def call() -> int:
        code = command(**values)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0

    return ended(call)


def _help() -> int:
    from gpuyard.cli.complaints import ended
    from gpuyard.cli.overall_help import page

    def call() -> int:
        print(page(), flush=True)
        return 0

    return ended(call)
