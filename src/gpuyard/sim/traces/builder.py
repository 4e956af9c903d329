"""Rows become the columns of a `Trace` here: equal specs are shared, broken rows are counted and named.

Every importer hands its rows to a `Builder`, so that sorting, the first submission at 0, the counting of omitted rows
and the strict mode are written once.
"""

from array import array
from dataclasses import dataclass, field
from operator import le
from struct import Struct, pack

from gpuyard.errors import BadInput
from gpuyard.model import JobSpec
from gpuyard.sim.trace import SKIPPED_NAMED_MAX, Skipped, Trace

EPOCH_FROM_MS = 10**12
"""A first submission later than this many ms (September 2001) can only be epoch time."""


@dataclass(slots=True)
class Builder:
    """Collects the rows of one file."""

    path: str
    strict: bool = False
    """Raise on the first broken row instead of skipping it."""
    epoch_ms: int | None = None
    """The epoch time from which submission times count, if the file says it."""
    specs: dict[JobSpec, int] = field(default_factory=dict)
    spec: "array[int]" = field(default_factory=lambda: array("i"))
    submit_ms: "array[int]" = field(default_factory=lambda: array("q"))
    run_ms: "array[int]" = field(default_factory=lambda: array("q"))
    limit_ms: "array[int]" = field(default_factory=lambda: array("q"))
    due_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """Deadline from the job's own submission; 0: none."""
    skipped: int = 0
    skipped_named: list[Skipped] = field(default_factory=list)

    def index(self, spec: JobSpec) -> int:
        """The number of a spec; equal specs have the same."""
        return self.specs.setdefault(spec, len(self.specs))

    def add(self, spec: int, submit_ms: int, run_ms: int, limit_ms: int = 0, due_ms: int = 0) -> None:
        """Add one job."""
        self.spec.append(spec)
        self.submit_ms.append(submit_ms)
        self.run_ms.append(run_ms)
        self.limit_ms.append(limit_ms)
        self.due_ms.append(due_ms)

    def extend(self, spec: list[int], submit_ms: list[int], run_ms: list[int], limit_ms: list[int]) -> None:
        """Add several jobs without deadlines."""
        # Packed and appended as bytes: an array takes single numbers slowly.
        self.spec.frombytes(pack(f"{len(spec)}i", *spec))
        longs = Struct(f"{len(spec)}q")
        for column, values in ((self.submit_ms, submit_ms), (self.run_ms, run_ms), (self.limit_ms, limit_ms)):
            column.frombytes(longs.pack(*values))
        self.due_ms.frombytes(bytes(longs.size))

    def broken(self, line: int, why: str) -> None:
        """A row that cannot be understood."""
        if self.strict:
            raise BadInput(
                f"{self.path}:{line}: {why}",
                hint="Correct the line, or read without strict to pass such rows over.",
            )
        self.left_out(line, why)

    def left_out(self, line: int, why: str) -> None:
        """A row that is understood but is no job to replay, such as one that never started."""
        self.skipped += 1
        if len(self.skipped_named) < SKIPPED_NAMED_MAX:
            self.skipped_named.append(Skipped(line, why))

    def finish(self, name: str) -> Trace:
        """The trace, sorted by submission and then by row."""
        if not self.submit_ms:
            raise BadInput(
                f"{self.path}: {self._nothing()}", hint="The columns of each format: docs/how-to/traces.md."
            )
        self._sort()
        first = self.submit_ms[0]
        epoch_ms = 0 if self.epoch_ms is None and first >= EPOCH_FROM_MS else self.epoch_ms
        submit_ms = array("q", [at - first for at in self.submit_ms]) if first else self.submit_ms
        deadline_ms = array("q", bytes(8 * len(submit_ms)))
        if any(self.due_ms):
            dues = zip(submit_ms, self.due_ms, strict=True)
            deadline_ms = array("q", [at + due if due else 0 for at, due in dues])
        return Trace(
            name=name,
            specs=list(self.specs),
            spec=self.spec,
            submit_ms=submit_ms,
            run_ms=self.run_ms,
            limit_ms=self.limit_ms,
            deadline_ms=deadline_ms,
            rows=len(submit_ms) + self.skipped,
            skipped=self.skipped,
            skipped_named=self.skipped_named,
            origin_ms=0 if epoch_ms is None else epoch_ms + first,
        )

    def _sort(self) -> None:
        submit_ms = self.submit_ms
        if all(map(le, submit_ms, submit_ms[1:])):
            return
        order = sorted(range(len(submit_ms)), key=submit_ms.__getitem__)
        for column in ("spec", "submit_ms", "run_ms", "limit_ms", "due_ms"):
            values = getattr(self, column)
            setattr(self, column, array(values.typecode, [values[row] for row in order]))
        # Specs are numbered as they appear, so that a trace is the same whether its file was sorted or not.
        specs = list(self.specs)
        numbers: dict[int, int] = {}
        self.spec = array("i", [numbers.setdefault(old, len(numbers)) for old in self.spec])
        self.specs = {specs[old]: new for old, new in numbers.items()}

    def _nothing(self) -> str:
        if not self.skipped:
            return "has a header and no jobs"
        first = self.skipped_named[0]
        return f"none of its {self.skipped} rows can be used; the first, line {first.line}: {first.why}"
