"""Four clients at once, with random batches: the promises of the log hold whatever the order."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from gpuyard.model import JobSubmitted
from gpuyard.store import Accepted, Commit, Conflict, Fenced, Numbered, Store, Submission, open_store
from gpuyard.store.backend.base import FairLock
from gpuyard.store.backend.sqlite import SqliteBackend
from rigs.stores import submission, ticks

CLIENTS = 4
BATCHES = 25


def client(store: Store, rng: random.Random, answers: list[tuple[Submission, Accepted | Exception]]) -> None:
    """Send batches, some items of which are repetitions or mistakes, and other events in between."""
    for _ in range(BATCHES):
        batch = [
            submission(
                rng.randint(1, 3),
                key=f"k{rng.randrange(20)}" if rng.random() < 0.3 else "",
                request=f"r{rng.randrange(2)}",
                script=bytes([rng.randrange(4)]) * rng.randrange(3),
            )
            for _ in range(rng.randint(1, 6))
        ]
        if rng.random() < 0.2:
            batch.append(replace(batch[0], make=lambda _id: [], idempotency=None))
        answers += zip(batch, store.submit(batch, now_ms=1), strict=True)
        if rng.random() < 0.3:
            store.append(ticks(rng.randrange(100)))


def leader(store: Store, stop: threading.Event, seen: list[Numbered]) -> None:
    """Commit on top of whatever came in, as long as anything does."""
    lease = store.elect("leader")
    assert lease is not None
    while not stop.is_set():
        after = seen[-1][0] if seen else 0

        def make(new: list[Numbered]) -> Commit:
            seen.extend(new)
            return Commit(ticks(len(new))) if len(new) > 3 else Commit()

        store.commit(lease.epoch, after, make)
    lease.release()


def run(*bodies: Callable[[], None]) -> None:
    """All of them at once; what one raises is raised."""
    failures: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("processes", [1, 2], ids=["one-store", "two-stores"])
def test_promises_of_the_log(place: str, seed: int, processes: int) -> None:
    stores = [open_store(place, busy_s=30) for _ in range(processes)]
    answers: list[list[tuple[Submission, Accepted | Exception]]] = [[] for _ in range(CLIENTS)]
    seen: list[Numbered] = []
    stop = threading.Event()
    deciding = threading.Thread(target=leader, args=(stores[-1], stop, seen))
    deciding.start()

    def body(number: int) -> Callable[[], None]:
        rng = random.Random(f"{seed} {number}")
        return lambda: client(stores[number % processes], rng, answers[number])

    try:
        run(*[body(number) for number in range(CLIENTS)])
    finally:
        stop.set()
        deciding.join()

    log = stores[0].read(0, limit=1_000_000)
    for store in stores:
        store.close()
    check(log, [answer for part in answers for answer in part])
    assert log[: len(seen)] == seen, "the leader saw another order than the log has"


def check(log: list[Numbered], answers: list[tuple[Submission, Accepted | Exception]]) -> None:
    """Gapless numbers, growing ids, and one answer for each key."""
    assert list(range(1, len(log) + 1)) == [seq for seq, _ in log]
    jobs = {seq: event.job.id for seq, event in log if isinstance(event, JobSubmitted)}
    ids = list(jobs.values())
    assert list(range(1, len(ids) + 1)) == ids

    first: dict[str, Accepted] = {}
    fresh: set[int] = set()
    for item, answer in answers:
        if isinstance(answer, Accepted):
            block = [answer.first_id + n for n in range(answer.ids)]
            assert block == [jobs[seq] for seq in answer.seqs]
            if not answer.replayed:
                assert fresh.isdisjoint(block)
                fresh.update(block)
            if item.idempotency:
                known = first.setdefault(item.idempotency.key, replace(answer, replayed=False))
                assert known == replace(answer, replayed=False)
        else:
            assert isinstance(answer, Conflict | ValueError)
    assert set(ids) == fresh


def test_turns_are_taken_in_the_order_of_asking() -> None:
    """A stream of writers that ask again at once does not keep one out that has waited."""
    lock = FairLock()
    order: list[str] = []

    def ask(name: str) -> None:
        assert lock.take(120)
        order.append(name)
        lock.give()

    assert lock.take(0)
    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcde"]
    for waiting, thread in enumerate(threads, start=1):
        thread.start()
        while len(lock._gates) < waiting:
            time.sleep(0.001)
    lock.give()
    for thread in threads:
        thread.join()
    assert list("abcde") == order


def test_a_turn_that_does_not_come_is_given_up() -> None:
    lock = FairLock()
    assert lock.take(0)
    late: list[bool] = []
    thread = threading.Thread(target=lambda: late.append(lock.take(0.01)))
    thread.start()
    thread.join()
    lock.give()
    assert [False] == late
    assert lock.take(0)


def test_two_leaders_that_both_believe_it(place: str) -> None:
    """The older epoch commits nothing after the newer one began, however they take turns."""
    with open_store(place) as store:
        old = store.elect("old")
        assert old is not None
        old_epoch = old.epoch
        store.commit(old_epoch, 0, lambda _new: Commit(ticks(1)))
        old.release()
        new = store.elect("new")
        assert new is not None
        refused: list[Fenced] = []

        def believe() -> None:
            for _ in range(20):
                try:
                    store.commit(old_epoch, 0, lambda _new: Commit(ticks(666)))
                except Fenced as fenced:
                    refused.append(fenced)

        def lead() -> None:
            for _ in range(20):
                store.commit(new.epoch, 0, lambda _new: Commit(ticks(2)))

        run(believe, lead)
        assert 20 == len(refused)
        assert [1] + [2] * 20 == [event.at_ms for _, event in store.read(0)]
        new.release()


@pytest.mark.parametrize("rows", [1, 2, 5, 150])
def test_many_rows_go_in_with_few_statements(tmp_path: Path, rows: int) -> None:
    """Threads that compute take their turn at every statement: at every row, a commit would wait for them again."""
    backend = SqliteBackend(tmp_path / "rows.db", 30, durable=True)
    table = Table("kept", MetaData(), Column("id", Integer, primary_key=True), Column("text", Text))
    statements: list[str] = []
    into = sqlite_insert(table)
    into = into.on_conflict_do_update(index_elements=["id"], set_={"text": into.excluded["text"]})
    try:
        for word in ("first (?, ?)", "second"):
            with backend.writing() as conn:
                table.create(conn, checkfirst=True)
                raw = conn.connection.driver_connection
                assert raw is not None
                raw.set_trace_callback(statements.append)
                conn.execute(into, [{"id": n, "text": f"{word} {n}"} for n in range(rows)])
                raw.set_trace_callback(None)
        with backend.reading() as conn:
            found = conn.execute(select(table).order_by(table.c.id)).all()
    finally:
        backend.close()

    assert [(n, f"second {n}") for n in range(rows)] == [tuple(row) for row in found]
    assert 2 * min(rows, 6) >= len([each for each in statements if each.startswith("INSERT")])


def test_rows_of_an_insert_with_a_value_of_its_own_go_in_singly(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "rows.db", 30, durable=True)
    table = Table("kept", MetaData(), Column("id", Integer, primary_key=True), Column("text", Text))
    into = sqlite_insert(table).on_conflict_do_update(index_elements=["id"], set_={"text": "again"})
    try:
        for _ in range(2):
            with backend.writing() as conn:
                table.create(conn, checkfirst=True)
                conn.execute(into, [{"id": n, "text": "first"} for n in range(5)])
        with backend.reading() as conn:
            assert ["again"] * 5 == [*conn.scalars(select(table.c.text))]
    finally:
        backend.close()
