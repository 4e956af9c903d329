"""Where a yard keeps its things on a machine, and how commands find it. Light, because every command imports it.

    DATA/            0711: other users pass through to the socket and cannot list
      yard.db        the store (unless --store names another)
      yard.pid       0600, locked while a server runs; holds its port, and which process it is
      yard.sock      the API on a Unix socket; the kernel knows which user connects
      yard.log       of a server in the background
      started.json   the configuration of the last start with one; started.spare: blocks for the next; started.lock
      yard.series.db what GPUs and jobs did over time; it may be removed
      yard.clock     how the time of the log stands to the time since the machine's boot
      yard.reserve   blocks, and yard.spares inodes, for a disk that a job fills
      shipping/      how far logs were sent to each receiver
      token          for the API over TCP: acts as the owner of this file
      engine/        the local engine's own

Several servers on one PostgreSQL store share a folder; each then has `yard-PORT.pid`, `.sock` and `.log` of its own.
"""

import fcntl
import grp
import json
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import YardError, error_text

if TYPE_CHECKING:
    from gpuyard.engines.machine.processes import Identity

PORT = 7447
TOKEN_LENGTH_MIN = 32
_NOTE_BYTES = 512
SPARE_BYTES = 1 << 16
"""Kept for the configuration of a start on a full disk, or as much as the last one has."""
SYSTEM_DATA = Path("/var/lib/gpuyard")
SOCKETS = "/proc/net/unix"
_TRUSTED = ("yard.db", "yard.db-wal", "yard.yaml", "started.json", "token", "yard.pid", "engine")


class AlreadyRunning(YardError):
    """Another server has this folder."""

    exit_code = 3


def _changed_by(folder: Path, mine: set[int]) -> str:
    """Which users other than these could rename what lies in a folder; empty: none."""
    try:
        link, found = folder.lstat(), folder.stat()
    except FileNotFoundError:
        return ""
    strange = {link.st_uid, found.st_uid} - mine - _unmapped()
    if strange:
        return f"is user {min(strange)}'s"
    if found.st_mode & stat.S_ISVTX:
        # Only the owner of a name takes it away, and the name is looked at itself.
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "can be written to by everybody"
    if found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid()):
        others = _members_of(found.st_gid) - mine
        return f"can be written to by user {min(others)}" if others else ""
    return ""


def _members_of(gid: int) -> set[int]:
    """The users of a group, by number."""
    found = {each.pw_uid for each in pwd.getpwall() if each.pw_gid == gid}
    with suppress(KeyError):
        for name in grp.getgrgid(gid).gr_mem:
            with suppress(KeyError):
                found.add(pwd.getpwnam(name).pw_uid)
    return found


def _unmapped() -> set[int]:
    """The number that this user namespace shows for users outside of it, the machine's root among them."""
    with open("/proc/self/uid_map", encoding="utf-8") as file:
        if file.read().split() == ["0", "0", str((1 << 32) - 1)]:
            return set()
    with open("/proc/sys/kernel/overflowuid", encoding="utf-8") as file:
        return {int(file.read())}


def default_data() -> Path:
    """Where the data is by default: `$YARD_DATA`, root's own place, or the user's."""
    named = os.environ.get("YARD_DATA")
    if named:
        return Path(named)
    if os.geteuid() == 0:
        return SYSTEM_DATA
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gpuyard"


def likely_data() -> Iterator[Path]:
    """Folders in which a command looks for a server, the most likely first."""
    first = default_data()
    yield first
    if not os.environ.get("YARD_DATA") and first != SYSTEM_DATA:
        yield SYSTEM_DATA


def resolve_store(said: str) -> str:
    """The URL of a store: as it was said, from a file (`@FILE`), or of `YARD_STORE`; empty: none is named.

    A command line can be read by every user of the machine, and a URL may hold a password.
    """
    said = said or os.environ.get("YARD_STORE", "")
    if not said.startswith("@"):
        return said
    path = Path(said[1:])
    try:
        with path.open(encoding="utf-8") as file:
            others, text = os.fstat(file.fileno()).st_mode & 0o077, file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise YardError(
            f"{path}, which names the store, cannot be read: {error_text(error, path)}"
        ) from error
    if others:
        raise YardError(f"{path}, which names the store, can be read by others", f"chmod 600 {path}")
    if not text or len(text.split()) != 1:
        raise YardError(f"{path} names no store", "It holds one line: postgresql://USER:PASSWORD@HOST/NAME")
    return text


