"""Processes of our own Python beside this one: none loads a module from the folder in which it is started.

Python looks first in the current folder for what `-c` and `-m` load. Root may stand in a folder that others can write
to, and a `json.py` there would run as root. With `-P` it does not look there; packages of the user and PYTHONPATH stay,
which `-I` would take away.
"""

import os
import sys

PATH = "PYTHONPATH"


def command(*words: str) -> list[str]:
    """The command line of a Python beside this one: `-c CODE` or `-m MODULE`, and its arguments."""
    return [sys.executable, "-P", *words]


def environment() -> dict[str, str]:
    """That of this process, for one in another folder: what PYTHONPATH names stays what it names.

    An empty part of PYTHONPATH means the current folder: it goes.
    """
    found = dict(os.environ)
    if named := found.get(PATH):
        found[PATH] = os.pathsep.join([os.path.abspath(part) for part in named.split(os.pathsep) if part])
    return found


def leave_folder() -> None:
    """Stand in `/` from now on, where nobody but root puts files."""
    os.environ.update(environment())
    os.chdir("/")
