"""Turn a plan into running tasks: as the job's user, in sessions of their own, all or none, no shell in between.

Runs in a supervisor: only the standard library, and little of it.
"""

import ctypes
import errno
import os
import pwd
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from gpuyard.engines.local.attempt import limits, room, v1
from gpuyard.engines.local.attempt.cgroups import Group
from gpuyard.engines.machine.files import SCRIPT, STDOUT
from gpuyard.engines.node import dispositions, fence

EXIT_NOT_FOUND, EXIT_NOT_RUN = 127, 126
"""Exit codes of shells for a program that is not there, and for one that cannot be run."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_NAMES = "/etc/hosts"
_READY, _GO = b"r", b"g"
_MESSAGE_BYTES_MAX = 1000
_HEED_MS = 50

_SYS_CLONE3, _CLONE_INTO_CGROUP = 435, 0x2_0000_0000
"""The number is the same on every machine."""

_libc = ctypes.CDLL(None, use_errno=True)
_PYTHON = ctypes.PyDLL(None)
"""The same, for calls during which Python does nothing else."""


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3))


def _checked(answer: int) -> None:
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def adopt_orphans() -> None:
    """Become the parent of every orphan below, so that none gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Task:
    """One process of the job, the head of its own session."""

    def __init__(self, pid: int, ears: int) -> None:
        self.pid = pid
        self.ears = ears
        """Where the task says that it is ready, or why it cannot be; at end of file once the program runs."""
        self.status: int | None = None
        """How it ended, as `waitpid` says."""

    def exit_code(self) -> int:
        """Its exit code, 128 + signal if a signal ended it."""
        assert self.status is not None, "only an ended task has an exit code"
        if os.WIFSIGNALED(self.status):
            return 128 + os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status)


class Failure(NamedTuple):
    """Why the job's program does not run."""

    exit_code: int
    why: str


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
        fence.enter(wanted, lambda what, path: _as_user(plan, what, path))
    except OSError as error:
        return Failure(EXIT_NOT_RUN, f"{error}")
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
            _die_with(supervisor)
            fence.enter(wanted, lambda what, path: _as_user(plan, what, path))
            os.write(mouth, _READY)
            os.read(stay, 1)
        except BaseException as error:  # a child must never go on as a second supervisor
            _say(mouth, EXIT_NOT_RUN, f"{error}")
        finally:
            os._exit(0)
    os.close(mouth)
    os.close(stay)
    scout = Task(pid, ears)
    tasks.append(scout)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        failure = _heard(scout, heed, whole=False)
        if failure is None:
            fence.follow(pid)
            os.fchdir(here)
    except OSError as error:
        failure = Failure(EXIT_NOT_RUN, f"{error}")
    finally:
        tasks.remove(scout)
        for fd in (ears, leave, here):
            os.close(fd)
    return failure


def _as_user(plan: dict[str, Any], what: Callable[[str], Any], path: str) -> Any:
    """What a function of a path gives with the rights of the job's user."""
    if not plan["drop"]:
        return what(path)
    groups = os.getgroups()
    os.setgroups(_groups(plan))
    os.setegid(plan["gid"])
    os.seteuid(plan["uid"])
    try:
        return what(path)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def launch(
    plan: dict[str, Any],
    group: Group | None,
    tasks: list[Task],
    heed: Callable[[], None],
    tty: int | None = None,
) -> Failure | None:
    """Fork every task and let them go once all are ready. With a failure, the tasks are dead or dying.

    `tty`: the terminal that they have for their input and output; it is closed here.

    A task may hang before its program runs, in its folder or its output. `heed` is called now and then until it has
    said something: it may kill those in `tasks`.
    """
    output = own_output(plan) if tty is None else tty
    room.prepare(plan)
    argv = plan["argv"]
    if plan["script"]:
        argv = [_write_script(plan), *argv]
    gate_read, gate_write = os.pipe()
    failure = None
    try:
        for env in plan["envs"]:
            tasks.append(_fork(plan, argv, env, output, group, (gate_read, gate_write)))
    except OSError as error:
        failure = Failure(EXIT_NOT_RUN, f"cannot start task {len(tasks)}: {error.strerror}")
    for task in tasks:
        failure = failure or _heard(task, heed, whole=False)
    if failure is None:
        os.write(gate_write, _GO * len(tasks))
    os.close(gate_write)
    os.close(gate_read)
    for task in tasks:
        failure = failure or _heard(task, heed, whole=True)
        os.close(task.ears)
    os.close(output)
    return failure


