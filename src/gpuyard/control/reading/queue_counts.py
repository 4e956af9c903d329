"""How many jobs wait, by tenant, class and reason, as the last published model has it.

Jobs are counted chunk by chunk, and a chunk in which nothing has changed is not counted again. Reasons that the last
pass gave stand apart from the rows: there are as many of them as jobs that the pass looked at.
"""

from collections import Counter
from collections.abc import Mapping

from gpuyard.control.reading.model import LiveRow, Model
from gpuyard.model import ReasonCode

Key = tuple[str, str, str]
"""Tenant, class, reason."""

IN_LINE, NEW, ELSEWHERE = "in_line", "new", "other_scheduler"
"""Reasons that no pass gives: it did not get so far, has not seen the job yet, or another scheduler decides."""
NEW_MAX = 50_000
"""Where more jobs have come since the last pass, they count as jobs in line."""
_UNSEEN = int(ReasonCode.NOT_EXAMINED)


class QueueCounts:
    """Counts of one process. Several threads may ask: the worst is that one counts again what another counted."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[int, LiveRow], Counter[Key]]] = {}

    def of(self, model: Model) -> Counter[Key]:
        """The jobs of a model that wait."""
        before, known = self._known, {}
        total: Counter[Key] = Counter()
        for key, chunk in model.jobs.chunks.items():
            old = before.get(key)
            known[key] = old if old is not None and old[0] is chunk else (chunk, _counted(chunk))
            total.update(known[key][1])
        self._known = known
        for job_id, code in model.codes.items():
            if code != _UNSEEN and (row := model.jobs.get(job_id)) is not None and row.in_line:
                tenant, klass = row.job.spec.tenant, row.klass.name
                total[tenant, klass, IN_LINE] -= 1
                total[tenant, klass, ReasonCode(code).name.lower()] += 1
        since = range(model.judged_id + 1, model.last_job_id + 1)
        for job_id in since if len(since) <= NEW_MAX else ():
            if (row := model.jobs.get(job_id)) is not None and row.in_line and not row.job.spec.origin:
                tenant, klass = row.job.spec.tenant, row.klass.name
                total[tenant, klass, IN_LINE] -= 1
                total[tenant, klass, NEW] += 1
        return +total


def _counted(chunk: Mapping[int, LiveRow]) -> Counter[Key]:
    return Counter(
        [
            (row.job.spec.tenant, row.klass.name, _reason(row))
            for row in chunk.values()
            if row.aside or row.in_line
        ]
    )


def _reason(row: LiveRow) -> str:
    if row.aside:
        return row.aside_for.name.lower()
    return ELSEWHERE if row.job.spec.origin else IN_LINE
