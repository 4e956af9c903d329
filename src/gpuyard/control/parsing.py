"""Texts of people (YAML, scripts, manifests) are read beside the server, within bounds on memory and time.

A text of a megabyte can be half a million values. A server that made trees of them would keep that memory for ever:
what is freed is scattered over pages on which something else lives. The fork that reads a text has bounds of its own,
and when it has answered it is gone with every page it took.
"""

import gc
import importlib
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, cast

from gpuyard.control.forking import (
    ForkingProcess,
    Wanted,
    end_by_itself,
    end_when_unwanted,
    fork_for_each,
    open_line,
    receive,
    send,
)
from gpuyard.control.refusals import Overloaded, Unacceptable
from gpuyard.errors import YardError

P = ParamSpec("P")
T = TypeVar("T")

MEMORY_MIB = 192
"""What reading one text may take."""
CPU_S = 10
ANSWER_S_MAX = 60
"""By the clock: on a machine that is busy."""
IDLE_S = 20.0
"""How long the process stays without a text to read."""
_HEAD = b"read"
_MAIN = "import sys; from gpuyard.control.parsing import main; main(sys.argv[1:])"


class Parse(Protocol):
    """Reads a text somewhere."""

    def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function of this program gives, or raises if it is an error of ours."""
        ...


def run_here(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """In this process: for programs that read one text of their own."""
    return work(*args, **kwargs)


class Parser:
    """The process that reads texts, as the server sees it: asked from any thread."""

    def __init__(self, preload: tuple[str, ...] = ()) -> None:
        """`preload`: modules that read texts, so that a fork need not import them."""
        self.process = ForkingProcess(_MAIN, preload)

    def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the work gives; `Unacceptable` where the text takes more than is allowed."""
        return self.read_while(Wanted(), work, *args, **kwargs)

    def read_while(self, wanted: Wanted, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same, for as long as it is wanted."""
        try:
            done, found = self.process.exchange(_HEAD, (work, args, kwargs), ANSWER_S_MAX + CPU_S, wanted)
        except EOFError:
            # The kernel ended it: its time was up, or its memory.
            raise _too_much() from None
        except TimeoutError:
            raise Overloaded(
                f"the text was not read within {ANSWER_S_MAX} s", "Try again in a moment."
            ) from None
        if not done:
            try:
                raise found
            finally:
                # It holds the calls it goes through, and this one would hold it: text and all, until a collection.
                del found
        return cast("T", found)

    def close(self) -> None:
        """End it, and all that is being read."""
        self.process.close()


def _too_much() -> Unacceptable:
    return Unacceptable(
        f"to read the text takes more than {MEMORY_MIB} MiB of memory or {CPU_S} s",
        "Cut it into several.",
    )


# -- in the process ------------------------------------------------------------------------------------------------


def main(preload: list[str]) -> None:
    """Fork for each text, until the server is gone or none has come for a while."""
    line, said = open_line()
    if not said:
        return
    for name in preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    fork_for_each(line, IDLE_S, lambda _head: _answer)


def _answer(answers: socket.socket) -> NoReturn:
    """In a fork: one text; never returns."""
    try:
        gc.disable()
        os.setpgid(0, 0)
        signal.alarm(ANSWER_S_MAX)
        _bound()
        work, args, kwargs = receive(answers)
        end_when_unwanted(answers)
        answer = _read(work, args, kwargs)
        end_by_itself()
        send(answers, answer)
    finally:
        os._exit(0)


def _read(work: Callable[..., Any], args: Any, kwargs: Any) -> tuple[bool, Any]:
    try:
        return True, work(*args, **kwargs)
    except MemoryError:
        # What it made is freed by now, so that there is memory to say so.
        return False, _too_much()
    except YardError as error:
        return False, error.with_traceback(None)
    except Exception as error:
        return False, RuntimeError(f"{type(error).__name__}: {error}")


def _bound() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + (MEMORY_MIB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
