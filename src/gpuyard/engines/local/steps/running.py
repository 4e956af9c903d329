"""A step from its room to its end: tasks in sessions of their own, their input and output, signals, exit codes."""

import ctypes
import errno
import os
import signal as signals
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from gpuyard.engines.local.steps.environments import TaskPlan
from gpuyard.engines.name_lists import fold_indices
from gpuyard.engines.node.kernel.processes import reset_signals, unblock_signals

_PR_SET_PDEATHSIG = 1
_FORWARDED = tuple(
    sorted(
        signals.valid_signals()
        - {
            signals.SIGKILL, signals.SIGSTOP, signals.SIGCHLD, signals.SIGTSTP, signals.SIGTTIN, signals.SIGTTOU,
            signals.SIGSEGV, signals.SIGBUS, signals.SIGFPE, signals.SIGILL, signals.SIGABRT, signals.SIGTRAP,
            signals.SIGSYS, signals.SIGPIPE, signals.SIGXFSZ, signals.SIGURG, signals.SIGWINCH, signals.SIGCONT,
        }
    )
)  # fmt: skip
_KILL_S = 30.0
"""Seconds between TERM and KILL for tasks that are ended because another one failed."""

_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Files:
    """Where a task reads and writes. None: where `srun` itself does."""

    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a step is run, apart from what it gets."""

    argvs: Sequence[Sequence[str]]
    """The command of every task, by rank."""
    limit_s: int = 0
    """When the step is ended; 0: with the job."""
    folder: str = ""
    label: bool = False
    pty: bool = False
    """Whether the first task has this very terminal, and the others have no input."""
    append: bool = False
    kill_on_bad_exit: bool = False
    wait_s: int = 0
    """How long the others may go on after the first task has ended; 0: as long as they like."""


class Tasks:
    """The processes of a step."""

    def __init__(
        self,
        step: str,
        plans: Sequence[TaskPlan],
        files: Sequence[Files],
        manner: Manner,
        tell: Callable[[str], None],
    ) -> None:
        """`tell`: says a line to the person at `srun`."""
        self._step, self._plans, self._files, self._manner, self._tell = step, plans, files, manner, tell
        self._pids: dict[int, TaskPlan] = {}
        self._codes: dict[int, int] = {}
        """By rank; below zero: the signal."""
        self._copiers: list[threading.Thread] = []
        self._feeders: list[int] = []
        self._early: list[int] = []
        """Signals that came before the tasks were there."""
        self._opened: set[str] = set()
        self._timers: list[threading.Timer] = []
        self._said: set[int] = set()
        """Ranks that ended badly and were reported at once."""

    def run(self) -> int:
        """Start all, wait for all, report tasks that ended badly; gives the highest exit code."""
        # With SIGCHLD ignored the kernel would reap the tasks, and their exit codes would be lost.
        signals.signal(signals.SIGCHLD, signals.SIG_DFL)
        before = {each: signals.signal(each, self._forward) for each in _FORWARDED}
        try:
            sources = [self._start(plan, files) for plan, files in zip(self._plans, self._files, strict=True)]
            for number in self._early:
                self._signal(number)
            for rank, pair in sources:
                self._copiers += [_copied(source, target, rank, len(self._plans)) for source, target in pair]
            if self._manner.limit_s:
                self._end_after(self._manner.limit_s, signals.SIGTERM)
                self._end_after(self._manner.limit_s + _KILL_S, signals.SIGKILL)
            if self._feeders:
                threading.Thread(target=_feed, args=(self._feeders,), daemon=True).start()
            while self._pids:
                self._reap()
            for copier in self._copiers:
                copier.join()
        finally:
            for timer in self._timers:
                timer.cancel()
            for each, handler in before.items():
                signals.signal(each, handler)
        return self._ended()

    # -- signals

    def _forward(self, number: int, _: object) -> None:
        if len(self._pids) + len(self._codes) < len(self._plans):
            self._early.append(number)
        self._signal(number)

    def _signal(self, number: int) -> None:
        for pid in list(self._pids):
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def _end_after(self, seconds: float, number: int) -> None:
        timer = threading.Timer(seconds, self._signal, (number,))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    # -- starting

    def _start(self, plan: TaskPlan, files: Files) -> tuple[int, list[tuple[int, int]]]:
        """Fork one task; gives its rank, and the descriptors to copy between."""
        at_terminal = self._manner.pty and plan.rank == 0
        stdin = self._input(os.devnull if self._manner.pty and not at_terminal else files.stdin)
        stdout, out_source = self._output(files.stdout, 1)
        stderr, err_source = self._output(files.stderr, 2)
        above = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        ears, mouth = os.pipe2(os.O_CLOEXEC)
        # A signal that comes now waits until the child has a session of its own, and default handlers.
        before = signals.pthread_sigmask(signals.SIG_BLOCK, _FORWARDED)
        pid = os.fork()
        if pid == 0:
            _become(plan, self._manner, (stdin, stdout, stderr), above, mouth, own=not at_terminal)
        os.close(mouth)
        os.read(ears, 1)
        os.close(ears)
        self._pids[pid] = plan
        signals.pthread_sigmask(signals.SIG_SETMASK, before)
        for fd in {stdin, stdout, stderr} - {0, 1, 2}:
            os.close(fd)
        return plan.rank, [pair for pair in ((out_source, 1), (err_source, 2)) if pair[0] >= 0]

    def _input(self, path: str | None) -> int:
        if path is not None:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if len(self._plans) == 1 or self._manner.pty or _is_null(0):
            return 0
        # The input goes to all tasks.
        source, target = os.pipe2(os.O_CLOEXEC)
        self._feeders.append(target)
        return source

    def _output(self, path: str | None, own: int) -> tuple[int, int]:
        """The descriptor for a task, and the one to copy from; -1: nothing is to be copied."""
        if path is not None:
            new = path not in self._opened and not self._manner.append
            self._opened.add(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if new else 0)
            return os.open(path, flags, 0o644), -1
        if not self._manner.label:
            return own, -1
        source, target = os.pipe2(os.O_CLOEXEC)
        return target, source

    # -- waiting

    def _reap(self) -> None:
        pid, status = os.waitpid(-1, 0)
        plan = self._pids.pop(pid, None)
        if plan is None:
            return
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        first_bad = code != 0 and not any(self._codes.values())
        first = not self._codes
        self._codes[plan.rank] = code
        if not self._pids:
            return
        if first_bad and self._manner.kill_on_bad_exit:
            self._say([plan.rank])
            self._tell(f"Terminating StepId={self._step}")
            self._signal(signals.SIGTERM)
            self._end_after(_KILL_S, signals.SIGKILL)
        elif first and self._manner.wait_s:
            self._end_after(self._manner.wait_s, signals.SIGTERM)
            self._end_after(self._manner.wait_s + _KILL_S, signals.SIGKILL)

    def _say(self, ranks: Sequence[int]) -> None:
        """Report tasks that ended badly, those of a node that ended alike in one line."""
        alike: dict[tuple[str, str], list[int]] = {}
        nodes = {plan.rank: plan.node for plan in self._plans}
        for rank in [rank for rank in ranks if rank not in self._said]:
            code = self._codes[rank]
            text = f"Exited with exit code {code}" if code > 0 else (signals.strsignal(-code) or "Killed")
            alike.setdefault((nodes[rank], text), []).append(rank)
        self._said.update(ranks)
        for (node, text), those in alike.items():
            what = "tasks" if len(those) > 1 else "task"
            self._tell(f"error: {node}: {what} {fold_indices(those)}: {text}")

    def _ended(self) -> int:
        bad = [rank for rank in sorted(self._codes) if self._codes[rank]]
        self._say(bad)
        return max([code if code >= 0 else 128 - code for code in self._codes.values()], default=0)


def _become(
    plan: TaskPlan,
    manner: Manner,
    fds: tuple[int, int, int],
    above: int,
    mouth: int,
    *,
    own: bool,
) -> NoReturn:
    """The child: become the task, in a session of its `own` or at this terminal.

    It dies with `srun`, so that what the step held is free when `srun` is gone.
    """
    code, argv = 1, list(manner.argvs[plan.rank])
    try:
        if own:
            os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signals.SIGKILL), 0, 0, 0)
        if os.getppid() != above:
            os._exit(code)
        os.write(mouth, b"r")
        # Copies lie above 2, so that none is overwritten while it is still needed.
        high = [os.dup(fd) for fd in fds]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
            os.close(fd)
        # A handler of ours must not run here, and a shell that starts `srun` in the background ignores some signals.
        reset_signals()
        unblock_signals()
        if manner.folder:
            try:
                os.chdir(manner.folder)
            except OSError as error:
                _complain(f"couldn't chdir to `{manner.folder}': {error.strerror}: going to /tmp instead")
                os.chdir("/tmp")  # as Slurm does
        os.execvpe(argv[0], argv, {**plan.environment, "SLURM_TASK_PID": str(os.getpid())})
    except OSError as error:
        code = error.errno or errno.ENOEXEC
        _complain(f"execve(): {argv[0]}: {error.strerror}")
    finally:
        os._exit(code)


def _complain(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"slurmstepd: error: {text}\n".encode(errors="replace"))


def _is_null(fd: int) -> bool:
    try:
        return os.fstat(fd).st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return True


def _copied(source: int, target: int, rank: int, tasks: int) -> threading.Thread:
    """Copy lines with the rank in front; a line is written whole."""
    mark = f"{rank:0{len(str(tasks - 1))}d}: ".encode()

    def copy() -> None:
        with open(source, "rb") as lines:
            for line in lines:
                os.write(target, mark + (line if line.endswith(b"\n") else line + b"\n"))

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _feed(targets: list[int]) -> None:
    """Give what comes in to every task."""
    open_ones = list(targets)
    while open_ones and (piece := os.read(0, 65536)):
        for fd in list(open_ones):
            try:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(fd, rest) :]
            except OSError:
                os.close(fd)
                open_ones.remove(fd)
    for fd in open_ones:
        os.close(fd)
