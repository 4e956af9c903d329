"""Past waiting by cause, as a report reads it.

Where jobs waited for room, part of that is others' doing: attempts crashed after using the GPUs for nothing, or jobs
held GPUs that they did not use. As much waiting of that hour and pool as there was such GPU time counts as that cause,
the crashes first; each line gives its share.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from gpuyard.control.projections.waits import LOST, UNUSED, Waits
from gpuyard.model import WaitCause
from gpuyard.store import Store

_LACKS_GPUS = (WaitCause.ROOM.value, WaitCause.ORDER.value)
"""Causes that more free GPUs would have ended."""


class Waited(NamedTuple):
    """What some jobs waited for in one clock hour."""

    hour: int
    """Hours since 1970, UTC."""
    tenant: str
    pool: str
    gpu_milli: int
    cause: str
    gpu_ms: int
    job_ms: int


def waited(store: Store, from_hour: int, until_hour: int) -> list[Waited]:
    """The hours from the first to before the second."""

    def between(kind: str) -> Iterable[tuple[int, str]]:
        found = store.projected_between(Waits.name, f"{kind}/{from_hour:07}", f"{kind}/{until_hour:07}")
        return [(int(key[2:]), text) for key, text in found]

    others = dict(between("l"))
    lines: list[Waited] = []
    for hour, text in between("h"):
        lines += divided(
            [Waited(hour, *line) for line in json.loads(text)], json.loads(others.get(hour, "{}"))
        )
    return lines


def divided(lines: list[Waited], others: dict[str, list[int]]) -> list[Waited]:
    """The lines of one hour, and what others did in it: unused and lost GPU time by pool."""
    left = {pool: list(both) for pool, both in sorted(others.items())}
    found = [line for line in lines if line.cause not in _LACKS_GPUS]
    by_pool: dict[str, list[Waited]] = {}
    for line in lines:
        if line.cause in _LACKS_GPUS:
            by_pool.setdefault(line.pool, []).append(line)
    # Jobs that had no choice of pools come first: the others may have waited for any of them.
    for pool, same in sorted(by_pool.items(), key=lambda each: (not each[0], each[0])):
        pools, rest = pool.split(",") if pool else list(left), same
        for column, cause in ((LOST, WaitCause.CRASHES), (UNUSED, WaitCause.OVER_ASKING)):
            total = sum([line.gpu_ms for line in rest])
            took = _take(left, pools, column, total)
            if took:
                parts = [(line.gpu_ms * took // total, line.job_ms * took // total) for line in rest]
                found += [_part(line, *part, cause.value) for line, part in zip(rest, parts, strict=True)]
                rest = [
                    _part(line, line.gpu_ms - gpu_ms, line.job_ms - job_ms, line.cause)
                    for line, (gpu_ms, job_ms) in zip(rest, parts, strict=True)
                ]
        found += rest
    return found


def _part(line: Waited, gpu_ms: int, job_ms: int, cause: str) -> Waited:
    return line._replace(gpu_ms=gpu_ms, job_ms=job_ms, cause=cause)


def _take(left: dict[str, list[int]], pools: list[str], column: int, most: int) -> int:
    """Use up GPU time of some pools; how much there was, at most so much."""
    took = 0
    for pool in pools:
        there = left.get(pool)
        if there is not None:
            here = min(there[column], most - took)
            there[column] -= here
            took += here
    return took
