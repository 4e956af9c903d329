"""What runs on this machine below which process, what ties processes to those above them, and the signals they heed.

Part of the code that is copied to the nodes of a cluster, and supervisors import it: only the standard library, little
of it, and nothing newer than Python 3.6.
"""

import ctypes
import os
import signal
from typing import Callable, Iterable, Iterator, NamedTuple, Optional, Set

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CAPABILITIES_VERSION = 0x20080522

_HAS_PIDFD = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
"""Python has them from 3.9 on."""
_HELD_MAX = 512
"""Descriptors of processes at once: a supervisor, and a server with its threads, need some for other things."""

NOT_FOUND, NOT_RUN = 127, 126
"""Exit codes of shells for a program that is not there, and for one that cannot be run."""

Work = Callable[[], None]
Fork = Callable[[Work, Callable[[str], None]], int]
"""Forks a process of the job: its user, its limits, what it sees. Gives its pid; the child does the work and ends."""

_libc = ctypes.CDLL(None, use_errno=True)


def put(path: str, text: str) -> None:
    """Write to a file of the kernel's, in one call."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


class Stat(NamedTuple):
    """The part of /proc/PID/stat that we use."""

    state: str
    parent: int
    ticks: int


def boot_id() -> str:
    """Which boot of which machine this is."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def read_stat(pid: int) -> Optional[Stat]:
    """What the kernel says of a process; None if there is none."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # Others' processes may be hidden.
        return None
    # The name of the program stands in parentheses and may hold spaces and parentheses itself.
    fields = line[line.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


def is_gone(pid: int, stat: Stat) -> bool:
    """Whether nothing of a process runs. If its first thread has ended, it looks like a zombie and may well run."""
    return stat.state in "ZX" and not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether any thread of a process runs: its first one may have ended long before the others."""
    try:
        threads = [int(name) for name in os.listdir("/proc/{}/task".format(pid))]
    except (FileNotFoundError, ProcessLookupError):
        return False
    stats = [read_stat(each) for each in threads]
    return any([stat is not None and stat.state not in "ZX" for stat in stats])


def list_pids() -> Iterator[int]:
    """Every process number there is."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def find_descendants(roots: Set[int]) -> Set[int]:
    """Every process below `roots`, without them."""
    parents = {}
    for pid in list_pids():
        stat = read_stat(pid)
        if stat is not None and not is_gone(pid, stat):
            parents[pid] = stat.parent
    below: Set[int] = set()
    for pid in parents:
        path = [pid]
        while path[-1] in parents and parents[path[-1]] not in path:
            above = parents[path[-1]]
            if above in roots or above in below:
                below.update(path)
                break
            path.append(above)
    return below - roots


def process_text(pid: int) -> str:
    """A process in a few words, for people: `4711 python (D)`."""
    stat = read_stat(pid)
    try:
        with open("/proc/{}/comm".format(pid), "r", encoding="utf-8", errors="replace") as file:
            # The process chose its name, so it is made harmless for a terminal.
            name = "".join([char if char.isprintable() else "?" for char in file.read().strip()])
    except OSError:
        return str(pid)
    return "{} {} ({})".format(pid, name, stat.state if stat else "?")


def signal_all(pids: Iterable[int], number: int, group: bool = False) -> None:
    """Send a signal to processes, or their groups, that were just seen; it is no error if one has gone since."""
    for pid in pids:
        try:
            (os.killpg if group else os.kill)(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def signal_below(root: int, pids: Iterable[int], number: int) -> None:
    """Send a signal to processes that were seen below another, and to none that got the number of one since.

    A process below may end at any moment, and its number is given away; a descriptor of it names that process alone.
    """
    for pid in pids:
        fd = _descriptor(pid)
        try:
            if _is_below(root, pid):
                _send(pid, fd, number)
        finally:
            if fd >= 0:
                os.close(fd)


def signal_seen(see: Callable[[], Iterable[int]], number: int) -> Set[int]:
    """Send a signal to processes that two looks see, and to none that got the number of one in between.

    Gives those of the first look. The second comes before any signal: what one ends may show the others no more.
    """
    first = set(see())
    held = [(pid, _descriptor(pid) if count < _HELD_MAX else -1) for count, pid in enumerate(sorted(first))]
    try:
        again = set(see()) if first else first
        for pid, fd in held:
            if pid in again:
                _send(pid, fd, number)
    finally:
        for _pid, fd in held:
            if fd >= 0:
                os.close(fd)
    return first


def _send(pid: int, fd: int, number: int) -> None:
    """Send a signal by a descriptor, or by the number where there is none; it is no error if it has gone since."""
    try:
        if fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _descriptor(pid: int) -> int:
    """A descriptor of a process; -1: there is none to be had, or no such process."""
    try:
        return os.pidfd_open(pid) if _HAS_PIDFD else -1
    except OSError:
        # Kernels before 5.3 have none, a fence of system calls may refuse it, and there may be too many open files.
        return -1


def _is_below(root: int, pid: int) -> bool:
    path = set()
    while pid > 0 and pid not in path:
        path.add(pid)
        stat = read_stat(pid)
        if stat is None:
            return False
        pid = stat.parent
        if pid == root:
            return True
    return False


# -- what ties processes to others -------------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Become the parent of every orphan below, so that none gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(above: int, code: int) -> None:
    """Ask the kernel to kill this process when its parent dies; where that has died already, end with this code."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != above:
        os._exit(code)


def gain_nothing() -> None:
    """Have no program that this process runs give it more rights than it has."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def give_up_capabilities() -> None:
    """Be an ordinary process of its user, unless that is root.

    A process that makes a user namespace, as for a fence, may do all to the files of its user, up to the next program
    that is run: a process that runs none would write where its user may not.
    """
    if os.geteuid() == 0:
        return
    head = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    if _libc.capset(head, (ctypes.c_uint32 * 6)()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


# -- signals: what starts a job may ignore or block some (`nohup`, cron, a daemon); a new program heeds all ------------


def reset_signals() -> None:
    """Heed every signal by default. Blocked signals stay blocked until `unblock_signals`."""
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            # KILL and STOP cannot be changed, and some belong to the C library.
            continue


def unblock_signals() -> None:
    """Let every signal in."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


WHY_CHARS_MAX = 500
"""Of why an attempt ended, as an engine tells it."""
_CUT = " [the rest is cut off]"


def cut_short(text: str, chars_max: int = WHY_CHARS_MAX) -> str:
    """A text; of a longer one as much as there is room for, and words that say so."""
    return text if len(text) <= chars_max else text[: chars_max - len(_CUT)] + _CUT


def error_text(error: BaseException) -> str:
    """An error as people read it: of the system what it refused, and where; of anything else what it is, too."""
    if isinstance(error, OSError):
        if error.strerror and error.filename:
            name = (
                error.filename.decode(errors="replace")
                if isinstance(error.filename, bytes)
                else error.filename
            )
            return "{}: {!r}".format(error.strerror, name)
        return error.strerror or str(error)
    return repr(error)
