"""An engine in a process of its own, as the leader's loop sees it.

At every step the loop asks about a hundred attempts, and an engine on this machine answers from files: hundreds of
short calls of the system. In a busy server a thread stands in line for the interpreter after each of them; in a process
of its own the engine stands in no line, and the loop only for the answer.

Any number of engines may work on one folder: the server keeps its own for outputs, terminals and signals. A process
that has died is started again with the next call. The call that it died in has no answer, and the loop looks again, as
after any call without one. Attempts that are over are forgotten while nothing else is asked for.

The first process is a fork of the server, made while that has nothing open yet (`Spare`): a new interpreter would read
all modules again. One that takes its place later is a new interpreter, for a fork would have the server's memory.
"""

import ctypes
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

from gpuyard import interpreter
from gpuyard.engines.contract import (
    Adopts,
    AttemptReport,
    Engine,
    EngineError,
    Launch,
    NewLimit,
    NodeReport,
    Phase,
    Reply,
    StopRequest,
    Transient,
)
from gpuyard.engines.machine import processes
from gpuyard.engines.machine.beside_process import BesideProcess, Child, Ends, begin, fork, start
from gpuyard.engines.registry import Context, runnable
from gpuyard.errors import error_text
from gpuyard.log_lines import start_log
from gpuyard.model import Capability
from gpuyard.model.mig import Slice

_log = logging.getLogger(__name__)

FORGOTTEN_AT_ONCE = 2
"""Attempts that are forgotten before a call that has come meanwhile is answered."""
CALL_S_MAX = 300.0
"""A call that takes longer has no answer: its process is ended. To cut GPUs or to wake them takes tens of seconds."""
_PAUSE_S = 0.001
_HEAR_S = 0.5
_SWITCH_S = 0.001
_MAIN = "from gpuyard.engines.engine_process import main; main()"
_NAME = b"yard-engine"
_PR_SET_NAME = 15


class Making(NamedTuple):
    """How an engine is made."""

    kind: str
    """As in `engine: NAME`."""
    keys: Any
    context: Context
    adopted: tuple[str, ...] = ()
    """Attempts that no log knows any more (`Adopts`)."""


Line = tuple[Connection, socket.socket]
"""For calls and their answers, and for the knocks by which it says that an attempt may have ended."""


