"""What a policy is made of. The parts are written in `gpuyard.policies`; the core knows only these shapes."""

from dataclasses import dataclass
from typing import Protocol

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.passes import Pass, PolicyParts
from gpuyard.model import Grant, ReasonCode


class Backfill(Protocol):
    """What may start past a job that cannot. One object per pass."""

    window_ms: int
    """A job that finds room but is refused with RESERVATION would have to be over within this time."""

    settled: bool
    """Whether it knows whom it has to wait for: from then on a job without room makes no difference."""

    def place(self, record: JobRecord) -> tuple[Grant, ...] | ReasonCode:
        """Room for a job that respects what was promised to those before it, or why there is none."""
        ...

    def holds(self) -> tuple[Grant, ...]:
        """What is free and promised to those who were blocked so far."""
        ...

    def blocked(self, record: JobRecord, code: ReasonCode) -> bool:
        """A job could not start. Promise it a time if the policy does; False ends the pass."""
        ...


class BackfillFactory(Protocol):
    """Makes the backfill of one pass."""

    name: str
    promises_all: bool
    """Whether every job that is looked at gets a promise: then nobody is passed over because there is no room."""

    def begin(self, current: Pass) -> Backfill:
        """Called once per pass."""
        ...


@dataclass(frozen=True, slots=True)
class Policy(PolicyParts):
    """A policy, assembled."""

    backfill: BackfillFactory
