"""The process that works out what lies ahead, as the server sees it: one question at a time."""

import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from gpuyard.control.refusals import Overloaded
from gpuyard.sim.oracle import Foresight, Question, read, write

ANSWER_S_MAX = 60.0
"""A process that takes longer is ended: the state is too large for it, or it hangs."""

_MAIN = "from gpuyard.sim.oracle import main; main()"
"""Not with -m: what it sends would be of a module that is called otherwise here."""


class OracleProcess:
    """A process that is asked from any thread, and started again when it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, question: Question) -> Foresight:
        """The answer. Later questions wait meanwhile."""
        with self._lock:
            if self._closed:
                raise Overloaded("the yard is stopping", "Start it again with `yard up -d`.")
            process = self._running()
            # Reading has no time limit of its own: a process that is ended closes its output, which ends the reading.
            timer = threading.Timer(ANSWER_S_MAX, process.kill)
            timer.start()
            try:
                answer = self._exchange(process, question)
            except (OSError, EOFError) as error:
                self._end()
                raise Overloaded("the estimate could not be worked out", "Try again in a moment.") from error
            finally:
                timer.cancel()
        if isinstance(answer, Exception):
            raise answer
        found: Foresight = answer
        return found

    def _exchange(self, process: "subprocess.Popen[bytes]", question: Question) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        write(process.stdin, question)  # type: ignore[arg-type]
        return read(process.stdout)  # type: ignore[arg-type]

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def close(self) -> None:
        """End it, also in the middle of an answer."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()
