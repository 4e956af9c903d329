"""The log of a server in the background: a file that does not grow forever.

The file is put aside when it has reached its size, and the last few are kept: `yard.log.1` is the newest of them. An
operator who prefers logrotate may move the file: the server begins a new one at its next line, or at once after SIGHUP.
Standard output and standard error of the process go along, so that a traceback of a library is in the log too.
"""

import contextlib
import logging
import os
import sys
from pathlib import Path

LOG_BYTES_MAX = 16 * 1024 * 1024
LOGS_KEPT = 4
"""Beside the one that is written."""


class ServerLog(logging.StreamHandler):
    """Writes to standard error, which is the file."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self.reopen()
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        """A line, to the file that has the name now."""
        try:
            ours, named = os.fstat(2), _stat(self._path)
            if named is None or (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino):
                self.reopen()
            elif ours.st_size >= self._bytes_max:
                self._put_aside()
                self.reopen()
        except OSError:
            # A full disk, or a folder that is gone: the line goes where the lines before it went.
            pass
        super().emit(record)

    def reopen(self) -> None:
        """Open the file, new or as it is; output of the whole process goes there."""
        out = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        for target in (1, 2):
            os.dup2(out, target)
        os.close(out)

    def _put_aside(self) -> None:
        for number in range(LOGS_KEPT - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(_aside(self._path, number), _aside(self._path, number + 1))
        os.replace(self._path, _aside(self._path, 1))


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
