"""Files that users named, read with the users' own rights: root would read more for them than they may see.

A process that became a user cannot go back, and one that touches a path of a user may hang with its file system. So
one process for each user reads for all requests for that user's logs; it ends when it has been idle for a while. There
are few of them, however many requests come: if a user's reader hangs, only requests for that user wait, and the reader
that was idle for longest makes room for the next user's.
"""

import json
import socket
import subprocess
import sys
import threading
import time

from gpuyard.engines.contract import Transient
from gpuyard.engines.machine.beside_process import Ends, start
from gpuyard.errors import error_text

READERS_MAX = 16
"""Processes in all."""
READ_S_MAX, IDLE_S = 10.0, 30.0
LIFE_S = 600.0
"""How long a reader lives: the groups of its user may change, and a new process has the new ones."""
_HEAD_BYTES = 8
_END_S_MAX = 0.5
_TURN_S = 0.005

_READER = """
import json, os, pwd, select, sys
uid, gid, idle_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
if os.geteuid() == 0:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        os.initgroups(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        os.setgroups([gid])
    os.setgid(gid)
    os.setuid(uid)
asked = select.poll()
asked.register(0, select.POLLIN)
while asked.poll(1000 * idle_s):
    line = sys.stdin.buffer.readline()
    if not line:
        break
    path, offset, limit = json.loads(line)
    piece = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            piece = os.pread(fd, limit, offset)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        pass
    sys.stdout.buffer.write(len(piece).to_bytes(8, "big") + piece)
    sys.stdout.buffer.flush()
"""
"""It becomes the user by itself: the user may not be allowed to run the server's Python."""


class _Reader:
    """One process that reads as one user, for one thread at a time."""

    def __init__(self, uid: int, gid: int, idle_s: float) -> None:
        self._idle_s = idle_s
        self.lock = threading.Lock()
        self.used_s = self._born_s = time.monotonic()
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-I", "-S", "-c", _READER, str(uid), str(gid), str(idle_s)]
        self.child = start(words, Ends((ours,), (theirs, theirs)), env={}, stderr=subprocess.DEVNULL)

    @property
    def stale(self) -> bool:
        """Whether another one is to take its place."""
        now_s = time.monotonic()
        # It goes by itself soon: a question may then come too late.
        return now_s - self.used_s > self._idle_s / 2 or now_s - self._born_s > LIFE_S or not self.child.alive

    def read(self, path: str, offset: int, limit: int, within_s: float) -> bytes:
        """Part of a file; empty at its end, and where the user may not read it. `EOFError`: the process has ended."""
        self.used_s = time.monotonic()
        until_s = self.used_s + within_s
        (line,) = self.child.line
        try:
            line.settimeout(within_s)
            line.sendall(json.dumps([path, offset, limit]).encode() + b"\n")
            size = int.from_bytes(_take(line, _HEAD_BYTES, until_s), "big")
            return _take(line, min(size, limit), until_s)
        except TimeoutError:
            raise TimeoutError(f"no answer within {within_s:g} s") from None
        except ConnectionError as error:
            raise EOFError from error

    def close(self) -> None:
        """End it, and let go of it. One that hangs in the kernel ends when its file system answers."""
        self.child.end(killed_s=_END_S_MAX)


def _take(line: socket.socket, size: int, until_s: float) -> bytes:
    pieces, rest = [], size
    while rest:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        line.settimeout(left_s)
        piece = line.recv(rest)
        if not piece:
            raise EOFError
        pieces.append(piece)
        rest -= len(piece)
    return b"".join(pieces)


class Readers:
    """The readers of one server."""

    def __init__(self, most: int = READERS_MAX) -> None:
        self._most = most
        self.read_s_max, self.idle_s = READ_S_MAX, IDLE_S
        """How long a read may take, and after how long without one a reader goes."""
        self._lock = threading.Lock()
        self._readers: dict[tuple[int, int], _Reader] = {}
        self._hung: dict[tuple[int, int], _Reader] = {}
        """Readers that were killed and have not ended: until they do, their users get no other."""

    def read(self, uid: int, gid: int, path: str, offset: int, limit: int) -> bytes:
        """Part of a file, as a user reads it; empty at its end, and where the user may not."""
        until_s = time.monotonic() + self.read_s_max
        for _ in range(2):
            reader = self._reserved(uid, gid, path, until_s)
            try:
                return reader.read(path, offset, limit, self.read_s_max)
            except EOFError:
                self._drop((uid, gid), reader)
            except OSError as error:
                self._drop((uid, gid), reader)
                raise Transient(f"{path} cannot be read: {error_text(error, path)}") from error
            finally:
                reader.lock.release()
        raise Transient(
            f"{path} cannot be read: the process that reads it for its owner is killed again and again"
        )

    def _reserved(self, uid: int, gid: int, path: str, until_s: float) -> _Reader:
        """The reader of a user, for this thread alone."""
        while True:
            with self._lock:
                if (hung := self._hung.get((uid, gid))) is not None:
                    if hung.child.alive:
                        raise Transient(f"{path} cannot be read: a file system of its owner does not answer")
                    del self._hung[uid, gid]
                reader = self._readers.get((uid, gid))
                if reader is None or (reader.stale and reader.lock.acquire(blocking=False)):
                    reader = self._made(uid, gid, reader, path)
                if reader is not None and reader.lock.acquire(blocking=False):
                    return reader
            if time.monotonic() > until_s:
                raise Transient(f"{path} cannot be read now: too many logs are being read")
            time.sleep(_TURN_S)

    def _made(self, uid: int, gid: int, before: _Reader | None, path: str) -> _Reader | None:
        """A new reader in place of a stale or an idle one; None: all of them are in use."""
        if before is not None:
            self._forget((uid, gid), before)
        if len(self._readers) >= self._most:
            idle = [(each.used_s, key) for key, each in self._readers.items() if not each.lock.locked()]
            if not idle:
                return None
            _used_s, key = min(idle)
            self._forget(key, self._readers[key])
        try:
            made = self._readers[uid, gid] = _Reader(uid, gid, self.idle_s)
        except OSError as error:
            raise Transient(f"{path} cannot be read: {error_text(error, path)}") from error
        return made

    def _drop(self, key: tuple[int, int], reader: _Reader) -> None:
        with self._lock:
            self._forget(key, reader)

    def _forget(self, key: tuple[int, int], reader: _Reader) -> None:
        if self._readers.get(key) is reader:
            del self._readers[key]
        reader.close()
        if reader.child.alive:
            self._hung[key] = reader

    def close(self) -> None:
        """End them all; a call that is reading gets an error."""
        with self._lock:
            for key, reader in list(self._readers.items()):
                reader.child.kill()
                with reader.lock:
                    self._forget(key, reader)
