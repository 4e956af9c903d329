"""The server's log stays the server's: whatever is sent to it, each line is one that it wrote, and they are few."""

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from gpuyard.api.connecting.websocket import WebSocket
from gpuyard.wire.endpoints import ENDPOINTS
from harness.patience import patient
from rigs.teams import CONFIG

from .conftest import Box

FORGED = "2026-01-01T00:00:00Z INFO gpuyard.api.handlers.terminals: adam: shell, job 1"
HOSTILE = f"a\n{FORGED}\r\x1b[2J\x1b[31m\x9b1m\u2028{FORGED}\u2029\x85\x00\u202eb"
LARGE = HOSTILE + 250_000 * "long"
OURS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING) (gpuyard|uvicorn|asyncio)[\w.]*: \S")
GROWN_BYTES_MAX = 50_000
"""Of what all of it adds: more than 20 MB are sent."""
WAYS = ("shell", "attach", "forward", "read", "write", "run", "signal", "stay")


class Provider(BaseHTTPRequestHandler):
    """An identity provider that says of itself what it likes."""

    def do_GET(self) -> None:
        body = json.dumps({"issuer": LARGE}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    provider = HTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    oidc = f"  oidc: {{issuer: 'http://127.0.0.1:{provider.server_port}', client_id: gpuyard}}\n"
    made = Box(tmp_path_factory.mktemp("lines") / "yard", CONFIG + oidc)
    done = made("up", "-d", "--port", 0, "--config", made.config, "--auth")
    assert 0 == done.code, done.err
    yield made
    assert 0 == made("down", "--jobs").code
    provider.shutdown()
    provider.server_close()


class Asker:
    """Somebody who sends anything: a stranger, or the person whose token it is."""

    def __init__(self, box: Box, token: str = "", address: str = "127.0.0.1") -> None:
        self._address, self._port = address, box.note()["port"]
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: bytes | None = None) -> int:
        """One request; its status, 0: the server hung up."""
        link = http.client.HTTPConnection(
            "127.0.0.1", self._port, timeout=patient(20), source_address=(self._address, 0)
        )
        with closing(link), suppress(ConnectionError, http.client.HTTPException):
            forged = {"User-Agent": f"\x9b1m{FORGED}", "X-Forwarded-For": FORGED, "Referer": FORGED}
            link.request(method, path, body, {"Content-Type": "application/json", **forged, **self._headers})
            return link.getresponse().status
        return 0

    def submit(self) -> int:
        """A job that goes on; its id."""
        link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=patient(20))
        with closing(link):
            wanted = json.dumps({"command": ["sleep", "600"], "gpus": 1, "tenant": "research"})
            link.request(
                "POST", "/api/v1/jobs", wanted, {"Content-Type": "application/json", **self._headers}
            )
            return int(json.loads(link.getresponse().read())["id"])

    def enter(self, job: int, first: str, *frames: bytes) -> None:
        """Come into a job, say something, and wait until the server hangs up or says something."""
        link = socket.create_connection(("127.0.0.1", self._port), timeout=patient(20))
        words = [f"{name}: {value}" for name, value in self._headers.items()]
        words += ["Host: localhost", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        head = f"GET /api/v1/jobs/{job}/terminal HTTP/1.1\r\nSec-WebSocket-Key: a2V5\r\n" + "\r\n".join(words)
        with link, suppress(ConnectionError):
            link.sendall(f"{head}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += link.recv(1)
            assert answer.startswith(b"HTTP/1.1 101"), answer
            entered = WebSocket(link)
            entered.send(first)
            for each in frames:
                entered.send(each)
            while not list(entered.receive()):
                pass

    def garble(self) -> None:
        """Send what is no request."""
        with closing(socket.create_connection(("127.0.0.1", self._port), timeout=patient(20))) as link:
            link.sendall(f"GET /{FORGED} \x1b[31m\n{FORGED}\n\n".encode())
            with suppress(ConnectionError):
                link.recv(65536)


class LogSince:
    """What the server's log has got since this was made, also where it was put aside in the middle."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._begin = len(self._whole())

    def _whole(self) -> bytes:
        return b"".join(
            [each.read_bytes() for each in sorted(self._box.data.glob("yard.log*"), reverse=True)]
        )

    def check(self) -> list[str]:
        """Check that it has grown by little, and by lines of ours alone: those lines."""
        grown = self._whole()[self._begin :]
        assert len(grown) < GROWN_BYTES_MAX
        return checked(grown)


def checked(log: bytes) -> list[str]:
    """The lines of a log, as a viewer shows them that begins new ones wherever Unicode does; each is of ours."""
    lines = log.decode().splitlines()
    for line in lines:
        assert OURS.match(line), line[:500]
        assert line.isprintable(), line[:500]
    return lines


def test_no_request_forges_a_line_of_the_log_or_fills_it(yard: Box) -> None:
    token, log = yard("token", "create", "--user", "ulla").out.strip(), LogSince(yard)
    names = {
        "code",
        "text",
        "yaml",
        "command",
        "name",
        "tenant",
        "user",
        "id_token",
        "nonce",
        "verifier",
        "ids",
    }
    for asker in (Asker(yard), Asker(yard, token)):
        for endpoint in ENDPOINTS:
            inside = dict.fromkeys(re.findall(r"{(\w+)}", endpoint.path), HOSTILE)
            asked = {each["name"]: HOSTILE for each in endpoint.parameters}
            body = None
            if endpoint.body:
                large = LARGE if endpoint.path.endswith(("/jobs", "/read", "/code")) else HOSTILE
                told = dict.fromkeys(names, HOSTILE) | {"text": large, "code": large, HOSTILE: HOSTILE}
                body = json.dumps(told).encode()
            assert asker.ask(endpoint.method, endpoint.address(**inside, **asked), body) != 500, endpoint.path
        asker.garble()

    log.check()


def test_no_identity_provider_forges_a_line_of_the_log_or_fills_it(yard: Box) -> None:
    log = LogSince(yard)
    code = {"code": "c", "verifier": 43 * "v", "nonce": 43 * "n", "redirect_uri": "http://localhost/"}
    for number in range(2, 17):
        # Logins from one address are few.
        stranger = Asker(yard, address=f"127.0.0.{number}")
        assert 503 == stranger.ask("GET", "/api/v1/login/provider")
        assert 503 == stranger.ask("POST", "/api/v1/login/oidc/code", json.dumps(code).encode())

    assert any(["the identity provider cannot be asked" in line for line in log.check()])


def test_no_way_into_a_job_forges_a_line_of_a_log_or_fills_it(yard: Box) -> None:
    ulla = Asker(yard, yard("token", "create", "--user", "ulla").out.strip())
    job = ulla.submit()
    yard.wait(job, "RUNNING")
    log = LogSince(yard)
    large = json.dumps({"do": LARGE[:900_000]}, ensure_ascii=False)
    for _ in range(15):
        ulla.enter(job, large)
    ulla.enter(job, json.dumps({"do": HOSTILE}))
    ulla.enter(job, HOSTILE)
    for do in WAYS:
        told = {"argv": [HOSTILE], "path": HOSTILE, "port": HOSTILE, "session": HOSTILE, "signal": HOSTILE}
        ulla.enter(
            job, json.dumps({"do": do, **told}), *[kind + HOSTILE.encode() for kind in (b"s", b"z", b"f")]
        )

    log.check()
    for each in yard.data.rglob("spawner.log"):
        checked(each.read_bytes())
