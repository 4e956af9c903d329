"""Group commit: ids, idempotency, blobs, and items that go wrong alone."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import Connection

from gpuyard.model import Event
from gpuyard.store import Accepted, Commit, Conflict, Store, Submission, open_store
from gpuyard.store.submissions import LARGE_BYTES, BlobsAhead
from rigs.stores import accepted, submission, ticks


def test_each_item_gets_a_block_of_ids(store: Store) -> None:
    answers = accepted(store, submission(2), submission(1), submission(3))

    assert [(1, 2), (3, 1), (4, 3)] == [(answer.first_id, answer.ids) for answer in answers]
    assert [(1, 2), (3,), (4, 5, 6)] == [answer.seqs for answer in answers]
    assert [{"id": 1}, {"id": 3}, {"id": 4}] == [answer.reply for answer in answers]
    assert [1, 2, 3, 4, 5, 6] == [event.job.id for _, event in store.read(0)]  # type: ignore[union-attr]


def test_the_same_request_again_gets_the_first_answer(place: str) -> None:
    with open_store(place) as store:
        [first] = accepted(store, submission(2, key="k"))
    with open_store(place) as store:
        [again] = accepted(store, submission(2, key="k"), now_ms=9)

        assert replace(first, replayed=True) == again
        assert 2 == store.head()


def test_a_repetition_in_the_same_batch_counts_once(store: Store) -> None:
    first, again = accepted(store, submission(key="k"), submission(key="k"))

    assert (False, True) == (first.replayed, again.replayed)
    assert first.first_id == again.first_id
    assert 1 == store.head()


def test_a_key_for_another_request_is_a_conflict_of_that_item_only(store: Store) -> None:
    accepted(store, submission(key="k", request="a"))

    before, conflict, after = store.submit(
        [submission(), submission(key="k", request="b"), submission(key="new")], now_ms=2
    )

    assert isinstance(conflict, Conflict)
    assert "'k'" in conflict.message
    assert [2, 3] == [each.first_id for each in (before, after) if isinstance(each, Accepted)]


def test_two_owners_may_choose_the_same_key(store: Store) -> None:
    ann, bob = accepted(
        store, submission(key="k", owner="ann"), submission(key="k", owner="bob", request="b")
    )

    assert [1, 2] == [ann.first_id, bob.first_id]


def test_forgotten_keys_may_be_used_again(store: Store) -> None:
    accepted(store, submission(key="old"), now_ms=10)
    accepted(store, submission(key="new"), now_ms=20)

    assert 1 == store.forget_keys(before_ms=20)
    old, new = accepted(store, submission(key="old"), submission(key="new"))
    assert (False, True) == (old.replayed, new.replayed)


def test_a_bad_item_spoils_no_other(store: Store) -> None:
    def explode(first_id: int) -> Sequence[Event]:
        raise KeyError("no such class")

    good = submission()
    bad = [
        Submission(explode),
        Submission(lambda _id: []),
        Submission(lambda first_id: submission().make(first_id + 1)),
        Submission(lambda first_id: [*good.make(first_id), *good.make(first_id)]),
        Submission(lambda _id: ["no event"]),  # type: ignore[list-item]
        submission(ids=0),
        replace(submission(at_ms=1 << 70), ids=1),
        replace(good, blobs={"00": b"not its hash"}),
        replace(good, reply=lambda _id: {1, 2}, idempotency=submission(key="set").idempotency),
        submission(key="zero\0"),
        submission(key="half \ud800"),
        submission(key="k" * 10_000),
        submission(key="k", owner="o" * 10_000),
        submission(key="k", request="\0"),
        Submission(good.make, ids=1 << 62),
    ]

    answers = store.submit([item for each in bad for item in (good, each)], now_ms=1)

    assert [True, False] * len(bad) == [isinstance(answer, Accepted) for answer in answers]
    assert isinstance(answers[1], KeyError)
    count = len(bad)
    ids = [event.job.id for _, event in store.read(0)]  # type: ignore[union-attr]
    assert list(range(1, count + 1)) == ids


def test_a_blob_is_kept_once(store: Store) -> None:
    script = b"#!/bin/sh\n\0\xff"
    name = hashlib.sha256(script).hexdigest()
    accepted(store, submission(script=script), submission(script=script))
    accepted(store, submission(script=script))

    assert script == store.blob(name)
    assert store.blob(name[::-1]) is None
    assert 3 == store.head()


def test_text_that_databases_dislike_comes_back(store: Store) -> None:
    def make(first_id: int) -> Sequence[Event]:
        [event] = submission().make(first_id)
        job = event.job  # type: ignore[union-attr]
        return [event._replace(job=job._replace(spec=replace(job.spec, name="a\0b\ud800c'\"\\é")))]  # type: ignore[union-attr]

    accepted(store, Submission(make))

    [(_, event)] = store.read(0)
    assert "a\0b\ud800c'\"\\é" == event.job.spec.name  # type: ignore[union-attr]


def test_a_long_batch_with_keys(store: Store) -> None:
    """More keys than one query takes."""
    batch = [submission(key=f"k{n}") for n in range(1200)]

    assert 1200 == len({answer.first_id for answer in accepted(store, *batch)})
    assert all(answer.replayed for answer in accepted(store, *batch))
    assert 1200 == store.head()


LARGE, OTHER = b"large " * LARGE_BYTES, b"other " * LARGE_BYTES


def name(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def after_put(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is done once, after large blobs were written and before the log is locked."""
    waiting: list[Callable[[], object]] = []
    real = BlobsAhead.put

    def put(self: BlobsAhead, conn: Connection) -> None:
        real(self, conn)
        if waiting:
            waiting.pop()()

    monkeypatch.setattr(BlobsAhead, "put", put)
    return waiting


