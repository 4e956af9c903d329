"""`yard slurm import|export|doctor`: what an admin of a Slurm cluster does with a yard. Options are read by Typer."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

COMMANDS = {
    "import": ("importing", "Read a cluster into a yard.yaml and a trace of its jobs."),
    "export": ("exporting", "Write the policy of a yard.yaml in Slurm's words."),
    "doctor": ("doctor", "Look a cluster over and say what to change."),
}
"""By name: the module (with a function `run`), and what it does."""
INTERRUPTED = 130


def run_admin(name: str, words: Sequence[str]) -> int:
    """Run one of them; its exit code."""
    import typer
    from typer.main import get_command

    from gpuyard.cli.complaints import complain_of_usage, ended

    module, help_ = COMMANDS[name]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    alone.command(name, short_help=help_, context_settings=settings)(
        import_module(f"gpuyard.cli.slurm.{module}").run
    )
    command = get_command(alone)

    def call() -> int:
        code: Any = command(list(words), prog_name=f"yard slurm {name}", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0

    try:
        return ended(call)
    except typer.TyperException as error:
        return complain_of_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
