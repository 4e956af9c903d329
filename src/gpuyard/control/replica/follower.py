"""The process beside the server that answers what takes thought: it follows the log, and forks for each question.

The server says which question and how far the log has come; nothing is copied for it. A fork has the whole state
at no cost, may do with it what it likes, and is gone when it has answered, or when its time is up. What a question
tries out on the state (`core/explain/what_if.py`) is done in forks of that fork.

The process ends after a while without questions: its memory is as large as the server's.
"""

import gc
import importlib
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from gpuyard.control.forking import ForkingProcess, fork_for_each, open_line, receive, send
from gpuyard.control.refusals import Overloaded, Refusal
from gpuyard.control.replica.questions import QuestionContext, StatePassed
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State
from gpuyard.core.explain.what_if import Sandbox
from gpuyard.errors import YardError
from gpuyard.store import StoreDamaged, open_store

T = TypeVar("T")

ANSWER_S_MAX = 60
"""A question that takes longer is given up."""
START_S_MAX = 120.0
"""How long a new process may take to read the log."""
IDLE_S = 600.0
_HEAD = struct.Struct(">QBI")
_MAIN = "import sys; from gpuyard.control.replica.follower import main; main(sys.argv[1:])"


class Follower:
    """The process as the server sees it: asked from any thread, and started again when it is gone."""

    def __init__(self, store: str, preload: tuple[str, ...] = (), answer_s_max: int = ANSWER_S_MAX) -> None:
        """`preload`: modules of the questions, so that a fork need not import them."""
        self._answer_s_max = answer_s_max
        # A store's URL may hold a password: it stands on no command line.
        self.process = ForkingProcess(_MAIN, preload, store.encode())

    def ask(self, seq: int, exact: bool, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The answer; `Overloaded` where there is none in time."""
        question, most_s = (work, arguments), START_S_MAX + self._answer_s_max
        try:
            done, found = self.process.exchange(_HEAD.pack(seq, exact, self._answer_s_max), question, most_s)
        except (TimeoutError, EOFError) as error:
            raise Overloaded(
                f"the answer was not found within {self._answer_s_max} s", "Try again in a moment."
            ) from error
        if not done:
            kind, said = found
            raise kind(*said)
        return found

    def close(self) -> None:
        """End it, and every question with it."""
        self.process.close()


# -- in the process ------------------------------------------------------------------------------------------------


def main(preload: list[str]) -> None:
    """Follow the log and fork for each question, until the server is gone or no questions come."""
    line, url = open_line()
    if not url:
        return
    for name in preload:
        importlib.import_module(name)
    replica = Replica(open_store(url))
    gc.collect()
    gc.freeze()

    def prepare(head: bytes) -> Callable[[socket.socket], NoReturn]:
        seq, exact, answer_s_max = _HEAD.unpack(head)
        trouble = _catch_up(replica, seq, bool(exact))
        return lambda answers: _answer(replica, url, answers, trouble, answer_s_max)

    fork_for_each(line, IDLE_S, prepare)


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


def _answer(
    replica: Replica, url: str, answers: socket.socket, trouble: Exception | None, answer_s_max: int
) -> NoReturn:
    """In a fork: one question and its answer; never returns. Nothing that was opened before may be used."""
    try:
        gc.disable()
        os.setpgid(0, 0)
        signal.alarm(answer_s_max)
        work, arguments = receive(answers)
        if trouble is not None:
            raise trouble
        own = QuestionContext(replica.state, replica.policy, lambda: open_store(url), forked(replica.state))
        send(answers, (True, work(own, *arguments)))
    except Refusal as error:
        send(answers, (False, (type(error), (error.message, error.hint))))
    except YardError as error:
        send(answers, (False, (Overloaded, (error.message, error.hint))))
    except StatePassed:
        send(answers, (False, (StatePassed, ())))
    except Exception as error:
        send(answers, (False, (RuntimeError, (f"{type(error).__name__}: {error}",))))
    finally:
        os._exit(0)


def forked(state: State) -> Sandbox:
    """Work on a state of which nothing stays, each in a fork."""

    def apart(work: Callable[[State], T]) -> T:
        mine, its = socket.socketpair()
        pid = os.fork()
        if not pid:
            try:
                send(its, (True, work(state)))
            except Exception as error:
                send(its, (False, f"{type(error).__name__}: {error}"))
            finally:
                os._exit(0)
        its.close()
        with mine:
            done, found = receive(mine)
        os.waitpid(pid, 0)
        if not done:
            raise RuntimeError(found)
        result: T = found
        return result

    return apart
