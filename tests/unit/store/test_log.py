"""The log: numbers, order, fencing, reading back, waking."""

import threading
import time

import pytest

from gpuyard.model import JobCancelled, JobHeld, Ticked
from gpuyard.store import (
    HISTORY_ROWS,
    Codec,
    Commit,
    Fenced,
    Numbered,
    Store,
    StoreDamaged,
    StoreError,
    open_store,
)
from harness.patience import patient
from rigs.postgres import PostgresServer
from rigs.stores import accepted, ended, submission, ticks

LONG_S = 600
"""Longer than anything takes that is told of when it comes."""


def test_numbers_begin_at_one_and_have_no_gaps(store: Store) -> None:
    assert 0 == store.head()
    assert [] == store.append([])
    assert [1, 2] == store.append(ticks(10, 20))
    assert [3] == store.append([JobHeld(30, 1)])
    assert [(1, Ticked(10)), (2, Ticked(20)), (3, JobHeld(30, 1))] == store.read(0)
    assert [(2, Ticked(20))] == store.read(1, limit=1)
    assert [] == store.read(3)
    assert 3 == store.head()


def test_what_was_written_is_there_after_opening_again(place: str) -> None:
    with open_store(place) as store:
        yard = store.yard
        [answer] = accepted(store, submission(ids=3))
    with open_store(place) as store:
        assert yard == store.yard
        assert 8 == len(yard)
        assert [1, 2, 3] == [event.job.id for _, event in store.read(0)]  # type: ignore[union-attr]
        assert (4, 4) == (*accepted(store, submission())[0].seqs, store.head())
        assert answer.first_id + 3 == store.counters().next_job_id - 1


def test_jobs_that_end_together_have_each_their_own_details(store: Store) -> None:
    details = [{"a": 1}, {"a": 1}, {"a": 1.5}, {"a": [1]}, {}, {"a": 1}]
    store.bound.put({HISTORY_ROWS: [ended(number, detail=each) for number, each in enumerate(details, 1)]})

    assert details == [store.history.find_all([number])[number].detail for number in range(1, 7)]


def test_a_job_cannot_be_logged_without_an_id_of_ours(store: Store) -> None:
    with pytest.raises(ValueError, match="submit"):
        store.append(submission().make(1))
    assert 0 == store.head()


def test_a_leader_sees_what_came_in_before_it_writes(store: Store) -> None:
    lease = store.elect("a")
    assert lease is not None
    store.append(ticks(1, 2))
    store.append([JobCancelled(3, 7)])
    seen: list[Numbered] = []

    def make(new: list[Numbered]) -> Commit:
        seen.extend(new)
        return Commit(ticks(4, 5), {HISTORY_ROWS: [ended(7)]})

    assert [4, 5] == store.commit(lease.epoch, 1, make)
    assert [(2, Ticked(2)), (3, JobCancelled(3, 7))] == seen
    assert ended(7) == store.history.find(7)
    assert [(4, Ticked(4)), (5, Ticked(5))] == store.read(3)
    lease.release()


def test_a_commit_of_nothing_writes_nothing(store: Store) -> None:
    lease = store.elect("a")
    assert lease is not None
    assert [] == store.commit(lease.epoch, 0, lambda _new: Commit())
    assert [] == store.commit(lease.epoch, 0, lambda _new: None)
    assert 0 == store.head()
    lease.release()


def test_a_commit_that_fails_leaves_no_trace(store: Store) -> None:
    lease = store.elect("a")
    assert lease is not None

    def make(new: list[Numbered]) -> Commit:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.commit(lease.epoch, 0, make)
    assert [1] == store.append(ticks(1))
    lease.release()


def test_an_old_epoch_is_fenced_and_writes_nothing(store: Store, place: str) -> None:
    first = store.elect("a")
    assert first is not None
    first.release()
    second = store.elect("b")
    assert second is not None
    assert first.epoch + 1 == second.epoch

    with pytest.raises(Fenced, match=f"epoch {first.epoch} is over"):
        store.commit(first.epoch, 0, lambda _new: Commit(ticks(1)))
    assert 0 == store.head()
    assert [1] == store.commit(second.epoch, 0, lambda _new: Commit(ticks(1)))
    second.release()


def test_without_an_epoch_anybody_may_look_and_then_write(store: Store) -> None:
    """For what needs no leader but must not miss anything that came in before."""
    store.append(ticks(1))

    assert [2] == store.commit(None, 0, lambda new: Commit(ticks(len(new))))
    assert [(2, Ticked(1))] == store.read(1)


