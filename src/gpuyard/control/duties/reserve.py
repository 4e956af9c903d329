"""The duty `reserve`: keeps a part of the yard's disk, so that a job that fills it can still be cancelled.

Four things are taken before they are needed. The store's own blocks, which no job can take away again: what people and
the loop write then is written there. A file for the configuration of a start (`DataDir.keep_spare`). And a file beside
the store, which is given back when the disk is full: for what engines and commands put into files. And empty files, for
a start where no inode is left (`SpareFiles`).

A server that stops on a full disk leaves the files of its store and their blocks as they are, for the next one.

While the disk is full nothing new is taken in or started: that would use up what is kept for cancels and ends.
"""

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.places import DataDir
from gpuyard.errors import error_text
from gpuyard.store import Store, StoreFull, allocate, measure_part

_log = logging.getLogger(__name__)

LOOK_S = 0.5
FAILED = BackOff(60.0, 60.0)
"""Where the file system did not answer."""
FREE_BYTES_MIN = 1 << 20
"""With less room in the data folder no job can be written, and none started."""
FILE_BYTES = 16 << 20
"""The file, unless a thirty-second part of the file system is less."""
PART = 32
FREE_FILES_MIN = 16
"""With fewer inodes left no job can be started: each has a folder with files."""
SPARES = 24
"""How many empty files, unless a sixteenth part of the file system's inodes is less."""
SPARES_PART = 16
BESIDE = ("-wal", "-shm")
"""How the names of the files end that SQLite has beside a database."""


class SpareFiles:
    """Empty files in one folder, for the time when no inode is left on the disk. One server has it.

    A start has to make files: those beside its databases, which go when a server ends while there is room, and its
    socket. A spare file becomes one of the former under its name, so that no job can have the inode in between. A
    socket has to be made anew: for that spare files are removed, one after the other.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.missing = 0
        """How many are still to be made."""
        self.count()

    def count(self) -> None:
        """Look how many there are."""
        found = os.statvfs(self._folder.parent)
        # A file system that does not count its inodes has enough.
        wanted = min(SPARES, found.f_files // SPARES_PART)
        self.missing = max(0, wanted - len(self._names()))

    def _names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(os.listdir(self._folder))
        return []

    def fill(self) -> None:
        """Have as many as are wanted. Raises `OSError`."""
        if not self.missing:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        taken, number = set(self._names()), 0
        while self.missing:
            if str(number) not in taken:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                os.close(os.open(self._folder / str(number), flags, 0o600))
                self.missing -= 1
            number += 1

    def give(self) -> bool:
        """Give one inode back to the disk; whether there was one."""
        for name in self._names():
            (self._folder / name).unlink()
            self.missing += 1
            return True
        return False

    def put_beside(self, databases: Sequence[Path]) -> None:
        """Give databases the files that SQLite would have to make beside them: it takes empty ones for new."""
        for path in [Path(f"{each}{end}") for each in databases if each.exists() for end in BESIDE]:
            names = self._names()
            if names and not os.path.lexists(path):
                (self._folder / names[0]).rename(path)
                self.missing += 1


class Reserve:
    """One server's. Any thread may ask."""

    def __init__(self, data: DataDir, path: Path) -> None:
        self._data = data
        self._path = path
        self._spares = SpareFiles(path.with_suffix(".spares"))
        self._store: Store | None = None
        self._holds = False
        self._unable = False
        """Whether this file system takes no blocks ahead."""
        self._no_spare = ""
        """Why nothing is kept for the configuration of a start; empty: it is."""
        self.low = ""
        """Why there is no room for anything new; empty: there is."""
        self._lock = threading.Lock()
        self.look()

    def keep_for(self, store: Store) -> None:
        """Keep room for this store, too."""
        self._store = store
        # On a full disk too: what was given back just now is the store's before a job can have it.
        store.keep_room()

    def close(self) -> None:
        """Look a last time. What is kept stays, for a start on a full disk."""
        if self._store is not None:
            with suppress(OSError):
                self.look()
            if self.low:
                self._store.leave_log()

    def open_on(self, databases: Sequence[Path]) -> None:
        """Where no inode is left, have the files that these databases are opened with."""
        if self._data.free_files() < FREE_FILES_MIN:
            self._spares.put_beside(databases)

    def give_file(self) -> bool:
        """Give one inode back for a file that a start has to make; whether there was one."""
        return self._spares.give()

    def has_room(self) -> bool:
        """Whether something new may be started; a disk that was full is looked at again."""
        if self.low:
            self.look()
        return not self.low

    def check(self) -> None:
        """Raise where something new cannot be taken in."""
        if self.low and self._of_store() and not self.has_room():
            raise StoreFull(
                f"{self.low}: nothing new is taken in or started",
                "Free some space there, or remove files; nothing needs to be restarted. "
                "Jobs can be cancelled meanwhile.",
            )

    def _of_store(self) -> bool:
        """Whether the store is on this disk, too."""
        with suppress(OSError):
            return (
                self._store is not None
                and self._data.root.stat().st_dev == Path(self._store.place).stat().st_dev
            )
        return False

    def look(self) -> None:
        """Give back what is kept on a disk that is full, and take it again once there is room."""
        with self._lock:
            free, files = self._data.free_bytes(), self._data.free_files()
            if free < FREE_BYTES_MIN:
                self._say(f"no space is left for {self._data.root}")
                self._give()
                return
            if files < FREE_FILES_MIN:
                # Those that are kept stay, for a start: what is given back now is the job's at once.
                self._say(f"no file can be made in {self._data.root}: its file system has no inode left")
                return
            size = 0 if self._unable else measure_part(str(self._data.root), PART, FILE_BYTES)
            roomy = free >= 2 * FREE_BYTES_MIN + (0 if self._holds else size)
            if not roomy or files < 2 * FREE_FILES_MIN + self._spares.missing:
                return
            if not self._holds:
                self._take(size)
            if self.low:
                self.low = ""
                _log.info("there is room in %s again", self._data.root)
            if self._store is not None:
                self._store.keep_room()
                self._keep_spare()

    def _keep_spare(self) -> None:
        try:
            self._data.keep_spare()
            self._spares.fill()
            self._no_spare = ""
        except OSError as error:
            # What lasts is said once, not at every look.
            before, self._no_spare = self._no_spare, error_text(error)
            if before != self._no_spare:
                _log.info("nothing is kept for the files of a start on a full disk: %s", self._no_spare)

    def _take(self, size: int) -> None:
        if not size:
            return
        try:
            allocate(str(self._path), size, create=True)
            self._holds = True
        except OSError as error:
            self._unable = True
            _log.info("nothing is kept for a full disk: %s", error_text(error))
            with suppress(OSError):
                self._path.unlink()

    def _say(self, why: str) -> None:
        if not self.low:
            _log.warning("%s: nothing new is taken in or started", why)
        self.low = why

    def _give(self) -> None:
        self._holds = False
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def duty(reserve: Reserve) -> Duty:
    """Of each server. What is kept stays at the end, for a start on a full disk."""

    def look(_turn: Turn) -> None:
        reserve.look()

    return Duty(
        "reserve",
        look,
        every_s=LOOK_S,
        first_s=LOOK_S,
        undone="the room on the disk cannot be looked at",
        retry=FAILED,
    )
