"""What was waited for, and what running jobs did with GPUs that others waited for.

Rows: `w/PART`, lines of what waited for GPUs in five minutes of the clock; `l/PART`, by pool the GPU time in them that
running jobs held and did not use, and that of crashed attempts whose work is lost; `h/HOUR`, lines of what waited for
any other cause in a clock hour; `n/NODE` and `j/JOB`, what is needed to tell which pool that was; `e/N`, the jobs whose
attempts ended in one minute: what was measured of them comes up to an hour later; `set`, when the clock was set ahead.
"""

import json
from collections.abc import Iterator, Mapping

from gpuyard.control.projections.following import Projection, Rows
from gpuyard.ledger.nodes import count_parts
from gpuyard.ledger.units import PARTS
from gpuyard.model import (
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    ClockSet,
    Event,
    NodeAdded,
    NodeChanged,
    Outcome,
    WaitCause,
    WaitLine,
    WaitsSeen,
)
from gpuyard.model.units import HOUR_MS, MINUTE_MS

PART_MS = 5 * MINUTE_MS
"""Waiting for GPUs is set against what others did with them in the same five minutes."""
PARTS_OF_HOUR = HOUR_MS // PART_MS
LACKS_GPUS = (WaitCause.ROOM.value, WaitCause.ORDER.value)
"""Causes that more free GPUs would have ended."""
KEPT_MINUTES = 2 * HOUR_MS // MINUTE_MS
"""How long jobs are remembered after the end of their last attempt."""
SET_MAX = 100
"""How many times at which the clock was set ahead are remembered, for attempts that ran then."""
UNUSED, LOST = 0, 1
_CRASHES = (Outcome.FAILED, Outcome.NODE_FAIL, Outcome.OUT_OF_MEMORY)


_ENDED = "ended"


class Waits(Projection):
    """What was waited for, and what others did meanwhile."""

    name = "waits"
    version = 2

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
                    unused = event.measured_gpu_ms - event.used_gpu_ms
                    _lay(rows, UNUSED, event.spans or ((event.from_ms, event.until_ms),), job[2], unused)
            case ClockSet():
                rows["set"] = [*rows.get("set", []), [event.at_ms, event.by_ms]][-SET_MAX:]
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

    def upgrade(self, version: int, rows: Mapping[str, str]) -> Mapping[str, str] | None:
        """Version 1 had everything by the hour: it goes evenly to the parts of the hour."""
        if version != 1:
            return None
        lifted = Rows()
        for key, text in rows.items():
            kind, _slash, number = key.partition("/")
            if kind == "h":
                from_ms = int(number) * HOUR_MS
                lines = [WaitLine(*line) for line in json.loads(text)]
                _add_lines(lifted, WaitsSeen(0, from_ms, from_ms + HOUR_MS, tuple(lines)))
            elif kind == "l":
                for pool, sums in json.loads(text).items():
                    for column, gpu_ms in enumerate(sums):
                        spans = ((int(number) * HOUR_MS, (int(number) + 1) * HOUR_MS),)
                        _lay(lifted, column, spans, [(pool, PARTS)], gpu_ms)
            else:
                lifted.put_text(key, text)
        return {key: text for key, text in lifted.changed.items() if text is not None}


def _spread(spans: tuple[tuple[int, int], ...], *amounts: int) -> Iterator[tuple[int, list[int]]]:
    """Amounts, evenly over some spans: how much of each falls into which part of the clock. Nothing gets lost."""
    total = sum([until_ms - from_ms for from_ms, until_ms in spans])
    if not total:
        yield spans[0][0] // PART_MS, list(amounts)
        return
    so_far, given = 0, [0] * len(amounts)
    for from_ms, until_ms in spans:
        for part in range(from_ms // PART_MS, -(-until_ms // PART_MS)):
            so_far += min(until_ms, (part + 1) * PART_MS) - max(from_ms, part * PART_MS)
            due = [amount * so_far // total for amount in amounts]
            yield part, [now - before for now, before in zip(due, given, strict=True)]
            given = due


def _add_lines(rows: Rows, event: WaitsSeen) -> None:
    _add(
        rows,
        f"h/{event.from_ms // HOUR_MS:07}",
        [line for line in event.lines if line.cause not in LACKS_GPUS],
    )
    lacking = [line for line in event.lines if line.cause in LACKS_GPUS]
    amounts = [amount for line in lacking for amount in (line.gpu_ms, line.job_ms)]
    for part, due in _spread(((event.from_ms, event.until_ms),), *amounts) if lacking else ():
        lines = [line._replace(gpu_ms=due[2 * at], job_ms=due[2 * at + 1]) for at, line in enumerate(lacking)]
        _add(rows, f"w/{part:08}", lines)


def _add(rows: Rows, key: str, lines: list[WaitLine]) -> None:
    if not lines:
        return
    sums = {(*line[:4], *(line[6:] or ("", ""))): line[4:6] for line in rows.get(key, [])}
    for tenant, pool, gpu_milli, cause, gpu_ms, job_ms, user, name in lines:
        about = (tenant, pool, gpu_milli, cause, user, name)
        before = sums.get(about, (0, 0))
        sums[about] = [before[0] + gpu_ms, before[1] + job_ms]
    # Lines of events that told of no users are as they were.
    rows[key] = [
        [*about[:4], *waited, *(about[4:] if any(about[4:]) else ())]
        for about, waited in sorted(sums.items())
    ]


def _started(rows: Rows, event: AttemptStarted) -> None:
    pools: dict[str, int] = {}
    for grant in [each for each in event.grants if each.gpus]:
        node = rows.get(f"n/{grant.node}")
        if node is not None:
            pool, model, gpus = node
            pools[pool] = pools.get(pool, 0) + count_parts(model, gpus, grant)
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
        # What it ran before the clock was set lies next to what it ran after, as in all other books.
        later_ms = sum([by_ms for at_ms, by_ms in rows.get("set", ()) if started_ms < at_ms <= event.at_ms])
        from_ms = min(until_ms, started_ms + later_ms + max(0, event.saved_ms - saved_ms))
        parts = sum([held for _pool, held in pools])
        _lay(rows, LOST, ((from_ms, until_ms),), pools, parts * (until_ms - from_ms) // PARTS)
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


def _lay(
    rows: Rows, column: int, spans: tuple[tuple[int, int], ...], pools: list[tuple[str, int]], gpu_ms: int
) -> None:
    """Add GPU time of some spans to the parts of the clock, by the parts of GPUs that were held in each pool."""
    parts = sum([held for _pool, held in pools])
    if gpu_ms <= 0 or not parts:
        return
    for part, amounts in _spread(spans, *[gpu_ms * held // parts for _pool, held in pools]):
        key = f"l/{part:08}"
        found = rows.get(key, {})
        for (pool, _held), amount in zip(pools, amounts, strict=True):
            found.setdefault(pool, [0, 0])[column] += amount
        rows[key] = found
