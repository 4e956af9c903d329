"""`yard convert`: turns a job in another form into native YAML.

`take` is the way in for every command that takes a file.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated

from gpuyard.api.client import current_folder
from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.intake import Intake

FORMS = ("sbatch", "kubernetes", "native")


def convert(
    file: Annotated[str, Argument(metavar="FILE", help="A script or a YAML file; - is standard input.")],
    source: Annotated[
        str,
        Option(
            "--from", metavar="FORM", help="sbatch, kubernetes or native. Default: recognised from the file."
        ),
    ] = "",
    host_process: Annotated[
        bool,
        Option("--host-process", help="Run a container's command on the node itself, without its image."),
    ] = False,
) -> None:
    """Turn a Slurm batch script or a Kubernetes manifest into native YAML.

    Warnings on standard error name what has no counterpart. Exit code 2: the yard cannot run it.
    """
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.intake import PROPOSED
    from gpuyard.intake.native import write_native

    found = take(file, source=source, host_process=host_process)
    for each in found:
        for name in each.lacking:
            text = f"{each.place(name)}this yard has no {name!r} yet: {PROPOSED[name]}"
            print_notice(text, before="warning: ", style="bold yellow")
    sys.stdout.write(write_native([each.job for each in found]))


_WHAT = "Give the path of a batch script, a manifest of Kubernetes or a job in native YAML."


def take(
    file: str,
    *,
    source: str = "",
    host_process: bool = False,
    arguments: tuple[str, ...] = (),
    script_arguments: tuple[str, ...] = (),
    slurm_output: bool = False,
    content: bytes | None = None,
) -> "list[Intake]":
    """The jobs of a file (`-`: standard input; empty: none, with `--wrap` among the arguments), with their warnings
    said on standard error. `content`: what was read of it already."""
    from datetime import datetime

    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.errors import quote, suggest
    from gpuyard.intake import Caller, Form
    from gpuyard.intake.forms import read

    if source and source not in FORMS:
        raise BadInput(f"--from {quote(source)} is not a form; {suggest(source, FORMS, 'forms')}")
    caller = Caller(
        now=datetime.now().astimezone(),
        cwd=current_folder(),
        arguments=arguments,
        script_arguments=script_arguments,
        environment={name: value for name, value in os.environ.items() if name.startswith("SBATCH_")},
        slurm_output=slurm_output,
        host_process=host_process,
    )
    name = "<stdin>" if file == "-" else file
    text = _text(file, name, content) if file else ""
    found = read(text, name, caller, Form(source) if source else None)
    for each in found:
        for warning in each.warnings:
            print_notice(warning.located(name), before="warning: ", style="bold yellow")
    return found


def _text(file: str, name: str, content: bytes | None) -> str:
    from pathlib import Path

    from gpuyard.intake import BYTES_MAX, decode

    if content is not None:
        return decode(content, name)
    if file == "-":
        return decode(sys.stdin.buffer.read(BYTES_MAX + 1), name)
    try:
        with Path(file).open("rb") as opened:
            return decode(opened.read(BYTES_MAX + 1), name)
    except FileNotFoundError:
        raise BadInput(f"{name}: no such file", _WHAT) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: {getattr(error, 'strerror', None) or error}", _WHAT) from None
