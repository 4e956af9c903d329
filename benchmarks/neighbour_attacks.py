"""What a hostile user of a yard, or somebody who only reaches its port, can do to it again and again: one table.

Every attack is a function that a `Hand` carries out in a process of its own until it is killed. Refusals do not end
it: a hostile user heeds no `Retry-After`.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from mmap import mmap
from pathlib import Path
from typing import Any

from load_clients import Caller, Reply, connected

WAITING = 20_000
"""Jobs that an attack has in the queue before it asks about them."""
ARRAY = 10_000
"""The longest array that may be submitted."""
_COUNTERS = struct.Struct("=3Q")
"""Of each hand: what was accepted, what was refused, and how often it had to connect again."""


class Hand:
    """One process of an attacker: it asks, counts, and connects again when it is hung up on."""

    def __init__(self, number: int, doors: Sequence[Path], port: int, folder: Path, shared: mmap) -> None:
        """`doors`: the sockets of the yard's servers; `folder`: the attacker's own; `shared`: what all hands see."""
        self.number = number
        self.door = doors[number % len(doors)]
        self.port = port
        self.folder = folder
        self._shared = shared
        self._caller: Caller | None = None
        self._told = [0, 0, 0]

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        """One request of the attacker, over the socket."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        while True:
            try:
                if self._caller is None:
                    self._caller = Caller(self.door, {}, most_s=600)
                reply = self._caller.ask(method, path, sent)
            except OSError:
                self.note(2)
                self.hang_up()
                time.sleep(0.01)
                continue
            self.note(0 if reply.status < 400 else 1)
            return reply

    def hang_up(self) -> None:
        """Close the connection, if there is one."""
        if self._caller is not None:
            self._caller.close()
            self._caller = None

    def note(self, which: int) -> None:
        """Count something."""
        self._told[which] += 1
        _COUNTERS.pack_into(self._shared, 8 + self.number * _COUNTERS.size, *self._told)

    def submit(self, **job: Any) -> int:
        """Submit a job; its id, or 0 if it was refused."""
        reply = self.ask(
            "POST", "/api/v1/jobs", {"command": ["true"], "cwd": "/", "stdout": "/dev/null"} | job
        )
        return int(json.loads(reply.body)["id"]) if reply.status == 201 else 0

    def sure(self, **job: Any) -> int:
        """Submit a job, again and again until it is accepted."""
        while not (job_id := self.submit(**job)):
            time.sleep(0.1)
        return job_id

    def first(self, make: Callable[[], int]) -> int:
        """What the first hand makes for all of them, as a number."""
        if self.number == 0:
            struct.pack_into("=Q", self._shared, 0, make())
        while not (found := struct.unpack_from("=Q", self._shared, 0)[0]):
            time.sleep(0.05)
        return int(found)

    def waiting(self) -> int:
        """Have jobs that wait: more than may run at a time. The first of their ids."""

        def make() -> int:
            ids = [
                self.sure(command=["sleep", "600"], gpus=8, array=f"0-{ARRAY - 1}")
                for _ in range(WAITING // ARRAY)
            ]
            return ids[0] + 1

        return self.first(make)


def counted(shared: mmap, hands: int) -> dict[str, int]:
    """What the hands have counted, together."""
    each = [_COUNTERS.unpack_from(shared, 8 + number * _COUNTERS.size) for number in range(hands)]
    return {name: sum(one[at] for one in each) for at, name in enumerate(("accepted", "refused", "hung_up"))}


@dataclass(frozen=True, slots=True)
class Attack:
    """One row of the table."""

    name: str
    what: str
    door: str
    """`port`: nobody has said who asks; `socket`: an ordinary user of the machine."""
    work: Callable[[Hand], None]
    hands: int = 2


def _always() -> Iterator[int]:
    return count()


# -- without saying who asks -------------------------------------------------------------------------------------

_TWICE = b"{" + b",".join(b'"k%d":0' % n for n in range(28_000)) + b',"k1":0}'


def _anonymous_bodies(hand: Hand) -> None:
    head = (
        f"POST /api/v1/login/oidc HTTP/1.1\r\nHost: localhost:{hand.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(_TWICE)}\r\n\r\n"
    ).encode()
    for _ in _always():
        _anonymous(hand, head + _TWICE)


def _anonymous_heads(hand: Hand) -> None:
    line = b"".join(b"X-%d: %s\r\n" % (n, b"x" * 6000) for n in range(100))
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + 100 * line
    for _ in _always():
        _anonymous(hand, request)


def _anonymous(hand: Hand, request: bytes) -> None:
    """One request on a connection of its own, whatever comes of it."""
    with suppress(OSError), closing(connected(hand.port, 30)) as connection:
        with suppress(OSError):
            connection.sendall(request)
        answer = connection.recv(4096)
        hand.note(0 if answer.startswith(b"HTTP/1.1 2") else 1)
        return
    hand.note(2)


def _unfinished(door: int | Path) -> Callable[[Hand], None]:
    def work(hand: Hand) -> None:
        open_: list[socket.socket] = []
        for turn in _always():
            try:
                made = connected(hand.port if door == 0 else hand.door, 5)
                made.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-")
                open_.append(made)
                hand.note(0)
            except OSError:
                hand.note(2)
                time.sleep(0.001)
            if len(open_) > 800:
                # Those that the server has closed make room; the oldest go first.
                for old in open_[:200]:
                    old.close()
                del open_[:200]
            if turn % 100 == 99:
                time.sleep(0.05)

    return work


def _pages(hand: Hand) -> None:
    requests = [
        f"GET /api/v1/queue HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode()
        for host, origin in (
            ("rebound.example", "http://rebound.example"),
            ("localhost", "https://page.example"),
        )
    ]
    for turn in _always():
        _anonymous(hand, requests[turn % 2])


# -- submissions -------------------------------------------------------------------------------------------------


def _bodies(hand: Hand) -> None:
    for _ in _always():
        hand.ask("POST", "/api/v1/jobs", _TWICE)


def _submissions(hand: Hand) -> None:
    for _ in _always():
        hand.submit(gpus=1)


def _scripts(hand: Hand) -> None:
    for turn in _always():
        hand.submit(
            script=f"#!/bin/sh\n# {turn} {'x' * 1_000_000}\n", gpus=8, name=f"s{hand.number}", command=[]
        )


def _arrays(hand: Hand) -> None:
    for _ in _always():
        before = hand.submit(gpus=8, hold=True, array=f"0-{ARRAY - 1}")
        if before:
            hand.submit(gpus=8, array="0-499", dependencies=[{"kind": "afterany", "job": before}])


def _held(hand: Hand) -> None:
    for _ in _always():
        hand.submit(gpus=1, hold=True, array="0-4999")


def _dependencies(hand: Hand) -> None:
    before = hand.sure(hold=True)
    for turn in _always():
        kind = ("afterok", "afterany", "after")[turn % 3]
        hand.submit(dependencies=[{"kind": kind, "job": before}] * 1000)


def _correspondences(hand: Hand) -> None:
    before = hand.sure(hold=True, array="0-999")
    hand.ask("DELETE", f"/api/v1/jobs/{before}")
    for _ in _always():
        hand.submit(array="0-999", dependencies=[{"kind": "aftercorr", "job": before}])


def _tenants(hand: Hand) -> None:
    for turn in _always():
        hand.submit(tenant=f"invented-{hand.number}-{turn}", gpus=1)


def _tasks(hand: Hand) -> None:
    for _ in _always():
        hand.submit(command=["sh", "-c", "sleep 1"], array="0-399")
        time.sleep(1)


# -- verbs -------------------------------------------------------------------------------------------------------


def _cancels(hand: Hand) -> None:
    for _ in _always():
        first = hand.submit(gpus=8, hold=True, array=f"0-{ARRAY - 1}")
        after = hand.submit(gpus=8, hold=True, array=f"0-{ARRAY - 1}")
        if first and after:
            ids = [f"{each}_{n}" for each in (first, after) for n in range(ARRAY)]
            hand.ask("POST", "/api/v1/jobs/cancel", {"ids": ids})


def _dependants(hand: Hand) -> None:
    for _ in _always():
        before = hand.submit(gpus=8, hold=True, array="0-4999")
        if before:
            for _turn in range(4):
                hand.submit(gpus=8, array="0-4999", dependencies=[{"kind": "aftercorr", "job": before}])
            hand.ask("DELETE", f"/api/v1/jobs/{before}")


# -- questions ---------------------------------------------------------------------------------------------------


def _about(*paths: str) -> Callable[[Hand], None]:
    """Ask about waiting jobs."""

    def work(hand: Hand) -> None:
        first = hand.waiting()
        for turn in _always():
            job_id = first + 100 + (turn * 37 + hand.number * 1009) % (WAITING - 200)
            hand.ask("GET", paths[turn % len(paths)].format(id=job_id))

    return work


def _cursors(hand: Hand) -> None:
    far = "9" * 30
    paths = (
        f"jobs?cursor={far}",
        f"history?since_ms={far}",
        f"jobs/1/why?at_ms={far}",
        "jobs?limit=-1",
        f"jobs/{far}",
    )
    for turn in _always():
        hand.ask("GET", f"/api/v1/{paths[turn % len(paths)]}")


def _followers(hand: Hand) -> None:
    name = hand.folder / f"log.{hand.number}"
    job_id = hand.sure(command=["sh", "-c", "while :; do echo line; sleep 0.1; done"], stdout=str(name))
    request = f"GET /api/v1/jobs/{job_id}/logs?follow=true&standing=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    follows = []
    for _ in range(30):
        connection = connected(hand.door, 600)
        connection.sendall(request)
        follows.append(connection)
        hand.note(0)
    for turn in _always():
        follows[turn % len(follows)].recv(1 << 16)


def _dead_files(hand: Hand) -> None:
    """A checkpoint file that is a pipe which nobody reads, beside one on a file system that does not answer."""
    gone = hand.folder / "gone" / "saved"
    pipe = hand.folder / f"pipe.{hand.number}"
    with suppress(FileExistsError):
        os.mkfifo(pipe)
    for turn in _always():
        where = str(gone if turn % 2 else pipe)
        place: dict[str, Any] = ({}, {"cwd": str(gone.parent)}, {"stdout": where})[turn % 3]
        hand.submit(
            command=["sleep", "5"],
            gpus=1,
            time_limit_s=2,
            env={"YARD_CHECKPOINT_FILE": where},
            checkpoint_s=1,
            **place,
        )
        time.sleep(0.2)


ATTACKS = (
    Attack("bodies of strangers", "a body of 316 kB with one key twice, to the login", "port", _anonymous_bodies),
    Attack("heads of strangers", "60 MB of headers on each connection", "port", _anonymous_heads),
    Attack("connections of strangers", "800 connections that never finish a request, renewed", "port", _unfinished(0)),
    Attack("pages of other sites", "requests with a forged Host or Origin", "port", _pages),
    Attack("connections", "the same 800 by a user", "socket", _unfinished(Path())),
    Attack("bodies", "the same body of 316 kB by a user, 8 at once", "socket", _bodies, 8),
    Attack("submissions", "jobs of one GPU, one after the other on 8 connections", "socket", _submissions, 8),
    Attack("scripts", "jobs with a script of 1 MB, each another", "socket", _scripts),
    Attack("tenants", "jobs for tenants that nobody has", "socket", _tenants, 4),
    Attack("arrays", "arrays of 10,000, and after each an array of 500", "socket", _arrays),
    Attack("held arrays", "arrays of 5,000 held tasks, one after the other on 8 connections", "socket", _held, 8),
    Attack("dependencies", "jobs with 1,000 dependencies on one job", "socket", _dependencies),
    Attack("aftercorr", "arrays of 1,000 with `aftercorr` on an ended one", "socket", _correspondences),
    Attack("dependants", "cancelling an array of 5,000 with 20,000 dependants", "socket", _dependants, 1),
    Attack("cancels", "cancelling 20,000 jobs by their ids", "socket", _cancels, 1),
    Attack("tasks", "arrays of 400 that ask for nothing, every second", "socket", _tasks),
    Attack("why", "40 times `why` at once, 20,000 waiting", "socket", _about("/api/v1/jobs/{id}/why"), 40),
    Attack("eta", "10 times `eta` at once, 20,000 waiting", "socket", _about("/api/v1/jobs/{id}/eta"), 10),
    Attack("show", "10 times `show` at once, 20,000 waiting", "socket", _about("/api/v1/jobs/{id}"), 10),
    Attack("lists", "queue, jobs and overview, 4 at once, 20,000 waiting", "socket",
           _about("/api/v1/queue", "/api/v1/jobs?limit=1000", "/api/v1/overview", "/api/v1/share"), 4),
    Attack("cursors", "cursors, times and ids beyond their range", "socket", _cursors, 4),
    Attack("followers", "60 followers of a log that the job named itself", "socket", _followers),
    Attack("dead files", "checkpoints, folders and output where no file system answers", "socket", _dead_files),
)  # fmt: skip
BY_NAME = {attack.name: attack for attack in ATTACKS}
