"""Which cluster, how to ask it, and where to write: what the commands for an admin of Slurm share."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import Option
from gpuyard.errors import BadInput, YardError, quote, suggest

if TYPE_CHECKING:
    from gpuyard.engines.contract import EngineError
    from gpuyard.engines.slurm.calls.commands import Commands

ConfOption = Annotated[
    Path | None,
    Option(
        "--conf", metavar="SLURM_CONF", help="The cluster's slurm.conf. Default: Slurm's own search path."
    ),
]
SinceOption = Annotated[
    str, Option("--since", metavar="TIME", help="The first moment to read: 30d (ago), yesterday, 2026-11-01.")
]
GpuTypeOption = Annotated[
    list[str] | None,
    Option(
        "--gpu-type",
        metavar="TYPE=MODEL",
        help="The site's name of a GPU model, as in a100=A100-40GB; may be repeated.",
    ),
]
ForceOption = Annotated[bool, Option("--force", help="Replace existing files.")]
DAY_MS = 86_400_000


def make_commands(conf: Path | None) -> "Commands":
    """Slurm's commands of this site."""
    from gpuyard.engines.slurm.calls.commands import Commands

    if conf is None:
        return Commands()
    try:
        with conf.open("rb"):
            pass
    except OSError as error:
        raise BadInput(
            f"--conf {conf}: {error.strerror}",
            "Name the slurm.conf of the cluster, often /etc/slurm/slurm.conf.",
        ) from None
    return Commands(conf=os.path.abspath(conf))


def parse_types(words: list[str]) -> dict[str, str]:
    """`a100=A100-40GB`, as the option says it."""
    from gpuyard.model import CATALOGUE
    from gpuyard.model.gpu_names import UNTYPED

    found = {}
    for word in words:
        gpu_type, sign, model = word.partition("=")
        if not sign or not gpu_type or not model:
            raise BadInput(
                f"--gpu-type {quote(word)} is not TYPE=MODEL", "For example: --gpu-type a100=A100-40GB"
            )
        if model not in CATALOGUE:
            raise BadInput(f"unknown GPU model {quote(model)}; {suggest(model, CATALOGUE, 'GPU models')}")
        found[gpu_type.removeprefix(UNTYPED) if gpu_type == UNTYPED else gpu_type] = model
    return found


def days_since(since: str) -> int:
    """How many days ago a time was: whole ones, at least one."""
    from gpuyard.cli.line.times import now_ms, parse_since_ms

    at_ms = now_ms()
    return max(1, -(-(at_ms - parse_since_ms("--since", since, at_ms)) // DAY_MS))


def unreachable(error: "EngineError") -> YardError:
    """What a person can do about a command that failed."""
    from gpuyard.engines.slurm.calls.commands import OutOfReach

    lines = str(error).splitlines() or ["no answer"]
    # The first line names the command; if there are more lines, the last one counts.
    message = lines[0] if len(lines) == 1 else f"{lines[0].partition(':')[0]}: {lines[-1].strip()}"
    if isinstance(error, OutOfReach):
        return YardError(message, "Is slurmctld running? `scontrol ping` and `yard slurm doctor` tell more.")
    if "could not establish a configuration source" in str(error).lower():
        return BadInput(message, "Slurm has no slurm.conf here: name it with --conf, or set SLURM_CONF.")
    return YardError(message, "`yard slurm doctor` looks the site over.")


def write_new(folder: Path, texts: Mapping[str, str], force: bool, more: Iterable[str] = ()) -> None:
    """Write them. `more`: names that the caller writes there afterwards."""
    there = [folder / name for name in (*texts, *more) if (folder / name).exists()]
    if there and not force:
        raise BadInput(
            f"{there[0]} already exists; nothing was written", "Name another --dir, or add --force."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{error.filename or folder}: {error.strerror}", "Choose another --dir.") from None
