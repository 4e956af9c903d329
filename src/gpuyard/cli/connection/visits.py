"""A visit inside a job: a connection that asks for one thing there, and what comes of it, message by message."""

import json
from collections.abc import Iterator
from typing import Any

from gpuyard.api.client import Client, StreamClosed
from gpuyard.api.connecting.websocket import WebSocket
from gpuyard.errors import YardError


class NotThere(YardError):
    """There is no such thing inside the job; the message says why."""

    exit_code = 2


class Visit:
    """One visit. For `with`."""

    def __init__(self, yard: Client, job: str | int, asked: dict[str, Any]) -> None:
        self.socket = WebSocket(*yard.terminal(job))
        try:
            self.socket.send(json.dumps(asked))
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def messages(self) -> Iterator[tuple[bytes, bytes]]:
        """Frames as they come: a letter and its content. Raises what is refused."""
        while True:
            for message in self.socket.receive():
                if frame := read_frame(message):
                    yield frame

    def begin(self) -> None:
        """Wait until what is asked for has begun."""
        for kind, _content in self.messages():
            if kind == b"h":
                return


def read_frame(message: bytes | str) -> tuple[bytes, bytes] | None:
    """A frame of the job's own; None: it is news of the yard. Raises what is refused."""
    if isinstance(message, str):
        news = json.loads(message)
        if news["event"] == "error" and news["data"].get("closed"):
            raise StreamClosed(news["data"])
        if news["event"] == "error":
            raise NotThere(news["data"]["detail"], news["data"].get("hint", ""))
        return None
    kind, content = message[:1], message[1:]
    if kind == b"e":
        raise NotThere(content.decode(errors="replace"))
    return kind, content
