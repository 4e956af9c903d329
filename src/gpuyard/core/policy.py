"""What a policy is made of. The parts are written in `gpuyard.policies`; the core knows only these shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpuyard.core.placing import Placer, Ranker
from gpuyard.model import Grant, PolicySpec, ReasonCode, StopCause

if TYPE_CHECKING:
    from gpuyard.core.passes import Pass
    from gpuyard.core.records import JobRecord
    from gpuyard.core.state import State


class Criterion(Protocol):
    """One step of a lexicographic order over waiting jobs. Its key may change only when the job is requeued."""

    name: str

    def key(self, record: "JobRecord") -> int:
        """The smaller, the sooner."""
        ...


class FairShare:
    """The one criterion that is not a key: it goes through the tenant tree, least served first."""

    name = "fair"


@dataclass(frozen=True, slots=True)
class Order:
    """Criteria before the fair share, whether there is one, and criteria after it; age and id come last."""

    before: tuple[Criterion, ...]
    fair: bool
    after: tuple[Criterion, ...]
    by_rights: bool = False
    """Whether who asks makes a difference to whether there is room, because the policy preempts."""


class Backfill(Protocol):
    """What may start past a job that cannot. One object per pass."""

    window_ms: int
    """A job that finds room but is refused with RESERVATION would have to be over within this time."""

    settled: bool
    """Whether it knows whom it has to wait for: from then on a job without room makes no difference."""

    def place(self, record: "JobRecord") -> "tuple[Grant, ...] | ReasonCode":
        """Room for a job that respects what was promised to those before it, or why there is none."""
        ...

    def holds(self) -> "tuple[Grant, ...]":
        """What is free and promised to those who were blocked so far."""
        ...

    def blocked(self, record: "JobRecord", code: ReasonCode) -> bool:
        """A job could not start. Promise it a time if the policy does; False ends the pass."""
        ...


class BackfillFactory(Protocol):
    """Makes the backfill of one pass."""

    name: str
    promises_all: bool
    """Whether every job that is looked at gets a promise: then nobody is passed over because there is no room."""

    def begin(self, current: "Pass") -> Backfill:
        """Called once per pass."""
        ...


class Rule(Protocol):
    """A right to take room from someone."""

    name: str
    cause: StopCause

    def applies(self, state: "State", record: "JobRecord", now_ms: int) -> bool:
        """Quick test: might this job take room from anyone at all?"""
        ...

    def rights(self, state: "State", record: "JobRecord", now_ms: int) -> "Callable[[JobRecord], bool]":
        """May it take the room of this one? Asked again of each victim, after those before it were drafted away."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, assembled."""

    spec: PolicySpec
    order: Order
    place: Placer
    backfill: BackfillFactory
    rules: tuple[Rule, ...]
    rank: Ranker | None = None
    """The order in which ways are tried, where the placement cares; None: the cheapest first."""
