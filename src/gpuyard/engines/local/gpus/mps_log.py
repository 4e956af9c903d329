"""Reads the logs of an MPS daemon, line by line: which processes compute through it, and which broke it.

As seen on an H200 with driver 580: a server that meets a fatal error of a GPU names a process as its cause, then every
process that loses its GPU with it. Until the last of them is gone it takes no new ones. An assertion that fails on the
GPU, or a process that is killed, affects no other process and is not a fault. Older drivers write only that there was
one. The logs belong to their user, who may write anything there: no content makes the engine wait or fail, and nothing
in them is believed about processes of other users.
"""

import os
import re
import time
from dataclasses import dataclass, field
from stat import S_ISREG

LOGS = ("control.log", "server.log")
_TAIL_BYTES = 256 * 1024
"""How much of a log is read at a time, at most; of a longer piece, the end."""
_FAULTS_MAX = 64
_ONE_FAULT_MS = 500
"""No server breaks again sooner: its next clients have to start first."""

# No process has a longer number; one of thousands of digits is no number to Python.
_LINE = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) [^\]]*\] ?(.*)")
_CONNECTED = re.compile(rb"Client \{PID: (\d{1,10}), Context ID: \d+\} connected")
_GONE = re.compile(rb"Client process (\d{1,10}) disconnected")
_CULPRIT = re.compile(rb"Client \{PID: (\d{1,10}), Context: \d+\} encountered a fatal GPU error")
_TEARING = re.compile(rb"Client \{PID: (\d{1,10}), Context ID: \d+\} on device \d+ to be torn down")
_REFUSED = re.compile(rb"Server teardown in progress. Refusing to accept new client \{PID: (\d{1,10})")
_STARTED = re.compile(rb"Server has started")
_UNNAMED = re.compile(rb"fatal exception|exited with status [1-9]|\bFAULT\b")
"""Lines of other drivers, which name no process."""


@dataclass(slots=True)
class Fault:
    """One time that a server broke."""

    at_ms: int
    culprits: set[int] = field(default_factory=set)
    """The cause, according to the log; with several clients it was seen to be wrong."""
    victims: set[int] = field(default_factory=set)
    """Processes that lost their GPU by it; the culprits may be among them."""
    refused: set[int] = field(default_factory=set)
    """Processes that came after it and were not let in because of it."""

    @property
    def named(self) -> set[int]:
        """Every process that was there."""
        return self.culprits | self.victims


class DaemonLog:
    """The logs of one daemon, read as they grow."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._read: dict[str, tuple[int, int]] = {}
        """By file: its inode, and how far it has been read."""
        self._broken: set[int] = set()
        """Processes that have lost their GPU and have not gone."""
        self.faults: list[Fault] = []

    def look(self) -> list[int]:
        """Read what is new; gives the pids of new clients."""
        came: list[int] = []
        for name in LOGS:
            for line in self._new_lines(name):
                self._take(line, came)
        del self.faults[:-_FAULTS_MAX]
        return came

    def _new_lines(self, name: str) -> list[bytes]:
        try:
            fd = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            # No daemon has been here, or its user has removed the log.
            return []
        try:
            stat = os.fstat(fd)
            file_id, offset = self._read.get(name, (stat.st_ino, 0))
            if file_id != stat.st_ino or stat.st_size < offset:
                offset = 0
            if stat.st_size == offset or not S_ISREG(stat.st_mode):
                return []
            offset = max(offset, stat.st_size - _TAIL_BYTES)
            text = os.pread(fd, _TAIL_BYTES, offset)
        finally:
            os.close(fd)
        # An unfinished line is read once it is whole; text without any line break is skipped.
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) == _TAIL_BYTES:
            whole = len(text)
        self._read[name] = (stat.st_ino, offset + whole)
        return text[:whole].splitlines()

    def _take(self, line: bytes, came: list[int]) -> None:
        match = _LINE.match(line)
        if match is None:
            return
        try:
            when = time.strptime(match[1].decode(), "%Y-%m-%d %H:%M:%S")
            at_ms = int(time.mktime(when)) * 1000 + int(match[2])
        except (ValueError, OverflowError):
            return
        said = match[3]
        if found := _CONNECTED.match(said):
            came.append(int(found[1]))
            self._broken.discard(int(found[1]))
        elif found := _GONE.match(said):
            self._broken.discard(int(found[1]))
        elif found := _CULPRIT.match(said):
            self._broken.add(int(found[1]))
            self._fault_at(at_ms).culprits.add(int(found[1]))
        elif self.faults and (found := _TEARING.match(said)):
            self._broken.add(int(found[1]))
            self._told().victims.add(int(found[1]))
        elif self.faults and (found := _REFUSED.match(said)):
            self._told().refused.add(int(found[1]))
        elif _STARTED.match(said):
            # A new server: it has none of the last one's clients.
            self._broken.clear()
        elif _UNNAMED.search(said):
            self._fault_at(at_ms)

    def _fault_at(self, at_ms: int) -> Fault:
        """The fault that a line is about: several lines, of both logs, are about one fault within moments."""
        for fault in reversed(self.faults):
            if abs(at_ms - fault.at_ms) < _ONE_FAULT_MS:
                return fault
        self.faults.append(Fault(at_ms))
        return self.faults[-1]

    def _told(self) -> Fault:
        """The fault that a line with a pid belongs to: one known from the other log alone names no process."""
        return next((fault for fault in reversed(self.faults) if fault.culprits), self.faults[-1])

    def recovering(self) -> set[int]:
        """Processes that are still there though their server broke: it takes no new clients before they are gone."""
        # Forget processes that are gone, though no line may say so: their pid will be used again.
        self._broken = {pid for pid in self._broken if os.path.exists(f"/proc/{pid}")}
        return set(self._broken)
