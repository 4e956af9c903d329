"""What a collector hands in, and what of it is believed. Pure: the time comes as an argument.

A value that cannot be is left out and counted, never mended: a hole in a curve is true, a guess is not. A node whose
clock is off keeps its curve: its samples are moved by the difference of the clocks, and the difference is told.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from gpuyard.telemetry.signals import signal_of

SERIES_MAX = 20_000
"""Series of one node: a collector that makes up names cannot fill the disk."""
LATE_MS = 3_600_000
"""A sample that is older is no longer taken: the minutes of its hour are final."""
AHEAD_MS = 60_000
"""A sample that is further ahead of the yard's clock is no measurement of anything."""
CLOCK_MS = 2_000
"""A difference of clocks up to this is left alone: the way of a request may take as long."""
_CLOCKS_KEPT = 6
_NAMES_KEPT = 20_000
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}(/[A-Za-z0-9_.:-]{1,200}){1,3}")

NO_NUMBER = "no number"
OUT_OF_BOUNDS = "out of bounds"
NO_SIGNAL = "no such signal"
TOO_MANY = "too many series"
TOO_LATE = "too late"
AHEAD = "ahead of the clock"


class KernelLine(NamedTuple):
    """A fault, as the kernel of a node wrote it."""

    at_ms: int
    text: str
    attempts: tuple[str, ...]
    """Those that it is about, by key; none: the machine, and so everything that ran on it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Values taken on a node at one moment, by series: `gpu/0/busy`."""

    node: str
    at_ms: int
    values: Mapping[str, int]
    faults: Mapping[str, int] = field(default_factory=dict)
    """How many values were left out, by cause."""


def check_sample(node: str, at_ms: int, told: Mapping[str, Any], now_ms: int) -> Sample:
    """A sample with the values that can be. None as a value says that there is none, which is no fault."""
    faults: Counter[str] = Counter()
    values: dict[str, int] = {}
    if at_ms < now_ms - LATE_MS or at_ms > now_ms + AHEAD_MS:
        faults[TOO_LATE if at_ms < now_ms else AHEAD] = len(told)
        return Sample(node, at_ms, values, faults)
    for name, value in told.items():
        if value is None:
            continue
        if fault := _fault(name, value) or (TOO_MANY if len(values) >= SERIES_MAX else ""):
            faults[fault] += 1
        else:
            values[name] = round(value)
    return Sample(node, at_ms, values, faults)


def _fault(name: str, value: Any) -> str:
    most = _most(name)
    if most is None:
        return NO_SIGNAL
    if type(value) is not int and (
        isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
    ):
        return NO_NUMBER
    return "" if 0 <= value <= most else OUT_OF_BOUNDS


@lru_cache(maxsize=_NAMES_KEPT)
def _most(name: str) -> int | None:
    """The largest value of a series; None: there is no such signal. Nodes tell the same series again and again."""
    signal = signal_of(name)
    return signal.most if signal is not None and _NAME.fullmatch(name) else None


class Clocks:
    """How far the clocks of nodes are from ours, by what they write at sending and when that arrives."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[int]] = {}
        self._base_ms: dict[str, int] = {}

    def heard(self, node: str, sent_ms: int, steady_ms: int, received_ms: int) -> int:
        """By how much the node's times are to be moved; 0: its clock will do.

        The quickest of the last few requests tells: what others took longer was their way. `steady_ms` is a clock of
        the node that nobody sets: where it shows that the other one was set, earlier requests tell nothing.
        """
        seen = self._seen.setdefault(node, deque(maxlen=_CLOCKS_KEPT))
        base_ms = sent_ms - steady_ms
        if abs(base_ms - self._base_ms.get(node, base_ms)) > CLOCK_MS:
            seen.clear()
        self._base_ms[node] = base_ms
        seen.append(received_ms - sent_ms)
        return self.off_ms(node)

    def off_ms(self, node: str) -> int:
        """By how much the node's clock is behind ours; negative: ahead. 0: it will do, or is not known."""
        least = min(self._seen.get(node, (0,)))
        return least if abs(least) > CLOCK_MS else 0
