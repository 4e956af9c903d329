"""Ids as people write them, and the live jobs they stand for."""

import re
from dataclasses import dataclass

from gpuyard.config.problems import quoted
from gpuyard.control.refusals import Unacceptable
from gpuyard.core import State
from gpuyard.core.records import JobRecord

ARRAY_TASKS_MAX = 10_000

_LABEL = re.compile(r"([1-9][0-9]{0,17})(?:_([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Label:
    """The id people use: a job's, an array's, or a task's of an array."""

    id: int
    index: int | None = None

    def __str__(self) -> str:
        return str(self.id) if self.index is None else f"{self.id}_{self.index}"


def label_of(text: str) -> Label:
    """`17` or `12_3`."""
    match = _LABEL.fullmatch(text)
    if match is None:
        raise Unacceptable(
            f"{quoted(text)} is no job id", "Ids are positive numbers such as 17, or 12_3 for a task."
        )
    return Label(int(match[1]), int(match[2]) if match[2] is not None else None)


def live(state: State, label: Label) -> list[JobRecord]:
    """The live jobs of a label: one, all of an array, or none."""
    if label.index is None:
        record = state.jobs.get(label.id)
        if record is not None:
            return [record]
    # Ids of tasks follow that of their array; those that ended are gaps.
    tasks = []
    for job_id in range(label.id + 1, min(label.id + ARRAY_TASKS_MAX, state.last_job_id) + 1):
        record = state.jobs.get(job_id)
        if record is None:
            continue
        if record.job.array_id != label.id:
            break
        if label.index is None or record.job.array_index == label.index:
            tasks.append(record)
    return tasks
