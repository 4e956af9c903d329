"""The process beside the server that reads a long log ahead: projections that are filled again take its events.

Reading and decoding an event takes about as long as folding it, and both are Python: so a process of its own does the
one while the server does the other. The pipe between them is the queue: the process waits while it is full, and ends
when the server does.
"""

import fcntl
import gc
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

from gpuyard import interpreter
from gpuyard.engines.machine.beside_process import Ends, begin, start
from gpuyard.errors import YardError
from gpuyard.store import Numbered, open_store
from gpuyard.store.packing import Packer, Unpacker

PIPE_BYTES = 1 << 20
"""Of the pipe: room for some ten thousand events."""
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
        self._child = start(interpreter.command("-c", _MAIN), _make_line())
        asked, self._events = self._child.line
        with suppress(OSError):
            # A store's URL may hold a password: it stands on no command line. One that is gone is found out below.
            asked.send((store, after_seq, until_seq, piece))

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
        try:
            if piece := self._events.recv_bytes():
                return piece
            wrong = self._events.recv_bytes().decode()
        except (OSError, EOFError) as error:
            raise YardError(f"the process that reads the log ahead {self._child.fate()}") from error
        raise YardError(f"the log could not be read ahead: {wrong}")

    def close(self) -> None:
        """End it."""
        self._child.end()


def _make_line() -> Ends[tuple[Connection, Connection]]:
    (its_question, question), (events, its_events) = Pipe(duplex=False), Pipe(duplex=False)
    with suppress(OSError):
        # Where a user has too many of them, they are small.
        fcntl.fcntl(events.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return Ends((question, events), (its_question, its_events))


def main() -> None:
    """In the process: read and hand over, until all is told or the server is gone."""
    question, events = begin(0)
    # What it makes has no circles.
    gc.disable()
    url, seq, until_seq, piece = Connection(question).recv()
    packer, out = Packer(), Connection(events, readable=False)
    with suppress(BrokenPipeError):
        try:
            with open_store(url) as store:
                while seq < until_seq and (lines := store.read_lines(seq, piece, until_seq)):
                    out.send_bytes(packer.pack(lines))
                    seq = lines[-1][0]
        except YardError as error:
            # An empty piece, and then what went wrong.
            out.send_bytes(b"")
            out.send_bytes(error.message.encode())
