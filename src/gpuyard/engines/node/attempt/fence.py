"""The fence of an attempt: a view of the machine in which its own GPUs are there, and no others.

The process that starts the tasks enters it once, so all tasks of the attempt share one view, and a shell that is opened
beside them has it too. What is mounted here cannot be taken away inside: an ordinary user has no right to, and in a
user namespace of a job's own inherited mounts are locked.

This file is part of the code for the nodes: only the standard library, nothing newer than Python 3.6.
"""

import ctypes
import errno
import os
import re
import stat
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

from ..kernel.processes import error_text, put

DEV, CAPS = "/dev", "/dev/nvidia-caps"
UNFENCED = "cannot raise its fence"
"""Why an attempt has not run; what was in the way follows."""
UNSHOWN = "its folder or output cannot be shown there"
"""What was in the way, where it is the job's own paths and not the machine; the reason follows."""

_OF_THE_MACHINE = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOMEM,
        errno.EIO,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
    )
)
_GPU = re.compile(r"nvidia[0-9]+")
_TEMPORARY = ("/tmp", "/var/tmp")
_SHM = "/dev/shm"
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MNT_DETACH = 2
_OPEN_TO_ALL = 0o1777
_DONE = "ok"
_HIDEPID_SINCE = (5, 8)
"""Before this kernel `hidepid` is a setting of the whole machine and not of one mount."""

_libc = ctypes.CDLL(None, use_errno=True)
_apart: List[int] = []
"""The number of this process, or of the one it comes from, once it has a view of its own."""

Kept = Tuple[str, int, bool]
"""What stays where it is: its path, a handle of it, and whether it is a folder."""

Fence = Dict[str, Any]
"""What a plan says of a fence. Every part may be absent, and is then left as it is on the machine:

    user    true: a user namespace first, since the yard is an ordinary user's
    gpus    names in /dev of its GPUs; every other GPU is masked
    mask    the file that lies over what is masked
    only    folders by path, with the names that are left in them
    names   a list of host names in place of the machine's
    tmp     a folder of its own in place of /tmp and /var/tmp
    keep    paths that stay where they are though they lie in one of these
    touch   files there that are made first, as the job's user
    code    folders of the yard's code that are shown where they are, and cannot be written to
    shm     true: a /dev/shm of its own
    devices what else refuses devices, `v1` or `v2` of cgroups; `view` false: nothing but that. Not done here
    proc    true: only processes of its own user in /proc
"""


def enter(fence: Fence, look: Callable[[Fence], List[Kept]], dev: str = DEV) -> None:
    """Go into the fence, for good. `look`: `open_paths`, with the rights of the job's user. `dev`: where
    devices are.
    """
    unshare(bool(fence.get("user")))
    code = _handles(fence.get("code", ()))
    # First: what stays visible in /tmp is shown there without what is mounted in it.
    kept, links = _own_temporary(fence, look(fence)) if fence.get("tmp") else ([], {})
    if fence.get("shm"):
        mount("tmpfs", _SHM, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    shown = _show(kept, code)
    _link(links, shown)
    if "gpus" in fence:
        for name in hidden_gpus(fence["gpus"], dev):
            bind(fence["mask"], "{}/{}".format(dev, name))
    for folder in sorted(fence.get("only", {})):
        leave_only(folder, fence["only"][folder])
    if fence.get("names"):
        bind(fence["names"], "/etc/hosts")
    if fence.get("proc"):
        mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "hidepid=2")


def follow(pid: int) -> None:
    """Enter the fence that another process is in. The caller is in no folder of it then."""
    fd = os.open("/proc/{}/ns/mnt".format(pid), os.O_RDONLY)
    try:
        _checked(_libc.setns(fd, _CLONE_NEWNS), "the view of another process")
        _apart.append(os.getpid())
    finally:
        os.close(fd)


def hidden_gpus(own: Iterable[str], dev: str = DEV) -> List[str]:
    """Names in /dev of the GPUs that are not these."""
    return sorted([name for name in os.listdir(dev) if _GPU.fullmatch(name) and name not in own])


def unshare(user: bool = False) -> None:
    """A view of the file system of one's own: what the machine mounts later is seen there, and nothing gets out."""
    uid, gid = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if user else 0)), "a view of its own")
    if user:
        put("/proc/self/setgroups", "deny")
        put("/proc/self/uid_map", "{0} {0} 1".format(uid))
        put("/proc/self/gid_map", "{0} {0} 1".format(gid))
    mount("none", "/", "", _MS_REC | _MS_SLAVE, "")
    _apart.append(os.getpid())


