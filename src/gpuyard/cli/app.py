"""All commands of `yard` under one roof, and the way out of every one of them."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from gpuyard.cli import bench, demo, simulate, validate
from gpuyard.cli.complaints import complain, complain_of_usage
from gpuyard.errors import YardError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""

app = typer.Typer(
    name="yard",
    help="Schedule, share, watch and price GPUs; try a policy in simulation before anyone feels it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="simulate")(simulate.simulate)
app.command(name="validate")(validate.validate)
app.command(name="demo")(demo.demo)
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        from gpuyard import __version__

        print(f"yard {__version__}")
        raise typer.Exit


@app.callback()
def _yard(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the command."""


def run(arguments: Sequence[str]) -> int:
    """Run `yard` with these arguments and return its exit code. Only a defect of ours escapes as an exception."""
    try:
        code: Any = app(list(arguments), prog_name="yard", standalone_mode=False)
        sys.stdout.flush()
    except YardError as error:
        return complain(error)
    except typer.TyperException as error:
        return complain_of_usage(error)
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        return _quietly()
    except SystemExit as stop:
        # Typer's own answer to a reader that has gone away.
        return _quietly() if stop.code == 1 else stop.code if isinstance(stop.code, int) else 0
    return code if isinstance(code, int) else 0


def _quietly() -> int:
    """The reader of our output has left, as `head` does: there is nobody to tell."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
