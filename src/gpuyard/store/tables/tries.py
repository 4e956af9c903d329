"""One row for each try of a job that ended and did not end the job: where it ran, how it ended, why.

The try that ended the job is in its row of the history. Rows are written in the transaction of the event that ends the
try, so a job that runs once has none, and they can be made again from the log as long as it reaches back.
"""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from gpuyard.store.backend.access import Reads
from gpuyard.store.schema import TRIES
from gpuyard.store.tables.bound import BoundTable, fit_number, kept_text

TRIES_MAX = 100
"""How many tries of one job are read, the last ones: some jobs are preempted for weeks."""


@dataclass(frozen=True, slots=True)
class TryRow:
    """A try after which its job waited again."""

    job_id: int
    attempt: int
    started_ms: int
    ended_ms: int
    outcome: str
    exit_code: int = 0
    why: str = ""
    nodes: tuple[str, ...] = ()
    gpu_indices: tuple[tuple[int, ...], ...] = ()
    """Of each of the nodes, the GPUs that it held there."""
    numbers: tuple[int, ...] = ()
    """The nodes by their numbers in the log: names are a cluster's own. Empty: an older release wrote the row."""


class Tries:
    """The tries of one store."""

    def __init__(self, backend: Reads) -> None:
        self._backend = backend

    def of_job(self, job_id: int, last: int, limit: int = TRIES_MAX) -> list[TryRow]:
        """The tries of a job up to this number, oldest first; of many, the last ones."""
        table = TRIES.c
        query = (
            select(TRIES)
            .where(table.job_id == job_id, table.attempt <= last)
            .order_by(table.attempt.desc())
            .limit(max(1, min(limit, TRIES_MAX)))
        )
        with self._backend.reading() as conn:
            rows = conn.execute(query).mappings().all()
        return [_row(dict(row)) for row in reversed(rows)]

    def between(self, from_ms: int, until_ms: int) -> list[tuple[int, int, int, str]]:
        """Tries that ended after the first moment and began before the second: job, start, end, detail as JSON."""
        table = TRIES.c
        query = (
            select(table.job_id, table.started_ms, table.ended_ms, table.detail)
            .where(table.ended_ms > from_ms, table.started_ms < until_ms)
            .order_by(table.job_id, table.attempt)
        )
        with self._backend.reading() as conn:
            return [(row[0], row[1], row[2], row[3]) for row in conn.execute(query)]


def _values(row: TryRow) -> dict[str, Any]:
    return {
        "job_id": row.job_id,
        "attempt": row.attempt,
        "started_ms": fit_number(row.started_ms),
        "ended_ms": fit_number(row.ended_ms),
        "outcome": kept_text(row.outcome),
        "exit_code": fit_number(row.exit_code),
        "why": kept_text(row.why),
        "detail": json.dumps(
            {"nodes": row.nodes, "gpu_indices": row.gpu_indices, "numbers": row.numbers},
            separators=(",", ":"),
        ),
    }


TRY_ROWS = BoundTable(TRIES, _values, key=lambda row: (row.job_id, row.attempt))
"""Where a try that ends and does not end its job leaves its row."""


def _row(values: dict[str, Any]) -> TryRow:
    detail = json.loads(values.pop("detail"))
    gpus = tuple([tuple(each) for each in detail["gpu_indices"]])
    numbers = tuple(detail.get("numbers", ()))
    return TryRow(**values, nodes=tuple(detail["nodes"]), gpu_indices=gpus, numbers=numbers)