def leave_only(folder: str, names: Iterable[str]) -> None:
    """Leave only these names in a folder, even of what is put there later."""
    try:
        kept = [
            (name, os.open("{}/{}".format(folder, name), os.O_PATH | os.O_NOFOLLOW)) for name in sorted(names)
        ]
        os.close(os.open(folder, os.O_PATH | os.O_DIRECTORY))
    except FileNotFoundError:
        if names:
            raise
        return
    mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NOEXEC, "mode=755,size=64k")
    for name, fd in kept:
        _bind_at(fd, "{}/{}".format(folder, name), os.path.isdir("/proc/self/fd/{}".format(fd)))


def bind(source: str, target: str) -> None:
    """Show one file or folder in the place of another."""
    mount(source, target, "", _MS_BIND, "")


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """As the system call; OSError names the target."""
    words = [os.fsencode(text) if text else None for text in (source, target, kind, options)]
    _checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), target)


def hides_processes() -> str:
    """Why the processes of other users cannot be hidden from a job here; empty: they can."""
    release = re.match(r"([0-9]+)\.([0-9]+)", os.uname().release)
    if release is None or (int(release.group(1)), int(release.group(2))) < _HIDEPID_SINCE:
        return "the kernel is older than {}.{}".format(*_HIDEPID_SINCE)
    for path in mounted_below("/proc"):
        if path != "/proc/sys/fs/binfmt_misc":
            return "{} is mounted in the machine's /proc".format(path)
    return ""


def mounted_below(folder: str) -> List[str]:
    """Where something is mounted below a folder."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = {line.split()[4] for line in file}
    return sorted([path for path in found if path.startswith(folder.rstrip("/") + "/")])


def find_flaw(user: bool) -> str:
    """Why no fence can be raised here; empty: one can."""

    def work() -> None:
        unshare(user)
        mount("tmpfs", _SHM, "tmpfs", _MS_NOSUID | _MS_NODEV, "")

    return _tried(work)


def find_view_flaw(code: Iterable[str]) -> str:
    """Why these folders cannot be shown in folders of a job's own; empty: they can."""

    def work() -> None:
        unshare()
        handles = _handles(code)
        for top in sorted({_top_of(path) for path, _fd, _is_folder in handles}):
            mount("tmpfs", top, "tmpfs", _MS_NOSUID | _MS_NODEV, "")
        _show([], handles)

    return _tried(work)


def _tried(work: Callable[[], None]) -> str:
    """What goes wrong with some work, tried out in a process of its own; empty: nothing."""
    ears, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ears)
            try:
                work()
                told = _DONE
            except OSError as error:
                told = "{}: {}".format(error.filename or "namespaces", error.strerror)
            except BaseException as error:  # whatever it is, it could not be done
                told = error_text(error)
            os.write(mouth, told.encode("utf-8", "surrogateescape"))
        finally:
            os._exit(0)
    os.close(mouth)
    with os.fdopen(ears, "rb") as file:
        told = file.read().decode("utf-8", "surrogateescape")
    os.waitpid(pid, 0)
    return "" if told == _DONE else told or "the process that tried it out has ended"


# -- /tmp --------------------------------------------------------------------------------------------------------------


def is_temporary(path: str) -> bool:
    """Whether a path lies in a folder for temporary files, and is not that folder."""
    return any([os.path.normpath(path).startswith(top + "/") for top in _TEMPORARY])


def is_shared(path: str) -> bool:
    """Whether a path lies in the memory that programs share by files."""
    return os.path.normpath(path).startswith(_SHM + "/")


def open_paths(fence: Fence) -> List[Kept]:
    """What the job's paths lead to, each made if it is to be, and opened.

    A file system of a user's own answers nobody else, not even root, so that all this is asked by the job's user.
    """
    for path in fence.get("touch", ()):
        with suppress(OSError):
            # The task itself will say so, in its own words.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644))
    found = []
    for path in sorted({os.path.normpath(each) for each in fence.get("keep", ())}):
        with suppress(OSError):
            fd = os.open(path, os.O_PATH)
            found.append((path, fd, stat.S_ISDIR(os.fstat(fd).st_mode)))
    return found


def _own_temporary(fence: Fence, kept: List[Kept]) -> Tuple[List[Kept], Dict[str, str]]:
    """Put folders of the job's own in the place of the machine's; gives what is to be shown in them, and the links.

    A path that leads through a link is a link in the job's view too, never what it leads to on the machine: that may be
    the machine's own /tmp or /proc.
    """
    own, found, links = [], [], {}
    for path, fd, is_folder in kept:
        real = os.readlink("/proc/self/fd/{}".format(fd))
        if real != path:
            links[path] = real
        if is_temporary(real):
            found.append((real, fd, is_folder))
        else:
            os.close(fd)
    # Other jobs of the same user must not pass.
    os.makedirs(fence["tmp"], mode=0o700, exist_ok=True)
    for top in _TEMPORARY:
        if os.path.isdir(top) and not os.path.islink(top):
            folder = os.path.join(fence["tmp"], top.strip("/").replace("/", "-"))
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, _OPEN_TO_ALL)
            own.append((top, os.open(folder, os.O_PATH)))
    for top, fd in own:
        bind("/proc/self/fd/{}".format(fd), top)
        os.close(fd)
    return found, links


