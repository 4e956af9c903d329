"""Files that are whole or absent: how engine and supervisors talk, so that either may die at any time.

Only the standard library, and little of it: supervisors import this.
"""

import errno
import json
import os
from contextlib import suppress
from typing import Any

from gpuyard.engines.node.kernel.processes import WHY_CHARS_MAX, cut_short

LAUNCH = "launch.json"
"""What was started: its user, where it runs, and where its output goes. Written durably before anything runs."""
WORK = "work.json"
"""The program, its environment and what its tasks have, for the supervisor alone. It may be long, and hold secrets."""
CLAIM = "claim.json"
"""The supervisor that runs it: claimed once, by a supervisor or by a stop that came before any."""
RUNNING = "running.json"
"""The supervisor's news: phase, time of start, process ids."""
HALT = "halt.json"
"""The wish that it stop."""
HALT_SPARE = "halt.spare"
"""The place on disk for that wish, taken by the supervisor before it claims the attempt."""
LIMIT = "limit.json"
"""The time limit that it is to have, in place of that of its launch."""
FREEZE = "freeze"
"""Present while it is to be frozen."""
END = "end.json"
"""How it ended. On disk before the supervisor exits; the first one written counts."""
SCRIPT = "script"
STDOUT = "stdout"
IMAGE = "image"
"""A folder in which podman keeps what it needs for the attempt; it goes when the attempt ends."""
STREAMS = (STDOUT, "stderr")

ATTEMPTS = "attempts"
JOBS = "jobs"
KEPT = "logs"
"""The folder of an attempt moves here once it is forgotten."""
DOWN = "down"
"""A file here with the name of an emulated node takes that node down, to rehearse its failure."""
EPOCH = "epoch"
LOCK = "lock"
WAKE = "wake"
"""A named pipe into which a supervisor writes one byte at the end of its attempt."""

END_BYTES_MAX = 4096
"""Room kept on disk for the end, so that a full disk cannot lose it."""

_PRIVATE = 0o600
_SECTOR_BYTES = 512
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where there is no room on disk."""


def sync(path: str) -> None:
    """Make a file's content durable, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_draft(path: str, content: bytes, *, durable: bool) -> str:
    """Write `content` beside `path` under a name of this process alone, and return that name."""
    draft = f"{path}.{os.getpid()}"
    _write(draft, content, durable=durable)
    return draft