def _heard(task: Task, heed: Callable[[], None], *, whole: bool) -> Failure | None:
    """Listen to a task until it is ready (or, `whole`, until its program runs); what went wrong, if something did."""
    ears = select.poll()
    ears.register(task.ears, select.POLLIN)
    while not ears.poll(_HEED_MS):
        heed()
    said = os.read(task.ears, _MESSAGE_BYTES_MAX)
    if said == (b"" if whole else _READY):
        return None
    code, _, why = said.decode(errors="replace").partition(" ")
    return Failure(int(code), why) if why else Failure(EXIT_NOT_RUN, "killed before its program ran")


def own_output(plan: dict[str, Any]) -> int:
    """Open the attempt's own file for the job's output; the job may open it again by /dev/stdout."""
    fd = os.open(STDOUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    if plan["drop"]:
        os.fchown(fd, plan["uid"], plan["gid"])
    return fd


def _write_script(plan: dict[str, Any]) -> str:
    path = os.path.abspath(SCRIPT)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o500)
    try:
        rest = memoryview(plan["script"].encode("utf-8", "surrogateescape"))
        while rest:
            rest = rest[os.write(fd, rest) :]
        if plan["drop"]:
            os.fchown(fd, plan["uid"], plan["gid"])
    finally:
        os.close(fd)
    return path


def _fork(
    plan: dict[str, Any],
    argv: list[str],
    env: dict[str, str],
    output: int,
    group: Group | None,
    gate: tuple[int, int],
) -> Task:
    ears, mouth = os.pipe()
    supervisor = os.getpid()
    pid, inside = fork_into(group) if group is not None else (os.fork(), True)
    if pid == 0:
        _become(plan, argv, env, output, None if inside else group, gate, mouth, supervisor)
    os.close(mouth)
    return Task(pid, ears)


def fork_into(group: Group) -> tuple[int, bool]:
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


def _become(
    plan: dict[str, Any],
    argv: list[str],
    env: dict[str, str],
    output: int,
    group: Group | None,
    gate: tuple[int, int],
    mouth: int,
    supervisor: int,
) -> NoReturn:
    """The child: become the task. Any failure is reported to the supervisor, and nothing is run."""
    doing, code = "start", EXIT_NOT_RUN
    try:
        # The gate opens or closes for all; a write end kept here would hold it half open.
        os.close(gate[1])
        for doing in _entering(plan, group, supervisor, boxed=bool(plan.get("image"))):  # noqa: B007 (it is in the message where a step fails)
            pass
        doing = "open standard input and output"
        _connect(plan, output)
        dispositions.reset()
        env = {**env, **_moment(plan), "SLURM_TASK_PID": str(os.getpid())}
        doing = "make its image ready"
        containers = _contained(plan["image"], env, mouth) if plan.get("image") else None
        doing = "wait for the other tasks"
        os.write(mouth, _READY)
        if os.read(gate[0], 1) != _GO:
            os._exit(EXIT_NOT_RUN)
        dispositions.unblock()
        if containers is not None:
            os.close(mouth)
            containers.run(argv, bool(plan["script"]), plan["umask"])
        doing = f"run {argv[0]}"
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        if doing.startswith("run ") and error.errno in (errno.ENOENT, errno.ENOTDIR):
            code = EXIT_NOT_FOUND
        named = f" {error.filename}" if doing.startswith("open ") else ""
        if plan["script"] and code == EXIT_NOT_FOUND:
            named = " (is the program of its first line there?)"
        _say(mouth, code, f"cannot {doing}{named}: {error.strerror}")
    except BaseException as error:  # a child must never go on as a second supervisor
        _say(mouth, code, f"cannot {doing}: {error!r}")
    finally:
        os._exit(code)


def _entering(plan: dict[str, Any], group: Group | None, above: int, *, boxed: bool = False) -> Iterator[str]:
    """Become a process of the job, for as long as the process above lives; tells what comes next, step by step.

    `boxed`: it is to run containers.
    """
    os.setsid()
    _die_with(above)
    if group is not None:
        yield f"join {group.path}"
        group.join()
    yield "join its groups of cgroup v1"
    v1.join(plan.get("v1") or {})
    limits.apply()
    if plan.get("cpus"):
        limits.keep_to(plan["cpus"])
    if boxed:
        yield "make way for its containers"
        from gpuyard.engines.node import podman  # noqa: PLC0415 (most jobs run in no image)

        podman.hide_hybrid()
    yield f"become user {plan['user'] or plan['uid']}"
    if plan["drop"]:
        _become_user(plan)
    if not boxed:
        # Podman gets the ids of a container's users from a program with such privileges, and its containers none.
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # A change of user takes this wish back.
    _die_with(above)
    # A plan that an older yard wrote says nothing of it.
    os.umask(plan.get("umask", 0o022))
    yield f"enter folder {plan['cwd']}"
    os.chdir(plan["cwd"])


