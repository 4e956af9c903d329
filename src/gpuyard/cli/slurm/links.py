"""Slurm's commands under their own names in a folder, so that scripts find them with only the PATH changed."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuyard.cli.slurm.programs import PROGRAMS
from gpuyard.errors import BadInput, YardError

_MARK = "# made by `yard slurm --install-links`"
_SHEBANG_MAX = 120
"""Longer first lines are cut by older kernels."""
_PYTHON = """\
#!{python}
{mark}
import sys

from gpuyard.cli import main

sys.argv[:1] = ["yard", "slurm", "{name}"]
main()
"""
_SHELL = """\
#!/bin/sh
{mark}
exec {python} -m gpuyard.cli slurm {name} "$@"
"""


def install(words: Sequence[str]) -> int:
    """Write them into the one folder that is named, and say what to put on the PATH."""
    from gpuyard.cli.complaints import complain

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
        foreign = [name for name in PROGRAMS if not _ours(folder / name)]
        if foreign:
            raise BadInput(
                f"{folder / foreign[0]} is there and was not made by yard; nothing was written",
                "Name an empty folder, or move the file away.",
            )
        for name in PROGRAMS:
            draft = folder / f".{name}.{os.getpid()}"
            draft.write_text(text_of(name, sys.executable), encoding="utf-8")
            draft.chmod(0o755)
            draft.replace(folder / name)
    except OSError as error:
        raise YardError(f"{error.filename or folder}: {error.strerror}") from None


def _ours(path: Path) -> bool:
    """Whether there is nothing yet, or what we made."""
    if not os.path.lexists(path):
        return True
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return _MARK.encode() in file.read(4096)


def text_of(name: str, python: str) -> str:
    """The program: for this Python, in a form that its path allows."""
    plain = len(python) < _SHEBANG_MAX and not any(char.isspace() for char in python)
    form = _PYTHON if plain else _SHELL
    return form.format(python=python if plain else shlex.quote(python), mark=_MARK, name=name)
