"""Questions that take thought (why, shares, what lies ahead): worked out beside the replica, never in it.

A question is a function of this program and its arguments. It gets a state of its own. Where few jobs are live that is
a copy, made while the replica is locked; where there are many, copying would keep every request waiting, and a process
that follows the log by itself has the state already (`control/replica/follower.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from gpuyard.control.replica.replica import Replica
from gpuyard.core import Policy, State, dump, load
from gpuyard.core.explain.what_if import Sandbox
from gpuyard.store import Store

P = ParamSpec("P")
T = TypeVar("T")

COPIED_MAX = 500
"""The most live jobs that are copied for a question; beyond that, the follower process has a copy."""


@dataclass(frozen=True, slots=True)
class QuestionContext:
    """What a question is given, for itself alone."""

    state: State
    policy: Policy
    store: Callable[[], Store]
    """The store, to be read only where the question is about the past."""
    apart: Sandbox | None = None
    """A way to try things out on this state that is cheaper than copying it; None: there is none."""


class Think(Protocol):
    """What answers questions. Called from any thread; it takes as long as it takes."""

    def __call__(
        self, work: Callable[Concatenate[QuestionContext, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the work gives, on a state no older than the replica is now."""
        ...


class StatePassed(Exception):
    """The state that the question is about has passed: the question has to be asked again."""


class FollowerProcess(Protocol):
    """The process that follows the log."""

    def ask(self, seq: int, exact: bool, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The answer for a state of the log up to `seq` at least, or just there."""


class QuestionRunner:
    """Thinks on a copy where that is cheap, else has it thought."""

    def __init__(
        self, replica: Replica, thinker: FollowerProcess | None = None, copied_max: int = COPIED_MAX
    ) -> None:
        self._copied_max = copied_max
        self._replica = replica
        self._thinker = thinker

    def __call__(
        self, work: Callable[Concatenate[QuestionContext, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the work gives."""
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            seq, policy = replica.seq, replica.policy
            few = self._thinker is None or len(replica.state.jobs) <= self._copied_max
            plain = dump(replica.state) if few else {}
        if few:
            return work(QuestionContext(load(plain), policy, lambda: replica.store), *args, **kwargs)
        return self.elsewhere(work, *args, seq=seq)

    def elsewhere(self, work: Callable[..., T], *args: Any, seq: int, exact: bool = False) -> T:
        """The same, never in this process: for what takes seconds however few jobs there are."""
        assert self._thinker is not None
        found: T = self._thinker.ask(seq, exact, work, args)
        return found
