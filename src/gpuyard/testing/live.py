"""The control loop over any engine, with a log in memory and a clock that is set by hand: for tests of engines."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from gpuyard.control.loop.loop import Controller, Step
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.engines.contract import Engine, Recipe
from gpuyard.model import (
    Ask,
    AttemptState,
    ConfigSet,
    Event,
    Job,
    JobSpec,
    JobSubmitted,
    Requested,
    Settings,
    Verb,
)
from gpuyard.model.serialise import to_plain
from gpuyard.policies.registry import PRESETS
from gpuyard.store import Submission
from gpuyard.testing.memory_store import MemoryStore
from gpuyard.testing.values import BATCH, URGENT, ask

SETTINGS = Settings(classes=(BATCH, URGENT), policy=PRESETS["default"])
E = TypeVar("E", bound=Engine)

NOTHING = Recipe(argv=("true",))


class LiveYard(Generic[E]):
    """A log, the leader's loop and an engine. Time passes only for the loop, when a test says so."""

    def __init__(
        self,
        engine: Callable[[Callable[[], int]], E],
        settings: Settings = SETTINGS,
        *,
        now_ms: int = 1_000_000,
        store: Any = None,
    ) -> None:
        """`engine` makes an engine from this yard's clock. `store`: an empty one; left out, one in memory."""
        self.now_ms = now_ms
        self.store = store or MemoryStore()
        # It keeps the promises of a store on which the loop relies.
        self.replica = Replica(cast(Any, self.store))
        self.engine = engine(lambda: self.now_ms)
        self.add(ConfigSet(now_ms, settings))
        self.lead()

    def lead(self) -> None:
        """Another leader takes over, as after a crash: it knows the log and the engine, and nothing else."""
        self.controller = Controller(self.replica, self.engine, self.store.elect("test").epoch)

    def add(self, *events: Event) -> None:
        """Write events to the log."""

        def write(draft: Draft) -> None:
            for event in events:
                draft.add(event)

        self.replica.commit(None, write)

    def submit(
        self, wanted: Ask | int = 1, recipe: Recipe = NOTHING, *, limit_ms: int = 0, **spec: Any
    ) -> int:
        """Submit a job; returns its id. `limit_ms`: of an attempt. `spec`: other fields of `JobSpec`."""
        body = json.dumps(to_plain(recipe)).encode()
        name = hashlib.sha256(body).hexdigest()
        request = ask(wanted) if isinstance(wanted, int) else wanted
        made = JobSpec(spec.pop("tenant", "t"), request, recipe=name, **spec)

        def events(job_id: int) -> list[Event]:
            return [JobSubmitted(self.now_ms, Job(job_id, made, self.now_ms, limit_ms))]

        (answer,) = self.store.submit([Submission(events, blobs={name: body})], self.now_ms)
        assert not isinstance(answer, Exception)
        return answer.first_id

    def ask_for(self, job_id: int, verb: Verb, by: str = "ada") -> None:
        """A user requests something for a job."""
        self.add(Requested(self.now_ms, job_id, verb, by))

    def step(self, wait_ms: int = 0) -> Step:
        """Let time pass, then one step: observe, decide, commit, act."""
        self.now_ms += wait_ms
        return self.controller.step(self.now_ms)

    def phase(self, job_id: int) -> AttemptState | None:
        """The state of a live job's current attempt; None: it has none."""
        return self.replica.state.jobs[job_id].phase

    def ended(self, job_id: int) -> str:
        """How a job ended, from the history; empty: it has not."""
        row = self.store.history.find(job_id)
        return row.state if row is not None else ""