class DataDir:
    """The folder of one yard."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def check_reach(self) -> None:
        """Raise where this user may not come to the folder; it need not be there yet."""
        try:
            with suppress(FileNotFoundError):
                os.stat(self.root / ".")
        except OSError as error:
            raise self._unfit(error) from error

    def prepare(self) -> None:
        """Make the folder, if need be."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._check_owner()
            if os.stat(self.root).st_uid == os.geteuid():
                os.chmod(self.root, 0o711)
        except OSError as error:
            raise self._unfit(error) from error

    def _unfit(self, error: OSError) -> YardError:
        return YardError(
            f"{self.root} cannot hold a yard's data: {error.strerror}",
            "Name another folder with --data, or with YARD_DATA.",
        )

    def free_bytes(self) -> int:
        """How much more this process can write here."""
        found = os.statvfs(self.root)
        free = found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)
        # ext4 keeps a part for itself that it counts as free: a fiftieth, and 16 MiB at most.
        return max(0, free - min(found.f_frsize * found.f_blocks // 50, 16 << 20))

    def free_files(self) -> int:
        """How many more files can be made here; a file system that does not count them has room for many."""
        found = os.statvfs(self.root)
        return found.f_ffree if found.f_files else 1 << 30

    def _check_owner(self) -> None:
        """Raise if another user could change what the server believes: which account jobs run as is in it."""
        mine = {0, os.geteuid()}
        for path in (self.root, *[self.root / name for name in _TRUSTED]):
            with suppress(FileNotFoundError):
                strange = {os.lstat(path).st_uid, os.stat(path).st_uid} - mine
                if strange:
                    raise YardError(
                        f"{path} is user {min(strange)}'s, who could change what this yard runs, and as which user",
                        "Name another folder with --data, or make this one your own with chown.",
                    )
        for path in {*self.root.parents, *self.root.resolve().parents}:
            if why := _changed_by(path, mine):
                raise YardError(
                    f"{path} {why}: another folder could be put in the place of {self.root}",
                    "Name a folder with --data that lies in folders of root's and your own alone, such as "
                    f"{SYSTEM_DATA}.",
                )

    @property
    def database(self) -> Path:
        """The store, if no other is named."""
        return self.root / "yard.db"

    @property
    def engine(self) -> Path:
        """The local engine's folder. All servers of a yard on this machine share it."""
        return self.root / "engine"

    def engine_of(self, cluster: str) -> Path:
        """The folder of the engine of a cluster that is not this machine."""
        return self.root / "engines" / cluster

    @property
    def shipping(self) -> Path:
        """How far logs were sent to receivers. Whichever server leads goes on from it."""
        return self.root / "shipping"

    @property
    def config(self) -> Path:
        """The configuration that is used if no other is named."""
        return self.root / "yard.yaml"

    @property
    def _started(self) -> Path:
        return self.root / "started.json"

    @property
    def _spare(self) -> Path:
        return self.root / "started.spare"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Of the servers that share the folder, be the only one that writes what starts remember."""
        lock = os.open(
            self.root / "started.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if self._spare.samefile(self._started):
                    # A start that was killed had kept it, and not yet put another one in its place.
                    self._spare.unlink()
            yield
        finally:
            os.close(lock)

    def keep_spare(self) -> None:
        """Have a file that is as long as what a start may have to remember; a start on a full disk writes into it."""
        wanted = max(SPARE_BYTES, _size(self._started))
        if _size(self._spare) < wanted:
            with self._alone():
                _put(self._spare, b" " * wanted)

    def remember(self, text: str, name: str) -> None:
        """Keep the configuration of a start, for starts without one: it names the machine's nodes and people."""
        content = json.dumps({"name": name, "text": text}).encode()
        with suppress(FileNotFoundError):
            if self._started.read_bytes().rstrip() == content:
                return
        try:
            with self._alone():
                self._replace(content)
        except OSError as error:
            raise YardError(
                f"the configuration of this start cannot be written into {self.root}: {error.strerror}",
                "Free some space; or start without --config, with the file of the last start.",
            ) from error

    def _replace(self, content: bytes) -> None:
        draft = self.root / ".started"
        for left in self.root.glob(f"{draft.name}.*"):
            # Of an earlier release, which was killed.
            left.unlink()
        try:
            with suppress(FileNotFoundError):
                # On a full disk its blocks are all there are, or those that a start which was killed has taken.
                self._spare.rename(draft)
            room = 0 if draft.exists() else max(SPARE_BYTES, 2 * len(content))
            _put(draft, content.ljust(room))
            with suppress(OSError):
                # The blocks that were used for the start before are those for the next one, where a file can have
                # two names.
                os.link(self._started, self._spare)
            draft.rename(self._started)
        except OSError:
            with suppress(OSError):
                draft.rename(self._spare)
            raise

    def forget(self) -> None:
        """No configuration is to be remembered."""
        self._started.unlink(missing_ok=True)

    def remembered(self) -> tuple[str, str] | None:
        """Text and name of the configuration of the last start with one; None: there was none."""
        try:
            found = json.loads(self._started.read_text(encoding="utf-8"))
            return str(found["text"]), str(found["name"])
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise YardError(
                f"{self.root} cannot hold a yard's data: it is a file",
                "Name another folder with --data, or with YARD_DATA.",
            ) from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise YardError(
                f"{self._started}, the configuration of the last start, cannot be read: {error_text(error)}",
                "Name a yard.yaml with --config, or remove the file.",
            ) from error

    @property
    def token_file(self) -> Path:
        """The token for the API over TCP."""
        return self.root / "token"

    def instance(self, port: int, shared: bool) -> "Instance":
        """One server's own files."""
        return Instance(self, f"yard-{port}" if shared else "yard")

    def instances(self) -> list["Instance"]:
        """Every server that has left files here, running or not."""
        with suppress(OSError):
            names = sorted(os.listdir(self.root))
            return [
                Instance(self, name[:-4])
                for name in names
                if name.endswith(".pid") and (name == "yard.pid" or name.startswith("yard-"))
            ]
        # Others may not list the folder, only pass through it. The kernel tells them of servers that listen there.
        names = [*_listening(self.root), "yard", f"yard-{PORT}"]
        return [
            Instance(self, name) for name in dict.fromkeys(names) if (self.root / f"{name}.sock").exists()
        ]

    def token(self) -> str:
        """The token, made if there is none. Only its owner can read it."""
        with suppress(FileNotFoundError):
            return self._known_token()
        draft = self.root / f".token.{os.getpid()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, os.urandom(32).hex().encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        # Two servers may start at once: the first one's token stands.
        with suppress(FileExistsError):
            os.link(draft, self.token_file)
        os.unlink(draft)
        return self._known_token()

    def _known_token(self) -> str:
        """The token as it stands in its file, if it is one: its holder acts as the owner."""
        mode = self.token_file.stat().st_mode
        token = self.token_file.read_text(encoding="ascii", errors="replace").strip()
        if mode & 0o077:
            raise YardError(f"{self.token_file} can be read by others", f"chmod 600 {self.token_file}")
        if len(token) < TOKEN_LENGTH_MIN or not token.isalnum():
            raise YardError(
                f"{self.token_file} holds no token: it is damaged",
                "Remove the file: a new token is then made.",
            )
        return token


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _put(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read. One that is longer keeps its blocks: spaces follow."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        left = memoryview(content.ljust(os.fstat(fd).st_size))
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _listening(root: Path) -> list[str]:
    """The names of servers whose sockets in a folder are bound by a process of this machine."""
    with suppress(OSError), open(SOCKETS, encoding="utf-8", errors="replace") as table:
        paths = [line.split(maxsplit=7)[7:] for line in table]
        folder = os.path.realpath(root)
        found = [os.path.split(path[0].strip()) for path in paths if path]
        names = {name for place, name in found if os.path.realpath(place) == folder}
        return sorted(
            name[:-5] for name in names if name.endswith(".sock") and name.startswith(("yard-", "yard."))
        )
    return []


class Instance:
    """One server's lock, socket and log."""

    def __init__(self, data: DataDir, name: str) -> None:
        self.data = data
        self.pid_file = data.root / f"{name}.pid"
        self.socket = data.root / f"{name}.sock"
        self.log = data.root / f"{name}.log"
        self.reserve = data.root / f"{name}.reserve"
        self.series = data.root / f"{name}.series.db"
        self.clock = data.root / f"{name}.clock"
        self._fd = -1

    def hold(self, note: dict[str, object]) -> None:
        """Be the one server of this name, or raise with the pid of the one there is."""
        # A user who can open the file can lock it: that is its owner alone, also where an older server made it.
        fd = os.open(self.pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(fd, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise self._taken() from None
        self._fd = fd
        self.write(note)

    def check_free(self) -> None:
        """Raise if another server has this place, before anything else is tried."""
        if self.running() is not None:
            raise self._taken()

    def _taken(self) -> AlreadyRunning:
        server = self._server()
        if server is None:
            return AlreadyRunning(
                f"{self.pid_file} is locked, and not by the yard that wrote it, which is gone",
                f"`fuser {self.pid_file}` names the process that locks it.",
            )
        return AlreadyRunning(
            f"a yard is running on {self.data.root} already, with pid {server.pid}",
            "Use it, stop it with `yard down`, or choose another folder with --data.",
        )

    def write(self, note: dict[str, object]) -> None:
        """Tell others about this server."""
        from gpuyard.engines.machine import processes  # noqa: PLC0415 (few commands need it)

        pid, ticks, boot = processes.identify_self(processes.boot_id())
        content = json.dumps({"pid": pid, "ticks": ticks, "boot": boot, **note}).encode().ljust(_NOTE_BYTES)
        # In place: on a full disk a block that is given back does not come again.
        os.pwrite(self._fd, content, 0)
        os.ftruncate(self._fd, len(content))

    def note(self) -> dict[str, object]:
        """What the server said about itself; empty where there was none."""
        with suppress(OSError, ValueError):
            note = json.loads(self.pid_file.read_text(encoding="utf-8"))
            return note if isinstance(note, dict) else {}
        return {}

    def running(self) -> int | None:
        """The pid of the server, if it is there: what counts is the lock, not the note. 0: it is locked by another."""
        try:
            fd = os.open(self.pid_file, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise YardError(
                f"the yard on {self.data.root} is another user's", "Ask its owner, or root."
            ) from error
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            server = self._server()
            return server.pid if server else 0
        finally:
            os.close(fd)
        return None

    def stop(self) -> bool:
        """Tell the server to end: that process, and none that got its number later. Whether it was there."""
        import signal  # noqa: PLC0415

        from gpuyard.engines.machine import processes  # noqa: PLC0415

        server = self._server()
        return server is not None and processes.signal_to(server, signal.SIGTERM, server.boot)

    def _server(self) -> "Identity | None":
        """The process that wrote the note, while it lives."""
        from gpuyard.engines.machine import processes  # noqa: PLC0415

        note = self.note()
        pid, ticks, boot = note.get("pid"), note.get("ticks"), note.get("boot")
        if not isinstance(pid, int) or not isinstance(ticks, int) or not isinstance(boot, str):
            return None
        server = processes.Identity(pid, ticks, boot)
        return server if processes.is_alive(server, processes.boot_id()) else None

    def release(self) -> None:
        """Let go. The file stays: removing it would let two processes lock two files of one name."""
        if self._fd >= 0:
            with suppress(FileNotFoundError):
                self.socket.unlink()
            os.close(self._fd)
            self._fd = -1
