"""Attempts on a node of a Slurm cluster that a yard drives, by the process that starts each of them there.

The yard's own program is above everything that an attempt runs on a node, and its last words are the attempt's folder.
Any user can start a program with such words. So a process counts only if its user is the one to whom the yard has given
the attempt's folder: nobody puts their work down to somebody else's job.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from gpuyard.telemetry.sources import AttemptPlace

_GPUS = b"SLURM_JOB_GPUS="
"""Which GPUs of the node Slurm gave to a job, by their places."""
_JOB = "/job_"
"""How the cgroup that Slurm makes for a job begins; those of its steps lie below it."""


class Supervised:
    """The attempts on this node."""

    def __init__(
        self, folder: str, run: str, uuids: Callable[[], Sequence[str]] = tuple, root: str = "/"
    ) -> None:
        """`folder` has one folder for each attempt, and in it `run`, which is its user's; `uuids`: of the GPUs."""
        self._folder = os.path.realpath(folder)
        self._run = run
        self._uuids = uuids
        self._root = root.rstrip("/")
        self._known: dict[tuple[int, int], str] = {}
        """The attempt of each process that was looked at, by its number and when it began; empty: none."""
        self._mount = self._mounted()

    def places(self) -> list[AttemptPlace]:
        """Where the processes of each attempt are, now."""
        roots: dict[str, list[int]] = {}
        living = {}
        for name in os.listdir(f"{self._root}/proc"):
            if name.isdecimal() and (began := self._began(int(name))):
                which = (int(name), began)
                living[which] = key = self._known[which] if which in self._known else self._key(which[0])
                if key:
                    roots.setdefault(key, []).append(which[0])
        self._known = living
        return [self._place(key, sorted(pids)) for key, pids in sorted(roots.items())]

    def _place(self, key: str, pids: list[int]) -> AttemptPlace:
        groups = {group for pid in pids if (group := self._group(pid))}
        return AttemptPlace(
            key=key,
            group=f"{self._mount}{groups.pop()}" if len(groups) == 1 and self._mount else "",
            pids=tuple([pid for pid in pids if self._parent(pid) not in pids]),
            devices=tuple(sorted({uuid for pid in pids for uuid in self._devices(pid)})),
        )

    def _read(self, path: str) -> bytes:
        with open(f"{self._root}{path}", "rb") as file:
            return file.read()

    def _fields(self, pid: int) -> list[bytes]:
        try:
            return self._read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            return []

    def _began(self, pid: int) -> int:
        """When a process began, in ticks of the kernel; 0: it is gone."""
        fields = self._fields(pid)
        return int(fields[19]) if len(fields) > 19 else 0

    def _parent(self, pid: int) -> int:
        fields = self._fields(pid)
        return int(fields[1]) if len(fields) > 1 else 0

    def _key(self, pid: int) -> str:
        """The attempt that a process starts, if it is really the yard's program of this attempt."""
        try:
            words = self._read(f"/proc/{pid}/cmdline").split(b"\0")
            uid = os.stat(f"{self._root}/proc/{pid}").st_uid
        except OSError:
            return ""
        for word in words:
            if word.startswith(b"/") and len(word) < 4096:
                path = os.fsdecode(word)
                key = os.path.basename(path)
                if key and os.path.realpath(os.path.dirname(path)) == self._folder:
                    with suppress(OSError):
                        if os.lstat(os.path.join(self._folder, key, self._run)).st_uid == uid:
                            return key
        return ""

    def _group(self, pid: int) -> str:
        """The cgroup of v2 that Slurm made for the job of a process; empty: Slurm makes none there."""
        with suppress(OSError):
            for line in os.fsdecode(self._read(f"/proc/{pid}/cgroup")).splitlines():
                if line.startswith("0::") and _JOB in line:
                    above, _, rest = line[3:].partition(_JOB)
                    return f"{above}{_JOB}{rest.partition('/')[0]}"
        return ""

    def _mounted(self) -> str:
        with suppress(OSError):
            for line in os.fsdecode(self._read("/proc/self/mountinfo")).splitlines():
                before, _, after = line.partition(" - ")
                if after.startswith("cgroup2 "):
                    return before.split()[4]
        return ""

    def _devices(self, pid: int) -> list[str]:
        """UUIDs of the GPUs that Slurm gave to the job, as it told the yard's program."""
        with suppress(OSError):
            told = [
                each for each in self._read(f"/proc/{pid}/environ").split(b"\0") if each.startswith(_GPUS)
            ]
            places = [word for each in told for word in os.fsdecode(each[len(_GPUS) :]).split(",")]
            uuids = self._uuids()
            return [uuids[int(place)] for place in places if place.isdecimal() and int(place) < len(uuids)]
        return []
