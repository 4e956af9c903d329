"""MPS: one daemon for a GPU and a user, so that several of that user's jobs compute on it at the same time, each within
its caps.

A server of MPS serves one user at a time, and a client that breaks it may harm its neighbours; so shares of one GPU
belong to one user. The daemon runs as that user, in a folder that the user owns. It caps the memory that a program may
allocate, and the part of the multiprocessors that it computes on, but not bandwidth and caches.
"""

import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import NamedTuple

from gpuyard.engines.contract import Transient
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.engines.machine.leftovers import discard
from gpuyard.engines.machine.processes import find_user
from gpuyard.engines.node.kernel import processes
from gpuyard.errors import error_text

CONTROL = "nvidia-cuda-mps-control"
THROUGH = "YARD_SHARED_THROUGH"
"""The variable that says how a job with a share shares: `mps`, or `time-slicing`."""
_ASK_S_MAX, _START_S_MAX = 2.0, 10.0
_READY_S_MAX = 10.0
_SILENT_MAX, _SLOW_MAX, _QUIET_S = 3, 30, 5.0
"""A daemon that stands still and has not answered so many times is ended, and another one takes its place; so is one
that runs and has not answered so much more often: the machine may be slow. Between the times nobody waits for it: its
user may have stopped it, and others have jobs to start.
"""
_CLEAR_S_MAX = 1.0
_PAUSE_S = 0.05
_TRIES = 20
_FOLDER = re.compile(r"[0-9a-f]{8}-([0-9]{1,10})")


class Silent(Transient):
    """What was asked has not answered in time."""


class Daemon(NamedTuple):
    """Where one daemon is reached."""

    gpu: str
    uid: int
    folder: str

    @property
    def pipe(self) -> str:
        """The folder of its sockets."""
        return os.path.join(self.folder, "pipe")

    @property
    def log(self) -> str:
        """The folder of its logs."""
        return os.path.join(self.folder, "log")

    def environment(self) -> dict[str, str]:
        """The environment that its clients and its control program need."""
        return {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "CUDA_MPS_LOG_DIRECTORY": self.log}


def share_limits(milli: int, memory_mib: int) -> dict[str, str]:
    """The limits of one share: its part of the multiprocessors, and of the memory of the GPU."""
    return {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, milli // 10)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_mib * milli // 1000}M",
    }


