"""The process beside the server that reads a long log ahead: projections that are filled again take its events.

Reading and decoding an event takes about as long as folding it, and both are Python: so a process of its own does the
one while the server does the other. The pipe between them is the queue: the process waits while it is full, and ends
when the server does.
"""

import fcntl
import gc
import json
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from typing import IO

from gpuyard import interpreter
from gpuyard.engines.machine import processes
from gpuyard.errors import YardError
from gpuyard.store import Numbered, open_store
from gpuyard.store.packing import Packer, Unpacker

PIPE_BYTES = 1 << 20
"""Of the pipe: room for some ten thousand events."""
END_S_MAX = 5.0
_HEAD = struct.Struct(">QB")
"""How many bytes follow, and whether they are events or what went wrong."""
_MAIN = "from gpuyard.control.upkeep.reading_ahead import main; main()"


class ReadingAhead:
    """The process as the server sees it: the events from one place of the log to another, in order, once."""

    def __init__(self, store: str, after_seq: int, until_seq: int, piece: int) -> None:
        """Events after the one and up to the other, so many at once."""
        self._piece: list[Numbered] = []
        """What has come and may be asked for."""
        self._first_seq = after_seq + 1
        """The first event of what is held, or that is to come."""
        self._until_seq = until_seq
        self._unpacker = Unpacker()
        self._process = subprocess.Popen(
            interpreter.command("-c", _MAIN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )
        assert self._process.stdin is not None, "it was started with a pipe"
        assert self._process.stdout is not None, "it was started with a pipe"
        self._events: IO[bytes] = self._process.stdout
        with suppress(OSError):
            # Where a user has too many of them, they are small.
            fcntl.fcntl(self._events.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with suppress(OSError), self._process.stdin as asked:
            # A store's URL may hold a password: it stands on no command line. One that is gone is found out below.
            asked.write(json.dumps([store, after_seq, until_seq, piece]).encode())

    def after(self, seq: int, limit: int) -> list[Numbered]:
        """At most `limit` events right after this one; none: they are not to come from here. `YardError` if it died."""
        begin = seq + 1 - self._first_seq
        if not 0 <= begin <= len(self._piece):
            return []
        if begin:
            self._piece, self._first_seq = self._piece[begin:], seq + 1
        while len(self._piece) < limit and seq + len(self._piece) < self._until_seq:
            events = self._unpacker.unpack(self._next())
            self._piece += enumerate(events, start=seq + len(self._piece) + 1)
        return self._piece[:limit]

    def _next(self) -> bytes:
        head = self._events.read(_HEAD.size)
        size, good = _HEAD.unpack(head) if len(head) == _HEAD.size else (1, True)
        body = self._events.read(size)
        if len(body) < size:
            raise YardError(f"the process that reads the log ahead {self._fate()}")
        if not good:
            raise YardError(f"the log could not be read ahead: {body.decode()}")
        return body

    def _fate(self) -> str:
        try:
            code = self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            return "broke off"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._events.close()


def main() -> None:
    """In the process: read and hand over, until all is told or the server is gone."""
    # The keyboard that stops a server in the foreground means the server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.stand_back(0)
    # What it makes has no circles.
    gc.disable()
    url, seq, until_seq, piece = json.load(sys.stdin)
    packer, out = Packer(), sys.stdout.buffer
    with suppress(BrokenPipeError):
        try:
            with open_store(url) as store:
                while seq < until_seq and (lines := store.read_lines(seq, piece, until_seq)):
                    _tell(out, packer.pack(lines), True)
                    seq = lines[-1][0]
        except YardError as error:
            _tell(out, error.message.encode(), False)


def _tell(out: IO[bytes], body: bytes, good: bool) -> None:
    out.write(_HEAD.pack(len(body), good))
    out.write(body)
    out.flush()
