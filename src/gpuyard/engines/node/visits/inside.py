"""Into a container that runs already: a process beside the job sees what its container sees, and may do no more there.

The first process of a container has its namespaces. A process of the same user may join them: that user made them. So
nothing needs to be installed in the image, and no other program is asked.

Runs beside the job as its user: only the standard library, nothing newer than Python 3.6.
"""

import ctypes
import os
import signal
import socket
import struct
import warnings  # noqa: F401 (Python loads it to run a program, and inside a container there may be another one)
from typing import Callable, Dict, List, NoReturn, Optional, Tuple

from ..kernel.processes import Fork
from ..kernel.terminals import open_pty, say, set_size, take

_NAMESPACES = (
    ("user", 0x10000000), ("ipc", 0x08000000), ("uts", 0x04000000), ("net", 0x40000000), ("cgroup", 0x02000000),
    ("pid", 0x20000000), ("mnt", 0x00020000),
)  # fmt: skip
"""In the order in which they are joined: the first gives the right to the others, the last hides this machine."""
_PR_SET_PDEATHSIG, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 23, 24
_CAPABILITIES_VERSION = 0x20080522
_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_OPENED = b"o"
_INT = struct.Struct("i")

_libc = ctypes.CDLL(None, use_errno=True)


class NotThere(Exception):
    """Why there is no container to go into, in words."""


def enter(pidfile: str) -> Dict[str, str]:
    """Go into the container whose first process a file names, for good; the variables of that process.

    Processes that are started from here on are among those of the container.
    """
    try:
        with open(pidfile) as file:
            about = "/proc/{}".format(int(file.read()))
        env = _variables(about)
        at = os.open(about + "/cwd", os.O_PATH)
        spaces = [(kind, _space(about, name)) for name, kind in _NAMESPACES]
        others = os.stat(about + "/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino
    except (FileNotFoundError, ProcessLookupError, ValueError):
        raise NotThere("its container does not run: it has not started yet, or has ended") from None
    if not others:
        raise NotThere("its container has ended")
    kind, own = spaces[0]
    if own is not None:
        _checked(_libc.setns(own, kind))
    # Read from here, its ids are those that this process would have there.
    rights = _rights(about)
    for kind, fd in spaces[1:]:
        if fd is not None:
            _checked(_libc.setns(fd, kind))
            os.close(fd)
    os.fchdir(at)
    os.close(at)
    _become(rights, apart=own is not None)
    return env


def start(
    fork: Fork,
    pidfile: str,
    words: List[str],
    told: Dict[str, str],
    size: Optional[Tuple[int, int]],
    let_go: Callable[[socket.socket], None],
    enter: Callable[[str], Dict[str, str]] = enter,
) -> Tuple[socket.socket, int]:
    """Start a program in a container, a shell where there are no words; gives its pid, and where its terminal comes.

    The terminal is one of the container itself: programs there look for it by its name. `told`: variables besides those
    of the container. `let_go` closes in the new process what the clients of the caller have there.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def complain(text: str) -> None:
        theirs.send(text.encode("utf-8", "replace"))

    def work() -> None:
        # It stays beside the program for as long as that runs.
        ours.close()
        let_go(theirs)
        try:
            env = enter(pidfile)
        except NotThere as why:
            complain(str(why))
            os._exit(1)
        pty = open_pty()
        if size is not None:
            set_size(pty[0], *size)
        theirs.sendmsg([_OPENED], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("2i", *pty))])
        os.close(pty[0])
        theirs.close()
        _run(words or [_shell(env)], dict(env, **told), pty[1])

    with theirs:
        return ours, fork(work, complain)


def receive_terminal(ours: socket.socket) -> Tuple[Optional[Tuple[int, int]], str]:
    """The terminal that has come from a container, master and slave; else why there is none."""
    with ours:
        text, given, _flags, _address = ours.recvmsg(4096, socket.CMSG_SPACE(2 * _INT.size))
    fds = [fd for _level, _kind, data in given for (fd,) in _INT.iter_unpack(data)]
    for fd in fds:
        os.set_inheritable(fd, False)
    if len(fds) == 2:
        return (fds[0], fds[1]), ""
    return None, text.decode(errors="replace") or "its container cannot be entered"


def _run(argv: List[str], env: Dict[str, str], slave: int) -> NoReturn:
    """Run a program among the processes of the container that was entered, and end as it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    pid = os.fork()
    if pid == 0:
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
            os.setsid()
            take(slave)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            say(slave, "cannot run {}: {}".format(argv[0], error.strerror))
        finally:
            os._exit(127)
    os.close(slave)
    while True:
        told = signal.sigwait({signal.SIGCHLD, *_PASSED_ON})
        if told != signal.SIGCHLD:
            os.killpg(pid, told)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _shell(env: Dict[str, str]) -> str:
    """The shell that a container has for a person."""
    wanted = [env["SHELL"]] if env.get("SHELL") else []
    return next((path for path in wanted + list(_SHELLS) if os.access(path, os.X_OK)), _SHELLS[2])


def _variables(about: str) -> Dict[str, str]:
    with open(about + "/environ", "rb") as file:
        pairs = [each.partition(b"=") for each in file.read().split(b"\0") if b"=" in each]
    found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    found.setdefault("PATH", _PATH)
    return found


def _space(about: str, name: str) -> Optional[int]:
    """A namespace of the container, to be joined; None: it is this process's own."""
    path = "{}/ns/{}".format(about, name)
    if os.stat(path).st_ino == os.stat("/proc/self/ns/" + name).st_ino:
        return None
    return os.open(path, os.O_RDONLY)


def _rights(about: str) -> Dict[str, List[str]]:
    with open(about + "/status") as file:
        lines = [line.split(":", 1) for line in file]
    return {name: value.split() for name, value in lines}


def _become(rights: Dict[str, List[str]], apart: bool) -> None:
    """Be the user that the container's first process is, with no more rights than it has."""
    bound, permitted = int(rights["CapBnd"][0], 16), int(rights["CapPrm"][0], 16)
    for each in range(64):
        if _libc.prctl(_PR_CAPBSET_READ, ctypes.c_ulong(each), 0, 0, 0) == 1 and not bound >> each & 1:
            _checked(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(each), 0, 0, 0))
    uid, gid = int(rights["Uid"][1]), int(rights["Gid"][1])
    if os.geteuid() == 0 and not apart:
        # In a user namespace the groups are those that the user has anyway.
        os.setgroups([int(each) for each in rights["Groups"]])
    if os.getegid() != gid:
        os.setresgid(gid, gid, gid)
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        # The server's, which goes before its users.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if os.geteuid() != uid:
        os.setresuid(uid, uid, uid)
    head = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    have = (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(head, have))
    low, high = permitted & have[1], (permitted >> 32) & have[4]
    _checked(_libc.capset(head, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)))


def _checked(answer: int) -> None:
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
