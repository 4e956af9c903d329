"""Processes outside the yard that compute on the GPUs of this machine.

The driver lists processes a moment longer than they live. A process that is dead, or a zombie, uses nothing. Where
this machine is a container, other processes cannot be seen at all; then a pid that stays listed counts as in use.
"""

import os
import time
from collections.abc import Callable, Sequence

from gpuyard.engines.contract import ForeignProcess
from gpuyard.engines.machine import processes
from gpuyard.engines.machine.launches import user_name
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.engines.node.kernel.processes import is_running, read_stat

UNSEEN_S = 5.0
"""How long the driver may list a process that cannot be seen before it counts."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The number that Linux gives to the process namespace of the machine itself."""


def sees_everybody() -> bool:
    """Whether every process of the machine can be seen from here."""
    return os.stat("/proc/self/ns/pid").st_ino == _FIRST_NAMESPACE


class Outsiders:
    """Remembers since when an invisible process has been listed."""

    def __init__(self, everybody: bool | None = None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._everybody = sees_everybody() if everybody is None else everybody
        self._clock_s = clock_s
        self._unseen: dict[int, float] = {}

    def among(self, readings: Sequence[GpuReading], ours: set[int]) -> tuple[ForeignProcess, ...]:
        """GPUs in use by others. `ours` are processes below which everything is the yard's."""
        listed = {pid for reading in readings for pid in reading.pids}
        self._unseen = {pid: since_s for pid, since_s in self._unseen.items() if pid in listed}
        return tuple(
            [
                ForeignProcess(gpu, pid, user_name(processes.find_user(pid)))
                for gpu, reading in enumerate(readings)
                for pid in reading.pids
                # A process of an attempt has the supervisor above it, since that adopts orphans.
                if self._computes(pid) and not ours & {pid, *processes.find_ancestors(pid)}
            ]
        )

    def _computes(self, pid: int) -> bool:
        if read_stat(pid) is not None:
            return is_running(pid)
        since_s = self._unseen.setdefault(pid, self._clock_s())
        return not self._everybody and self._clock_s() - since_s >= UNSEEN_S
