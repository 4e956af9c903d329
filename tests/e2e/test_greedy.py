"""One user's clients that ask for much and leave, or read nothing: what they hold of the server, and for how long."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from gpuyard.api.edge.unread import ALL_MAX, UNREAD_MAX
from gpuyard.api.handlers.streams import LOOK_S_MAX
from gpuyard.wire.endpoints import READ_BYTES_MAX
from harness.patience import patient, until
from rigs.teams import CONFIG, ME

from .conftest import Box, Done, cpu_s

MIB = 1 << 20
MANY = 20
READERS = "".join([f"    r{n}: {{unix: {ME}, tenant: research, role: tenant-admin}}\n" for n in range(MANY)])
"""People who may read what research wrote."""
SLOW = "#!/bin/bash\n" + "".join([f"#SBATCH --export=A{n}=1\n" for n in range(38_000)])
"""A text that is read for about as long as a text may be."""
PROMPT_S = 1.0
"""Of the processor: less than half of what such a text takes."""
SMALL = "#!/bin/bash\n#SBATCH -n 1\ntrue\n"


class Shared(Box):
    """A yard that asks everybody for a token."""

    def up(self) -> Done:
        done = self("up", "-d", "--port", 0, "--auth", "--config", self.config)
        assert 0 == done.code, done.err
        return done

    def token(self, user: str) -> str:
        done = self("token", "create", "--user", user)
        assert 0 == done.code, done.err
        return done.out.split()[-1]

    def ask(self, opened: ExitStack, token: str, method: str, path: str, body: bytes = b"") -> socket.socket:
        """A connection over which one request was sent; it takes little by itself."""
        connection = opened.enter_context(closing(socket.socket()))
        connection.settimeout(patient(60))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.note()["port"]))
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        return connection

    def answer(self, token: str, method: str, path: str, body: bytes = b"") -> bytes:
        """All of the answer."""
        with ExitStack() as opened:
            connection, said = self.ask(opened, token, method, path, body), b""
            while piece := connection.recv(65536):
                said += piece
            return said


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    box = Shared(
        tmp_path_factory.mktemp("greedy") / "yard",
        CONFIG.replace("  limits:", f"{READERS}  limits:").replace("at_once: 100", "at_once: 1000"),
    )
    box.up()
    yield box
    done = box("down", "--jobs")
    assert 0 == done.code, done.err


def read(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


def children(pid: int) -> list[int]:
    """Of all its threads."""
    found = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(text) for text in each.read_text().split()]
    return found


def reading(server: int) -> int:
    """The process that waits for texts."""
    for pid in children(server):
        with suppress(OSError):
            if b"gpuyard.control.parsing" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    raise AssertionError("no process reads texts")


def took_s(server: int) -> float:
    """What all readings have taken of the CPU: they are forks of one process."""
    forks = reading(server)
    return cpu_s(forks) + sum([cpu_s(pid) for pid in children(forks)])


def test_a_text_is_not_read_on_when_its_client_has_left(shared: Shared) -> None:
    """It was read to its end, and others waited for the one process that reads texts."""
    server, ulla = shared.note()["pid"], shared.token("ulla")
    assert b"HTTP/1.1 200" == shared.answer(ulla, "POST", "/jobs/read", read(SMALL))[:12]
    until(lambda: not children(reading(server)))
    with ExitStack() as opened:
        shared.ask(opened, ulla, "POST", "/jobs/read", read(SLOW))
        until(lambda: children(reading(server)))
        began_s = took_s(server)
    until(lambda: not children(reading(server)), 60)
    assert took_s(server) - began_s < PROMPT_S
    assert b"HTTP/1.1 200" == shared.answer(ulla, "POST", "/jobs/read", read(SMALL))[:12]


def test_a_text_whose_client_left_while_it_waited_is_not_read(shared: Shared) -> None:
    server, ulla = shared.note()["pid"], shared.token("ulla")
    assert b"HTTP/1.1 200" == shared.answer(ulla, "POST", "/jobs/read", read(SMALL))[:12]
    began_s = took_s(server)
    with ExitStack() as opened:
        for _ in range(5):
            shared.ask(opened, ulla, "POST", "/jobs/read", read(SLOW))
        until(lambda: children(reading(server)))
    assert b"HTTP/1.1 200" == shared.answer(ulla, "POST", "/jobs/read", read(SMALL))[:12]
    until(lambda: not children(reading(server)), 60)
    assert took_s(server) - began_s < PROMPT_S


def peak_mib(server: int) -> float:
    """The most memory that it has had since `forget_peak`."""
    status = Path(f"/proc/{server}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def forget_peak(server: int) -> None:
    Path(f"/proc/{server}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def long_log(shared: Shared) -> str:
    """Where the log of a job of research is asked for, which is as long as an answer may be."""
    ulla = shared.token("ulla")
    command = ["bash", "-c", f"head -c {READ_BYTES_MAX} /dev/zero | tr '\\0' x; sleep 600"]
    said = shared.answer(ulla, "POST", "/jobs", json.dumps({"command": command}).encode())
    job = json.loads(said.partition(b"\r\n\r\n")[2])["id"]
    path = f"/jobs/{job}/logs?limit={READ_BYTES_MAX}"
    until(lambda: len(shared.answer(ulla, "GET", path)) > READ_BYTES_MAX)
    return path


def test_large_answers_that_many_connections_ask_for_and_never_read_take_what_a_user_may_have(
    shared: Shared, long_log: str
) -> None:
    """They took three times as much, made before one was counted, and as much again of the system's memory."""
    server, ulla, path = shared.note()["pid"], shared.token("ulla"), long_log
    forget_peak(server)
    before_mib = peak_mib(server)
    with ExitStack() as opened:
        greedy = [shared.ask(opened, ulla, "GET", path) for _ in range(60)]
        heads = [connection.recv(12) for connection in greedy]
        assert (4, 56) == (heads.count(b"HTTP/1.1 200"), heads.count(b"HTTP/1.1 429"))
        assert peak_mib(server) - before_mib < 2 * UNREAD_MAX / MIB
        assert b"HTTP/1.1 200" == shared.answer(shared.token("erik"), "GET", "/me")[:12], (
            "others are answered"
        )
    until(lambda: len(shared.answer(ulla, "GET", path)) > READ_BYTES_MAX)


