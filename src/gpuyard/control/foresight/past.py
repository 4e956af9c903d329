"""The ended jobs of a store, as the forecast wants them: the last few thousand, read again once a minute at most."""

import threading
from dataclasses import replace

from gpuyard.model import JobSpec
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import DAY_MS, MINUTE_MS, NO_LIMIT_MS
from gpuyard.sim.pastjobs import PastJob
from gpuyard.store import HistoryQuery, HistoryRow, Store

JOBS_MAX = 5_000
PAGE = 1_000
DAYS = 30
EVERY_MS = MINUTE_MS


class PastReader:
    """Reads and keeps them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read_ms: int | None = None
        self._jobs: tuple[PastJob, ...] = ()

    def jobs(self, now_ms: int) -> tuple[PastJob, ...]:
        """Jobs that ended lately."""
        with self._lock:
            if self._read_ms is None or not 0 <= now_ms - self._read_ms < EVERY_MS:
                self._jobs = self._found(now_ms)
                self._read_ms = now_ms
            return self._jobs

    def _found(self, now_ms: int) -> tuple[PastJob, ...]:
        specs: dict[JobSpec, JobSpec] = {}
        found: list[PastJob] = []
        before: int | None = None
        while len(found) < JOBS_MAX:
            query = HistoryQuery(ended_from_ms=now_ms - DAYS * DAY_MS, before_id=before, limit=PAGE)
            rows = self._store.find_history(query)
            found += [_past(row, specs) for row in rows if "spec" in row.detail]
            if len(rows) < PAGE:
                break
            before = rows[-1].id
        return tuple(found)


def _past(row: HistoryRow, specs: dict[JobSpec, JobSpec]) -> PastJob:
    # How it is run makes no difference to when others start, and without it many are equal.
    spec = replace(from_plain(JobSpec, row.detail["spec"]), work=None, recipe="", after=())
    spec = specs.setdefault(spec, spec)
    run_ms = max(0, row.ended_ms - row.started_ms) if row.started_ms else -1
    limit_ms = min(row.detail.get("limit_ms", NO_LIMIT_MS), NO_LIMIT_MS)
    return PastJob(row.submitted_ms, spec, row.gpus_milli, limit_ms, run_ms)
