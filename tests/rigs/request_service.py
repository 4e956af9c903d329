"""A request service over a real store and one node of eight GPUs, without an engine: attempts are moved by hand."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuyard.config.values import Access
from gpuyard.control.access.people import Person
from gpuyard.control.access.people_in_force import PeopleInForce
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.commands.requests import RequestService
from gpuyard.control.commands.wishes import Wish, WishedId
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.replica import Draft, Judged, Replica
from gpuyard.control.views.queue_list import EVERYTHING, Filter
from gpuyard.control.views.views import Views
from gpuyard.core import decide
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Node,
    NodeAdded,
    Outcome,
    Settings,
)
from gpuyard.policies.registry import PRESETS
from gpuyard.store import open_store
from harness.steered import steered

ROOT = Person(0, 0, "root", True)
ANA = Person(1001, 1001, "ana", False)


def granted(service: RequestService, wish: Wish) -> list[WishedId]:
    """Write a wish to its end."""
    while not wish.finished:
        wish.enter(service.grant(wish).result(120))
    return wish.asked


def listed(
    views: Views, wanted: Filter = EVERYTHING, limit: int | None = None, *, wide: bool = False
) -> dict[str, Any]:
    """The queue as a client reads it."""
    found = views.queue(wanted, limit, wide=wide)
    return {**found.head, "rows": json.loads(f"[{''.join(found.pieces())}]")}


class Rig:
    """Everything of a server but HTTP and the loop. Its clock goes one second with every look."""

    def __init__(self, replica: Replica, settings: Settings) -> None:
        self.time_ms = 1_000_000
        self.replica = replica
        self.committer = Committer(replica, self.now_ms)
        self.requests = RequestService(replica, self.committer, self.now_ms, allow_root=True)
        self.views = Views(replica, self.now_ms)
        self.add(ConfigSet(0, settings), NodeAdded(0, Node("n1", "c", "p", "H100", 8, 16_000, 64_000)))
        self.committer.start()

    def now_ms(self) -> int:
        self.time_ms += 1000
        return self.time_ms

    def people(self) -> tuple[int, Access]:
        """The people of the version in force, in a server that has just looked."""
        return PeopleInForce(self.replica, self.committer, self.now_ms, None, auth=False).looked_up()

    def add(self, *events: Event) -> None:
        def make(draft: Draft) -> None:
            for event in events:
                draft.add(event)

        self.replica.commit(None, make)

    def submit(self, who: Person = ROOT, **fields: object) -> int:
        new = make_job(**{"command": ("true",), "gpus": 1, "name": "job", **fields})  # type: ignore[arg-type]
        return self.requests.submit(who, new, Future()).result(120).first_id

    def start(self, job_id: int, gpus: int = 1) -> None:
        self.replica.catch_up()
        attempt = self.replica.state.jobs[job_id].attempt + 1
        self.add(AttemptStarted(self.now_ms(), job_id, attempt, (Grant(0, gpus, 1000, 0, 0, 1),)))

    def judge(self) -> None:
        """A pass of the leader, of which nothing but its reasons is kept."""
        replica = self.replica
        replica.catch_up()
        plan = decide(replica.state, replica.policy, self.time_ms)
        replica.judged = Judged(replica.seq, replica.state.last_job_id, plan.examined, plan.codes)

    def end(self, job_id: int, outcome: Outcome = Outcome.COMPLETED, exit_code: int = 0) -> None:
        attempt = self.replica.state.jobs[job_id].attempt
        self.add(AttemptEnded(self.now_ms(), job_id, attempt, outcome, 0, exit_code))


@contextmanager
def rig(folder: Path, settings: Settings | None = None) -> Iterator[Rig]:
    with open_store(folder / "yard.db", durable=False) as store:
        found = Rig(Replica(steered(store)), settings or Settings(policy=PRESETS["default"]))
        try:
            yield found
        finally:
            found.committer.close()
