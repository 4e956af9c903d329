"""What the engine works with: the spawner, its folder with lock and epoch, and reading its own files."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpuyard.engines.contract import Permanent
from gpuyard.engines.local.attempt.supervisor import CLAIMED, LOG_BYTES_MAX, TAKEN
from gpuyard.engines.local.own_code import own_code
from gpuyard.engines.machine import files, processes
from gpuyard.engines.machine.epochs import OneLeader
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.engines.machine.peeking import Inside
from gpuyard.errors import error_text

_ANSWER_BYTES_MAX = 8192
_END_S_MAX = 5.0
_SPAWN_S_MAX = 10.0
_TRIES_MAX = 3
_SPAWNER = """\
import sys
sys.path.append({above!r})
try:
    from gpuyard.engines.local.attempt.supervisor import spawn
except BaseException as error:
    import os, time
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    what = ascii(str(error))[1:-1][:300]
    sys.exit(f"{{when}} ERROR supervisor {{os.getpid()}}: {{type(error).__name__}}: {{what}}")
spawn()
"""
"""Errors have the same form before there is anything of ours to write them."""


class Spawner:
    """The process that forks supervisors. Started when first needed, and again if it is gone."""

    def __init__(self, log: str, group: str = "", above: str = "") -> None:
        """`above`: the folder in which Python finds the yard's code, where it is not this one's."""
        self._log, self._above = log, above or own_code().above
        self._group = group
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process number, while it is there."""
        return self._process.pid if self._process is not None else None

    def spawn(self, folders: Sequence[str]) -> dict[str, str]:
        """A supervisor for each folder; gives its answer by key: CLAIMED, TAKEN or why not. No answer: no entry."""
        answers: dict[str, str] = {}
        waiting = {os.path.basename(folder): folder for folder in folders}
        until = time.monotonic() + _SPAWN_S_MAX
        with self._lock:
            for _ in range(_TRIES_MAX):
                if not waiting:
                    break
                try:
                    self._ask(waiting, answers, until)
                except OSError:
                    # The spawner was killed. A supervisor that it had forked has claimed its key; asking for the rest
                    # is safe.
                    self._stop()
        return answers

    def _ask(self, waiting: dict[str, str], answers: dict[str, str], until: float) -> None:
        link = self._connected()
        # `select` knows only the first thousand descriptors, and a busy server has more.
        waiter = select.poll()
        waiter.register(link)
        unsent = list(waiting.values())
        while waiting:
            rest_s = until - time.monotonic()
            if rest_s <= 0:
                return
            # Answers are taken in while requests go out, so that neither side waits for the other.
            waiter.modify(link, select.POLLIN | (select.POLLOUT if unsent else 0))
            happened = sum([event for _fd, event in waiter.poll(rest_s * 1000)])
            if happened & select.POLLOUT:
                link.send(unsent.pop(0).encode())
            if happened & ~select.POLLOUT:
                key, _, word = link.recv(_ANSWER_BYTES_MAX).decode(errors="replace").partition("\n")
                if not key:
                    raise ConnectionResetError("the spawner is gone")
                if waiting.pop(key, None) is not None:
                    answers[key] = word

    def _connected(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = _SPAWNER.format(above=self._above)
        with suppress(OSError):
            if os.path.getsize(self._log) >= LOG_BYTES_MAX:
                os.replace(self._log, f"{self._log}.1")
        with theirs, open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", code, *filter(None, [self._group])],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                cwd="/",
                env={"LANG": "C.UTF-8"},
                start_new_session=True,
            )
        processes.give_back_file_limit(self._process.pid)
        self._socket = ours
        return ours

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(timeout=_END_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """Let the spawner go. Supervisors stay."""
        with self._lock:
            self._stop()


def is_accepted(word: str | None) -> bool:
    """Whether a supervisor has the attempt, this one or an earlier one."""
    return word in (CLAIMED, TAKEN)


class Data(OneLeader):
    """The engine's folder: its parts, the newest epoch seen, and the lock under which the world is changed."""

    def __init__(self, root: Path) -> None:
        # The one true name: processes and groups are found by it.
        super().__init__(os.path.realpath(root))
        self.wake_fd = -1
        self._make()

    def mend(self) -> None:
        """Make the folder again if it was removed, as a job of the yard's own user can."""
        if not os.path.isdir(os.path.join(self.root, files.ATTEMPTS)):
            self._make()

    def _make(self) -> None:
        try:
            # Jobs of any user pass through to their own folder, but cannot list it. Only the server reads logs of
            # jobs that ended: the uid may belong to another user by now.
            for part, mode in (
                ("", 0o711),
                (files.ATTEMPTS, 0o711),
                (files.JOBS, 0o711),
                (files.KEPT, 0o700),
            ):
                os.makedirs(os.path.join(self.root, part), exist_ok=True)
                os.chmod(os.path.join(self.root, part), mode)
            self.wake = os.path.join(self.root, files.WAKE)
            with suppress(FileExistsError):
                os.mkfifo(self.wake, 0o600)
            # Read and write: a pipe with a writer in this process never reports its end.
            fd = os.open(self.wake, os.O_RDWR | os.O_NONBLOCK)
            if self.wake_fd < 0:
                self.wake_fd = fd
            else:
                # A thread may wait on the old descriptor: keep its number.
                os.dup2(fd, self.wake_fd, inheritable=False)
                os.close(fd)
            self.inside = Inside(self.root)
        except OSError as error:
            raise Permanent(f"{self.root} cannot hold the engine's data: {error_text(error)}") from error

    def attempt(self, key: str) -> str:
        """The folder of an attempt."""
        return os.path.join(self.root, files.ATTEMPTS, key)

    def attempts(self) -> list[str]:
        """Keys of all attempts that are not forgotten."""
        self.mend()
        return sorted(os.listdir(os.path.join(self.root, files.ATTEMPTS)))

    def lives(self, key: str) -> bool:
        """Whether an attempt is known and has not ended."""
        folder = self.attempt(key)
        return os.path.isdir(folder) and not os.path.exists(os.path.join(folder, files.END))

    def kept(self, key: str) -> str:
        """The folder of an attempt that is forgotten."""
        return os.path.join(self.root, files.KEPT, key)

    def job(self, job_id: int) -> str:
        """The folder that all attempts of a job share."""
        return os.path.join(self.root, files.JOBS, str(job_id))

    def make_folders(self, job_id: int, key: str, owner: UnixAccount | None) -> None:
        """A job's folder, which all its attempts share, belongs to its user; that of one attempt is the engine's."""
        of_job, of_attempt = self.job(job_id), self.attempt(key)
        _make_folder(of_job, 0o700)
        if owner is not None:
            os.chown(of_job, owner.uid, owner.gid)
        _make_folder(of_attempt, 0o711)
        os.chmod(of_attempt, 0o711)

    def wait(self, timeout_s: float) -> bool:
        """Wait until a supervisor has knocked; whether one has."""
        readable, _, _ = select.select([self.wake_fd], [], [], timeout_s)
        if readable:
            with suppress(BlockingIOError):
                os.read(self.wake_fd, 65536)
        return bool(readable)

    def close(self) -> None:
        """Let go of the pipe."""
        if self.wake_fd >= 0:
            os.close(self.wake_fd)
            self.wake_fd = -1
            self.inside.close()


def _make_folder(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    except FileNotFoundError:
        # The folder above was removed.
        os.makedirs(path, mode, exist_ok=True)
