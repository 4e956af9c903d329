"""A process beside the server: how it is started, spoken to, watched and ended, said once for all of them.

A process has its end of a line to the server as standard input, or as standard input and output. So it ends with the
server, whatever the server dies of: there is nothing more to be read. (The kernel's `PR_SET_PDEATHSIG` goes by the
thread that started a process, and threads of requests end.)

`start` and `fork` make a `Child`, one process with the server's end of its line. A `BesideProcess` has one for as long
as questions come: it starts the process with the first of them, starts another in the place of one that has gone, and
ends one that does not answer. Questions set the pace: without one nothing is started again. The process itself calls
`begin` before anything else, where it has our code.
"""

import gc
import logging
import math
import os
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import BinaryIO, Generic, NamedTuple, NoReturn, TypeVar

from gpuyard import interpreter
from gpuyard.engines.machine import processes

_log = logging.getLogger(__name__)

END_S_MAX = 5.0
"""How long a process may take to go by itself once its line is gone, and once it was killed."""
_PAUSE_S = 0.005


End = socket.socket | Connection | BinaryIO
"""One end of a line."""
Line = TypeVar("Line", bound=tuple[End, ...])
"""The server's ends."""


class Ends(NamedTuple, Generic[Line]):
    """A line, before there is a process."""

    ours: Line
    theirs: tuple[End, ...]
    """What the process has as standard input, and as standard output if there are two; they may be the same."""


class Child(Generic[Line]):
    """A process, and the server's ends of its line."""

    def __init__(self, pid: int, poll: Callable[[], int | None], line: Line) -> None:
        """`poll`: how it ended; None: it has not, or that was told already."""
        self.pid = pid
        self.line = line
        self._poll = poll
        self._code: int | None = None

    @property
    def alive(self) -> bool:
        """Whether the process is there, though it may have been killed."""
        return self.wait(0.0) is None

    def kill(self) -> None:
        """End it, without waiting for that."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self, within_s: float = 0.0, killed_s: float = END_S_MAX) -> None:
        """Close the line, on which it goes by itself; kill it if it has not gone by then. May be called again.

        One that hangs in the kernel is not waited for longer than `killed_s`.
        """
        _close(self.line)
        for wait_s in (within_s, killed_s):
            if self.wait(wait_s) is not None:
                return
            self.kill()

    def wait(self, within_s: float = END_S_MAX) -> int | None:
        """How it ended; None: it has not within that time."""
        until_s = time.monotonic() + within_s
        while self._code is None:
            if (code := self._poll()) is not None:
                self._code = code
            elif time.monotonic() >= until_s:
                break
            else:
                time.sleep(_PAUSE_S)
        return self._code

    def fate(self) -> str:
        """What became of it, for a sentence that begins with its name. It has broken its line, so it is about to go."""
        code = self.wait()
        if code is None:
            return "broke off"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def start(
    words: Sequence[str], ends: Ends[Line], env: Mapping[str, str] | None = None, stderr: int | None = None
) -> Child[Line]:
    """Start a program: a command line of `interpreter`. `env`: all of its environment; left out: the server's."""
    numbers = [end.fileno() for end in ends.theirs]
    try:
        process = subprocess.Popen(
            words,
            stdin=numbers[0],
            stdout=numbers[1] if len(numbers) > 1 else subprocess.DEVNULL,
            stderr=stderr,
            cwd="/",
            env=interpreter.environment() if env is None else env,
        )
    except BaseException:
        _close(ends.ours)
        raise
    finally:
        _close(ends.theirs)
    return Child(process.pid, process.poll, ends.ours)


def fork(main: Callable[[], object], ends: Ends[Line]) -> Child[Line]:
    """A fork of this process that has none of its files. What it uses no other thread may have locked by then."""
    pid = os.fork()
    if not pid:
        _run_fork(main, [end.fileno() for end in ends.theirs])
    _close(ends.theirs)
    return Child(pid, lambda: _reap(pid), ends.ours)


def _close(ends: tuple[End, ...]) -> None:
    for end in ends:
        with suppress(OSError):
            end.close()


