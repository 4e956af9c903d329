"""What a server counts for `/metrics`: once when it is written, and the queue without a walk through all jobs."""

import pytest

from gpuyard.control.admission.entering import make_events
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.reading import queue_counts
from gpuyard.control.reading.publisher import Publisher
from gpuyard.control.reading.queue_counts import QueueCounts
from gpuyard.control.replica.replica import Judged, Replica
from gpuyard.model import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    AttemptStopping,
    ConfigSet,
    Event,
    Grant,
    JobSpec,
    NodeAdded,
    Outcome,
    ReasonCode,
    Requested,
    Settings,
    StopCause,
    Verb,
    Whole,
)
from gpuyard.store import Submission
from gpuyard.testing import BATCH, URGENT, MemoryStore, node


class Counted:
    """A replica over a store in memory, and what is counted of it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.replica = Replica(self.store)  # type: ignore[arg-type]
        self.reading, self.counts = Publisher(self.replica), QueueCounts()
        self.write(ConfigSet(0, Settings(classes=(BATCH, URGENT))), NodeAdded(0, node()))

    def write(self, *events: Event) -> None:
        def make(draft: object) -> None:
            for event in events:
                draft.add(event)  # type: ignore[attr-defined]

        self.replica.commit(None, make)

    def submit(self, tenant: str, klass: str = "batch", tasks: int = 1, *, hold: bool = False) -> None:
        spec, job = (
            JobSpec(tenant, Ask(Whole(1)), klass),
            Wanted(array=tuple(range(tasks)) if tasks > 1 else None, hold=hold),
        )
        self.store.submit([Submission(lambda i: make_events(job, spec, i, 1_000, {}), job.ids)], 1_000)
        self.replica.catch_up()

    def waiting(self) -> dict[tuple[str, str, str], int]:
        return dict(self.counts.of(self.reading.latest()))


@pytest.fixture
def here() -> Counted:
    return Counted()


def grants(gpu: int) -> tuple[Grant, ...]:
    return (Grant(0, 1 << gpu, 1000, 0, 0, 1),)


def test_starts_waits_ends_and_preemptions_are_counted_when_they_are_written(here: Counted) -> None:
    for tenant in ("a", "a", "b"):
        here.submit(tenant)
    here.write(AttemptStarted(3_000, 1, 1, grants(0)), AttemptStarted(61_000, 2, 1, grants(1)))
    here.write(AttemptStopping(62_000, 2, 1, StopCause.CLASS, 3))
    here.write(AttemptEnded(63_000, 2, 1, Outcome.PREEMPTED), AttemptEnded(63_000, 1, 1, Outcome.FAILED))
    here.write(AttemptStarted(64_000, 2, 2, grants(0)), Requested(64_000, 3, Verb.CANCEL, "ann"))
    # Another scheduler's job may be told of from its start to its end in one write.
    here.submit("b", "urgent")
    here.write(AttemptStarted(65_000, 4, 1, grants(2)), AttemptEnded(66_000, 4, 1, Outcome.COMPLETED))
    tally = here.replica.tally

    assert {"batch": 3, "urgent": 1} == tally.started
    assert {"class": 1, "reclaim": 0, "shorter": 0} == tally.preempted
    assert (1, 1, 1) == tuple([tally.attempts[each] for each in ("preempted", "failed", "completed")])
    assert {("a", "failed"): 1, ("b", "cancelled"): 1, ("b", "completed"): 1} == tally.ended
    assert (2, 62.0) == (sum(tally.waits["batch"].counts), tally.waits["batch"].sum), "of first starts"
    assert 64.0 == tally.waits["urgent"].sum


def test_what_is_read_again_is_not_counted_again(here: Counted) -> None:
    here.submit("a")
    here.write(AttemptStarted(3_000, 1, 1, grants(0)))
    here.replica.reload()
    other = Replica(here.store)  # type: ignore[arg-type]

    assert {"batch": 1} == here.replica.tally.started
    assert {} == other.tally.started, "another server did not write it"


def test_waiting_jobs_are_counted_by_tenant_class_and_reason(here: Counted) -> None:
    # Number 1 is the array's own, 2 to 4 are its tasks.
    here.submit("a", tasks=3)
    here.submit("b", "urgent")
    here.submit("b", hold=True)
    here.replica.judged = Judged(
        0, 6, (2, 3, 5), bytes([ReasonCode.ROOM, ReasonCode.STARTED, ReasonCode.LIMIT])
    )
    here.write(AttemptStarted(3_000, 3, 1, grants(0)))
    here.submit("c")

    assert {
        ("a", "batch", "room"): 1,
        ("a", "batch", "in_line"): 1,
        ("b", "urgent", "limit"): 1,
        ("b", "batch", "held"): 1,
        ("c", "batch", "new"): 1,
    } == here.waiting()


def test_chunks_in_which_nothing_changed_are_not_counted_again(
    here: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.submit("a", tasks=2_000)
    here.replica.judged = Judged(0, 2_001)
    assert {("a", "batch", "in_line"): 2_000} == here.waiting()
    counted: list[int] = []
    before = queue_counts._counted
    monkeypatch.setattr(queue_counts, "_counted", lambda chunk: counted.append(len(chunk)) or before(chunk))
    here.write(AttemptStarted(3_000, 700, 1, grants(0)))

    assert {("a", "batch", "in_line"): 1_999} == here.waiting()
    assert 1 == len(counted)
