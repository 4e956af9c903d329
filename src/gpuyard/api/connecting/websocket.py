"""WebSocket (RFC 6455), as much as terminals need, for the server and for the client: frames, and the opening.

Without extensions. Light, and without a library: a command that opens a terminal starts as quickly as any other.
"""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_CONTINUED, _FINAL, _MASKED = 0, 0x80, 0x80
MESSAGE_BYTES_MAX = 1 << 20
PARTS_MAX = 1024
"""Frames of one message: empty ones would have no end."""
NORMAL, BROKEN, NOT_TEXT, TOO_LONG = 1000, 1002, 1007, 1009
"""Why a connection is closed."""
_REASON_BYTES_MAX = 123
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_READ_BYTES = 256 * 1024


class BadFrame(ConnectionError):
    """What came is no WebSocket, or more than is taken; the code says which."""

    def __init__(self, text: str, code: int = BROKEN) -> None:
        super().__init__(text)
        self.code = code


def answer_key(key: str) -> str:
    """The answer to the key of an opening."""
    import base64  # noqa: PLC0415 (few commands need it)
    import hashlib  # noqa: PLC0415

    return base64.b64encode(
        hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()
    ).decode()


def make_frame(kind: int, content: bytes, *, mask: bytes = b"") -> bytes:
    """A frame; a client's has a mask of four bytes."""
    size, bit = len(content), _MASKED if mask else 0
    if size < 126:
        head = bytes((_FINAL | kind, bit | size))
    elif size < 1 << 16:
        head = bytes((_FINAL | kind, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FINAL | kind, bit | 127)) + size.to_bytes(8, "big")
    return head + mask + (_crossed(content, mask) if mask else content)


def closing_content(code: int, reason: str = "") -> bytes:
    """The content of a frame that closes a connection."""
    cut = reason.encode("utf-8", "replace")[:_REASON_BYTES_MAX].decode(errors="ignore")
    return code.to_bytes(2, "big") + cut.encode()


def _crossed(content: bytes, mask: bytes) -> bytes:
    size = len(content)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(content, "big") ^ key).to_bytes(size, "big")


class Unframer:
    """Messages of the bytes of a connection; `masked`: those of a client."""

    def __init__(self, *, masked: bool) -> None:
        self._masked = masked
        self._come = bytearray()
        self._kind = 0
        self._parts = bytearray()
        """Of a message that has begun."""
        self._count = 0

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """What is whole now: kind and content."""
        self._come += data
        while (found := self._frame()) is not None:
            final, kind, content = found
            if kind >= CLOSE:
                if not final or len(content) > 125:
                    raise BadFrame("a control frame is short, and in one piece")
                yield kind, content
                continue
            if (kind == _CONTINUED) != bool(self._kind):
                raise BadFrame("a message begins before the one before it has ended, or without a beginning")
            self._kind = self._kind or kind
            self._parts += content
            self._count += 1
            if self._count > PARTS_MAX:
                raise BadFrame(f"the message is in more than {PARTS_MAX} frames", TOO_LONG)
            if len(self._parts) > MESSAGE_BYTES_MAX:
                raise BadFrame(f"the message is longer than {MESSAGE_BYTES_MAX} bytes", TOO_LONG)
            if final:
                kind, whole = self._kind, bytes(self._parts)
                self._kind, self._parts, self._count = 0, bytearray(), 0
                yield kind, whole

    def _frame(self) -> tuple[bool, int, bytes] | None:
        come = self._come
        if len(come) < 2:
            return None
        first, second = come[0], come[1]
        if first & 0x70 or (first & 0x0F) not in (_CONTINUED, TEXT, BINARY, CLOSE, PING, PONG):
            raise BadFrame("there is no such frame")
        if bool(second & _MASKED) is not self._masked:
            raise BadFrame("a client's frames have a mask, and a server's have none")
        size, at = second & 0x7F, 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            if len(come) < at + wide:
                return None
            size, at = int.from_bytes(come[at : at + wide], "big"), at + wide
        if size > MESSAGE_BYTES_MAX:
            raise BadFrame(f"the message is longer than {MESSAGE_BYTES_MAX} bytes", TOO_LONG)
        mask = bytes(come[at : at + 4]) if self._masked else b""
        at += len(mask)
        if len(come) < at + size or (self._masked and len(mask) < 4):
            return None
        content = bytes(come[at : at + size])
        del come[: at + size]
        return bool(first & _FINAL), first & 0x0F, _crossed(content, mask) if mask else content


class WebSocket:
    """The client's end of an open connection."""

    def __init__(self, connection: socket.socket, first: bytes = b"") -> None:
        self._socket = connection
        self._unframer = Unframer(masked=False)
        self._first = first
        """What came together with the answer to the opening."""

    def fileno(self) -> int:
        """To wait for what comes."""
        return self._socket.fileno()

    @property
    def ready(self) -> bool:
        """Whether something is here already, that `fileno` would not tell of."""
        pending: Any = getattr(self._socket, "pending", None)
        return bool(self._first) or (pending is not None and pending() > 0)

    def waiting(self) -> bool:
        """Whether something has come."""
        return self.ready or bool(select.select([self._socket], [], [], 0)[0])

    def send(self, content: bytes | str) -> None:
        """Send a message."""
        if isinstance(content, str):
            self._send(TEXT, content.encode())
        else:
            self._send(BINARY, content)

    def _send(self, kind: int, content: bytes) -> None:
        self._socket.sendall(make_frame(kind, content, mask=os.urandom(4)))

    def receive(self) -> list[bytes | str]:
        """Messages that have come; waits for some bytes. `ConnectionError`: it is closed."""
        data, self._first = self._first or self._socket.recv(_READ_BYTES), b""
        if not data:
            raise BadFrame("the server hung up")
        found: list[bytes | str] = []
        for kind, content in self._unframer.take(data):
            if kind == CLOSE:
                if found:
                    # First what came before it; the end comes again.
                    self._first = make_frame(CLOSE, content)
                    break
                why = content[2:].decode(errors="replace")
                raise BadFrame(f"the server closed the connection{f': {why}' if why else ''}")
            if kind == PING:
                self._send(PONG, content)
            elif kind != PONG:
                found.append(content.decode(errors="replace") if kind == TEXT else content)
        return found

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._send(CLOSE, closing_content(NORMAL))
        self._socket.close()
