"""Counts and removes what ended jobs have left in an engine's folder.

A folder is first renamed out of its place, so that it is there whole or not at all, and then removed; what a crash
leaves in between is removed the next time. Files in it are a user's: there may be very many, or a file system that
does not answer is mounted among them. So other processes count and remove them, stay on the file system of the
yard, and are given up after a while.
"""

import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

from gpuyard.engines.contract import Leftover
from gpuyard.engines.machine import files
from gpuyard.engines.machine.peeking import Inside
from gpuyard.errors import error_text

REMOVED = "removed"
"""Folders that are being removed."""
ALL_S_MAX, ONE_S_MAX, _END_S_MAX = 120.0, 10.0, 0.5
_PLACES = {Leftover.LOGS: files.KEPT, Leftover.FOLDERS: files.JOBS}

_log = logging.getLogger(__name__)


class Leftovers:
    """The folders of one engine's ended jobs."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.all_s_max, self.one_s_max = ALL_S_MAX, ONE_S_MAX
        """How long all folders may take together, and one of them where all took too long."""
        self.out = os.path.join(root, REMOVED)
        self._inside = Inside(root)
        self._stuck: set[str] = set()
        """Folders that did not answer: left alone until the yard is started again."""

    def sizes(self, what: Leftover, names: Sequence[str]) -> dict[str, int]:
        """The bytes on disk of those that exist."""
        place = os.path.join(self._root, _PLACES[what])
        paths = {os.path.join(place, name): name for name in names}
        there = [path for path in paths if path not in self._stuck and self._inside.there(path)]
        found = dict.fromkeys(there, 0)

        def count(some: Sequence[str], within_s: float) -> None:
            words = ["du", "-s", "-x", "-0", "--block-size=1", "--", *some]
            for line in _output(words, within_s).split(b"\0"):
                size, _, path = line.partition(b"\t")
                if size.isdigit():
                    found[os.fsdecode(path)] = int(size)

        self._with_each(there, count)
        return {paths[path]: size for path, size in found.items() if path not in self._stuck}

    def remove(self, what: Leftover, names: Sequence[str]) -> None:
        """Remove them, and what an earlier call left half removed."""
        out = self.out
        os.makedirs(out, mode=0o700, exist_ok=True)
        for name in names:
            path = os.path.join(self._root, _PLACES[what], name)
            if path in self._stuck:
                continue
            try:
                os.rename(path, os.path.join(out, f"{_PLACES[what]}-{name}"))
            except FileNotFoundError:
                continue
            except OSError as error:
                # Something is mounted there.
                _log.warning("%s cannot be removed: %s", path, error_text(error))
        self._with_each([os.path.join(out, name) for name in sorted(os.listdir(out))], _remove)
        for name in os.listdir(out):
            if (path := os.path.join(out, name)) not in self._stuck:
                self._stuck.add(path)
                _log.warning("%s cannot be removed whole", path)

    def close(self) -> None:
        """Let go of the folder."""
        self._inside.close()

    def _with_each(self, paths: Sequence[str], do: Callable[[Sequence[str], float], None]) -> None:
        """Do something to all; if that takes too long, to one after the other, to find those that hang."""
        paths = [path for path in paths if path not in self._stuck]
        if not paths:
            return
        with suppress(subprocess.TimeoutExpired):
            do(paths, self.all_s_max)
            return
        for path in paths:
            try:
                do([path], self.one_s_max)
            except subprocess.TimeoutExpired:
                self._stuck.add(path)
                _log.warning("%s does not answer, and is left alone", path)


def discard(path: str, within_s: float) -> bool:
    """Remove a folder that a user may write to, as far as that goes in this time; whether it is gone."""
    with suppress(subprocess.TimeoutExpired):
        _remove([path], within_s)
    return not os.path.lexists(path)


def _remove(paths: Sequence[str], within_s: float) -> None:
    _output(["rm", "-rf", "--one-file-system", "--", *paths], within_s)


def _output(words: Sequence[str], within_s: float) -> bytes:
    """A program's output, whether or not it ends well. A program that takes too long is killed."""
    # The system's own, whatever the server was started with.
    own = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=own
    )
    try:
        return process.communicate(timeout=within_s)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S_MAX)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
