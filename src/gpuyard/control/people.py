"""Who asks, and as whom their jobs run.

On one machine the kernel says who is at the other end of a Unix socket; whoever has the token acts as its owner.
A server of root runs each job as the user who submitted it; any other server can only run jobs as itself, so
it serves its own user and root.
"""

import os
import pwd
import time
from dataclasses import dataclass
from functools import lru_cache

from gpuyard.control.refusals import Forbidden

_NO_LOGIN = ("/nologin", "/false", "/sync")
_HUMAN_UIDS = range(1000, 60_000)
_LOOK_EVERY_S = 10
"""How often the list of users is read: not for every job."""


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who asks for something."""

    uid: int
    gid: int
    name: str
    admin: bool
    """Root, or the owner of the server: may act on everybody's jobs and on nodes."""


@dataclass(frozen=True, slots=True)
class RunAs:
    """As whom a job runs; all empty: as the server itself."""

    uid: int = 0
    gid: int = 0
    user: str = ""


def person(uid: int, gid: int) -> Person:
    """The user of this machine with this number."""
    return Person(uid, gid, _name(uid), uid in (0, os.geteuid()))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def has_other_people() -> bool:
    """Whether people other than root work on this machine, by its list of users."""
    return _has_other_people(int(time.monotonic() / _LOOK_EVERY_S))


@lru_cache(maxsize=1)
def _has_other_people(_when: int) -> bool:
    return any(
        entry.pw_uid in _HUMAN_UIDS and not entry.pw_shell.endswith(_NO_LOGIN) for entry in pwd.getpwall()
    )


def run_as(who: Person, allow_root: bool) -> RunAs:
    """As whom this person's jobs run here, or `Forbidden`."""
    server_uid = os.geteuid()
    if server_uid != 0:
        if who.uid not in (0, server_uid):
            raise Forbidden(
                f"this yard runs as {_name(server_uid)} and cannot run jobs as {who.name}",
                "Start a yard of your own with `yard up -d`, or ask for one that root runs.",
            )
        return RunAs()
    if who.uid == 0 and not allow_root and has_other_people():
        raise Forbidden(
            "jobs of root are not run as root on a machine with other users",
            "Submit as an ordinary user, or set `allow_root: true` for the cluster in yard.yaml.",
        )
    return RunAs(who.uid, who.gid, who.name)
