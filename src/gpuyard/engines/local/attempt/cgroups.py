"""cgroup v2: limits on memory and CPU, and a fence that no process of a job can leave.

A fence is worth having even where no limit can be set: it kills and freezes in one step. Only the standard library, and
little of it: supervisors import this.
"""

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from gpuyard.engines.node.kernel.processes import put, signal_seen
from gpuyard.errors import error_text

CONTROLLERS = frozenset({"memory", "cpu"})
"""Without these there are no limits."""
_WELCOME = CONTROLLERS | {"cpuset"}
SUPERVISORS = "yard.supervisors"
"""The group of the supervisors, beside those of the attempts. No key holds a dot."""
PERIOD_US = 100_000
"""The time in which an attempt may use so much of the cores."""
_PAUSE_S = 0.002
_SOON_S = 0.2
"""Processes that were killed are gone from their group by then, mostly."""
_HOLD_TRIES = 50
OF_A_YARD = re.compile(r"gpuyard-[0-9a-f]{12}")
"""The name of a yard's own group."""


def read(path: str) -> str:
    """All of a small file of the kernel's."""
    with open(path, encoding="ascii") as file:
        return file.read()


def mount() -> str | None:
    """Where the cgroup v2 tree is mounted."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                return before.split()[4]
    return None


def own_path() -> str:
    """The path of this process in the v2 tree, from its root: `/` or `/a/b`."""
    for line in read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"


def candidates(name: str, *, root: bool) -> list[str]:
    """Folders where the yard's groups could be made, best first."""
    top = mount()
    if top is None:
        return []
    # Only at the root of the tree may a group that holds processes hand controllers down.
    places = ([top] if root else []) + [top + own_path().rstrip("/")]
    return [os.path.join(place, name) for place in dict.fromkeys(places)]


def find_group(name: str, *, wanted: bool) -> tuple[str, frozenset[str], str]:
    """The yard's cgroup (empty: none), the controllers in it, and why there are not all of them."""
    if not wanted:
        return "", frozenset(), "cgroups are switched off"
    complaint = "no cgroup v2 tree is mounted"
    for base in candidates(name, root=os.geteuid() == 0):
        try:
            controllers = prepare(base)
        except OSError as error:
            refused = isinstance(error, PermissionError) and os.geteuid() != 0
            complaint = who_can(systemd=_has_user_systemd()) if refused else error_text(error)
            continue
        lacking = " and ".join(sorted(CONTROLLERS - controllers))
        why = f"{os.path.dirname(base)} gives the yard no limits on {lacking}" if lacking else ""
        return base, controllers, why
    return "", frozenset(), complaint


def who_can(*, systemd: bool) -> str:
    """Whose yard can limit jobs, for a user whose own cannot. `systemd`: it gives this user's services groups."""
    other = ", or one that `yard service install --user` has set up," if systemd else ""
    return f"only a yard that root starts{other} can hold them to that"


def _has_user_systemd() -> bool:
    """Whether systemd runs the machine, and services of this user."""
    own = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere", "systemd")
    return os.path.isdir("/run/systemd/system") and os.path.isdir(own)


def prepare(base: str) -> frozenset[str]:
    """Make the yard's own group; which controllers the groups below it have. OSError: not here."""
    above = os.path.dirname(base)
    for controller in sorted(_WELCOME & set(read(f"{above}/cgroup.controllers").split())):
        with suppress(OSError):
            put(f"{above}/cgroup.subtree_control", f"+{controller}")
    held = hold(base)
    try:
        for controller in sorted(_WELCOME & set(read(f"{base}/cgroup.controllers").split())):
            with suppress(OSError):
                put(f"{base}/cgroup.subtree_control", f"+{controller}")
        # A process joins a group by this file, so it must be writable.
        if not os.access(f"{base}/cgroup.procs", os.W_OK):
            raise PermissionError(f"{base}/cgroup.procs cannot be written")
        return _WELCOME & set(read(f"{base}/cgroup.subtree_control").split())
    finally:
        os.close(held)


