"""Users of this machine: the one that a job runs as, and names for people."""

import os
import pwd
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """The user a job runs as."""

    uid: int
    gid: int
    user: str
    home: str
    shell: str


def account(uid: int, gid: int, user: str) -> UnixAccount:
    """The user a job runs as. A uid without a name on this machine has no home."""
    if uid == 0 and not user:
        uid, gid = os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return UnixAccount(uid, gid, user or str(uid), "/", "/bin/sh")
    return UnixAccount(uid, gid, entry.pw_name, entry.pw_dir or "/", entry.pw_shell or "/bin/sh")


def user_name(uid: int | None) -> str:
    """A user's name for people."""
    if uid is None:
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