def _contained(plan: dict[str, Any], env: dict[str, str], mouth: int) -> Any:
    """The containers of a task, with their images on this machine; where these cannot be had, the task ends."""
    from gpuyard.engines.node import image  # noqa: PLC0415 (its supervisor has loaded it)

    try:
        return image.prepare(plan, env)
    except image.Failed as failed:
        _say(mouth, image.NOT_RUN, str(failed))
        os._exit(image.NOT_RUN)


def _moment(plan: dict[str, Any]) -> dict[str, str]:
    """When the job starts and must have ended, in seconds, as Slurm gives it."""
    start_s = int(time.time())
    found = {"SLURM_JOB_START_TIME": str(start_s)}
    if plan["limit_ms"] > 0:
        found["SLURM_JOB_END_TIME"] = str(start_s + plan["limit_ms"] // 1000)
    return found


def _say(mouth: int, code: int, why: str) -> None:
    with suppress(OSError):
        os.write(mouth, f"{code} {why}".encode(errors="replace")[:_MESSAGE_BYTES_MAX])


def _die_with(supervisor: int) -> None:
    """Ask the kernel to kill this process when its supervisor dies, even if it has died already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(EXIT_NOT_RUN)


def fork_beside(
    plan: dict[str, Any],
    group: Group | None,
    work: Callable[[], None],
    complain: Callable[[str], None],
) -> int:
    """Fork a process that does some work as one of the job's own: in its group, as its user. The caller has entered its
    fence.

    `complain` is called in it with what went wrong, in words.
    """
    above = os.getpid()
    pid, inside = fork_into(group) if group is not None else (os.fork(), True)
    if pid:
        return pid
    doing = "start"
    try:
        for doing in _entering(plan, None if inside else group, above):  # noqa: B007 (as for a task)
            pass
        dispositions.reset()
        dispositions.unblock()
        doing = "run it"
        work()
    except OSError as error:
        complain(f"cannot {doing}: {error.strerror or error}")
    except BaseException as error:  # a child must never go on as a second keeper
        complain(f"cannot {doing}: {error!r}")
    finally:
        os._exit(EXIT_NOT_RUN)


def become_looker(plan: dict[str, Any]) -> None:
    """A process that only looks at a path of the job: as its user, and for no longer than its supervisor lives."""
    supervisor = os.getppid()
    if plan["drop"]:
        _become_user(plan)
    _die_with(supervisor)


def _become_user(plan: dict[str, Any]) -> None:
    os.setgroups(_groups(plan))
    os.setgid(plan["gid"])
    os.setuid(plan["uid"])


def _groups(plan: dict[str, Any]) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(plan["uid"]).pw_name, plan["gid"])
    except KeyError:
        return [plan["gid"]]


def _connect(plan: dict[str, Any], output: int) -> None:
    """Standard input from nowhere, output to the recipe's files (opened as the user) or to the attempt's own.

    A job with a terminal has that for all three: `output` is the terminal.
    """
    if plan.get("terminal"):
        from gpuyard.engines.node import terminal  # noqa: PLC0415 (most jobs have none)

        terminal.take(output)
        return
    stdin = os.open(os.devnull, os.O_RDONLY)
    stdout = _open_output(plan["stdout"], plan["append"]) if plan["stdout"] else output
    if plan["stderr"] and plan["stderr"] != plan["stdout"]:
        stderr = _open_output(plan["stderr"], plan["append"])
    else:
        stderr = stdout
    # Copies lie above 2, so that none is overwritten while it is still needed.
    high = [os.dup(fd) for fd in (stdin, stdout, stderr)]
    for target, fd in enumerate(high):
        os.dup2(fd, target)


def _open_output(path: str, append: bool) -> int:
    # Without O_NONBLOCK a named pipe without a reader would block the task, and its supervisor, forever.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | (0 if append else os.O_TRUNC)
    try:
        fd = os.open(path, flags, 0o644)
    except FileNotFoundError:
        # `--output=logs/%j.out` means that the folder is to be there.
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        fd = os.open(path, flags, 0o644)
    os.set_blocking(fd, True)
    return fd
