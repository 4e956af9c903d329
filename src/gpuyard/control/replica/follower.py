"""The process beside the server that answers what takes thought: it follows the log, and forks for each question.

The server says which question and how far the log has come; nothing is copied for it. A fork has the whole state
at no cost, may do with it what it likes, and is gone when it has answered, or when its time is up. What a question
tries out on the state (`core/explain/what_if.py`) is done in forks of that fork.

The process ends with the server, and after a while without questions: its memory is as large as the server's.
"""

import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from gpuyard.control.refusals import Overloaded, Refusal
from gpuyard.control.replica.replica import Replica
from gpuyard.control.replica.thought import QuestionContext, StatePassed
from gpuyard.core import State
from gpuyard.core.explain.what_if import Sandbox
from gpuyard.engines.machine import processes
from gpuyard.errors import YardError
from gpuyard.store import StoreDamaged, open_store

T = TypeVar("T")

ANSWER_S_MAX = 60
"""A question that takes longer is given up."""
START_S_MAX = 120.0
"""How long a new process may take to read the log."""
IDLE_S = 600.0
REAP_S = 1.0
"""How often it looks for forks that have ended, while there are any."""
NICENESS = 5
"""Jobs and the server come first, but a user waits for the answer."""
_HEAD = struct.Struct(">QB")
_MAIN = "import sys; from gpuyard.control.replica.follower import main; main(sys.argv[1:])"


class Follower:
    """The process as the server sees it: asked from any thread, and started again when it is gone."""

    def __init__(self, store: str, preload: tuple[str, ...] = ()) -> None:
        """`preload`: modules of the questions, so that a fork need not import them."""
        self._store = store
        self._preload = preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._closed = False

    def ask(self, seq: int, exact: bool, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The answer; `Overloaded` where there is none in time."""
        try:
            done, found = self._exchange(seq, exact, work, arguments)
        except ConnectionError:
            # It had been idle for long and ended just as the question came: the question was not read.
            done, found = self._exchange(seq, exact, work, arguments)
        if not done:
            kind, said = found
            raise kind(*said)
        return found

    def _exchange(self, seq: int, exact: bool, work: Any, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        with self._hand_over(seq, exact) as answers:
            answers.settimeout(START_S_MAX + ANSWER_S_MAX)
            try:
                _send(answers, (work, arguments))
                found: tuple[bool, Any] = _receive(answers)
            except (TimeoutError, EOFError) as error:
                raise Overloaded(
                    f"the answer was not found within {ANSWER_S_MAX} s", "Try again in a moment."
                ) from error
            return found

    def _hand_over(self, seq: int, exact: bool) -> socket.socket:
        """A connection to a fork that has the state; made by the process, which is started if it is not there."""
        ours, theirs = socket.socketpair()
        with ExitStack() as undo, theirs, self._lock:
            undo.callback(ours.close)
            for _attempt in range(2):
                line = self._running()
                try:
                    socket.send_fds(line, [_HEAD.pack(seq, exact)], [theirs.fileno()])
                except OSError:
                    # It has just ended: it was idle for long, or was killed.
                    self._end()
                else:
                    undo.pop_all()
                    return ours
            raise Overloaded("the process that answers could not be started", "Try again in a moment.")

    def _running(self) -> socket.socket:
        if self._closed:
            raise Overloaded("the yard is stopping", "Start it again with `yard up -d`.")
        if self._line is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _MAIN, *self._preload],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                )
            # A store's URL may hold a password: it stands on no command line.
            self._line.send(self._store.encode())
        return self._line

    def _end(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._line, self._process = None, None

    def close(self) -> None:
        """End it, and every question with it."""
        self._closed = True
        with self._lock:
            line, process = self._line, self._process
            if line is not None and process is not None:
                # It ends its forks when the line does.
                line.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(2)
            self._line = None
            self._end()


# -- in the process ------------------------------------------------------------------------------------------------


def main(preload: list[str]) -> None:
    """Follow the log and fork for each question, until the server is gone or no questions come."""
    processes.stand_back(NICENESS)
    # The keyboard that stops a server in the foreground means the server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = socket.socket(fileno=os.dup(0))
    url = line.recv(65536).decode()
    if not url:
        return
    for name in preload:
        importlib.import_module(name)
    replica = Replica(open_store(url))
    gc.collect()
    gc.freeze()
    forks: set[int] = set()
    try:
        while True:
            busy = bool(forks)
            ready = select.select([line], [], [], REAP_S if busy else IDLE_S)[0]
            _reap(forks)
            if not ready:
                if busy:
                    continue
                return
            head, fds, _flags, _address = socket.recv_fds(line, _HEAD.size, 1)
            if not head:
                return
            with socket.socket(fileno=fds[0]) as answers:
                seq, exact = _HEAD.unpack(head)
                trouble = _catch_up(replica, seq, bool(exact))
                pid = os.fork()
                if not pid:
                    _answer(replica, url, answers, trouble)
                forks.add(pid)
    finally:
        for pid in forks:
            _kill(pid)


def _catch_up(replica: Replica, seq: int, exact: bool) -> Exception | None:
    """Fold the log up to there; what is wrong, if something is."""
    try:
        try:
            replica.catch_up_to(seq)
        except StoreDamaged:
            # What it had not read yet was cut off: there is a snapshot.
            replica.reload()
    except YardError as error:
        return Overloaded(error.message, error.hint)
    if exact and replica.seq != seq:
        return StatePassed()
    state, policy = replica.state, replica.policy
    if state.queue.order is not policy.order:
        # Once, and not in every fork.
        state.reindex(policy.order)
    return None


def _answer(replica: Replica, url: str, answers: socket.socket, trouble: Exception | None) -> None:
    """In a fork: one question and its answer; never returns. Nothing that was opened before may be used."""
    try:
        gc.disable()
        os.setpgid(0, 0)
        signal.alarm(ANSWER_S_MAX)
        work, arguments = _receive(answers)
        if trouble is not None:
            raise trouble
        own = QuestionContext(replica.state, replica.policy, lambda: open_store(url), forked(replica.state))
        _send(answers, (True, work(own, *arguments)))
    except Refusal as error:
        _send(answers, (False, (type(error), (error.message, error.hint))))
    except YardError as error:
        _send(answers, (False, (Overloaded, (error.message, error.hint))))
    except StatePassed:
        _send(answers, (False, (StatePassed, ())))
    except Exception as error:
        _send(answers, (False, (RuntimeError, (f"{type(error).__name__}: {error}",))))
    finally:
        os._exit(0)


def forked(state: State) -> Sandbox:
    """Work on a state of which nothing stays, each in a fork."""

    def apart(work: Callable[[State], T]) -> T:
        mine, its = socket.socketpair()
        pid = os.fork()
        if not pid:
            try:
                _send(its, (True, work(state)))
            except Exception as error:
                _send(its, (False, f"{type(error).__name__}: {error}"))
            finally:
                os._exit(0)
        its.close()
        with mine:
            done, found = _receive(mine)
        os.waitpid(pid, 0)
        if not done:
            raise RuntimeError(found)
        result: T = found
        return result

    return apart


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


def _send(line: socket.socket, value: object) -> None:
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    line.sendall(struct.pack(">Q", len(body)) + body)


def _receive(line: socket.socket) -> Any:
    with line.makefile("rb") as file:
        head = file.read(8)
        body = file.read(struct.unpack(">Q", head)[0]) if len(head) == 8 else b""
    if len(head) < 8 or len(body) < struct.unpack(">Q", head)[0]:
        raise EOFError
    return pickle.loads(body)
