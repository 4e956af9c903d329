"""Files into a job and out of it: what is copied, as frames, and how it is put down at the other end.

A file is a head, JSON with its path, mode and size, and then so many bytes; a folder is a head alone. Links to files
are followed, links to folders are left out. At the other end nothing is written outside of the place that was named,
whatever the heads say: they come from somebody else's machine.

Runs beside the job and in `yard cp`: only the standard library, nothing newer than Python 3.6.
"""

import json
import os
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

PIECE_BYTES = 64 * 1024

Entry = Tuple[Dict[str, Any], str]
"""Its head, and where it lies."""


class Trouble(Exception):
    """What cannot be copied, in words."""


def entries(source: str, left_out: Callable[[str], None]) -> Iterator[Entry]:
    """What there is to copy of a file or a folder; paths begin with the source's own name."""
    source = source.rstrip("/") or "/"
    name = os.path.basename(os.path.abspath(source))
    if not os.path.isdir(source):
        yield _head(name, os.stat(source)), source
        return
    above = os.path.dirname(os.path.abspath(source))
    for folder, folders, files in os.walk(os.path.abspath(source), onerror=_fail):
        folders.sort()
        yield _head(os.path.relpath(folder, above), os.stat(folder)), ""
        for each in sorted(files) + [each for each in folders if os.path.islink(os.path.join(folder, each))]:
            path = os.path.join(folder, each)
            try:
                found = os.stat(path)
            except OSError:
                left_out(path)
                continue
            if stat.S_ISREG(found.st_mode):
                yield _head(os.path.relpath(path, above), found), path
            else:
                left_out(path)


def _fail(error: OSError) -> None:
    raise error


def _head(path: str, found: os.stat_result) -> Dict[str, Any]:
    if stat.S_ISDIR(found.st_mode):
        return {"path": path, "mode": found.st_mode & 0o777, "folder": True, "size": 0}
    if not stat.S_ISREG(found.st_mode):
        raise Trouble("{} is neither a file nor a folder".format(path))
    return {"path": path, "mode": found.st_mode & 0o777, "folder": False, "size": found.st_size}


def pieces(head: Dict[str, Any], path: str) -> Iterator[bytes]:
    """The bytes of a file, as many as its head says."""
    left = head["size"]
    if not left:
        return
    with open(path, "rb") as file:
        while left:
            piece = file.read(min(PIECE_BYTES, left))
            if not piece:
                raise Trouble("{} became shorter while it was copied".format(path))
            left -= len(piece)
            yield piece


class Taker:
    """Puts down what comes, as `cp -r` does: into a folder that is there, or under the name of the target."""

    def __init__(self, target: str) -> None:
        inside = os.path.isdir(target)
        if target.endswith("/") and not inside:
            raise Trouble("there is no folder {}".format(target))
        self._root = target if inside else os.path.dirname(target) or "."
        self._name = "" if inside else os.path.basename(target)
        self._file = -1
        self._left = 0
        self._draft, self._path, self._mode = "", "", 0
        self.files = 0
        self.bytes = 0

    def head(self, content: bytes) -> None:
        """The next file or folder."""
        if self._left:
            raise Trouble("a file is shorter than was said")
        told = json.loads(content.decode())
        parts = self._parts(told["path"])
        path = self._made(parts[:-1], parts[-1])
        if told["folder"]:
            _folder(path, int(told["mode"]) | 0o700)
            return
        self._path, self._mode, self._left = path, int(told["mode"]) & 0o777, int(told["size"])
        if os.path.isdir(path):
            raise Trouble("{} is a folder".format(path))
        self._draft = "{}.{}.part".format(path, os.getpid())
        self._file = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        if not self._left:
            self._done()

    def data(self, piece: bytes) -> None:
        """More of it."""
        if self._file < 0 or len(piece) > self._left:
            raise Trouble("a file is longer than was said")
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._left -= len(piece)
        self.bytes += len(piece)
        if not self._left:
            self._done()

    def close(self, whole: bool) -> None:
        """The end; a file that is not whole is not left there."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            os.unlink(self._draft)
            if whole:
                raise Trouble("the last file is shorter than was said")

    def _done(self) -> None:
        os.fchmod(self._file, self._mode)
        os.close(self._file)
        self._file = -1
        os.rename(self._draft, self._path)
        self.files += 1

    def _parts(self, path: Any) -> List[str]:
        parts = str(path).split("/")
        if any([part in ("", ".", "..") or "\0" in part for part in parts]):
            raise Trouble("{!r} leads out of the place that was named".format(path))
        if self._name:
            parts[0] = self._name
        return parts

    def _made(self, folders: List[str], name: str) -> str:
        path = self._root
        for each in folders:
            path = os.path.join(path, each)
            _folder(path, 0o777)
        return os.path.join(path, name)


def _folder(path: str, mode: int) -> None:
    """Make a folder, unless it is there; a link in its place would lead elsewhere."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise Trouble("{} is there and is no folder".format(path)) from None


def placed(path: str, home: Optional[str]) -> str:
    """A path as it is named for a job: `~/x` lies in its user's home."""
    return os.path.join(home or "/", path[2:]) if path.startswith("~/") else path