class EngineApart:
    """The contract of engines, kept by a process. Calls may come from any thread; they are answered one by one."""

    def __init__(self, own: Engine, making: Making, spare: Child[Line] | None = None) -> None:
        """`own`: the server's own engine of the same making, which knows what does not change and reads outputs.

        `spare`: a process that waits to be told what to be.
        """
        self.name = own.name
        self.capabilities: frozenset[Capability] = own.capabilities
        self.log = own.log
        self.process = BesideProcess(
            "the engine's process",
            start_process,
            lambda line: line[0].send(making),
            lambda: Transient("the yard is stopping"),
            answer_s=CALL_S_MAX,
            spare=spare,
        )

    # ---- the contract

    def nodes(self) -> tuple[NodeReport, ...]:
        """Capacity and health, as found now."""
        found: tuple[NodeReport, ...] = self._ask("nodes")
        return found

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        """Start attempts."""
        return self._replies("start", epoch, launches)

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        """Stop attempts."""
        return self._replies("stop", epoch, halts)

    def suspend(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Freeze attempts."""
        return self._replies("suspend", epoch, keys)

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Let frozen attempts go on."""
        return self._replies("resume", epoch, keys)

    def limit(self, epoch: int, limits: Sequence[NewLimit]) -> list[Reply]:
        """Give running attempts other time limits."""
        return self._replies("limit", epoch, limits)

    def pin(self, epoch: int, node: str, layouts: Mapping[int, tuple[Slice, ...]]) -> Mapping[int, Reply]:
        """Keep these layouts on these GPUs of a node."""
        found: Mapping[int, Reply] = self._ask("pin", epoch, node, dict(layouts))
        return found

    def cuts(self) -> Mapping[str, tuple[Slice, ...]]:
        """The slices that are there now by node."""
        found: Mapping[str, tuple[Slice, ...]] = self._ask("cuts")
        return found

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        """What is known of these attempts."""
        found: list[AttemptReport] = self._ask("status", list(keys))
        return found

    def listing(self) -> list[AttemptReport]:
        """Every attempt that the engine knows."""
        found: list[AttemptReport] = self._ask("listing")
        return found

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        """The ends of these attempts are in the log. They are forgotten when there is time."""
        self._ask("forget", epoch, list(keys))

    def wait(self, timeout_s: float) -> bool:
        """Wait until some attempt may have ended; whether one has. A call that never ends is noticed here."""
        line = self.process.line(timeout_s)
        if line is None:
            return False
        _calls, knocks = line
        waiter = select.poll()
        waiter.register(knocks, select.POLLIN)
        if not waiter.poll(timeout_s * 1000):
            return False
        with suppress(OSError):
            if knocks.recv(4096):
                return True
        # It has ended: whatever asks next starts it again.
        time.sleep(min(timeout_s, _HEAR_S))
        return False

    def close(self) -> None:
        """End the process. What runs goes on, and what the engine set up stays for the server's own to put back."""
        self.process.close()

    # ---- the process

    def _replies(self, name: str, epoch: int, items: Sequence[Any]) -> list[Reply]:
        found: list[Reply] = self._ask(name, epoch, list(items))
        return found

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            with self.process.asking() as (calls, _knocks):
                calls.send((name, arguments))
                done, found = calls.recv()
        except (OSError, EOFError) as error:
            raise Transient(f"the engine's process has ended while it was asked to {name}") from error
        if not done:
            raise found
        return found


def fork_spare() -> Child[Line]:
    """A fork of this process that has none of its files, and waits to be told what to be."""
    return _give_limit(fork(main, _make_line()))


def start_process() -> Child[Line]:
    """A new interpreter that waits to be told what to be."""
    return _give_limit(start(interpreter.command("-c", _MAIN), _make_line()))


def _give_limit(child: Child[Line]) -> Child[Line]:
    # Jobs are started from there.
    processes.give_back_file_limit(child.pid)
    return child


def _make_line() -> Ends[Line]:
    (calls, its_calls), (knocks, its_knocks) = Pipe(), socket.socketpair()
    knocks.setblocking(False)
    return Ends((calls, knocks), (its_calls, its_knocks))


# -- in the process ------------------------------------------------------------------------------------------------


def main() -> None:
    """Keep the contract for as long as the server asks. Nothing is put back at the end: the server's own does that."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME, 0, 0, 0)
    calls, knocks = begin(None, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    start_log(logging.StreamHandler(), "WARNING")
    sys.setswitchinterval(_SWITCH_S)
    knocking = socket.socket(fileno=knocks)
    knocking.setblocking(False)
    line = Connection(calls)
    with suppress(EOFError, OSError):
        making: Making = line.recv()
        kind = runnable(making.kind)
        assert kind is not None, making.kind
        assert kind.build is not None, making.kind
        engine = kind.build(making.keys, making.context)
        if isinstance(engine, Adopts):
            engine.adopt(making.adopted)
        threading.Thread(target=_hear, args=(engine, knocking), name="yard-hears", daemon=True).start()
        _serve(_Unhurried(engine), line)
    os._exit(0)


def _serve(engine: "_Unhurried", line: Connection) -> None:
    while True:
        name, arguments = line.recv()
        answer: tuple[bool, Any]
        try:
            answer = (True, engine.call(name, arguments))
        except EngineError as error:
            answer = (False, error)
        except Exception as error:
            _log.exception("a call of %s failed", name)
            answer = (False, RuntimeError(f"{type(error).__name__}: {error_text(error)}"))
        line.send(answer)


def _hear(engine: Engine, knocks: socket.socket) -> None:
    """Tell the server when an attempt may have ended."""
    while True:
        try:
            if engine.wait(_HEAR_S):
                # A server that has not heard the last ones hears of them all at once.
                with suppress(BlockingIOError):
                    knocks.send(b".")
        except OSError:
            return
        except EngineError as error:
            _log.debug("listening: %s", error)
            time.sleep(_HEAR_S)


class _Unhurried:
    """An engine that forgets attempts a few at a time, while it is asked nothing else.

    Nobody can tell: what is asked about an attempt that waits to be forgotten is answered once it is.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = threading.Lock()
        """Of the call that is answered, or of those that are forgotten meanwhile."""
        self._asked = False
        """Whether a call is answered or waits for its turn: a lock alone would let it wait for long."""
        self._due: dict[str, int] = {}
        """Attempts to be forgotten, with the epoch of the leader that said so."""
        self._some = threading.Event()
        threading.Thread(target=self._run, name="yard-forgets", daemon=True).start()

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """What the engine answers."""
        self._asked = True
        try:
            with self._turn:
                return self._answer(name, arguments)
        finally:
            self._asked = False

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "forget":
            return self._put_off(*arguments)
        if self._due and name in _ABOUT:
            self._forget([key for key in _ABOUT[name](arguments) if key in self._due])
        found = getattr(self._engine, name)(*arguments)
        if self._due and name == "listing":
            return [each for each in found if each.phase is not Phase.ENDED or each.key not in self._due]
        return found

    def _put_off(self, epoch: int, keys: Sequence[str]) -> None:
        # With none: whether this leader may.
        self._engine.forget(epoch, [])
        self._due |= dict.fromkeys(keys, epoch)
        self._some.set()

    def _forget(self, keys: Sequence[str]) -> None:
        if keys:
            self._engine.forget(min([self._due[key] for key in keys]), keys)
            for key in keys:
                del self._due[key]

    def _run(self) -> None:
        while self._some.wait():
            if self._asked:
                time.sleep(_PAUSE_S)
                continue
            with self._turn:
                keys = list(islice(self._due, FORGOTTEN_AT_ONCE))
                try:
                    self._forget(keys)
                except EngineError as error:
                    # A recount finds them again, if this leader still leads then.
                    _log.debug("%d attempts are not forgotten: %s", len(keys), error)
                    for key in keys:
                        del self._due[key]
                if not self._due:
                    self._some.clear()


_ABOUT: dict[str, Callable[[tuple[Any, ...]], list[str]]] = {
    "status": lambda arguments: arguments[0],
    "start": lambda arguments: [launch.key for launch in arguments[1]],
    "stop": lambda arguments: [halt.key for halt in arguments[1]],
}
"""Which attempts a call is about."""
