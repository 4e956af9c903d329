"""A client of the keeper of a job's terminals, as the server passes it on: frames, one after the other."""

import json
from collections.abc import Iterator
from typing import Any

from contract.rigs import LocalRig, look
from gpuyard.engines.node.visits import frames
from harness import patience
from rigs.visits.line import Line

WAIT_S = 20.0


class Visit:
    """One client, from what it asks for to its end."""

    def __init__(self, rig: LocalRig, key: str, *, own: bool = False, **asked: Any) -> None:
        self.line = Line(
            patience.until(lambda: rig.engine.terminal(key, own=own), WAIT_S, lambda: look(rig, key))
        )
        self.send = self.line.send
        self.send(frames.HELLO, json.dumps(asked).encode())
        self.frames = self._frames()

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        with self.line:
            for kind, content, _end in self.line.frames():
                if kind:
                    yield kind, content

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
