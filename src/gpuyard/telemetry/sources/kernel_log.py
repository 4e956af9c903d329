"""What the kernel writes about faults: of GPUs (XID), of memory that ran out, of the machine. Nothing else is told on.

A line about a GPU or about memory belongs to the attempts that had the GPU, or whose cgroup it names; one about the
machine belongs to everything that ran there. A line about another user's process is nobody else's business.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from gpuyard.telemetry.attribution import find_attempt
from gpuyard.telemetry.samples import KernelLine
from gpuyard.telemetry.sources import AttemptPlace

TEXT_MAX = 300
LINES_MAX = 100
"""Lines that are told at a time: a kernel that repeats itself fills nothing."""
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<pci>[0-9A-Fa-f:.]+)\)")
_OOM = re.compile(r"oom-kill:.*task_memcg=(?P<group>[^,]*)")
_MACHINE = re.compile(
    r"mce: \[Hardware Error\]|EDAC .*(?: UE | CE )|I/O error|EXT4-fs error|XFS .*(?:rror|orrupt)"
    r"|blocked for more than \d+ seconds|NVRM: .*(?:fallen off the bus|RmInitAdapter failed)|nvlink.*(?:[fF]atal|rror)",
)
_HINT = re.compile(rb"NVRM|oom-kill|EDAC|[eE]rror|orrupt|blocked for|nvlink")
_PIECE = 8192
_LOOKED_MAX = 20_000
_GROUPS_KEPT = 1000


class KernelLog:
    """The kernel's log from an hour ago on, line by line as it grows."""

    def __init__(self, path: str = "/dev/kmsg", since_ms: int = 0) -> None:
        """Lines before `since_ms` are old. A kernel that shows its log to root alone tells nothing."""
        self._since_ms = since_ms
        self._fd = -1
        self.faults = 0
        """Faults that were read, in all."""
        self._groups: dict[str, str] = {}
        """Attempts by their cgroups, those seen last at the end."""
        self._on_gpus: dict[str, tuple[Collection[str], Collection[str]]] = {}
        """Attempts that had each GPU at the last two looks."""
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def readable(self) -> bool:
        """Whether there is anything to be told."""
        return self._fd >= 0

    def close(self) -> None:
        """Let go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def new(
        self,
        now_ms: int,
        places: Sequence[AttemptPlace],
        gpus: Mapping[str, Collection[str]],
        steady_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> list[KernelLine]:
        """Faults since the last question. `gpus`: the attempts that have each GPU, by its place on the bus."""
        # Of an attempt that ran out of memory the kernel writes when there may be nothing left of it.
        for place in places:
            for group in (place.group, (place.groups_v1 or {}).get("memory", "")):
                if group:
                    self._groups.pop(_below_mount(group), None)
                    self._groups[_below_mount(group)] = place.key
        while len(self._groups) > _GROUPS_KEPT:
            del self._groups[next(iter(self._groups))]
        for pci, keys in gpus.items():
            before = self._on_gpus.get(pci, ((), ()))
            self._on_gpus[pci] = (before[1], tuple(keys))
        on = {pci: [*before, *now] for pci, (before, now) in self._on_gpus.items()}
        boot_ms = now_ms - steady_us() // 1000
        found: list[KernelLine] = []
        for text, at_us in self._records():
            # In whole seconds: the same line has the same time for a collector that was started again.
            at_ms = (boot_ms + at_us // 1000) // 1000 * 1000
            whose = _whose(text, self._groups, on)
            if whose is None:
                continue
            self.faults += 1
            if at_ms >= self._since_ms and len(found) < LINES_MAX:
                found.append(KernelLine(at_ms, text[:TEXT_MAX], whose))
        return found

    def _records(self) -> list[tuple[str, int]]:
        """Texts with their times since the machine started, in microseconds."""
        found: list[tuple[str, int]] = []
        while self._fd >= 0 and len(found) < _LOOKED_MAX:
            try:
                piece = os.read(self._fd, _PIECE)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Lines were overwritten before they were read; the next read goes on behind them.
                continue
            except OSError:
                self.close()
                break
            if not piece:
                break
            if not _HINT.search(piece):
                # As nearly all of it: the first look has thousands of lines, and is to cost next to nothing.
                continue
            # `6,1234,5678901,-;the text`, and lines with details behind it.
            for line in piece.decode("utf-8", "replace").split("\n"):
                head, mark, text = line.partition(";")
                fields = head.split(",")
                if mark and len(fields) >= 3 and fields[2].isdecimal():
                    found.append((text, int(fields[2])))
        return found


def _whose(
    text: str, groups: Mapping[str, str], gpus: Mapping[str, Collection[str]]
) -> tuple[str, ...] | None:
    """The attempts that a line is about; none: the machine. None: it is about nothing that is told."""
    if xid := _XID.search(text):
        had = {key for each, keys in gpus.items() if _bus(each) == _bus(xid["pci"]) != "" for key in keys}
        return tuple(sorted(had)) or None
    if oom := _OOM.search(text):
        key = find_attempt(oom["group"], groups)
        return (key,) if key else None
    return () if _MACHINE.search(text) else None


def _bus(text: str) -> str:
    """A place on the bus in one form: the driver writes `0000:1b:00`, NVML `00000000:1B:00.0`."""
    words = text.lower().partition(".")[0].split(":")
    return ":".join([words[0][-4:], *words[1:]]) if len(words) == 3 else ""


def _below_mount(group: str) -> str:
    """A cgroup as the kernel writes it: without the folder at which cgroups are mounted."""
    return re.sub(r"^/sys/fs/cgroup(/unified|/memory)?", "", group)
