"""Lines for syslog: RFC 5424, over TCP (counted, as RFC 6587 has it), UDP or a Unix socket.

Syslog has no answers. A batch over a stream counts as taken once the receiver's kernel has all of it and the connection
has stood for a moment more: a receiver that dies with lines unread resets the connection, and they are sent again. By a
Unix socket, the receiver itself has to have read them.
"""

import errno
import fcntl
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

from gpuyard.shipping.contract import Away, SinkSpec, failure_text
from gpuyard.shipping.lines import LogLine

TIMEOUT_S = 10.0
SETTLE_S = 0.3
"""How long a connection has to stand after its last byte was taken."""
_LOOK_S = 0.01
_UNPACED, _PACE_S = 20, 0.002
"""After so many datagrams the receiver gets a moment to read them: what its buffer cannot hold is gone."""
_UNSENT = 0x5411
"""SIOCOUTQ: bytes that the other side has not acknowledged."""
_INFO = 6
FACILITIES = {
    "kern": 0, "user": 1, "mail": 2, "daemon": 3, "auth": 4, "syslog": 5, "lpr": 6, "news": 7, "uucp": 8, "cron": 9,
    "authpriv": 10, "ftp": 11, **{f"local{number}": 16 + number for number in range(8)},
}  # fmt: skip


class Syslog:
    """One receiver."""

    def __init__(self, spec: SinkSpec) -> None:
        self._url = spec.url
        self._parts = urlsplit(spec.url)
        self._facility = spec.facility
        self._host = socket.gethostname()
        self._socket: socket.socket | None = None

    def send(self, lines: Sequence[LogLine]) -> int:
        """Send a batch; returns when it counts as taken."""
        messages = [message(line, self._facility, self._host) for line in lines]
        try:
            sock = self._connected()
            if sock.type == socket.SOCK_STREAM:
                sock.sendall(b"".join([b"%d %s" % (len(each), each) for each in messages]))
                self._settle(sock)
            else:
                for number, each in enumerate(messages, 1):
                    sock.send(each)
                    if sock.family != socket.AF_UNIX and number % _UNPACED == 0:
                        time.sleep(_PACE_S)
        except OSError as error:
            self.close()
            raise Away(f"{self._url} does not take lines: {failure_text(error)}") from error
        return 0

    def _connected(self) -> socket.socket:
        if self._socket is not None and self._socket.type == socket.SOCK_STREAM:
            # A receiver that has gone since the last batch would swallow the first bytes of this one.
            _check_open(self._socket)
        if self._socket is None:
            self._socket = self._opened()
            self._socket.settimeout(TIMEOUT_S)
        return self._socket

    def _opened(self) -> socket.socket:
        host, port, scheme = self._parts.hostname or "", self._parts.port or 514, self._parts.scheme
        if scheme == "tcp":
            return socket.create_connection((host, port), timeout=TIMEOUT_S)
        if scheme == "udp":
            family, kind, number, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            made = socket.socket(family, kind, number)
            made.connect(address)
            return made
        # What listens at a path is found out by trying: /dev/log is of datagrams, others may be streams.
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            made = socket.socket(socket.AF_UNIX, kind)
            made.settimeout(TIMEOUT_S)
            try:
                made.connect(self._parts.path)
            except OSError as error:
                made.close()
                if kind == socket.SOCK_STREAM or error.errno != errno.EPROTOTYPE:
                    raise
            else:
                return made
        raise AssertionError("the last kind returns or raises")

    def _settle(self, sock: socket.socket) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while _unsent(sock):
            if time.monotonic() > until_s:
                raise TimeoutError(f"nothing was read for {TIMEOUT_S:g} s")
            _check_open(sock)
            time.sleep(_LOOK_S)
        time.sleep(SETTLE_S)
        _check_open(sock)

    def close(self) -> None:
        """Let go."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None


def _unsent(sock: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(sock, _UNSENT, b"\0" * 4))[0])


def _check_open(sock: socket.socket) -> None:
    if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))
    ready = select.poll()
    ready.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    if ready.poll(0) and not sock.recv(4096):
        raise ConnectionResetError("the other side has closed the connection")


def message(line: LogLine, facility: int, host: str) -> bytes:
    """A line as RFC 5424 has it. Its text and all fields are JSON in one line, and only ASCII."""
    fields = {name: value for name, value in line.fields().items() if value}
    at = datetime.fromtimestamp(line.at_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    stamp = f"{at}.{line.at_ns // 1000 % 1_000_000:06d}Z"
    process = _word(f"{fields.get('job', '-')}", 128)
    head = (
        f"<{facility * 8 + _INFO}>1 {stamp} {_word(host, 255)} gpuyard {process} {_word(line.stream, 32)} - "
    )
    return (head + json.dumps({**fields, "message": line.text})).encode("ascii")


def _word(text: str, most: int) -> str:
    return "".join([each for each in text if "!" <= each <= "~"])[:most] or "-"
