"""A command beside a job, from pipes and files here: what comes in goes there until it ends, what it writes comes back.

Bytes stay as they are, standard error comes apart, signals are passed on, and the exit code is the command's: as
`ssh host command` does it, for scripts, cron and CI.
"""

import json
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gpuyard.api.client import Client
from gpuyard.cli.connection.visits import NotThere, Visit
from gpuyard.errors import YardError, error_text

_READ_BYTES = 65536
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_OUT = {b"d": 1, b"r": 2}
_SEND_S = 1.0
"""How long a signal waits behind what is being sent."""


def run(yard: Client, job: str | int, argv: list[str], *, reads: bool = True) -> int:
    """Run a command beside a job, a shell where there is none; gives its exit code. `reads`: it gets our input."""
    with Visit(yard, job, {"do": "run", "argv": argv}) as visit:
        return passed_on(visit, job, reads)


def passed_on(visit: Visit, job: str | int, reads: bool, out: Mapping[bytes, int] = _OUT) -> int:
    """Pass on both ways until the command of a visit has ended; gives its exit code. What it writes goes to `out`."""
    piped = _Piped(visit, out)
    before = {number: signal.signal(number, piped.pass_on) for number in _PASSED_ON}
    try:
        return piped.run(reads)
    except ConnectionError as error:
        if piped.unread:
            raise
        raise YardError(
            f"the connection was lost: {error_text(error)}", f"The command in job {job} is hung up."
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Piped:
    """One command."""

    def __init__(self, visit: Visit, out: Mapping[bytes, int]) -> None:
        self._visit, self._out = visit, out
        self._lock = threading.Lock()
        """One message after the other."""
        self._interrupted = False
        self.unread = False
        """Whether the reader of our output has gone, as `head` does."""

    def run(self, reads: bool) -> int:
        for kind, content in self._visit.messages():
            if kind == b"h":
                # A thread of its own: neither way waits for the other.
                threading.Thread(target=self._send, args=(reads,), daemon=True).start()
            elif kind in self._out:
                self._show(self._out[kind], content)
            elif kind == b"x":
                return int(json.loads(content)["code"])
        raise AssertionError("messages end with an exception")

    def _show(self, stream: int, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(stream, rest) :]
        except BrokenPipeError:
            self.unread = True
            raise

    def _send(self, reads: bool) -> None:
        with suppress(OSError, YardError):
            while reads and (piece := os.read(0, _READ_BYTES)):
                with self._lock:
                    self._visit.socket.send(b"d" + piece)
            with self._lock:
                self._visit.socket.send(b"z")

    def pass_on(self, number: int, _frame: Any) -> None:
        """Send the command a signal that came here; the second interrupt gives it up."""
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self._interrupted or number == signal.SIGINT
        if not self._lock.acquire(timeout=_SEND_S):
            # The command takes nothing: to hang up is all that is left.
            raise KeyboardInterrupt
        try:
            self._visit.socket.send(b"s" + str(number).encode())
        finally:
            self._lock.release()


def send_signal(yard: Client, job: str | int, number: int, whom: str) -> int:
    """Send processes of a running job a signal: its script (`batch`), what that started (`steps`) or all of them.

    Gives how many got it.
    """
    with Visit(yard, job, {"do": "signal", "number": number, "whom": whom}) as visit:
        for kind, content in visit.messages():
            if kind == b"x":
                return int(json.loads(content)["processes"])
    raise NotThere(f"job {job} has ended")