def _reap(pid: int) -> int | None:
    # Another thread may have been told of the end.
    with suppress(ChildProcessError):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
    return None


class BesideProcess(Generic[Line]):
    """A process that is asked from any thread, one question at a time."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Child[Line]],
        greet: Callable[[Line], object],
        closed: Callable[[], Exception],
        *,
        answer_s: float = math.inf,
        end_s: float = END_S_MAX,
        spare: Child[Line] | None = None,
    ) -> None:
        """`name`: as sentences begin with it. `greet`: say what each process has to know before the first question.

        `closed` is raised where a question comes after `close`. `answer_s`: how long a question may take, `end_s`: how
        long a process may take to go. `spare`: the first process, which waits for the greeting.
        """
        self._name = name
        self._start, self._greet, self._refuse = start, greet, closed
        self.answer_s, self.end_s = answer_s, end_s
        self._lock = threading.Lock()
        self._child = spare
        self._greeted = False
        self._asked_s = 0.0
        """When the question under way began; 0: there is none."""
        self._closed = False

    @property
    def pid(self) -> int:
        """Its number; 0: it is not there."""
        child = self._child
        return child.pid if child is not None and child.alive else 0

    @contextmanager
    def asking(self) -> Iterator[Line]:
        """The line, for one question. Where it breaks meanwhile the process is ended: the next question has another."""
        with self._lock:
            line = self._running()
            self._asked_s = time.monotonic()
            try:
                yield line
            except (OSError, EOFError):
                self._end()
                raise
            finally:
                self._asked_s = 0.0

    def line(self, within_s: float) -> Line | None:
        """The line, to look at what comes unasked; None: a question is under way. One that takes too long is ended."""
        if not self._lock.acquire(timeout=within_s):
            self._end_stuck()
            return None
        try:
            return self._running()
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process, and start no other."""
        self._closed = True
        child = self._child
        if not self._lock.acquire(timeout=self.end_s):
            # A question hangs, and the thread that waits for its answer has the lock.
            if child is not None:
                child.kill()
            self._lock.acquire()
        try:
            self._end()
        finally:
            self._lock.release()

    def _running(self) -> Line:
        if self._closed:
            raise self._refuse()
        if self._child is not None and not self._child.alive:
            self._end()
        child = self._child = self._child or self._start()
        if not self._greeted:
            with suppress(OSError):
                # If it has just ended, the question that follows says so.
                self._greet(child.line)
            self._greeted = True
        return child.line

    def _end_stuck(self) -> None:
        asked_s, child = self._asked_s, self._child
        if asked_s and child is not None and time.monotonic() - asked_s > self.answer_s:
            _log.warning("%s has not answered for %d s, and is ended", self._name, self.answer_s)
            child.kill()

    def _end(self) -> None:
        child, self._child, self._greeted = self._child, None, False
        if child is not None:
            child.end(self.end_s)


# -- in the process ------------------------------------------------------------------------------------------------


def _run_fork(main: Callable[[], object], numbers: Sequence[int]) -> NoReturn:
    """In a fork: nothing of the server's is kept but its modules and what it says to standard error."""
    try:
        gc.freeze()
        signal.set_wakeup_fd(-1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, end in zip((0, 1), (*numbers, nothing), strict=False):
            os.dup2(end, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        logging.getLogger().handlers.clear()
        os.chdir("/")
        main()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


def begin(niceness: int | None, meant_for_server: Sequence[int] = (signal.SIGINT,)) -> tuple[int, int]:
    """Take the line off standard input and output, where nothing that is printed gets onto it and no child has it.

    `niceness`: how far it stands back behind the server's own; None: not at all. The signals mean the server, and what
    ends the server ends this: the keyboard that stops a server in the foreground reaches its processes too.
    """
    for number in meant_for_server:
        # A handler, since what is ignored a program that this one starts would ignore.
        signal.signal(number, lambda *_: None)
    if niceness is not None:
        processes.stand_back(niceness)
    nothing = os.open(os.devnull, os.O_RDWR)
    found = (os.dup(0), os.dup(1))
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)
    return found