def test_a_large_blob_of_a_refused_item_does_not_stay(store: Store) -> None:
    def bad(_first_id: int) -> Sequence[Event]:
        raise ValueError("not this one")

    items = [submission(script=body) for body in (LARGE, OTHER, OTHER)]
    items[0], items[2] = replace(items[0], make=bad), replace(items[2], make=bad)
    first, second, third = store.submit(items, now_ms=1)

    assert [ValueError, Accepted, ValueError] == [type(each) for each in (first, second, third)]
    assert (None, OTHER) == (store.blob(name(LARGE)), store.blob(name(OTHER)))
    accepted(store, submission(script=LARGE))
    [refused] = store.submit(items[:1], now_ms=2)
    assert isinstance(refused, ValueError)
    assert LARGE == store.blob(name(LARGE)), "another job has it"


def test_a_large_blob_that_is_removed_while_it_comes_again_is_there(
    postgres_url: str, after_put: list[Callable[[], object]]
) -> None:
    with open_store(postgres_url) as store, open_store(postgres_url) as other:
        accepted(store, submission(script=LARGE))

        def remove() -> None:
            with other._backend.writing() as conn:
                other._backend.lock_counters(conn)
                conn.exec_driver_sql("DELETE FROM blobs")

        after_put.append(remove)
        [answer] = accepted(store, submission(script=LARGE))
        assert (2, LARGE, []) == (answer.first_id, store.blob(name(LARGE)), after_put)


def test_others_write_while_a_large_blob_is_written(
    postgres_url: str, after_put: list[Callable[[], object]]
) -> None:
    with open_store(postgres_url, busy_s=60) as store:

        def commit() -> None:
            done = threading.Thread(target=store.commit, args=(None, 0, lambda _new: Commit(ticks(1))))
            done.start()
            done.join(120)
            assert not done.is_alive()
            assert store.blob(name(LARGE)) is None, "not seen before it is committed"

        after_put.append(commit)
        [answer] = accepted(store, submission(script=LARGE))
        assert ((2,), LARGE, []) == (answer.seqs, store.blob(name(LARGE)), after_put)


def test_a_large_blob_that_will_be_refused_is_not_written_ahead(
    postgres_url: str, after_put: list[Callable[[], object]]
) -> None:
    after_put.append(lambda: pytest.fail("it was"))
    with open_store(postgres_url) as store:
        [answer] = accepted(store, replace(submission(script=LARGE), ahead=False))
        assert (1, LARGE) == (answer.first_id, store.blob(name(LARGE)))


def test_two_servers_that_bring_the_same_large_blobs_do_not_wait_for_each_other_for_ever(
    postgres_url: str,
) -> None:
    answers: list[Accepted] = []

    def bring(*bodies: bytes) -> None:
        with open_store(postgres_url, busy_s=60) as store:
            for _ in range(5):
                answers.extend(accepted(store, *[submission(script=body) for body in bodies]))
                with store._backend.writing() as conn:
                    store._backend.lock_counters(conn)
                    conn.exec_driver_sql("DELETE FROM blobs")

    threads = [threading.Thread(target=bring, args=bodies) for bodies in ((LARGE, OTHER), (OTHER, LARGE))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(1, 21)) == sorted(answer.first_id for answer in answers)
