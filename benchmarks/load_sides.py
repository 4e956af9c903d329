"""What both sides of the load benchmark share: the handles they are held by, and the job that they run.

Both have 64 GPUs that are not there, run as root on loopback and keep everything on one disk. Nothing starts while a
side is held back: gpuyard's node is drained, Slurm's partition is down.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from figures import ROOT, Row
from load_clients import Burst, Caller, together

sys.path.insert(0, str(ROOT / "tests"))

from harness.patience import Patience

GPUS = 64
CLIENTS = 4
COMMANDS_S = 3.0
READY_S = 60.0
"""How long anything may take to come up or to calm down."""


def job_script(lines: Path) -> str:
    """A job that does nothing and says that it did, in one write, under its own number."""
    return f"#!/bin/sh\n/bin/true\necho $SLURM_JOB_ID >>{lines}\n"


class Side(Protocol):
    """One scheduler under load."""

    name: str
    api: str
    """The way of `submit`, for people."""
    command: str
    """The way of `submit_by_command`."""

    def submit(self, script: str, count: int) -> Burst:
        """So many jobs of one GPU through the HTTP API."""

    def submitters(self, script: str) -> list["Submitter"]:
        """One for each client."""

    def submit_by_command(self, script: str, count: int) -> Burst:
        """The same with the command line, a process for each job."""

    def hold_back(self) -> None:
        """Let nothing start."""

    def let_go(self) -> None:
        """Let jobs start."""

    def settle(self) -> None:
        """Wait until nothing runs."""

    def watched(self, seconds: float) -> list[Row]:
        """Let jobs start for some seconds; how long passes took."""

    def cpu_s(self) -> float:
        """CPU time of the servers so far, without the jobs."""

    def queue_commands(self) -> dict[str, list[str]]:
        """Commands that list everything that waits."""

    @property
    def environment(self) -> dict[str, str]:
        """For its commands."""

    def kill(self) -> None:
        """SIGKILL for the process that accepts jobs."""

    def revive(self) -> None:
        """Start it again and wait until it answers."""

    def waiting(self) -> set[int]:
        """The numbers of the jobs that wait."""

    def known(self) -> set[int]:
        """The numbers of all jobs that it has."""

    def stop(self) -> None:
        """End what was started."""


class Submitter:
    """One client that submits one job again and again, on one connection."""

    def __init__(self, caller: Caller, path: str, body: Any, accepted: int, key: str) -> None:
        """`accepted`: the status that says yes; `key`: where the reply has the job's number."""
        self._caller = caller
        self._request = caller.request("POST", path, json.dumps(body).encode())
        self._accepted = accepted
        self._key = key

    def submit(self) -> bytes:
        """One job; gives the reply as it came."""
        reply = self._caller.send(self._request)
        if reply.status != self._accepted:
            raise RuntimeError(f"refused: {reply.status} {reply.body[:500]!r}")
        return reply.body

    def number(self, reply: bytes) -> int:
        """The job's number, from a reply."""
        return int(json.loads(reply)[self._key])

    def close(self) -> None:
        """Hang up."""
        self._caller.close()


def burst(submitters: list[Submitter], count: int) -> Burst:
    """The clients submit so many jobs between them."""
    try:
        done = together(lambda client: submitters[client].submit(), count, len(submitters))
    finally:
        for submitter in submitters:
            submitter.close()
    check_distinct([submitters[0].number(reply) for reply in done.replies])
    return done


def until_killed(side: Side, script: str, after_s: float) -> list[int]:
    """Clients submit until the server is killed under them; it is started again. Gives what was acknowledged."""
    submitters = side.submitters(script)
    numbers: list[list[int]] = [[] for _ in submitters]
    killed = threading.Event()

    def client(place: int) -> None:
        # A request that is under way when the server dies has no answer, or has it from the next one.
        with suppress(OSError, RuntimeError, ValueError):
            while not killed.is_set():
                numbers[place].append(submitters[place].number(submitters[place].submit()))

    threads = [threading.Thread(target=client, args=(place,)) for place in range(len(submitters))]
    for thread in threads:
        thread.start()
    time.sleep(after_s)
    side.kill()
    killed.set()
    side.revive()
    for thread in threads:
        thread.join()
    for submitter in submitters:
        submitter.close()
    return [number for each in numbers for number in each if number]


def by_commands(command: list[str], environment: dict[str, str], count: int) -> Burst:
    """The clients run a command so many times between them, or as often as a few seconds allow."""

    def one(_client: int) -> bytes:
        # Without close_fds Python takes the quick way to start a process.
        done = subprocess.run(command, env=environment, capture_output=True, check=False, close_fds=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: exit code {done.returncode}: {done.stderr[-500:]!r}")
        return done.stdout

    return together(one, count, CLIENTS, COMMANDS_S)


def until(true: Callable[[], bool]) -> None:
    """Wait for it."""
    limit = Patience(READY_S)
    while not true():
        if not limit:
            raise RuntimeError(f"still running after {READY_S:.0f} s of a machine with nothing else to do")
        time.sleep(0.1)


def check_distinct(numbers: list[int]) -> None:
    """Every job has a number of its own."""
    if len(set(numbers)) != len(numbers) or 0 in numbers:
        raise RuntimeError("two jobs were given one number, or one was given none")