def pid_of(daemon: Daemon) -> int:
    """The process id of a daemon, which may be dead; 0: it has not started, or was ended."""
    try:
        # The folder is its user's: a pipe there must not be waited for.
        fd = os.open(f"{daemon.pipe}/{CONTROL}.pid", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        return max(0, int(os.read(fd, 20)))
    except (OSError, ValueError):
        return 0
    finally:
        os.close(fd)


def _give(above: int, name: str, account: UnixAccount) -> None:
    """A folder of a user's in a folder of the server's, in the place of whatever else is there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    try:
        own = os.open(name, flags, dir_fd=above)
    except NotADirectoryError:
        os.unlink(name, dir_fd=above)
        os.mkdir(name, 0o700, dir_fd=above)
        own = os.open(name, flags, dir_fd=above)
    try:
        if os.geteuid() == 0:
            os.fchown(own, account.uid, account.gid)
    finally:
        os.close(own)


def _stands_still(daemon: Daemon) -> bool:
    """Whether no daemon runs there: it was stopped, or has ended."""
    stat = processes.read_stat(pid_of(daemon))
    return stat is None or stat.state in "TtZX"


class Mps:
    """The daemons of one yard."""

    def __init__(self, data: str) -> None:
        # Not below the yard's own folder: the path of a socket is limited to about a hundred characters.
        mark = hashlib.sha256(data.encode()).hexdigest()[:10]
        self.root = f"/tmp/gpuyard-mps-{mark}"
        """The folder of all daemons; it is gone with the last of them."""
        self._silent: dict[str, tuple[int, float]] = {}
        """By the folder of a daemon: how often in a row it has not answered, and when it is asked again."""

    def available(self) -> bool:
        """Whether this machine has MPS; without it, programs that share a GPU take turns, and nothing caps them."""
        return shutil.which(CONTROL) is not None

    def daemon(self, gpu: str, uid: int) -> Daemon:
        """Where the daemon for a GPU and a user is, or would be."""
        short = hashlib.sha256(gpu.encode()).hexdigest()[:8]
        return Daemon(gpu, uid, os.path.join(self.root, f"{short}-{uid}"))

    def ensure(self, gpu: str, account: UnixAccount) -> Daemon:
        """The daemon for this GPU and user, started now if it does not answer."""
        daemon = self.daemon(gpu, account.uid)
        times, again_s = self._silent.get(daemon.folder, (0, 0.0))
        if time.monotonic() < again_s:
            raise Transient(f"the MPS daemon for {gpu} did not answer a moment ago")
        try:
            if not self.answers(daemon):
                self._start(daemon, account)
        except Silent:
            self._silent[daemon.folder] = (times + 1, time.monotonic() + _QUIET_S)
            if times + 1 >= (_SILENT_MAX if _stands_still(daemon) else _SLOW_MAX):
                self._end(daemon)
            raise
        self._silent.pop(daemon.folder, None)
        return daemon

    def _start(self, daemon: Daemon, account: UnixAccount) -> None:
        self._make_folders(daemon, account)
        done = self._run(daemon, account.uid, account.gid, [CONTROL, "-d"], within_s=_START_S_MAX)
        until_s = time.monotonic() + _READY_S_MAX
        while not self.answers(daemon):
            if time.monotonic() > until_s:
                raise Silent(f"the MPS daemon for {daemon.gpu} does not answer: {done.strip()[:300]}")
            time.sleep(_PAUSE_S)

    def _end(self, daemon: Daemon) -> None:
        """Kill a daemon that does not answer, with its servers, and make way for another one."""

        def its_own() -> set[int]:
            pid = pid_of(daemon)
            # The file is the user's: any number may stand there.
            if not pid or find_user(pid) != daemon.uid:
                return set()
            return {
                each for each in {pid} | processes.find_descendants({pid}) if find_user(each) == daemon.uid
            }

        processes.signal_seen(its_own, signal.SIGKILL)
        discard(daemon.pipe, _CLEAR_S_MAX)
        self._silent.pop(daemon.folder, None)

    def _make_root(self) -> None:
        """Make the folder of all daemons. Any user may have made it first, so that no share starts; root clears it
        out of the way."""
        for _ in range(_TRIES):
            with suppress(FileExistsError):
                os.mkdir(self.root, 0o711)
            if os.lstat(self.root).st_uid == os.geteuid():
                return
            if os.geteuid() != 0:
                break
            with suppress(FileNotFoundError):
                os.rename(self.root, f"{self.root}.{secrets.token_hex(4)}")
        raise Transient(f"{self.root} belongs to somebody else")

    def _make_folders(self, daemon: Daemon, account: UnixAccount) -> None:
        self._make_root()
        os.makedirs(daemon.folder, mode=0o711, exist_ok=True)
        whole = os.open(daemon.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # The folder is the server's, also one that an earlier release gave to the user: its owner could put a link
            # in the place of what is in it, and would be given what that leads to.
            os.fchown(whole, os.geteuid(), os.getegid())
            os.fchmod(whole, 0o711)
            for path in (daemon.pipe, daemon.log):
                _give(whole, os.path.basename(path), account)
        finally:
            os.close(whole)

    def answers(self, daemon: Daemon) -> bool:
        """Whether it is there; `Silent`: it does not say."""
        if not os.path.lexists(os.path.join(daemon.pipe, "control")):
            return False
        try:
            self._run(daemon, daemon.uid, -1, [CONTROL], "get_server_list\n")
        except Silent:
            raise
        except Transient:
            return False
        return True

    def stop(self, daemon: Daemon) -> None:
        """End it. A process that still computes there loses its GPU."""
        if os.path.lexists(os.path.join(daemon.pipe, "control")):
            within_s = _ASK_S_MAX if _stands_still(daemon) else _START_S_MAX
            try:
                self._run(daemon, daemon.uid, -1, [CONTROL], "quit\n", within_s=within_s)
            except Silent:
                self._end(daemon)
            except Transient:
                # It has just gone, or goes with the next look.
                return

    def all(self) -> list[Daemon]:
        """Every daemon of this yard that may be there, by the folders they left. The GPU of each is unknown."""
        try:
            # Any user may make a folder of this name in /tmp first: its content is not ours.
            if os.lstat(self.root).st_uid != os.geteuid():
                return []
            names = sorted(os.listdir(self.root))
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [match for name in names if (match := _FOLDER.fullmatch(name))]
        return [Daemon("", int(match[1]), os.path.join(self.root, match[0])) for match in found]

    @staticmethod
    def dead(daemon: Daemon) -> bool:
        """Whether it has died: a daemon that ends on request removes its pid file."""
        pid = pid_of(daemon)
        return pid > 0 and not processes.is_running(pid)

    def pids(self) -> set[int]:
        """Pids of the daemons: processes below them that compute are ours."""
        return {pid for daemon in self.all() if (pid := pid_of(daemon))}

    def stop_unused(self, used: set[tuple[str, int]]) -> None:
        """End every daemon except those of these GPUs and users."""
        wanted = {self.daemon(gpu, uid).folder for gpu, uid in used}
        for daemon in self.all():
            if daemon.folder not in wanted:
                self.stop(daemon)
                self._clear(daemon)

    def _clear(self, daemon: Daemon) -> None:
        """Remove what an ended daemon left; one that is about to end still has its socket, and is cleared later."""
        there = os.path.lexists(os.path.join(daemon.pipe, "control"))
        # Its user may have put there what takes long to remove: the next look goes on with it.
        if not there and discard(daemon.folder, _CLEAR_S_MAX):
            with suppress(OSError):
                os.rmdir(self.root)

    @staticmethod
    def _run(
        daemon: Daemon, uid: int, gid: int, words: list[str], said: str = "", within_s: float = _ASK_S_MAX
    ) -> str:
        """A command as the daemon's user."""
        environment = {**daemon.environment(), "PATH": os.environ.get("PATH", os.defpath)}
        if zone := os.environ.get("TZ"):
            # Its log has local times, and we read them by our own.
            environment["TZ"] = zone
        if daemon.gpu:
            environment["CUDA_VISIBLE_DEVICES"] = daemon.gpu
        other = os.geteuid() == 0 and uid != 0
        try:
            done = subprocess.run(
                words,
                env=environment,
                input=said,
                capture_output=True,
                text=True,
                timeout=within_s,
                check=False,
                cwd="/",
                user=uid if other else None,
                group=gid if other and gid >= 0 else None,
            )
        except subprocess.TimeoutExpired as error:
            raise Silent(f"{words[0]} has not answered in {within_s:g} s") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise Transient(f"{words[0]}: {error_text(error)}") from error
        if done.returncode:
            raise Transient(f"{words[0]}: {done.stderr.strip() or done.stdout.strip() or done.returncode}")
        return done.stdout


class NoMps(Mps):
    """For emulated GPUs: clients get their variables and folders, and there is no daemon.

    A fault that is written into the log there counts as a fault of a server.
    """

    def available(self) -> bool:
        """It is pretended to be there, like the GPUs."""
        return True

    def ensure(self, gpu: str, account: UnixAccount) -> Daemon:
        """Nothing to start."""
        daemon = self.daemon(gpu, account.uid)
        self._make_folders(daemon, account)
        return daemon

    def answers(self, daemon: Daemon) -> bool:
        """No: there is no daemon."""
        return False

    def stop(self, daemon: Daemon) -> None:
        """Nothing to end."""
