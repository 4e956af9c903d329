"""A trace: jobs with their submission times and real run times, in columns.

Columns, because a month of a large cluster is a million jobs: five numbers each and a shared spec keep that in some
40 MB, and a `Job` is made only when its time comes.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, repeat

from gpuyard.model import Job, JobSpec

SKIPPED_NAMED_MAX = 20
"""How many broken rows are kept with their line; all of them are counted."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be read."""

    line: int
    why: str


@dataclass(slots=True)
class Trace:
    """Jobs sorted by submission time. Row `i` becomes the job with id `i + 1`."""

    name: str
    specs: list[JobSpec] = field(default_factory=list)
    spec: "array[int]" = field(default_factory=lambda: array("i"))
    """Index into `specs`."""
    submit_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """From the first submission, which is at 0."""
    run_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """How long the job needs when nothing interrupts it. The scheduler never sees this."""
    limit_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """The time limit it was submitted with; 0: none."""
    deadline_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """When it should be done; 0: it has no deadline."""
    rows: int = 0
    """Rows read, broken ones included."""
    skipped: int = 0
    skipped_named: list[Skipped] = field(default_factory=list)
    origin_ms: int = 0
    """Epoch time of the first submission, if the source knows it."""

    def __len__(self) -> int:
        return len(self.submit_ms)

    def job(self, row: int) -> Job:
        """The job of a row, as the scheduler sees it."""
        spec = self.specs[self.spec[row]]
        return Job(row + 1, spec, self.submit_ms[row], self.limit_ms[row], self.deadline_ms[row])

    def jobs(self) -> Iterator[Job]:
        """All jobs, made one by one."""
        # No line of Python per job: the columns side by side, and each row becomes a named tuple.
        specs = map(self.specs.__getitem__, self.spec)
        none = repeat(0)
        rows = zip(count(1), specs, self.submit_ms, self.limit_ms, self.deadline_ms, none, none, none)
        return map(tuple.__new__, repeat(Job), rows)
