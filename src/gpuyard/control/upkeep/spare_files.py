"""Empty files that the yard keeps for the time when no inode is left on its disk.

A start has to make files: those beside its databases, which go when a server ends while there is room, and its socket.
A spare file becomes one of the former under its name, so that no job can have the inode in between. A socket has to be
made anew: for that spare files are removed, one after the other.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

FILES = 24
"""How many, unless a sixteenth part of the file system's inodes is less."""
PART = 16
BESIDE = ("-wal", "-shm")
"""How the names of the files end that SQLite has beside a database."""


class SpareFiles:
    """Those in one folder. One server has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.missing = 0
        """How many are still to be made."""
        self.count()

    def count(self) -> None:
        """Look how many there are."""
        found = os.statvfs(self._folder.parent)
        # A file system that does not count its inodes has enough.
        wanted = min(FILES, found.f_files // PART)
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
