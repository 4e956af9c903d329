"""`yard convert`: what someone has, as a job in native YAML."""

import os
import sys
from typing import Annotated

import typer

from gpuyard.errors import BadInput

FORMS = ("sbatch", "kubernetes", "native")


def convert(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A script or a YAML file; - is standard input.", show_default=False
        ),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORM",
            help="sbatch, kubernetes or native; else it is recognised.",
            show_default=False,
        ),
    ] = "",
    host_process: Annotated[
        bool,
        typer.Option("--host-process", help="Let a container's command run as a process, without its image."),
    ] = False,
) -> None:
    """Turn a batch script of Slurm or a manifest of Kubernetes into native YAML.

    Warnings on standard error name what is not taken over. Exit code 2 if it cannot be served.
    """
    from datetime import datetime

    from gpuyard.cli.streams import notice
    from gpuyard.config.problems import quoted, remedy
    from gpuyard.intake import PROPOSED, Caller, Form, read, write_native

    if source and source not in FORMS:
        raise BadInput(f"--from {quoted(source)} is no form; {remedy(source, FORMS, 'forms')}")
    caller = Caller(
        now=datetime.now().astimezone(),
        cwd=os.getcwd(),
        environment={name: value for name, value in os.environ.items() if name.startswith("SBATCH_")},
        host_process=host_process,
    )
    name = "<stdin>" if file == "-" else file
    found = read(_text(file, name), name, caller, Form(source) if source else None)
    for each in found:
        for warning in each.warnings:
            notice(warning.located(name), before="warning: ", style="bold yellow")
        for lacking in each.lacking:
            notice(
                f"{name}:{each.line}: this yard has no {lacking!r} yet: {PROPOSED[lacking]}",
                before="warning: ",
            )
    sys.stdout.write(write_native([each.job for each in found]))


def _text(file: str, name: str) -> str:
    from pathlib import Path

    from gpuyard.intake import BYTES_MAX, decode

    if file == "-":
        return decode(sys.stdin.buffer.read(BYTES_MAX + 1), name)
    try:
        with Path(file).open("rb") as opened:
            return decode(opened.read(BYTES_MAX + 1), name)
    except FileNotFoundError:
        raise BadInput(f"{name}: no such file") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: {getattr(error, 'strerror', None) or error}") from None
