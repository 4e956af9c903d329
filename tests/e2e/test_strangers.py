"""Requests of somebody who is nobody here: they cost the yard next to nothing, whatever they send."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest

from harness.patience import patient

from .conftest import Box, cpu_s

LOGIN = "/api/v1/login/oidc"
PROMPT_S = 3.0
"""Of the processor: far more than a small answer takes, and far less than the attacks took."""


@contextmanager
def asked(box: Box, method: str, path: str, *headers: str, body: bytes = b"") -> Iterator[socket.socket]:
    """A connection over which one request was sent, as it is."""
    own = [line.partition(":")[0].lower() for line in headers]
    usual = [
        line
        for line in ("Host: localhost", f"Content-Length: {len(body)}")
        if line.partition(":")[0].lower() not in own
    ]
    lines = [f"{method} {path} HTTP/1.1", *usual, *headers, "", ""]
    with closing(
        socket.create_connection(("127.0.0.1", box.note()["port"]), timeout=patient(20))
    ) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1") + body)
        yield connection


def answered(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and problem."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = connection.recv(65536)
        assert piece, f"the server hung up after {answer!r}"
        answer += piece
    head, _, content = answer.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(content) < int(fields[b"content-length"]):
        content += connection.recv(65536)
    return int(head.split()[1]), json.loads(content)


def asks(box: Box, method: str, path: str, *headers: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    with asked(box, method, path, *headers, body=body) as connection:
        return answered(connection)


def token(box: Box) -> str:
    return f"Authorization: Bearer {(box.data / 'token').read_text().strip()}"


JSON = "Content-Type: application/json"
TWICE = b"{" + b",".join(b'"k%d":0' % n for n in range(11_000)) + b',"k10999":0}'
"""The last key is there twice: found by looking through all others for each of them, it took seconds."""
MANY = b"{" + b",".join(b'"k%d":0' % n for n in range(150_000)) + b"}"


def test_a_body_is_looked_through_once(box: Box) -> None:
    for body, says in ((TWICE, "the key 'k10999' occurs twice"), (MANY, "more than 12000 keys")):
        began_s = cpu_s(box.note()["pid"])
        status, problem = asks(box, "POST", "/api/v1/jobs", JSON, token(box), body=body)
        assert (400, True) == (status, says in problem["detail"]), problem
        assert PROMPT_S > cpu_s(box.note()["pid"]) - began_s

    many = json.dumps({"command": ["true"], **{f"k{n}": 0 for n in range(11_000)}}).encode()
    status, problem = asks(box, "POST", "/api/v1/jobs", JSON, token(box), body=many)
    assert (422, True) == (status, "and 10990 more" in problem["detail"])


def test_a_body_nobody_waits_for_is_refused_before_it_comes(box: Box) -> None:
    """There is no identity provider here; the body was announced and never sent."""
    with asked(box, "POST", LOGIN, JSON, "Content-Length: 300000") as connection:
        connection.settimeout(20 * PROMPT_S)
        assert 409 == answered(connection)[0]


@pytest.mark.parametrize(
    "kind", ["", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded"]
)
def test_a_body_says_that_it_is_json(box: Box, kind: str) -> None:
    """A page of any site can make a browser send a body that says nothing, or one of these; not one of JSON."""
    body = json.dumps({"command": ["true"], "hold": True}).encode()
    given = (kind,) if kind else ()
    status, problem = asks(box, "POST", "/api/v1/jobs", token(box), *given, body=body)
    assert (415, True) == (status, "application/json" in problem["hint"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Host: 127.0.0.1:7447",), 200),
        (("Host: LOCALHOST",), 200),
        (("Host: [::1]:80",), 200),
        (("Host: rebound.example:7447",), 421),
        (("Host: 127.0.0.1.rebound.example",), 421),
        (("Host: localhost:80", "Origin: http://localhost:80"), 200),
        (("Host: localhost:80", "Origin: http://localhost:81"), 403),
        (("Host: localhost:80", "Origin: https://page.example"), 403),
        (("Host: localhost:80", "Origin: null"), 403),
    ],
)
def test_a_page_of_another_site_is_not_served(box: Box, headers: tuple[str, ...], status: int) -> None:
    assert status == asks(box, "GET", "/healthz", *headers)[0]
    assert status == asks(box, "GET", "/api/v1/queue", token(box), *headers)[0]


def memory_mib(box: Box) -> int:
    with open(f"/proc/{box.note()['pid']}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024


def test_headers_fill_no_memory_and_connections_take_nobodys_place(box: Box) -> None:
    before = memory_mib(box)
    address = ("127.0.0.1", box.note()["port"])
    with (
        closing(socket.create_connection(address, timeout=patient(20))) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(1000):
            connection.sendall(b"X-%d: %s\r\n" % (number, b"x" * 60_000))
        raise AssertionError("60 MB of headers were taken")
    with ExitStack() as open_:
        for _ in range(600):
            # They never ask for anything; the last ones are refused.
            open_.enter_context(closing(socket.create_connection(address, timeout=patient(20))))
        done = box("run", "--", "echo", "still here")
        assert (0, "still here\n") == (done.code, done.out), done.err
    assert memory_mib(box) - before < 100