# -- groups of yards that have ended -----------------------------------------------------------------------------------
# A server holds its yard's group by a lock on the folder for as long as it lives. A group that nobody holds, and that
# is empty, may be removed: a yard that starts again makes it anew.


def take(base: str) -> int:
    """Make the yard's own group and hold it; the descriptor to let go in the end."""
    held = hold(base)
    prepare(base)
    return held


def hold(base: str) -> int:
    """Hold the yard's group, which is there afterwards; the descriptor to close in the end."""
    for tries_left in reversed(range(_HOLD_TRIES)):
        held = -1
        with suppress(FileNotFoundError, FileExistsError):
            os.makedirs(base, exist_ok=True)
            held = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            # Another server may look at it just now. A process that locks it for longer keeps no yard from starting.
            if (_locked(held, alone=False) or not tries_left) and os.path.samestat(
                os.stat(base), os.fstat(held)
            ):
                return held
        if held >= 0:
            os.close(held)
        time.sleep(_PAUSE_S)
    raise FileNotFoundError(f"{base} is removed again and again")


def _locked(folder: int, *, alone: bool) -> bool:
    try:
        fcntl.flock(folder, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sweep(base: str) -> int:
    """Remove the groups, beside a yard's own, of yards that have ended; how many there were."""
    above, own = os.path.split(base)
    count = 0
    for name in os.listdir(above):
        if name == own or not OF_A_YARD.fullmatch(name):
            continue
        # One that has processes or attempts cannot be removed, and another user's cannot either.
        with suppress(OSError):
            folder = os.open(os.path.join(above, name), os.O_RDONLY | os.O_DIRECTORY)
            try:
                if _locked(folder, alone=True):
                    with suppress(FileNotFoundError):
                        os.rmdir(os.path.join(above, name, SUPERVISORS))
                    os.rmdir(os.path.join(above, name))
                    count += 1
            finally:
                os.close(folder)
    return count


def give_up_group(base: str, held: int, wait_s: float = 2.0) -> bool:
    """Give up the yard's group, and remove it as soon as it is empty; whether it is gone.

    What was killed takes a moment to be gone. Attempts that go on are not waited for, and their group stays; so does
    one that another server of the same yard holds.
    """
    began_s = time.monotonic()
    try:
        while _locked(held, alone=True):
            for path in (os.path.join(base, SUPERVISORS), base):
                with suppress(OSError):
                    os.rmdir(path)
            waited_s = time.monotonic() - began_s
            if not os.path.isdir(base):
                return True
            if waited_s >= wait_s or (waited_s >= _SOON_S and _attempts_run(base)):
                return False
            time.sleep(_PAUSE_S)
        return False
    finally:
        os.close(held)


def _attempts_run(base: str) -> bool:
    names = set(os.listdir(base)) - {SUPERVISORS}
    paths = [os.path.join(base, name) for name in sorted(names)]
    return any([os.path.isdir(path) and not Cgroup(path).empty() for path in paths])


class Cgroup:
    """The group of one attempt."""

    def __init__(self, path: str) -> None:
        self.path = path

    def make(self, *, memory_mib: int, cpu_milli: int, cpus: str = "") -> None:
        """Make the group with its limits and its cores; 0 and empty: none. Raises OSError if it cannot be made."""
        with suppress(FileExistsError):
            os.mkdir(self.path)
        if memory_mib > 0:
            put(f"{self.path}/memory.max", str(memory_mib << 20))
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                # A kernel without swap accounting has no such file, and no swap to hide in either.
                with suppress(OSError):
                    put(f"{self.path}/{name}", value)
        if cpu_milli > 0:
            put(f"{self.path}/cpu.max", f"{max(1000, cpu_milli * PERIOD_US // 1000)} {PERIOD_US}")

        if cpus:
            put(f"{self.path}/cpuset.cpus", cpus)

    def join(self) -> None:
        """Move the calling process into the group."""
        put(f"{self.path}/cgroup.procs", "0")

    def freeze(self, frozen: bool) -> None:
        """Stop every process where it is, or let them go on."""
        put(f"{self.path}/cgroup.freeze", "1" if frozen else "0")

    def kill(self) -> None:
        """Kill every process in the group, even those that are being forked now."""
        # Kernels before 5.14 do not have it, and a group that is gone has no processes.
        with suppress(FileNotFoundError):
            put(f"{self.path}/cgroup.kill", "1")
        # It kills the first thread of each process, and misses a process if its first thread has ended already.
        signal_seen(self.pids, signal.SIGKILL)

    def pids(self) -> list[int]:
        """The processes in the group, and in groups that were made below it."""
        found: list[int] = []
        for folder, _folders, _files in os.walk(self.path):
            with suppress(OSError):
                found += [int(pid) for pid in read(f"{folder}/cgroup.procs").split()]
        return found

    def empty(self) -> bool:
        """Whether no process is left, not even a dying one."""
        try:
            return "populated 0" in read(f"{self.path}/cgroup.events")
        except FileNotFoundError:
            return True

    def killed_for_memory(self) -> bool:
        """Whether the kernel killed a process of the group because it was over its memory."""
        with suppress(OSError, ValueError):
            events = dict(line.split() for line in read(f"{self.path}/memory.events").splitlines())
            return int(events.get("oom_kill", 0)) + int(events.get("oom_group_kill", 0)) > 0
        return False

    def usage(self) -> dict[str, int]:
        """CPU time in ms, and the peak memory of all processes together in MiB; what is unknown is left out."""
        found = {}
        with suppress(OSError, ValueError, KeyError):
            figures = dict(line.split() for line in read(f"{self.path}/cpu.stat").splitlines())
            found["cpu_ms"] = int(figures["usage_usec"]) // 1000
        # Kernels before 5.19 do not have it, and neither does a group without the controller.
        with suppress(OSError, ValueError):
            found["memory_mib"] = int(read(f"{self.path}/memory.peak")) >> 20
        return found

    def remove(self, wait_s: float = _SOON_S) -> bool:
        """Remove the group; whether it is gone."""
        return remove(self.path, wait_s)


# -- groups of attempts that have ended --------------------------------------------------------------------------------
# A group with a process that the kernel cannot end yet, or with groups that a job has made below it, stays behind. It
# is no sign that the attempt runs, and it goes at a later look. What it has counted and refused is none of another
# attempt's, so that one gets a group of another name.

_AGAIN = "~"
"""Between a key and a number, in the name of the group of an attempt whose own name was taken. No key holds it."""


def remove(path: str, wait_s: float = 0.0) -> bool:
    """Remove a group, of either version, and those below it; whether it is gone."""
    until = time.monotonic() + wait_s
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            # Groups that a job has nested a thousand deep are more than this walk can take.
            with suppress(RecursionError):
                for folder, _folders, _files in os.walk(path, topdown=False):
                    with suppress(OSError):
                        os.rmdir(folder)
        if not os.path.isdir(path):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE_S)


def make_unused(path: str) -> str:
    """The path of a group to be made: one that is left of an earlier attempt is removed, or goes on beside it."""
    found, number = path, 1
    while os.path.isdir(found) and not remove(found):
        number += 1
        found = f"{path}{_AGAIN}{number}"
    return found


def tidy(base: str, lives: Callable[[str], bool]) -> None:
    """Remove the groups of attempts that have ended, as far as that can be done now."""
    with suppress(FileNotFoundError), os.scandir(base) as entries:
        # No key holds a dot.
        found = [each.name for each in entries if "." not in each.name and each.is_dir(follow_symlinks=False)]
        for name in sorted(found):
            if not lives(name.partition(_AGAIN)[0]):
                remove(os.path.join(base, name))
