"""Replica follow the log and nothing but the log."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from gpuyard.control.admission.entering import make_events
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.replica.forked_work import ForkedWork
from gpuyard.control.replica.replica import LIMITS, Draft, Replica, ReplicaLimits
from gpuyard.core.state.dump import canonical, load
from gpuyard.model import Ask, Job, JobSpec, JobSubmitted, Node, NodeAdded, Requested, Ticked, Verb, Whole
from gpuyard.store import Commit, Fenced, Store, StoreFull, Submission, open_store
from gpuyard.testing import MemoryStore
from harness.patience import until
from harness.steered import Steered

NODE = Node("n0", "main", "p", "H100", 8, 64_000, 1 << 18)


def submit(store: MemoryStore | Store, gpus: int = 1) -> int:
    spec = JobSpec("a", Ask(Whole(gpus)))
    (answer,) = store.submit([Submission(lambda i: [JobSubmitted(5, Job(i, spec, 5))])], 5)
    assert not isinstance(answer, Exception)
    return answer.first_id


def test_what_others_wrote_is_folded_before_anything_is_judged() -> None:
    store = MemoryStore()
    replica = Replica(store)  # type: ignore[arg-type]
    job_id = submit(store)
    seen: list[int] = []
    replica.commit(None, lambda draft: seen.extend(draft.state.jobs))
    assert [job_id] == seen
    assert store.head() == replica.seq


def test_a_write_that_fails_leaves_no_trace_in_the_books() -> None:
    store = Steered(MemoryStore())
    replica = Replica(store)  # type: ignore[arg-type]
    replica.commit(None, lambda draft: draft.add(NodeAdded(1, NODE)))
    before = canonical(replica.state)

    def full(epoch: int | None, after_seq: int, make: Callable[[list[object]], Commit]) -> list[int]:
        make([])
        raise StoreFull("no space left")

    with store.doing(commit=full), pytest.raises(StoreFull):
        replica.commit(None, lambda draft: draft.add(NodeAdded(2, _named("n1"))))
    replica.catch_up()
    assert before == canonical(replica.state)


TASKS = 3_000


def submit_array(store: MemoryStore | Store) -> None:
    spec = JobSpec("a", Ask(Whole(1)))
    job = Wanted(array=tuple(range(TASKS)))
    store.submit([Submission(lambda i: make_events(job, spec, i, 5, {}), job.ids)], 5)


def test_others_have_the_lock_while_a_long_array_is_folded() -> None:
    store = MemoryStore()
    replica = Replica(store, ReplicaLimits(piece=500, pause_s=0.05))  # type: ignore[arg-type]
    submit_array(store)
    seen: set[int] = set()
    over = Event()

    def look() -> None:
        while not over.is_set():
            with replica.lock:
                seen.add(len(replica.state.jobs))
            over.wait(0.001)

    watcher = Thread(target=look)
    watcher.start()
    try:
        with replica.lock:
            # It is let go of also where the caller had it before.
            replica.catch_up()
    finally:
        over.set()
        watcher.join()

    assert TASKS == len(replica.state.jobs)
    assert 3 <= len(seen & {500, 1000, 1500, 2000, 2500})


def test_nothing_long_is_folded_inside_a_transaction() -> None:
    store, folded = MemoryStore(), 0

    def entered(*args: Any) -> list[int]:
        nonlocal folded
        before = len(replica.state.jobs)
        seqs = store.commit(*args)
        folded += len(replica.state.jobs) - before
        return seqs

    replica = Replica(Steered(store, commit=entered))  # type: ignore[arg-type]
    submit_array(store)
    seen: list[int] = []
    replica.commit(None, lambda draft: seen.append(len(draft.state.jobs)))

    assert ([TASKS], TASKS) == (seen, len(replica.state.jobs))
    assert folded <= LIMITS.piece


def _named(name: str) -> Node:
    return Node(name, "main", "p", "H100", 8, 64_000, 1 << 18)


def test_an_old_leader_is_refused_and_its_draft_forgotten() -> None:
    store = MemoryStore()
    replica = Replica(store)  # type: ignore[arg-type]
    epoch = store.elect("one").epoch
    store.elect("two")
    with pytest.raises(Fenced):
        replica.commit(epoch, lambda draft: draft.add(Ticked(9)))
    assert 0 == store.head() == replica.seq


def test_a_job_that_ends_gets_its_row_in_the_same_commit() -> None:
    store = MemoryStore()
    replica = Replica(store)  # type: ignore[arg-type]
    job_id = submit(store)
    replica.commit(None, lambda draft: draft.add(Requested(7, job_id, Verb.CANCEL, "ada")))
    row = store.rows[job_id]
    assert ("CANCELLED", 7, "cancelled by ada") == (row.state, row.ended_ms, row.why)


def test_an_event_that_no_longer_holds_is_passed_over() -> None:
    store = MemoryStore()
    replica = Replica(store)  # type: ignore[arg-type]

    def make(draft: Draft) -> None:
        assert draft.offer(NodeAdded(1, NODE))
        assert not draft.offer(NodeAdded(1, NODE))

    replica.commit(None, make)
    assert 1 == store.head()


def test_books_opened_from_a_snapshot_are_the_books_that_made_it() -> None:
    store = MemoryStore()
    replica = Replica(store)  # type: ignore[arg-type]
    replica.commit(None, lambda draft: draft.add(NodeAdded(1, NODE)))
    submit(store)
    replica.catch_up()
    assert replica.save(6, every=1)
    submit(store, 2)
    replica.catch_up()
    assert canonical(replica.state) == canonical(Replica(store).state)  # type: ignore[arg-type]


def test_a_long_queue_is_saved_beside_the_books_which_go_on(tmp_path: Path) -> None:
    """The copy waits for a file here, as it would take its time with many jobs: nobody else does."""
    go_on = tmp_path / "go-on"

    class SlowReplica(Replica):
        def _packed(self) -> bytes:
            while not go_on.exists():
                time.sleep(0.01)
            return super()._packed()

    with closing(open_store(f"sqlite:///{tmp_path}/yard.db")) as store:
        replica = SlowReplica(store, ReplicaLimits(beside_from=1, snapshot_every=2))
        replica.commit(None, lambda draft: draft.add(NodeAdded(1, NODE)))
        submit(store)
        replica.catch_up()
        then = canonical(replica.state)
        assert not replica.save_beside(6)
        submit(store, 2)
        replica.catch_up()
        assert not replica.save_beside(7)
        go_on.touch()
        until(lambda: replica.save_beside(8))
        found = store.snapshots.latest()
        assert found is not None
        assert (2, then) == (found.seq, canonical(load(found.plain)))
        assert not replica.save_beside(9), "one event is not worth another"


def test_a_copy_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    aside = ForkedWork(lambda: time.sleep(60) or b"")
    pid = aside._child.pid
    aside.end()
    assert not Path(f"/proc/{pid}").exists()


def test_a_copy_gives_back_what_it_made_or_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    whole, broken = ForkedWork(lambda: b"x" * 3_000_000), ForkedWork(lambda: b"%d" % (1 // 0))
    until(lambda: whole.done() and broken.done())
    assert (3_000_000, None) == (len(whole.result() or b""), broken.result())
    assert "ZeroDivisionError" in capfd.readouterr().err, "the log of the server has what went wrong"


def test_a_copy_is_made_by_the_thread_that_leads() -> None:
    """It ends with that thread, and takes nothing of the signals of the server's main one."""
    given: list[bytes | None] = []

    def lead() -> None:
        aside = ForkedWork(lambda: b"by another thread")
        until(aside.done)
        given.append(aside.result())

    leader = threading.Thread(target=lead)
    leader.start()
    leader.join()
    assert [b"by another thread"] == given
