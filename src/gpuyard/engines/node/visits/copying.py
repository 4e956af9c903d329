"""Files into a job and out of it: what is copied, as frames, and how it is put down at the other end.

A file is a head, JSON with its path, mode and size, and then so many bytes; a folder is a head alone. Links to files
are followed, links to folders are left out. A file of a folder that cannot be read or written is told, and the others
are copied. At the other end nothing is written outside of the place that was named,
whatever the heads say: they come from somebody else's machine.

Runs beside the job and in `yard cp`: only the standard library, nothing newer than Python 3.6.
"""

import errno
import json
import os
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

PIECE_BYTES = 64 * 1024
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What fails for one file, and would for all that follow."""

Entry = Tuple[Dict[str, Any], int]
"""Its head, and the open file; -1: it is a folder."""
Note = Callable[[str, str], None]
"""Takes note of a file that is not copied, though it could be: its path, and why."""
NAMED_MAX = 100
"""Files that are named when a copy ends, of those that it left out and of those that failed; the others are counted."""


class Trouble(Exception):
    """What cannot be copied, in words."""


class Failed:
    """The files of which note was taken: the first of them, and how many."""

    def __init__(self) -> None:
        self.first: List[Tuple[str, str]] = []
        self.count = 0

    def __call__(self, path: str, why: str) -> None:
        """Take note of one more."""
        if self.count < NAMED_MAX:
            self.first.append((path, why))
        self.count += 1

    def told(self) -> Dict[str, Any]:
        """As the other end is told."""
        return {"failed": self.first, "failed_count": self.count}

    def learn(self, told: Dict[str, Any]) -> None:
        """What the other end tells; one of an earlier release tells nothing."""
        self.first += [(str(path), str(why)) for path, why in told.get("failed", ())]
        self.count += int(told.get("failed_count", 0))


def words(error: Exception) -> str:
    """Why one file is not copied."""
    return getattr(error, "strerror", None) or str(error)


def list_entries(source: str, left_out: Callable[[str], None], failed: Note) -> Iterator[Entry]:
    """What there is to copy of a file or a folder; paths begin with the source's own name.

    A file is open before its head is told: what cannot be read has none, and the others are copied all the same.
    """
    source = source.rstrip("/") or "/"
    name = os.path.basename(os.path.abspath(source))
    if not os.path.isdir(source):
        with _opened(source) as file:
            yield _head(name, os.fstat(file.fileno())), file.fileno()
        return
    above, whole = os.path.dirname(os.path.abspath(source)), os.path.abspath(source)
    # A folder of which nothing can be read is no copy at all.
    os.listdir(whole)
    for folder, folders, files in os.walk(whole, onerror=lambda error: failed(error.filename, words(error))):
        folders.sort()
        yield _head(os.path.relpath(folder, above), os.stat(folder)), -1
        for each in sorted(files) + [each for each in folders if os.path.islink(os.path.join(folder, each))]:
            path = os.path.join(folder, each)
            try:
                if not stat.S_ISREG(os.stat(path).st_mode):
                    left_out(path)
                    continue
            except OSError:
                left_out(path)
                continue
            try:
                file = _opened(path)
            except OSError as error:
                failed(path, words(error))
                continue
            with file:
                yield _head(os.path.relpath(path, above), os.fstat(file.fileno())), file.fileno()


def _opened(path: str) -> Any:
    # What was a file a moment ago may be a pipe by now, and nobody waits for that.
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)


def _head(path: str, found: os.stat_result) -> Dict[str, Any]:
    if stat.S_ISDIR(found.st_mode):
        return {"path": path, "mode": found.st_mode & 0o777, "folder": True, "size": 0}
    if not stat.S_ISREG(found.st_mode):
        raise Trouble("{} is neither a file nor a folder".format(path))
    return {"path": path, "mode": found.st_mode & 0o777, "folder": False, "size": found.st_size}


def read_pieces(head: Dict[str, Any], file: int) -> Iterator[bytes]:
    """The bytes of a file, as many as its head says; of one that became shorter meanwhile, those there are."""
    left = head["size"]
    while left:
        piece = os.read(file, min(PIECE_BYTES, left))
        if not piece:
            return
        left -= len(piece)
        yield piece


class Taker:
    """Puts down what comes, as `cp -r` does: into a folder that is there, or under the name of the target."""

    def __init__(self, target: str, failed: Optional[Note] = None) -> None:
        """`failed` takes note of files of a folder that cannot be put down; without it the first ends the copy."""
        inside = os.path.isdir(target)
        if target.endswith("/") and not inside:
            raise Trouble("there is no folder {}".format(target))
        self._root = target if inside else os.path.dirname(target) or "."
        self._name = "" if inside else os.path.basename(target)
        self._failed = failed
        self._several = False
        """Whether it is a folder that comes."""
        self._file = -1
        self._left = 0
        self._draft, self._path, self._mode = "", "", 0
        self.files = 0
        self.bytes = 0

    def head(self, content: bytes) -> None:
        """The next file or folder."""
        if self._left:
            self._drop()
        told = _told(content)
        parts = self._parts(told["path"])
        path = os.path.join(self._root, *parts)
        try:
            self._made(parts[:-1])
            if told["folder"]:
                _folder(path, told["mode"] | 0o700)
            else:
                self._begin(path, told["mode"] & 0o777, told["size"])
        except (OSError, Trouble) as error:
            if not self._spare(path, error):
                raise
            # What comes of it leads nowhere.
            self._left = told["size"]
        self._several = self._several or told["folder"]

    def _begin(self, path: str, mode: int, size: int) -> None:
        if os.path.isdir(path):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        # A name of its own: a name as long as names can be has no room for more. Nobody can have made it before.
        draft = os.path.join(os.path.dirname(path), ".{}.yard.part".format(os.urandom(8).hex()))
        try:
            self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            # The draft is our own business.
            raise OSError(error.errno, error.strerror, path) from error
        self._draft, self._path, self._mode, self._left = draft, path, mode, size
        if not size:
            self._done()

    def data(self, piece: bytes) -> None:
        """More of it."""
        if len(piece) > self._left:
            raise Trouble("a file is longer than was said")
        rest = memoryview(piece if self._file >= 0 else b"")
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._path) from error
        self._left -= len(piece)
        if self._file >= 0:
            self.bytes += len(piece)
            if not self._left:
                self._done()

    def close(self, whole: bool) -> None:
        """The end; a file that is not whole is not left there."""
        if self._left and whole:
            self._drop()
        elif self._file >= 0:
            self._forget()

    def _done(self) -> None:
        try:
            os.fchmod(self._file, self._mode)
            os.rename(self._draft, self._path)
        except OSError as error:
            self._forget()
            if not self._spare(self._path, error):
                raise OSError(error.errno, error.strerror, self._path) from error
            return
        os.close(self._file)
        self._file = -1
        self.files += 1

    def _drop(self) -> None:
        """A file became shorter on its way: it is none."""
        self._left = 0
        if self._file >= 0:
            self._forget()
            trouble = Trouble("it became shorter while it was copied")
            if not self._spare(self._path, trouble):
                raise Trouble("{} became shorter while it was copied".format(self._path))

    def _forget(self) -> None:
        os.close(self._file)
        self._file = -1
        os.unlink(self._draft)

    def _spare(self, path: str, error: Exception) -> bool:
        """Whether the others are copied all the same."""
        if not self._several or self._failed is None or getattr(error, "errno", None) in _FATAL:
            return False
        self._failed(path, words(error))
        return True

    def _parts(self, path: str) -> List[str]:
        parts = path.split("/")
        if any([part in ("", ".", "..") or "\0" in part for part in parts]):
            raise Trouble("{!r} leads out of the place that was named".format(path))
        if self._name:
            parts[0] = self._name
        return parts

    def _made(self, folders: List[str]) -> None:
        path = self._root
        for each in folders:
            path = os.path.join(path, each)
            _folder(path, 0o777)


def _told(content: bytes) -> Dict[str, Any]:
    """A head, if it is one: it comes from somebody else's machine."""
    try:
        told = json.loads(content.decode())
        kinds = [type(told[key]) for key in ("path", "mode", "folder", "size")]
        if kinds == [str, int, bool, int] and told["size"] >= 0:
            return dict(told)
    except (ValueError, LookupError, TypeError):
        pass
    raise Trouble("what came is not a head of a file: path, mode, folder and size")


def _folder(path: str, mode: int) -> None:
    """Make a folder, unless it is there; a link in its place would lead elsewhere."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise Trouble("{} is there and is not a folder".format(path)) from None


def resolve_path(path: str, home: Optional[str]) -> str:
    """A path as it is named for a job: `~/x` lies in its user's home."""
    return os.path.join(home or "/", path[2:]) if path.startswith("~/") else path
