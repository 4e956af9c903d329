"""The users of this machine, as tests of root's yards need them: nobody but the system.

Jobs of root are refused where other people have accounts, so a test that submits as root would pass or fail by who else
works on the machine. Tests of root see a list of users without them, in a view of the file system of their own.

The view is a file mounted over /etc/passwd. Programs that add accounts put a new file in its place, which the kernel
refuses inside the view and which takes the view away everywhere else: so they run outside, and the view is made again.
"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

from gpuyard.control.access.people import is_person

_PASSWD = Path("/etc/passwd")
_MOUNTS = Path("/proc/self/mountinfo")
_CLONE_NEWNS = 0x00020000
_outside: list[int] = []
"""A descriptor of the view that this process was started with, once it has one of its own."""


class CannotChange(Exception):
    """The end of what a program said that was to change accounts."""


def hide_people() -> None:
    """Take the accounts of people out of the list that this process and its children see, if root is asking.

    Cheap where that is so already: every test asks, since an account that is made beside the tests ends the view.
    """
    if os.geteuid() != 0:
        return
    if not _outside:
        # Before there is anybody to hide: servers of tests that run then would not see what is mounted later.
        _leave()
    lines = _PASSWD.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
    kept = [line for line in lines if not _of_a_person(line)]
    if kept == lines:
        return
    if not _outside:
        raise PermissionError("tests of root need a view of /etc/passwd of their own")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(kept)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        subprocess.run(["mount", "--bind", file.name, str(_PASSWD)], check=True)


def change_accounts(*command: str) -> None:
    """Run a program that may add accounts, as those that install packages do; `CannotChange` if it fails."""
    words = (
        ["nsenter", f"--mount=/proc/{os.getpid()}/fd/{_outside[0]}", "--", *command] if _outside else command
    )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, check=False)
    if any(line.split()[4] == str(_PASSWD) for line in _MOUNTS.read_text(encoding="utf-8").splitlines()):
        subprocess.run(["umount", "--lazy", str(_PASSWD)], check=True)
    hide_people()
    if done.returncode != 0:
        raise CannotChange((done.stdout + done.stderr).strip()[-1000:])


def _leave() -> None:
    """Have a view of the file system of our own, where the kernel lets us."""
    outside = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        os.close(outside)
        return
    _outside.append(outside)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def _of_a_person(line: str) -> bool:
    parts = line.rstrip("\n").split(":")
    return len(parts) == 7 and parts[2].isdecimal() and is_person(int(parts[2]), parts[6])
