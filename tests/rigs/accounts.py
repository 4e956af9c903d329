"""The users of this machine, as tests of root's yards need them: nobody but the system.

Jobs of root are refused where other people have accounts, so a test that submits as root would pass or fail by who else
works on the machine. Tests of root see a list of users without them, in a view of the file system of their own.
"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

from gpuyard.control.access.people import is_person

_PASSWD = Path("/etc/passwd")
_CLONE_NEWNS = 0x00020000


def hide_people() -> None:
    """Take the accounts of people out of the list that this process and its children see, if root is asking."""
    if os.geteuid() != 0:
        return
    lines = _PASSWD.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
    kept = [line for line in lines if not _of_a_person(line)]
    if kept == lines:
        return
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "tests of root need a view of /etc/passwd of their own")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(kept)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", file.name, str(_PASSWD)], check=True)


def _of_a_person(line: str) -> bool:
    parts = line.rstrip("\n").split(":")
    return len(parts) == 7 and parts[2].isdecimal() and is_person(int(parts[2]), parts[6])
