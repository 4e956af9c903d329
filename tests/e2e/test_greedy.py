"""One user's clients that ask for much and read nothing: what they hold of the server."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpuyard.api.edge.unread import UNREAD_MAX
from gpuyard.wire.endpoints import READ_BYTES_MAX
from harness.patience import patient, until
from rigs.teams import CONFIG

from .conftest import Box, Done

MIB = 1 << 20


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
    box = Shared(tmp_path_factory.mktemp("greedy") / "yard", CONFIG)
    box.up()
    yield box
    done = box("down", "--jobs")
    assert 0 == done.code, done.err


def peak_mib(server: int) -> float:
    """The most memory that it has had since `forget_peak`."""
    status = Path(f"/proc/{server}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def forget_peak(server: int) -> None:
    Path(f"/proc/{server}/clear_refs").write_text("5")


def test_large_answers_that_many_connections_ask_for_and_never_read_take_what_a_user_may_have(
    shared: Shared,
) -> None:
    """They took three times as much, made before one was counted, and as much again of the system's memory."""
    server, ulla = shared.note()["pid"], shared.token("ulla")
    command = ["bash", "-c", f"head -c {READ_BYTES_MAX} /dev/zero | tr '\\0' x; sleep 600"]
    said = shared.answer(ulla, "POST", "/jobs", json.dumps({"command": command}).encode())
    job = json.loads(said.partition(b"\r\n\r\n")[2])["id"]
    path = f"/jobs/{job}/logs?limit={READ_BYTES_MAX}"
    until(lambda: len(shared.answer(ulla, "GET", path)) > READ_BYTES_MAX)

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
