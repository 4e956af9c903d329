"""Strict FIFO where GPUs are only counted: an independent figure to hold gpuyard against.

It shares no code with gpuyard. Nodes have no walls here: any free GPUs will do for any job.
"""

from collections.abc import Iterable
from heapq import heappop, heappush


def waits_ms(jobs: Iterable[tuple[int, int, int]], gpus: int) -> list[int]:
    """The wait of each job, given as (submission, run time, GPUs) in order of submission."""
    free, now_ms = gpus, 0
    ends: list[tuple[int, int]] = []
    waits = []
    for submit_ms, run_ms, wanted in jobs:
        now_ms = max(now_ms, submit_ms)
        while ends and (free < wanted or ends[0][0] <= now_ms):
            end_ms, given_back = heappop(ends)
            now_ms, free = max(now_ms, end_ms), free + given_back
        free -= wanted
        heappush(ends, (now_ms + run_ms, wanted))
        waits.append(now_ms - submit_ms)
    return waits
