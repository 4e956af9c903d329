"""Whether other users can run this installation: their jobs call `srun` and `yard`, which may lie in root's home.

A checkout or an environment below a folder of mode 0700 works for root and for nobody else: the kernel says "bad
interpreter: Permission denied" in the middle of somebody's script. So the modes of all folders on the way are looked
at, also where a link leads elsewhere: a Python of pyenv lies in the home of the user that built it.
"""

import os
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gpuyard

PLACE = "/opt/gpuyard"
"""Where everybody may read, and no job has a folder of its own."""
_SECOND_PLACE = "/opt/yard"
"""Another one, for a machine on which the checkout has the first."""
SYSTEM_PYTHON = "/usr/bin/python3"
"""One that lies where everybody may read."""
_ANSWER_S = 10.0
"""How long a Python may take to say whether it has a module."""


class Hidden(NamedTuple):
    """A file that other users do not reach, and what is in the way."""

    path: str
    what: str
    """The file itself, or a folder above it."""
    mode: int

    def __str__(self) -> str:
        return f"{self.what} has mode {self.mode:04o}"


def parts() -> tuple[str, ...]:
    """What a command of gpuyard needs: its code, the interpreter, its library and the packages."""
    found = [
        sys.executable,
        str(Path(sys.executable).with_name("yard")),
        str(Path(gpuyard.__file__).resolve()),
        str(Path(os.__file__).resolve()),
        sysconfig.get_path("purelib"),
    ]
    return tuple([path for path in found if os.path.exists(path)])


def first_hidden(paths: Iterable[str]) -> Hidden | None:
    """The first of these that users other than its owner cannot read, or run where it is a program."""
    for path in paths:
        if found := _in_the_way(path):
            return found
    return None


def _in_the_way(path: str) -> Hidden | None:
    """Walk from `/` to the file, through every link on the way; a folder needs `x` for others, the file `r`."""
    way, left = "/", [part for part in path.split("/") if part]
    for _step in range(256):
        if not left:
            break
        here = os.path.join(way, left.pop(0))
        try:
            mode = os.lstat(here).st_mode
            if stat.S_ISLNK(mode):
                target = os.readlink(here)
                way = "/" if target.startswith("/") else way
                left = [part for part in target.split("/") if part] + left
                continue
        except OSError:
            return None
        way = os.path.normpath(here)
        wanted = stat.S_IXOTH if left else _wanted(mode)
        if mode & wanted != wanted:
            return Hidden(path, way, stat.S_IMODE(mode))
    return None


def _wanted(mode: int) -> int:
    """What others need of the last part: to read it, to look into a folder, to run a program."""
    runs = stat.S_ISDIR(mode) or bool(mode & stat.S_IXUSR)
    return stat.S_IROTH | (stat.S_IXOTH if runs else 0)


def note_for_others(
    links: str = "", needed: Callable[[], Iterable[str]] = parts, system: str = SYSTEM_PYTHON
) -> str:
    """What other users' jobs will meet, and what to do, in a sentence; empty: they can run all of it.

    `links`: a folder of Slurm's commands that the yard puts on their PATH. `needed`: what a command of gpuyard needs.
    """
    found = first_hidden([*needed(), *([links] if links and os.path.exists(links) else [])])
    if found is None:
        return ""
    what = f"other users cannot run `srun` and `yard` in their jobs: {found}, on the way to {found.path}"
    if found.path == links:
        return f"{what}; choose another folder for the data (--data)"
    system = system if os.path.exists(system) else "python3"
    first = "" if makes_environments(system) else "apt-get install -y python3-venv && "
    return (
        f"{what}; install gpuyard where everybody may read: `{first}{system} -m venv {place()} && "
        f"{place()}/bin/pip install '.[ui]'`, in the checkout"
    )


def place(first: str = PLACE) -> str:
    """Where to install: an environment inside of a checkout would be a part of it."""
    return _SECOND_PLACE if os.path.exists(os.path.join(first, "pyproject.toml")) else first


@cache
def makes_environments(python: str) -> bool:
    """Whether `python -m venv` works: Debian ships ensurepip, without which it does not, in a package of its own."""
    try:
        done = subprocess.run(
            [python, "-c", "import ensurepip"], capture_output=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode == 0
