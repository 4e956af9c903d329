"""A client of the keeper of a job's terminals, as the server passes it on: frames, one after the other."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from contract.rigs import LocalRig, look
from gpuyard.engines.node.visits import frames
from harness import patience

WAIT_S = 20.0


class Visit:
    """One client, from what it asks for to its end."""

    def __init__(self, rig: LocalRig, key: str, *, own: bool = False, **asked: Any) -> None:
        self.link = link = patience.until(
            lambda: rig.engine.terminal(key, own=own), WAIT_S, lambda: look(rig, key)
        )
        link.settimeout(patience.patient(WAIT_S))
        self.send(frames.HELLO, json.dumps(asked).encode())
        self.frames = self._frames()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self.link.sendall(frames.frame(kind, content))

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        with self.link, self.link.makefile("rb") as file, suppress(ConnectionResetError):
            while head := file.read(frames.HEAD.size):
                kind, size = frames.HEAD.unpack(head)
                yield kind, file.read(size)

    def until(self, text: str) -> str:
        """What it shows, up to this text."""
        shown = ""
        for kind, content in self.frames:
            shown += content.decode() if kind == frames.DATA else ""
            if text in shown:
                return shown
        raise AssertionError(f"{text!r} was not shown, but {shown!r}")

    def end(self) -> tuple[str, Any]:
        """What it shows up to its end, and how it ended."""
        shown, how = b"", None
        for kind, content in self.frames:
            shown += content if kind == frames.DATA else b""
            if kind in (frames.EXIT, frames.ERROR):
                how = json.loads(content) if kind == frames.EXIT else content.decode()
        return shown.decode().replace("\r", ""), how


def put(rig: LocalRig, key: str, path: str, text: bytes) -> int:
    """Copy a file into a job, as `yard cp`; how many files arrived."""
    visit = Visit(rig, key, do="write", path=path)
    assert frames.HELLO == next(visit.frames)[0]
    head = {"path": "x", "mode": 0o644, "folder": False, "size": len(text)}
    visit.send(frames.FILE, json.dumps(head).encode())
    visit.send(frames.DATA, text)
    visit.send(frames.END)
    how = visit.end()[1]
    assert isinstance(how, dict), how
    return int(how["files"])


def fetched(rig: LocalRig, key: str, port: int, sent: bytes) -> str:
    """What a port of a job answers, as `yard forward` passes it on."""
    visit = Visit(rig, key, do="forward", port=port)
    visit.send(frames.DATA, sent)
    visit.send(frames.END)
    return visit.end()[0]
