"""What an observer promises: it looks on at a cluster whose own scheduler decides, and changes nothing there.

It tells of nodes and of jobs in plain values. The yard compares them with its log (`control/loop/observing.py`) and
writes down what is new, so an observer has nothing to keep: it may be asked the same twice, out of turn, and after
years. Rows may come late, twice and in any order. A question that got no answer raises, and nothing is concluded from
it; silence about a job is no end of it either.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Launch,
    LogPiece,
    NodeReport,
    NoMig,
    Permanent,
    Phase,
    Reply,
    StopRequest,
)
from gpuyard.model import Capability, Outcome, WaitCause

PAUSE_S = 0.5
"""The longest wait for news of a cluster that sends none."""


@dataclass(frozen=True, slots=True)
class OwnScheduler:
    """The scheduler of a cluster that is observed, in its own words."""

    name: str
    """As in "Slurm decides there"."""
    commands: Mapping[str, str]
    """Its commands for what people want of a job, by `Verb`; the id follows."""
    instead: Mapping[str, str]
    """What to do instead of the yard's `submit`, `checkpoint`, `nodes` and `logs`, as the beginning of a sentence."""
    otherwise: str = ""
    """How the yard is given the decision: `move a partition to drive`; empty: it cannot be."""


class ForeignState(Enum):
    """How a job of another scheduler stands."""

    WAITING = "waiting"
    RUNNING = "running"
    """It holds its nodes, whatever it does there."""
    SUSPENDED = "suspended"
    """It holds its nodes and stands still."""
    ENDED = "ended"
    """It is over; one that its scheduler tries again is another row."""


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """One try at running a job of another scheduler. A job that is tried again has as many rows as tries."""

    number: int
    """The number by which people know it there; of a task, that of its array. Positive; it may be given again."""
    submitted_ms: int
    """When this try began to wait: with the number, what tells it from every other one."""
    state: ForeignState
    index: int | None = None
    """Of a task of an array."""
    name: str = ""
    user: str = ""
    """Its owner, as the cluster knows them."""
    member: str = ""
    """The owner's name in the yard's tree of tenants, where that is another."""
    account: str = ""
    """The last name of the tenant above its owner; empty: there is none."""
    klass: str = ""
    project: str = ""
    """What it is booked for."""
    eligible_ms: int = 0
    """From when on it may start; 0: it may not yet."""
    started_ms: int = 0
    """When it got its nodes; 0: never."""
    ended_ms: int = 0
    """When it gave them back, or left the queue; 0: it has not. A time to come counts as none."""
    limit_ms: int = 0
    """The longest that it may run; 0: as long as it likes."""
    gpus: int = 0
    """What it holds, or held, on all its nodes together; what it asks for if it never started."""
    cpu_milli: int = 0
    memory_mib: int = 0
    width: int = 1
    """How many nodes that is meant for, where `nodes` does not tell."""
    models: tuple[str, ...] = ()
    """The GPU models that it asks for; empty: any."""
    nodes: tuple[str, ...] = ()
    """Where it runs or ran."""
    gpus_on: tuple[int, ...] = ()
    """How many of its GPUs are on each of these nodes; empty: nobody knows, and they count as spread evenly."""
    reason: str = ""
    """Why it waits, in the words of its scheduler."""
    cause: WaitCause = WaitCause.UNKNOWN
    """The same as reports add it up."""
    outcome: Outcome | None = None
    """How it ended; only with ENDED, where None is a failure."""
    exit_code: int = 0
    """128 + signal if a signal ended it."""
    why: str = ""
    """More about the end, for people."""
    again: bool = False
    """Whether its scheduler may try the same job again; `why` is then what ended this try, in a word: `preempted`."""

    @property
    def label(self) -> str:
        """The id that people use: `17`, or `12_3` for a task of an array."""
        return str(self.number) if self.index is None else f"{self.number}_{self.index}"

    @property
    def key(self) -> str:
        """Tells this try from every other one of its cluster; the log has it."""
        return f"{self.label}@{self.submitted_ms}"

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state is not ForeignState.ENDED


@dataclass(frozen=True, slots=True)
class ForeignJobs:
    """Rows, and those that could not be read: nobody is charged for them, so people are told."""

    jobs: Sequence[ForeignJob] = ()
    unread: int = 0
    why: str = ""
    """What was wrong with the first of them."""


@runtime_checkable
class Observer(Protocol):
    """The contract. What else engines may be able to do (`ReadsOutputs`, `HasDaemonLogs`, …) an observer may be too."""

    name: str
    """As in `engine: NAME`; the log says that it closed or opened nodes."""
    scheduler: OwnScheduler

    def nodes(self) -> tuple[NodeReport, ...]:
        """Every node of the cluster, as found now. One that no job can reach has no pool, and is not taken in."""
        ...

    def jobs(self) -> ForeignJobs:
        """All live jobs. Those that ended a moment ago may be among them."""
        ...

    def ended(self, from_ms: int) -> ForeignJobs:
        """Jobs that ended after this time, as far back as the cluster remembers. Live ones are passed over."""
        ...

    def close(self) -> None:
        """Let go of the cluster."""
        ...


@dataclass
class LooksOn(NoMig):
    """An observer where an engine is wanted: it starts and stops nothing, and can do what else its observer can.

    That is set on it: to `isinstance` with a protocol a class with `__getattr__` can do nothing, since Python 3.12.
    """

    cluster: str
    observer: Observer
    name: str = ""
    capabilities: frozenset[Capability] = frozenset()

    def __post_init__(self) -> None:
        self.name = self.observer.name
        for each in {*dir(self.observer)} - {*dir(self)}:
            if not each.startswith("_"):
                setattr(self, each, getattr(self.observer, each))

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know."""
        decides = self.observer.scheduler.name
        own: tuple[str, ...] = getattr(self.observer, "notes", ())
        told = f"cluster {self.cluster} is observed: {decides} decides, nothing is submitted or changed here"
        return (told, *own)

    def _refused(self) -> Reply:
        decides = self.observer.scheduler.name
        return Reply(Answer.REFUSED, f"cluster {self.cluster} is observed: {decides} decides there")

    def nodes(self) -> tuple[NodeReport, ...]:
        """As the observer has them."""
        return self.observer.nodes()

    def start(self, _epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        """Refused."""
        return [self._refused() for _ in launches]

    def stop(self, _epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        """Refused."""
        return [self._refused() for _ in halts]

    def suspend(self, _epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Refused."""
        return [self._refused() for _ in keys]

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Refused."""
        return self.suspend(epoch, keys)

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        """Nothing here was started by us."""
        return [AttemptReport(key, Phase.UNKNOWN) for key in keys]

    def listing(self) -> list[AttemptReport]:
        """Nothing here was started by us."""
        return []

    def forget(self, _epoch: int, _keys: Sequence[str]) -> None:
        """Nothing is kept."""

    def wait(self, timeout_s: float) -> bool:
        """No news are sent: the yard looks again by itself."""
        time.sleep(min(timeout_s, PAUSE_S))
        return False

    def log(self, _key: str, _stream: str, _cursor: str, _limit: int) -> LogPiece:
        """What its jobs write is asked of the observer, by their own keys (`ReadsOutputs`)."""
        raise Permanent(f"cluster {self.cluster} is observed: the yard has started nothing there")

    def close(self) -> None:
        """Let go."""
        self.observer.close()
