"""Names of the files through which an engine and the nodes speak, and how they are written: whole or absent.

Both sides use this file, so it keeps to what Python 3.6 and its standard library have.
"""

import errno
import json
import os
import stat
from typing import Any, Dict, List, Optional, Tuple

LAUNCH, HALT, RUN, PLAN = "launch.json", "halt.json", "run", "plan.json"
ATTEMPTS = "attempts"
"""What the engine relies on; the wish to stop it; the part of the folder that the job's user owns; in it, what to run.

The engine never relies on what a user owns: a plan that names another user's files would have them read.
"""
CLAIM, NEWS, END, BEAT, GO, SCRIPT = "claim.json", "running.json", "end.json", "beat", "go", "script"
"""The claim, taken once; how it stands; how it ended; a sign of life; all nodes are ready; what to run."""
READY, FAILED, ORDER = "ready.", "failed.", "order."
"""Per node: its tasks wait at the gate; one of them failed. For all nodes: a signal to pass on."""
LIMIT = "limit.json"
"""The time limit that the job is to have, in place of that of its launch."""
DEAD = "dead.json"
"""Slurm has given up a node of the job: a part that still lives, cut off from the others, is to end at once."""
TOLD = "TOLD"
"""The outcome where Slurm ended it: only Slurm knows its name."""
WISH, TROUBLE = "terminal.wish", "terminal.trouble"
"""Somebody wants to come in, and there is no keeper of terminals yet; why there can be none."""
_TROUBLE_BYTES_MAX = 1000
BEAT_S = 5.0
LEASE_S = 60.0
"""A head that could not give a sign of life for this long has ended its tasks, and so have nodes that saw none."""


def read(path: str) -> Optional[Dict[str, Any]]:
    """The content of a file; None where there is none."""
    try:
        with open(path, "rb") as file:
            return dict(json.loads(file.read().decode()))
    except (OSError, ValueError):
        return None


def write(path: str, value: Dict[str, Any], once: bool = False) -> bool:
    """Write a file whole and durably; `once`: only where there is none, and whether this call did."""
    draft = "{}.{}.{}".format(path, os.environ.get("SLURMD_NODENAME", ""), os.getpid())
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, json.dumps(value).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    if not once:
        os.rename(draft, path)
        return True
    try:
        os.link(draft, path)
    except FileExistsError:
        # A network file system may have made it at the first try, and tried again because the answer was lost.
        return read(path) == value
    finally:
        os.unlink(draft)
    return True


def open_of_job(folder: str, inner: str) -> int:
    """Open a file that is a job's, below a folder of ours, to be read; OSError where there is none.

    No link on the way is followed, and nothing but a regular file is waited for or read.
    """
    above = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        *between, name = inner.split("/")
        for each in between:
            below = os.open(each, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
            above = below
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
    finally:
        os.close(above)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), inner)


def touch(path: str) -> bool:
    """Make an empty file, or set its time to now; whether that worked."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        os.utime(path)
    except OSError:
        return False
    return True


def read_change_s(path: str) -> float:
    """When a file was last changed, in seconds; -1 where there is none."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return -1.0


def read_mark(path: str) -> Tuple[int, int]:
    """What changes when a file is replaced, or when something appears in a folder; zeros if nothing can be found."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def list_names(path: str) -> List[str]:
    """The names in a folder. Opening it makes a network file system look again; asking for one name does not."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def tell_trouble(why: str) -> None:
    """Leave word in the current folder that a keeper is wanted and cannot be started."""
    draft = "{}.{}".format(TROUBLE, os.getpid())
    try:
        with open(draft, "wb") as file:
            file.write(why.encode("utf-8", "replace")[:_TROUBLE_BYTES_MAX])
        os.rename(draft, TROUBLE)
    except OSError:
        # On a full disk there is no room for the word, either.
        pass


def find_trouble(folder: str, uid: Optional[int] = None) -> str:
    """Why no keeper could be started when one was wanted last; empty: nothing is known. It is told once.

    `uid`: the user whose folder it is. Nothing but a file of that user is read.
    """
    path = os.path.join(folder, TROUBLE)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != (os.geteuid() if uid is None else uid):
            return ""
        told = os.read(fd, _TROUBLE_BYTES_MAX).decode(errors="replace")
    finally:
        os.close(fd)
    try:
        os.unlink(path)
    except OSError:
        pass
    return "".join([char if char.isprintable() else "?" for char in told])
