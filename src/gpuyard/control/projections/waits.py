"""What was waited for, by clock hour, and what running jobs did with GPUs that others waited for.

Rows: `h/HOUR`, lines of what waited for which cause; `l/HOUR`, by pool the GPU time that running jobs held and did not
use, and that of crashed attempts whose work is lost; `n/NODE` and `j/JOB`, what is needed to tell which pool that was;
`e/N`, the jobs whose attempts ended in one minute: what was measured of them comes up to an hour later.
"""

from gpuyard.control.projections.following import Projection, Rows
from gpuyard.ledger.nodes import parts_of
from gpuyard.ledger.units import PARTS
from gpuyard.model import (
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    Event,
    NodeAdded,
    NodeChanged,
    Outcome,
    WaitsSeen,
)
from gpuyard.model.units import HOUR_MS, MINUTE_MS

KEPT_MINUTES = 2 * HOUR_MS // MINUTE_MS
"""How long jobs are remembered after the end of their last attempt."""
UNUSED, LOST = 0, 1
_CRASHES = (Outcome.FAILED, Outcome.NODE_FAIL, Outcome.OUT_OF_MEMORY)


_ENDED = "ended"


class Waits(Projection):
    """What was waited for, and what others did meanwhile."""

    name = "waits"
    version = 1

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        """Take in what was seen of waiting, of use, and of crashes."""
        match event:
            case WaitsSeen():
                _add_lines(rows, event)
            case AttemptStarted():
                _started(rows, event)
            case AttemptEnded():
                _ended(rows, event)
            case AttemptMeasured():
                job = rows.get(f"j/{event.job_id}")
                if job is not None and job[0] == event.attempt:
                    _lay(rows, UNUSED, event.from_ms, job[2], event.measured_gpu_ms - event.used_gpu_ms)
            case NodeAdded():
                number = rows.get("nodes", 0)
                rows["nodes"] = number + 1
                rows[f"n/{number}"] = [event.node.pool, event.node.gpu_model, event.node.gpus]
            case NodeChanged():
                rows[f"n/{event.number}"] = [event.node.pool, event.node.gpu_model, event.node.gpus]
            case _:
                pass

    def flush(self, rows: Rows) -> None:
        """Write down which jobs ended."""
        known = rows.aside.get(_ENDED)
        if known is not None:
            first, last, minute, ids = known
            rows["ended"], rows[f"e/{last}"] = [first, last], [minute, ids]


def _add_lines(rows: Rows, event: WaitsSeen) -> None:
    key = f"h/{event.from_ms // HOUR_MS:07}"
    sums = {tuple(line[:4]): line[4:] for line in rows.get(key, [])}
    for tenant, pool, gpu_milli, cause, gpu_ms, job_ms in event.lines:
        before = sums.get((tenant, pool, gpu_milli, cause), (0, 0))
        sums[tenant, pool, gpu_milli, cause] = [before[0] + gpu_ms, before[1] + job_ms]
    rows[key] = [[*about, *waited] for about, waited in sorted(sums.items())]


def _started(rows: Rows, event: AttemptStarted) -> None:
    pools: dict[str, int] = {}
    for grant in [each for each in event.grants if each.gpus]:
        node = rows.get(f"n/{grant.node}")
        if node is not None:
            pool, model, gpus = node
            pools[pool] = pools.get(pool, 0) + parts_of(model, gpus, grant)
    if not pools:
        return
    # A first attempt has nothing before it; asking the store about each would cost more than all the rest.
    before = rows.get(f"j/{event.job_id}") if event.attempt > 1 else None
    saved_ms = before[3] if before is not None else 0
    rows[f"j/{event.job_id}"] = [event.attempt, event.at_ms, sorted(pools.items()), saved_ms]


def _ended(rows: Rows, event: AttemptEnded) -> None:
    key = f"j/{event.job_id}"
    job = rows.get(key)
    if job is None or job[0] != event.attempt:
        return
    _attempt, started_ms, pools, saved_ms, *_minute = job
    if event.outcome in _CRASHES:
        until_ms = event.ended_ms or event.at_ms
        from_ms = min(until_ms, started_ms + max(0, event.saved_ms - saved_ms))
        parts = sum([held for _pool, held in pools])
        while from_ms < until_ms:
            end_ms = min(until_ms, (from_ms // HOUR_MS + 1) * HOUR_MS)
            _lay(rows, LOST, from_ms, pools, parts * (end_ms - from_ms) // PARTS)
            from_ms = end_ms
    rows[key] = [event.attempt, started_ms, pools, event.saved_ms]
    _remember(rows, event.job_id, event.at_ms // MINUTE_MS)


def _remember(rows: Rows, job_id: int, minute: int) -> None:
    """Note that an attempt ended, and forget jobs of which nothing more is to come."""
    known = rows.aside.get(_ENDED)
    if known is None:
        first, last = rows.get("ended", [1, 0])
        known = rows.aside[_ENDED] = [first, last, *rows.get(f"e/{last}", [0, []])]
    first, last, at, ids = known
    if at != minute:
        if ids:
            rows[f"e/{last}"] = [at, ids]
        while first <= last and (old := rows[f"e/{first}"])[0] + KEPT_MINUTES < minute:
            for ended in old[1]:
                job = rows.get(f"j/{ended}")
                # One that runs again is noted when it ends.
                if job is not None and job[4:] == [old[0]]:
                    del rows[f"j/{ended}"]
            del rows[f"e/{first}"]
            first += 1
        known[:] = [first, last + 1, minute, []]
    known[3].append(job_id)
    rows[f"j/{job_id}"] = [*rows[f"j/{job_id}"], minute]


def _lay(rows: Rows, column: int, at_ms: int, pools: list[tuple[str, int]], gpu_ms: int) -> None:
    """Add GPU time to an hour, by the parts that were held in each pool."""
    parts = sum([held for _pool, held in pools])
    if gpu_ms <= 0 or not parts:
        return
    key = f"l/{at_ms // HOUR_MS:07}"
    found = rows.get(key, {})
    for pool, held in pools:
        found.setdefault(pool, [0, 0])[column] += gpu_ms * held // parts
    rows[key] = found
