"""Without `--auth`: the limits of yard.yaml for each user of this machine, known by the socket."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.api.edge.peers import PEER
from gpuyard.api.server.serving import gate_of
from gpuyard.config.values import Access, Limits


async def served(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def status(gate: Any, path: str = "/api/v1/queue", method: str = "GET", **scope: Any) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    asked = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"127.0.0.1")], **scope}
    asyncio.run(gate(asked, receive, send))
    return int(sent[0]["status"])


def test_limits_hold_for_each_user_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").touch()
    yard: Any = SimpleNamespace(
        token_service=None, token="t", data=SimpleNamespace(token_file=tmp_path / "token"),
        people=SimpleNamespace(
            directory=SimpleNamespace(placed=lambda who: who), when_renewed=lambda _tell: None,
            access=Access(limits=Limits(submits_per_s=1, reads_per_s=1, burst_s=3)),
        ),
        fleet=SimpleNamespace(access=object()), options=SimpleNamespace(host="127.0.0.1"),
        browsers=None, store=SimpleNamespace(yard="y"),
    )  # fmt: skip
    gate = gate_of(yard, served)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ana, bob, root = [{PEER: (uid, uid), "client": None} for uid in (60_001, 60_002, 0)]

    assert [200, 200, 200, 429] == [status(gate, **ana) for _ in range(4)]
    assert (200, 200) == (status(gate, **bob), status(gate, method="DELETE", **ana)), (
        "each by itself, writes apart"
    )
    assert {200} == {status(gate, **root) for _ in range(20)}, "root is not held back"
