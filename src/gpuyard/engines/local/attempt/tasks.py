"""Tasks on this machine: in the attempt's groups, behind its fence, as the job's user.

Runs in a supervisor: only the standard library, and little of it.
"""

import ctypes
import os
import pwd
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpuyard.engines.local.attempt import room, v1
from gpuyard.engines.local.attempt.cgroups import Cgroup
from gpuyard.engines.machine import processes
from gpuyard.engines.machine.files import SCRIPT, STDOUT
from gpuyard.engines.node.attempt import fence
from gpuyard.engines.node.attempt.tasks import (
    Failure,
    Task,
    TaskEntry,
    hear_task,
    open_output,
    say,
    say_ready,
    write_script,
)
from gpuyard.engines.node.containers import podman
from gpuyard.engines.node.kernel.processes import NOT_RUN, die_with, gain_nothing, give_up_capabilities
from gpuyard.errors import error_text

_NAMES = "/etc/hosts"
_WHOLE = b"all"
_TOLD_MAX = 8192
"""A path is shorter."""

_SYS_CLONE3, _CLONE_INTO_CGROUP = 435, 0x2_0000_0000
"""The number is the same on every machine."""

_PYTHON = ctypes.PyDLL(None)
"""The C library, for calls during which Python does nothing else."""


class Fenced(TaskEntry):
    """How a process becomes one of the job's on this machine; the caller has entered the job's fence."""

    def __init__(self, plan: dict[str, Any], group: Cgroup | None) -> None:
        super().__init__(plan)
        self.group = group
        self._to_join = group
        self._script = os.path.abspath(SCRIPT)
        """Where its user finds it. This process writes it by its name in the folder that it is in."""

    def argv(self) -> list[str]:
        """The program and its arguments; a script is written here."""
        if not self.plan["script"]:
            return list(self.plan["argv"])
        write_script(SCRIPT, self.plan["script"], self.owner())
        return [self._script, *self.plan["argv"]]

    def ranks(self) -> list[int]:
        """The numbers of its tasks."""
        return list(range(len(self.plan["envs"])))

    def environment(self, index: int) -> dict[str, str]:
        """The variables of a task."""
        env: dict[str, str] = self.plan["envs"][index]
        return env

    def at_start(self) -> dict[str, str]:
        """When the job starts and must have ended, in seconds, as Slurm gives it."""
        start_s, limit_ms = int(time.time()), self.plan["limit_ms"]
        found = {"SLURM_TASK_PID": str(os.getpid()), "SLURM_JOB_START_TIME": str(start_s)}
        if limit_ms > 0:
            found["SLURM_JOB_END_TIME"] = str(start_s + limit_ms // 1000)
        return found

    def starters(self, below: Callable[[], set[int]]) -> set[int]:
        """The processes that started the job's steps: its own file is believed only about processes of the job."""
        named = room.find_starters(self.plan)
        return named & below() if named else named

    def owner(self) -> tuple[int, int] | None:
        """User and group of the job's processes, where they are others than those of this process."""
        return (self.plan["uid"], self.plan["gid"]) if self.plan["drop"] else None

    def fork(self) -> int:
        """Fork into the attempt's group, if it has one."""
        if self.group is None:
            return os.fork()
        pid, inside = fork_into(self.group)
        if pid == 0 and inside:
            self._to_join = None
        return pid

    def admit(self, boxed: bool) -> Iterator[str]:
        """Come under the job's limits and become its user; tells what comes next, step by step."""
        plan = self.plan
        if self._to_join is not None:
            yield f"join {self._to_join.path}"
            self._to_join.join()
        if plan.get("v1"):
            yield "join its groups of cgroup v1"
            v1.join(plan["v1"])
        processes.be_usual()
        if plan.get("cpus"):
            processes.keep_to(plan["cpus"])
        if boxed:
            yield "make way for its containers"
            podman.hide_hybrid()
        yield f"become user {plan['user'] or plan['uid']}"
        if plan["drop"]:
            _become_user(plan)
        if not boxed:
            # Podman gets the ids of a container's users from a program with such privileges, and its containers none.
            gain_nothing()
            # What runs no program, such as a copy, keeps those that its fence has given it.
            give_up_capabilities()

    def open_streams(self) -> tuple[int, int]:
        """The recipe's files, opened in the task as its user, or the attempt's own."""
        plan = self.plan
        if plan.get("terminal"):
            return self.output
        stdout = open_output("", plan["stdout"], plan["append"]) if plan["stdout"] else self.output[0]
        if plan["stderr"] and plan["stderr"] != plan["stdout"]:
            return stdout, open_output("", plan["stderr"], plan["append"])
        return stdout, stdout


def own_output(plan: dict[str, Any]) -> int:
    """Open the attempt's own file for the job's output; the job may open it again by /dev/stdout."""
    fd = os.open(STDOUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    if plan["drop"]:
        os.fchown(fd, plan["uid"], plan["gid"])
    return fd


def fork_into(group: Cgroup) -> tuple[int, bool]:
    """Fork; 0 in the child, and whether that is in the group already: else it has to join.

    To move a process into a group stops every fork and every exit on the machine for some milliseconds. Kernels before
    5.7 cannot do without, and containers may forbid it.
    """
    try:
        fd = os.open(group.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return os.fork(), False
    # Flags, the signal at its end, and the group; the rest is as in any fork.
    wish = (ctypes.c_uint64 * 11)(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
    pid: int = _PYTHON.syscall(ctypes.c_long(_SYS_CLONE3), wish, ctypes.c_size_t(ctypes.sizeof(wish)))
    os.close(fd)
    return (pid, True) if pid >= 0 else (os.fork(), False)


def enter_fence(plan: dict[str, Any], tasks: list[Task], heed: Callable[[], None]) -> Failure | None:
    """See what the job is to see of this machine, from now on; else why that cannot be had.

    Files of the job's user may lie where no file system answers. So another process goes first, which is one of `tasks`
    until it is there, and `heed` is called now and then: it may kill it.
    """
    # A plan of an older yard has none. A yard of an ordinary user has no right to show others' names.
    wanted = dict(plan.get("fence") or {})
    if not wanted.get("view", True):
        wanted = {}
    if plan.get("names") and os.geteuid() == 0:
        room.write_names(plan, _NAMES)
        wanted["names"] = os.path.abspath(room.NAMES)
    if not wanted:
        return None
    if wanted.get("keep") or wanted.get("touch"):
        return _follow(plan, wanted, tasks, heed)
    try:
        fence.enter(wanted, lambda of: _opened(plan, of))
    except OSError as error:
        return Failure(NOT_RUN, f"{error_text(error)}")
    return None


def _follow(
    plan: dict[str, Any], wanted: dict[str, Any], tasks: list[Task], heed: Callable[[], None]
) -> Failure | None:
    """Let a scout enter the fence, and follow it there."""
    ears, mouth = os.pipe()
    stay, leave = os.pipe()
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(leave)
            os.setsid()
            die_with(supervisor, NOT_RUN)
            fence.enter(wanted, lambda of: _opened(plan, of))
            say_ready(mouth)
            os.read(stay, 1)
        except BaseException as error:  # a child must never go on as a second supervisor
            say(mouth, Failure(NOT_RUN, f"{error_text(error)}"))
        finally:
            os._exit(0)
    os.close(mouth)
    os.close(stay)
    scout = Task(pid, ears)
    tasks.append(scout)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        failure = hear_task(scout, heed, whole=False)
        if failure is None:
            fence.follow(pid)
            os.fchdir(here)
    except OSError as error:
        failure = Failure(NOT_RUN, f"{error_text(error)}")
    finally:
        tasks.remove(scout)
        for fd in (ears, leave, here):
            os.close(fd)
    return failure


def _opened(plan: dict[str, Any], wanted: dict[str, Any]) -> list[fence.Kept]:
    """What the job's paths lead to for its user: another process becomes that user for good, and hands it over."""
    if not plan["drop"] or not (wanted.get("keep") or wanted.get("touch")):
        return fence.open_paths(wanted)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            here.close()
            become_looker(plan)
            for path, fd, is_folder in fence.open_paths(wanted):
                socket.send_fds(there, [bytes([is_folder]), os.fsencode(path)], [fd])
            there.send(_WHOLE)
        finally:
            os._exit(0)
    there.close()
    found: list[fence.Kept] = []
    with here:
        while True:
            told, fds, _flags, _address = socket.recv_fds(here, _TOLD_MAX, 1)
            if not fds:
                break
            found.append((os.fsdecode(told[1:]), fds[0], bool(told[0])))
    os.waitpid(pid, 0)
    if told != _WHOLE:
        raise OSError(f"{fence.UNSHOWN}: the process that opens them for its user has ended")
    return found


def become_looker(plan: dict[str, Any]) -> None:
    """A process that only looks at a path of the job: as its user, and for no longer than its supervisor lives."""
    supervisor = os.getppid()
    if plan["drop"]:
        _become_user(plan)
    die_with(supervisor, NOT_RUN)


def _become_user(plan: dict[str, Any]) -> None:
    os.setgroups(_groups(plan))
    os.setgid(plan["gid"])
    os.setuid(plan["uid"])


def _groups(plan: dict[str, Any]) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(plan["uid"]).pw_name, plan["gid"])
    except KeyError:
        return [plan["gid"]]