def _handles(code: Iterable[str]) -> List[Kept]:
    """Folders of the yard's code: where each is shown, and what is shown there."""
    return [(path, os.open(path, os.O_PATH | os.O_DIRECTORY), True) for path in sorted(code)]


def _show(kept: List[Kept], code: List[Kept]) -> Dict[str, bool]:
    """Show paths of the job and of the yard's code where they are, in folders of the job's own.

    Gives the paths, and whether each is of the code.
    """
    shown: Dict[str, bool] = {}
    # Of two with one path the code comes first: a folder that the job names itself is there as its user has it.
    wanted = [(each, 0) for each in code] + [(each, 1) for each in kept]
    for (path, fd, is_folder), order in sorted(wanted, key=lambda each: (each[0][0], each[1])):
        is_code = order == 0
        above = [shown[each] for each in shown if path == each or path.startswith(each + "/")]
        # What lies in a folder of the job that is shown already is there. Nothing is made in it: it is the user's.
        if is_code or not above or above[-1]:
            with _blamed_on(not is_code):
                _bind_at(fd, path, is_folder, is_code, not above)
            shown[path] = is_code
        os.close(fd)
    return shown


def _link(links: Dict[str, str], shown: Iterable[str]) -> None:
    """Make the links by which the job names its paths. One that lies in a folder that is shown is there already, and so
    is one in a folder of the machine's that is itself a link.
    """
    there = [*shown, *[top for top in (*_TEMPORARY, _SHM) if os.path.islink(top)]]
    for path in sorted(links):
        if not any([path == each or path.startswith(each + "/") for each in there]):
            with _blamed_on(True):
                above, name = _folder_above(path, True)
                os.symlink(links[path], name, dir_fd=above)
                os.close(above)
            there.append(path)


@contextmanager
def _blamed_on(job: bool) -> Iterator[None]:
    """Say of an error that the job's own paths are in the way, unless the machine is."""
    try:
        yield
    except OSError as error:
        if not job or error.errno in _OF_THE_MACHINE:
            raise
        raise OSError("{}: {}".format(UNSHOWN, error_text(error))) from error


def leave_temporary() -> None:
    """Take the folders of temporary files away again, so that they can be removed.

    A process that never got into its fence is in the machine's own view: there /tmp is everybody's.
    """
    if not _apart:
        return
    for top in _TEMPORARY:
        if os.path.isdir(top) and not os.path.islink(top):
            _checked(_libc.umount2(os.fsencode(top), _MNT_DETACH), top)


def _bind_at(fd: int, path: str, is_folder: bool, read_only: bool = False, make: bool = True) -> None:
    """Show an open file or folder at a path; `make`: there is nothing yet."""
    above, name = _folder_above(path, make)
    if make:
        _make_at(above, name, is_folder)
    at = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=above)
    bind("/proc/self/fd/{}".format(fd), "/proc/self/fd/{}".format(at))
    os.close(at)
    if read_only:
        # Opened again, it is what was mounted there.
        at = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=above)
        place = "/proc/self/fd/{}".format(at)
        as_it_is = os.statvfs(place).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        mount("none", place, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | as_it_is, "")
        os.close(at)
    os.close(above)


def _folder_above(path: str, make: bool) -> Tuple[int, str]:
    """The folder above a path, open, and the path's name in it; `make`: there is nothing yet.

    No link on the way there is followed, since users may have made one.
    """
    top = _top_of(path)
    above = os.open(top, os.O_PATH | os.O_DIRECTORY)
    *folders, name = os.path.relpath(path, top).split("/")
    for each in folders:
        if make:
            _make_at(above, each, True)
        at = os.open(each, os.O_PATH | os.O_NOFOLLOW, dir_fd=above)
        os.close(above)
        above = at
    return above, name


def _make_at(folder: int, name: str, is_folder: bool) -> None:
    with suppress(FileExistsError):
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=folder)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder))


def _top_of(path: str) -> str:
    """The folder at the top, to which a path leads without links."""
    return next((top for top in (*_TEMPORARY, _SHM) if path.startswith(top + "/")), os.path.dirname(path))


def _checked(answer: int, target: str) -> None:
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)
