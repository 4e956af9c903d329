"""Slurm's commands under their own names in a folder, so that scripts find them with only the PATH changed."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from gpuyard.engines import slurm_commands
from gpuyard.engines.slurm_commands import INSTEAD, PROGRAMS
from gpuyard.errors import BadInput, YardError


def install(words: Sequence[str]) -> int:
    """Write them into the folder, and say what to put on the PATH."""
    from gpuyard.cli.line.complaints import complain

    try:
        if len(words) != 1 or not words[0]:
            raise BadInput(
                "--install-links takes one folder", "For example: yard slurm --install-links ~/.local/slurm"
            )
        folder = Path(os.path.abspath(os.path.expanduser(words[0])))
        _write(folder)
    except YardError as error:
        return complain(error)
    print(f"{', '.join(PROGRAMS)} are in {folder}")
    print(f"export PATH={shlex.quote(str(folder))}:$PATH")
    return 0


def _write(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [name for name in (*PROGRAMS, *INSTEAD) if not _ours(folder / name)]
        if foreign:
            raise BadInput(
                f"{folder / foreign[0]} is there and was not made by yard; nothing was written",
                "Name an empty folder, or move the file away.",
            )
        slurm_commands.write(folder)
    except OSError as error:
        raise YardError(f"{error.filename or folder}: {error.strerror}") from None


def _ours(path: Path) -> bool:
    """Whether there is nothing yet, or what we made."""
    if not os.path.lexists(path):
        return True
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return slurm_commands.MARK.encode() in file.read(4096)