def test_an_old_log_opens_in_a_new_release(place: str) -> None:
    """A row as an earlier release left it, and the step that lifts it."""
    with open_store(place) as store:
        store.append(ticks(1))
    later = Codec([Ticked], {"Ticked": 2}, {("Ticked", 1): lambda plain: {"at_ms": plain["at_ms"] * 1000}})
    with open_store(place, codec=later) as store:
        assert [(1, Ticked(1000))] == store.read(0)
        assert [2] == store.append(ticks(5))
        assert [(2, Ticked(5))] == store.read(1)


def test_the_store_refuses_to_be_called_from_its_own_transaction(store: Store) -> None:
    """It would wait for itself."""
    lease = store.elect("a")
    assert lease is not None

    def make(new: list[Numbered]) -> Commit:
        store.append(ticks(1))
        return Commit()

    with pytest.raises(RuntimeError, match="inside its own transaction"):
        store.commit(lease.epoch, 0, make)
    lease.release()


def test_a_past_time_is_a_place_in_the_log(store: Store) -> None:
    store.append(ticks(10, 20, 19, 30))

    assert 0 == store.seq_at(9)
    assert 1 == store.seq_at(10)
    assert 3 == store.seq_at(19)
    assert 2 == store.seq_at(20)
    assert 4 == store.seq_at(99)
    assert [] == store.read(0, until_seq=store.seq_at(9))
    assert [(1, Ticked(10)), (2, Ticked(20)), (3, Ticked(19))] == store.read(0, until_seq=store.seq_at(19))
    assert [(2, Ticked(20))] == store.read(1, until_seq=store.seq_at(20))


def test_events_that_are_gone_are_not_passed_over(store: Store) -> None:
    store.append(ticks(*range(10)))
    store.snapshots.save(8, {}, now_ms=1)
    store.snapshots.prune(5)

    assert 6 == len(store.read(4))
    with pytest.raises(StoreDamaged, match="after number 3 are missing"):
        store.read(3)
    store.snapshots.save(10, {}, now_ms=1)
    assert 6 == store.forget_log(1)
    assert [] == store.read(10)
    with pytest.raises(StoreDamaged, match="after number 9 are missing"):
        store.read(9)


def test_a_log_of_a_later_release_is_not_misread(place: str) -> None:
    with open_store(place) as store:
        store.append(ticks(1))
    with (
        open_store(place, codec=Codec([JobHeld], {}, {})) as store,
        pytest.raises(StoreError, match="of kind Ticked"),
    ):
        store.read(0)


def test_waiting_ends_when_an_event_comes(store: Store) -> None:
    assert not store.wait(0, 0.01)
    writer = threading.Timer(0.1, lambda: store.append(ticks(1)))
    writer.start()
    began_s = time.monotonic()

    assert store.wait(0, LONG_S)
    assert time.monotonic() - began_s < LONG_S / 2
    writer.join()
    assert store.wait(0, 0)
    assert not store.wait(1, 0)


def test_waiting_ends_when_another_process_writes(store: Store, place: str) -> None:
    """Another store on the same data stands for another process: they share nothing in memory."""
    if "://" in place:
        # PostgreSQL tells, so nobody needs to look.
        store._backend.poll_s = LONG_S
    with open_store(place) as other:
        for seq in range(3):
            writer = threading.Timer(0.1, lambda: other.append(ticks(1)))
            writer.start()
            began_s = time.monotonic()
            assert store.wait(seq, LONG_S)
            assert time.monotonic() - began_s < LONG_S / 2
            writer.join()


def test_a_listener_that_was_cut_off_listens_again(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    place = postgres_server.fresh()
    with open_store(place) as store, open_store(place) as other:
        store._backend.poll_s = 60
        other.append(ticks(1))
        assert store.wait(0, 60)
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        )
        other.append(ticks(2))
        assert store.wait(1, 60)
        other.append(ticks(3))
        began_s = time.monotonic()
        assert store.wait(2, 60)
        assert time.monotonic() - began_s < patient(30)


def test_closing_lets_waiters_go(place: str) -> None:
    store = open_store(place)
    closer = threading.Timer(0.1, store.close)
    closer.start()

    assert not store.wait(0, 30)
    closer.join()


def test_what_this_process_wrote_last_is_known_without_reading(place: str, store: Store) -> None:
    store.append(ticks(1, 2, 3))
    accepted(store, submission(ids=2))

    assert store.read(0) == store.recent(0, 9)
    assert store.read(1, limit=2) == store.recent(1, 2)
    assert [] == store.recent(5, 9)
    # Another process writes in between: what came before, and what it wrote, is in the log alone.
    with open_store(place) as other:
        other.append(ticks(4))
        assert [] == other.recent(4, 9)
    store.append(ticks(5, 6))
    assert [] == store.recent(0, 9) == store.recent(5, 9)
    assert store.read(6) == store.recent(6, 9)
