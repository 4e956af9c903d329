"""What a policy is made of. The parts are written in `gpuyard.policies`; the core knows only these protocols."""

from dataclasses import dataclass
from typing import Protocol

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass, PolicyParts
from gpuyard.model import Grant, ReasonCode


class Backfill(Protocol):
    """Decides which jobs may start past a job that cannot. One object per pass."""

    window_ms: int
    """A job that finds room but is refused with RESERVATION would have to end within this time."""

    settled: bool
    """Whether it knows which job it protects: from then on a job without room makes no difference."""

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room for a job that respects the promises to jobs before it, or why there is none."""
        ...

    def holds(self) -> tuple[Grant, ...]:
        """What is free now and promised to the jobs blocked so far."""
        ...

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """A job could not start: promise it a time if the policy does that. False ends the pass."""
        ...


class BackfillFactory(Protocol):
    """Makes the backfill of one pass."""

    name: str
    promises_all: bool
    """Whether every examined job gets a promise: then no job is passed over for lack of room."""

    def begin(self, current: Pass) -> Backfill:
        """Called once per pass."""
        ...


@dataclass(frozen=True, slots=True)
class Policy(PolicyParts):
    """A policy, assembled."""

    backfill: BackfillFactory
