"""A process beside the server that forks for each question: nothing of a question stays in it, nor in the server.

The server asks from any of its threads. The process is started with the first question, started again when it is gone,
and ends with the server, or after a while without questions. A fork has what the process has at no cost, may do with it
what it likes, and is gone with all its memory when it has answered, or when its time is up.
"""

import fcntl
import os
import pickle
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NoReturn

from gpuyard import interpreter
from gpuyard.control.refusals import Overloaded
from gpuyard.engines.machine.beside_process import BesideProcess, Ends, begin, start
from gpuyard.errors import error_text

HEAD_BYTES_MAX = 64
"""What may be said to the process itself with a question."""
REAP_S = 1.0
"""How often it looks for forks that have ended, while there are any."""
NICENESS = 5
"""Jobs and the server come first, but a user waits for the answer."""
END_S_MAX = 2.0


class GivenUp(Overloaded):
    """Nobody wants the answer any longer."""


class Wanted:
    """Whether an answer is still wanted: it is given up from any thread, also before the question is asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._line: socket.socket | None = None

    def give_up(self) -> None:
        """Ask no longer: the fork that is at it ends."""
        with self._lock:
            self._given_up = True
            if self._line is not None:
                with suppress(OSError):
                    self._line.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def over(self, line: socket.socket) -> Iterator[None]:
        """Ask over this line; raises `GivenUp` as soon as the answer is not wanted."""
        with self._lock:
            self._line = line
            over = self._given_up
        try:
            if over:
                raise GivenUp("the answer is not wanted any longer")
            yield
        except (OSError, EOFError):
            if self._given_up:
                raise GivenUp("the answer is not wanted any longer") from None
            raise
        finally:
            with self._lock:
                self._line = None


class ForkingProcess(BesideProcess[tuple[socket.socket]]):
    """The process as the server sees it. It ends its forks when the line does, and so all questions with it."""

    def __init__(self, main: str, arguments: tuple[str, ...] = (), first: bytes = b"-") -> None:
        """`main`: its program; `first`: what it is told before the first question, which stands on no command line."""
        super().__init__(
            "the process that answers",
            lambda: start(interpreter.command("-c", main, *arguments), _make_line()),
            lambda line: line[0].send(first),
            lambda: Overloaded("the yard is stopping", "Start it again with `yard up -d`."),
            end_s=END_S_MAX,
        )

    def exchange(self, head: bytes, question: Any, most_s: float, wanted: Wanted | None = None) -> Any:
        """The answer of a fork; `EOFError` or `TimeoutError` where there is none, `Overloaded` where none was made."""
        wanted = wanted or Wanted()
        try:
            for _attempt in range(2):
                # It was idle for long and ends just as the question comes: the question is not read.
                with suppress(ConnectionError):
                    return self._exchange(head, question, most_s, wanted)
            return self._exchange(head, question, most_s, wanted)
        except TimeoutError:
            raise
        except OSError as error:
            raise Overloaded(
                f"the process that answers cannot be asked: {error_text(error)}", "Try again in a moment."
            ) from error

    def _exchange(self, head: bytes, question: Any, most_s: float, wanted: Wanted) -> Any:
        with self._hand_over(head) as answers, wanted.over(answers):
            answers.settimeout(most_s)
            send(answers, question)
            return receive(answers)

    def _hand_over(self, head: bytes) -> socket.socket:
        """A connection to a fork; made by the process, which is started if it is not there."""
        ours, theirs = socket.socketpair()
        with ExitStack() as undo, theirs:
            undo.callback(ours.close)
            with self.asking() as (line,):
                socket.send_fds(line, [head], [theirs.fileno()])
            undo.pop_all()
            return ours


def _make_line() -> Ends[tuple[socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Ends((ours,), (theirs,))


# -- in the process ------------------------------------------------------------------------------------------------


def open_line() -> tuple[socket.socket, str]:
    """The line to the server, and what it said first; empty: it is gone."""
    line = socket.socket(fileno=begin(NICENESS)[0])
    return line, line.recv(65536).decode()


def fork_for_each(
    line: socket.socket, idle_s: float, prepare: Callable[[bytes], Callable[[socket.socket], NoReturn]]
) -> None:
    """Fork for each question, until the server is gone or no questions come; `prepare` gives what the fork does."""
    forks: set[int] = set()
    try:
        while True:
            busy = bool(forks)
            ready = select.select([line], [], [], REAP_S if busy else idle_s)[0]
            _reap(forks)
            if not ready:
                if busy:
                    continue
                return
            head, fds, _flags, _address = socket.recv_fds(line, HEAD_BYTES_MAX, 1)
            if not head:
                return
            with socket.socket(fileno=fds[0]) as answers:
                work = prepare(head)
                pid = os.fork()
                if not pid:
                    work(answers)
                forks.add(pid)
    finally:
        for pid in forks:
            _kill(pid)


def _reap(forks: set[int]) -> None:
    for pid in list(forks):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            # What it has tried out may still be at it, where its own time was up. Until it is waited for, nobody else
            # can have its number.
            _kill(pid)
            os.waitpid(pid, 0)
            forks.discard(pid)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)


def end_when_unwanted(answers: socket.socket) -> None:
    """In a fork: let the kernel end it, whatever it is at, when the other end of its line is gone."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(answers, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(answers, fcntl.F_SETFL, fcntl.fcntl(answers, fcntl.F_GETFL) | os.O_ASYNC)
    line = select.poll()
    line.register(answers, 0)
    if line.poll(0):
        # It has gone already.
        os._exit(0)


def end_by_itself() -> None:
    """In a fork that has its answer: what moves on its line while it is sent ends nothing."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)


def send(line: socket.socket, value: object) -> None:
    """Send a value of our own."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    line.sendall(struct.pack(">Q", len(body)) + body)


def receive(line: socket.socket) -> Any:
    """Receive one; `EOFError`: the other end is gone."""
    with line.makefile("rb") as file:
        head = file.read(8)
        body = file.read(struct.unpack(">Q", head)[0]) if len(head) == 8 else b""
    if len(head) < 8 or len(body) < struct.unpack(">Q", head)[0]:
        raise EOFError
    return pickle.loads(body)
