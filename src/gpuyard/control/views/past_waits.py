"""Past waiting by cause, as a report reads it.

Where jobs waited for room, part of that is others' doing: attempts crashed after using the GPUs for nothing, or jobs
held GPUs that they did not use. As much waiting in the same five minutes and pool as there was such GPU time counts as
that cause, the crashes first; each line gives its share.
"""

import json
from typing import Any, NamedTuple

from gpuyard.control.projections.waits import LACKS_GPUS, LOST, PARTS_OF_HOUR, UNUSED, Waits
from gpuyard.model import WaitCause
from gpuyard.store import Store


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
    user: str = ""
    name: str = ""


def read_waited(store: Store, from_hour: int, until_hour: int) -> list[Waited]:
    """The hours from the first to before the second."""

    def between(kind: str, low: str, high: str) -> list[tuple[int, Any]]:
        found = store.projections.between(Waits.name, f"{kind}/{low}", f"{kind}/{high}")
        return [(int(key[2:]), json.loads(text)) for key, text in found]

    hours = f"{from_hour:07}", f"{until_hour:07}"
    parts = f"{from_hour * PARTS_OF_HOUR:08}", f"{until_hour * PARTS_OF_HOUR:08}"
    lines = [Waited(hour, *line) for hour, same in between("h", *hours) for line in same]
    others = dict(between("l", *parts))
    for part, same in between("w", *parts):
        lines += divided([Waited(part // PARTS_OF_HOUR, *line) for line in same], others.get(part, {}))
    return lines


def divided(lines: list[Waited], others: dict[str, list[int]]) -> list[Waited]:
    """The lines of some minutes, and what others did in them: unused and lost GPU time by pool."""
    left = {pool: list(both) for pool, both in sorted(others.items())}
    found = [line for line in lines if line.cause not in LACKS_GPUS]
    by_pool: dict[str, list[Waited]] = {}
    for line in lines:
        if line.cause in LACKS_GPUS:
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
