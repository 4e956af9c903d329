"""Which steps of a job live and what they hold: a file of the job, changed under a lock by every `srun` of it.

A step lives as long as the `srun` that started it. If that was killed, the next `srun` that reads the ledger gives
back what the step held, once its tasks are gone.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from gpuyard.engines.local.attempt.room import LEDGER, ROOM
from gpuyard.engines.local.steps.grants import Held, NodeGrant, RoomNode, StepAsk, grant, read_room
from gpuyard.engines.machine import files, processes
from gpuyard.engines.node.kernel.processes import is_running, list_pids, signal_seen

_LOCK = "lock"


class NoRoom(Exception):
    """Why what the job has is not known, in words."""


class LiveSteps:
    """The steps of the job that this process belongs to."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = environment.get("YARD_ATTEMPT_DIR", "")
        room = files.read(os.path.join(self._folder, ROOM)) if self._folder else None
        if room is None:
            raise NoRoom("what the job has is not known: there is no room.json in $YARD_ATTEMPT_DIR")
        self.nodes: tuple[RoomNode, ...] = read_room(room)
        self.ranks: int = room["ranks"]
        self._boot = processes.boot_id()
        # A yard of an earlier version has made the folder itself.
        self._steps = room.get("steps") or os.path.join(self._folder, "steps")
        self._path = os.path.join(self._steps, LEDGER)

    @contextmanager
    def _open(self) -> Iterator[dict[str, Any]]:
        """The ledger, alone; what is changed in it is kept."""
        with suppress(FileExistsError):
            os.mkdir(self._steps, 0o700)
        fd = os.open(os.path.join(self._steps, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            book = files.read(self._path) or {"next": 0, "live": []}
            before = json.dumps(book)
            yield book
            if json.dumps(book) != before:
                files.replace(self._path, book)
        finally:
            os.close(fd)

    def take(self, ask: StepAsk) -> tuple[int, tuple[NodeGrant, ...]] | None:
        """The step's number and what it gets; None: others hold it. `Never` if the job cannot serve it at all."""
        with self._open() as book:
            book["live"] = [each for each in book["live"] if self._lives(each)]
            got = grant(ask, self.nodes, _held(book["live"]))
            if got is None:
                return None
            number = book["next"]
            me = processes.identify_self(self._boot)
            holds = [] if ask.overlap else [_written(each) for each in got]
            book["next"] = number + 1
            book["live"].append(
                {"step": number, "pid": me.pid, "ticks": me.ticks, "boot": me.boot, "holds": holds}
            )
            return number, got

    def give_back(self, number: int) -> None:
        """The step has ended."""
        with suppress(FileNotFoundError), self._open() as book:
            # The folder goes with the attempt.
            book["live"] = [each for each in book["live"] if each["step"] != number]

    def _lives(self, step: dict[str, Any]) -> bool:
        """Whether a step still holds anything. Tasks that lost their `srun` are ended first."""
        if processes.is_alive(processes.Identity(step["pid"], step["ticks"], step["boot"]), self._boot):
            return True
        return bool(signal_seen(lambda: _processes_of(self._folder, step["step"]), signal.SIGKILL))


def _held(live: list[dict[str, Any]]) -> dict[str, Held]:
    found: dict[str, Held] = {}
    for each in [hold for step in live for hold in step["holds"]]:
        before = found.get(each["node"], Held())
        found[each["node"]] = Held(
            before.gpus | frozenset(each["gpus"]),
            before.cpus + each["cpus"],
            before.memory_mib + each["memory_mib"],
        )
    return found


def _written(each: NodeGrant) -> dict[str, Any]:
    return {"node": each.node, "gpus": list(each.gpus), "cpus": each.cpus, "memory_mib": each.memory_mib}


def _processes_of(folder: str, step: int) -> set[int]:
    """Processes of this very step, by their environment."""
    wanted = {f"YARD_ATTEMPT_DIR={folder}".encode(), f"SLURM_STEP_ID={step}".encode()}
    found = set()
    for pid in list_pids():
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted <= set(file.read().split(b"\0")):
                found.add(pid)
    return {pid for pid in found if is_running(pid)}


def pause(turn: int) -> None:
    """Wait a moment before the ledger is looked at again."""
    time.sleep(min(0.5, 0.05 * 1.3**turn))
