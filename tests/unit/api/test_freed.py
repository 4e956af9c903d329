"""What was refused, or is closed, is freed at once: the collector seldom looks at what has become old."""

import gc
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuyard.api.messages.problems import Problem, find_problem
from gpuyard.api.server import app
from gpuyard.api.server.connections import ConnectionCounts, PeerProtocol
from harness.patience import Patience, until
from rigs.teams import CONFIG, team
from unit.api.test_connections import ASK, Served, flood, heard, running


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def until_freed(made: Sequence["weakref.ref[Any]"]) -> list[str]:
    """Those that are still there after a while, by their kinds."""
    patience = Patience(5)
    while left := [type(found).__name__ for each in made if (found := each()) is not None]:
        if not patience:
            break
        time.sleep(0.01)
    return left


def test_a_refusal_leaves_nothing_for_the_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[weakref.ref[Exception]] = []

    def noted(error: Exception) -> Problem | None:
        errors.append(weakref.ref(error))
        return find_problem(error)

    monkeypatch.setattr(app, "find_problem", noted)
    with team(tmp_path, f"{CONFIG}\nwaiting_per_user: 2\n") as yard:
        job = {"script": f"#!/bin/sh\n# {'x' * 100_000}\n", "hold": True}
        asked: list[tuple[str, str, Any, int]] = [
            ("POST", "/api/v1/jobs", job, 201),
            # A thread keeps the last that it was given.
            ("POST", "/api/v1/jobs/99/cancel", {}, 404),
            ("POST", "/api/v1/jobs", job | {"array": "0-9999"}, 409),
            ("POST", "/api/v1/jobs", job | {"gpus": 10_000}, 422),
            ("POST", "/api/v1/jobs", job | {"dependencies": [{"kind": "afterok", "job": 99}]}, 422),
            ("POST", "/api/v1/jobs/dry-run", job | {"tenant": "nobody/here"}, 403),
            ("GET", "/api/v1/jobs/99", None, 404),
            ("GET", "/api/v1/jobs/99/why", None, 404),
            ("POST", "/api/v1/jobs", job, 201),
        ]
        said = [yard.call(method, path, yard.tokens["ulla"], body).status for method, path, body, _ in asked]
        assert [status for *_, status in asked] == said
        assert len(asked) - 2 == len(errors)
        assert [] == until_freed(errors)


def whole(served: Served) -> None:
    with closing(served.connect()) as connection:
        connection.sendall(ASK + b"Connection: close\r\n\r\n")
        assert b"200 OK" in heard(connection)


def broken_off(served: Served) -> None:
    with closing(served.connect()) as connection:
        connection.sendall(ASK + b"Content-Length: 100\r\n\r\nhalf of it")


def too_long(served: Served) -> None:
    flood(served, ASK, b"X-Long: " + b"x" * 4000 + b"\r\n", 1000)


def reset(served: Served) -> None:
    with closing(served.connect()) as connection:
        connection.sendall(ASK + b"Content-Length: 100\r\n\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


@pytest.mark.parametrize("ask", [whole, broken_off, too_long, reset])
def test_a_closed_connection_leaves_nothing_for_the_collector(ask: Callable[[Served], None]) -> None:
    made: list[weakref.ref[PeerProtocol]] = []

    class Noted(Served):
        def _protocol(self) -> PeerProtocol:
            found = super()._protocol()
            made.append(weakref.ref(found))
            return found

    with running(Noted(ConnectionCounts(descriptors=1024))) as served:
        for _ in range(3):
            ask(served)
        until(lambda: 3 == len(made))
        assert [] == until_freed(made)