def _write(path: str, content: bytes, *, durable: bool) -> None:
    """Write a file; where that fails it is gone."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        if durable:
            os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def write(path: str, value: dict[str, Any]) -> None:
    """Write a file that is not read before another one exists."""
    _write(path, json.dumps(value).encode(), durable=False)


def publish_once(draft: str, path: str) -> bool:
    """Give a draft its name unless that is taken; whether it was free. The draft is gone either way."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        # On tmpfs a second name takes an inode, and on a full disk there may be none.
        if error.errno not in FULL or os.path.lexists(path):
            raise
        os.rename(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    return True


def create(path: str, value: dict[str, Any], *, durable: bool) -> bool:
    """Write a file that is not there yet, whole; whether it was this call that did so."""
    return publish_once(write_draft(path, json.dumps(value).encode(), durable=durable), path)


def replace(path: str, value: dict[str, Any], *, durable: bool = False) -> None:
    """Write a file whole, in place of what was there."""
    os.rename(write_draft(path, json.dumps(value).encode(), durable=durable), path)


def replace_small(path: str, value: dict[str, Any], *, durable: bool = False) -> None:
    """The same for a few words that a full disk must not keep back.

    A link that leads nowhere and says them takes no block. Where no inode is left either, they are written over those
    that are there.
    """
    try:
        replace(path, value, durable=durable)
    except OSError as error:
        if error.errno not in FULL:
            raise
        draft = f"{path}.{os.getpid()}"
        try:
            os.symlink(json.dumps(value, separators=(",", ":")), draft)
            os.rename(draft, path)
        except OSError as again:
            if again.errno not in FULL or os.path.islink(path):
                raise
            _write_over(path, json.dumps(value).encode().ljust(_SECTOR_BYTES), durable=durable)


def read_small(path: str) -> dict[str, Any] | None:
    """What `replace_small` has written; None: nothing."""
    try:
        said = os.readlink(path)
    except OSError:
        return read(path)
    try:
        value: dict[str, Any] = json.loads(said)
    except ValueError:
        return None
    return value


def keep_halt(folder: str) -> None:
    """Take the place of a stop on disk, its inode and its block: a job may take all others."""
    fd = os.open(os.path.join(folder, HALT_SPARE), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _PRIVATE)
    try:
        os.posix_fallocate(fd, 0, _SECTOR_BYTES)
    finally:
        os.close(fd)


def put_halt(folder: str, wish: dict[str, Any]) -> None:
    """Write the wish that an attempt stop, in place of an earlier one; on a full disk into the place kept for it."""
    path, spare = os.path.join(folder, HALT), os.path.join(folder, HALT_SPARE)
    try:
        replace(path, wish)
    except OSError as error:
        if error.errno not in FULL:
            raise
        try:
            _write_over(spare, json.dumps(wish).encode().ljust(_SECTOR_BYTES), durable=False)
        except FileNotFoundError:
            # It was used for an earlier wish, or the attempt began under an earlier release.
            replace_small(path, wish)
        else:
            os.rename(spare, path)


def overwrite(path: str, value: dict[str, Any]) -> None:
    """Overwrite a small file in place, as a disk writes a sector: whole, and without giving blocks back.

    Only for files that are not read while they are written.
    """
    content = json.dumps(value).encode().ljust(_SECTOR_BYTES)
    with suppress(FileNotFoundError):
        if len(content) == os.lstat(path).st_size == _SECTOR_BYTES:
            _write_over(path, content, durable=False)
            return
    os.rename(write_draft(path, content, durable=False), path)


def _write_over(path: str, content: bytes, *, durable: bool) -> None:
    """Write into the first blocks of a file that is there."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.pwrite(fd, content, 0)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def read(path: str) -> dict[str, Any] | None:
    """The content of a file; None where there is none, or where a crash of the machine left a broken one.

    What must outlive such a crash is written durably before it gets its name, and so is never broken.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        value: dict[str, Any] = json.loads(content)
    except ValueError:
        return None
    return value


def _with_texts_of(value: dict[str, Any], chars_max: int) -> dict[str, Any]:
    """The same with texts that are no longer; those that were say so."""
    short: dict[str, Any] = {}
    for name, each in value.items():
        if isinstance(each, dict):
            short[name] = _with_texts_of(each, chars_max)
        else:
            short[name] = cut_short(each, chars_max) if isinstance(each, str) else each
    return short


class EndSlot:
    """The end's place on disk, taken before the job runs: blocks that are there can be written on a full disk."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._draft = os.path.join(folder, f"{END}.{os.getpid()}")
        self._fd = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE)
        try:
            os.posix_fallocate(self._fd, 0, END_BYTES_MAX)
        except OSError:
            self.drop()
            raise

    def drop(self) -> None:
        """Give the place back unused."""
        os.close(self._fd)
        with suppress(OSError):
            os.unlink(self._draft)

    def write(self, value: dict[str, Any]) -> bool:
        """Make this the end, durably; whether it is (another may have been first)."""
        content = json.dumps(value).encode()
        # Its texts come from programs beside us, and one character of them may take twelve bytes.
        for part in (1, 2, 4, 8):
            if len(content) > END_BYTES_MAX:
                content = json.dumps(_with_texts_of(value, WHY_CHARS_MAX // part)).encode()
        # Padded instead of cut, since a shorter file would have to change more than its blocks.
        os.pwrite(self._fd, content.ljust(END_BYTES_MAX), 0)
        os.fsync(self._fd)
        won = publish_once(self._draft, os.path.join(self._folder, END))
        sync(self._folder)
        return won


def knock(path: str) -> None:
    """Wake the engine that waits at the pipe. Without a reader, or if it is full, the engine looks later."""
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, b"!")
        finally:
            os.close(fd)


def read_own(path: str, offset: int, limit: int) -> bytes:
    """Part of a file of ours; empty where there is none."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(offset)
        return file.read(limit)
    return b""
