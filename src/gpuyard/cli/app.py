"""All commands of `yard`, and the way out of every one of them."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gpuyard.cli.complaints import complain_of_usage, ended
from gpuyard.cli.group import LazyGroup
from gpuyard.cli.lazy import resolved
from gpuyard.cli.overall_help import ABOUT
from gpuyard.cli.streams import give_up_output

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""

app = typer.Typer(
    name="yard",
    cls=LazyGroup,
    help=ABOUT,
    # Ours, `yard completion`, knows the jobs and nodes of the yard.
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help in plain text reads well at 80 columns and in a pipe, and takes half the time of Rich.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        from gpuyard import __version__, compiled

        print(f"yard {__version__}{' (compiled core)' if compiled() else ''}")
        raise typer.Exit


@app.callback()
def _yard(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the command."""


def run(arguments: Sequence[str]) -> int:
    """Run `yard` with these arguments and return its exit code. Only defects of ours escape as exceptions."""

    def call() -> int:
        code: Any = app(resolved(arguments), prog_name="yard", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0

    try:
        return ended(call)
    except typer.TyperException as error:
        return complain_of_usage(error)
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as stop:
        # Typer's own answer to a reader that has gone away.
        return give_up_output() if stop.code == 1 else stop.code if isinstance(stop.code, int) else 0