def test_many_users_that_read_nothing_leave_room_for_others(shared: Shared, long_log: str) -> None:
    """Each of twenty took 16 MiB, and nobody counted them together."""
    server, path = shared.note()["pid"], long_log
    tokens = [shared.token(f"r{n}") for n in range(MANY)]
    ulla, erik = shared.token("ulla"), shared.token("erik")
    forget_peak(server)
    before_mib = peak_mib(server)
    with ExitStack() as opened:
        heads: list[bytes] = []
        for _ in range(UNREAD_MAX // READ_BYTES_MAX):
            some = [shared.ask(opened, token, "GET", path) for token in tokens]
            heads += [connection.recv(12) for connection in some]
        assert {b"HTTP/1.1 200", b"HTTP/1.1 503"} == set(heads)
        given = heads.count(b"HTTP/1.1 200")
        assert ALL_MAX // 2 < given * READ_BYTES_MAX < ALL_MAX
        assert peak_mib(server) - before_mib < 1.25 * ALL_MAX / MIB
        assert b"HTTP/1.1 200" == shared.answer(erik, "GET", "/me")[:12]
        assert (
            b"HTTP/1.1 201"
            == shared.answer(erik, "POST", "/jobs", json.dumps({"command": ["true"]}).encode())[:12]
        )
        assert len(shared.answer(ulla, "GET", path)) > READ_BYTES_MAX, "one more finds some room"
        refused = shared.answer(tokens[0], "GET", path)
        assert b"HTTP/1.1 503" == refused[:12]
        assert b"retry-after: 2" in refused.lower()
        assert b"overloaded" in refused
    until(lambda: len(shared.answer(tokens[0], "GET", path)) > READ_BYTES_MAX)


def test_streams_that_nobody_reads_take_what_a_user_may_have(shared: Shared, tmp_path: Path) -> None:
    """Each of 200 followers of a log held a piece of it, six times as long as JSON."""
    server, carl, go = shared.note()["pid"], shared.token("carl"), tmp_path / "go"
    command = ["bash", "-c", f"until [ -e {go} ]; do sleep 0.1; done; head -c 1000000 /dev/zero; sleep 600"]
    said = shared.answer(carl, "POST", "/jobs", json.dumps({"command": command}).encode())
    job = json.loads(said.partition(b"\r\n\r\n")[2])["id"]
    with ExitStack() as opened:
        path = f"/jobs/{job}/logs?follow=true"
        streams = [shared.ask(opened, carl, "GET", path) for _ in range(200)]
        assert {b"HTTP/1.1 200"} == {stream.recv(12) for stream in streams}
        forget_peak(server)
        before_mib = peak_mib(server)
        go.touch()
        until(lambda: len(shared.answer(carl, "GET", f"/jobs/{job}/logs?limit=1000000")) > 1_000_000)
        # All of them have looked again by then.
        time.sleep(2 * LOOK_S_MAX)
        assert peak_mib(server) - before_mib < 3 * UNREAD_MAX / MIB
        for stream in streams[1:]:
            stream.close()
        # What is left is read on where it stood.
        got = 0
        while got < 6 * 1_000_000:
            piece = streams[0].recv(1 << 20)
            assert piece, f"it was closed after {got} bytes"
            got += len(piece)
