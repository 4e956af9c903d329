"""SQLite's write-ahead log is moved into the database file beside the threads that write."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuyard.store import Store, open_store
from gpuyard.store.backend.mover import LogMover
from harness.sqlite import asked, refusing
from rigs.stores import accepted, submission, ticks

MB = 1_000_000
_numbers = count()


MOVES = "PRAGMA wal_checkpoint(PASSIVE)"


@contextmanager
def at_each_move(do: Callable[[], None]) -> Iterator[None]:
    """Do this whenever a thread begins to move the log."""

    def told(statement: str) -> None:
        if statement == MOVES:
            do()

    with asked(told):
        yield


@pytest.fixture
def passes() -> Iterator[list[str]]:
    """The threads that moved something, in order."""
    found: list[str] = []
    with at_each_move(lambda: found.append(threading.current_thread().name)):
        yield found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "yard.db"


@pytest.fixture
def leader(path: Path) -> Iterator[Store]:
    """A store whose process leads."""
    with open_store(path, durable=False) as store:
        lease = store.elect("leader")
        assert lease is not None
        yield store
        lease.release()


def write(store: Store, size: int = MB) -> None:
    """One submission with a script of so many bytes, each another."""
    accepted(store, submission(script=b"%016d" % next(_numbers) * (size // 16)))


def mover_of(store: Store) -> LogMover:
    backend: Any = store._backend
    mover: LogMover = backend._mover
    return mover


def moved(store: Store) -> None:
    """Wait until nothing is being moved."""
    mover_of(store)._wait()


def salts(path: Path) -> bytes:
    with path.with_name(f"{path.name}-wal").open("rb") as log:
        return log.read(24)[16:]


def whole(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        assert [("ok",)] == raw.execute("PRAGMA integrity_check").fetchall()


def test_a_thread_moves_a_long_log_and_the_next_write_begins_it_anew(
    leader: Store, path: Path, passes: list[str]
) -> None:
    before = salts(path)
    for _ in range(3):
        write(leader)
    assert ([], before) == (passes, salts(path)), "3 MB are not long"
    assert path.stat().st_size < MB
    for _ in range(2):
        write(leader)
    moved(leader)
    assert {"yard-move-log"} == set(passes)
    assert path.stat().st_size > 4 * MB
    write(leader)
    assert before != salts(path)
    assert path.with_name("yard.db-wal").stat().st_size < 6 * MB


def test_a_command_starts_no_thread(path: Path, passes: list[str]) -> None:
    with open_store(path, durable=False) as store:
        for _ in range(5):
            write(store)
        assert {threading.current_thread().name} == set(passes)
        assert path.stat().st_size > 4 * MB
        assert "yard-move-log" not in [thread.name for thread in threading.enumerate()]


def test_a_log_that_was_moved_is_not_moved_again_before_more_is_written(
    leader: Store, path: Path, passes: list[str]
) -> None:
    """To begin with what is done already, while another thread begins the log anew, may lose data in old SQLite."""
    for _ in range(5):
        write(leader)
    moved(leader)
    before = len(passes)
    for _ in range(20):
        leader.commit(None, 0, lambda _new: None)
        moved(leader)
    assert before == len(passes) > 0
    write(leader)
    assert before == len(passes)


def test_a_log_that_somebody_reads_is_tried_again_when_it_is_longer(
    leader: Store, path: Path, passes: list[str]
) -> None:
    leader.append(ticks(1))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("BEGIN")
        raw.execute("SELECT COUNT(*) FROM events").fetchone()
        before = salts(path)
        for _ in range(60):
            write(leader, MB // 5)
            moved(leader)
        assert before == salts(path), "the reader needs it"
        assert 1 <= len(passes) <= 3, "12 MB: after each 4"
    for _ in range(30):
        write(leader, MB // 5)
        moved(leader)
    assert before != salts(path)
    whole(path)


def test_what_cannot_be_moved_is_told_once_and_tried_again(
    leader: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with refusing(sqlite3.SQLITE_PRAGMA, "wal_checkpoint"), caplog.at_level(logging.WARNING):
        for _ in range(10):
            write(leader)
            moved(leader)
    assert 1 == len(caplog.records)
    assert "yard.db-wal is not moved into the database file and grows: not authorized" in caplog.text
    assert path.stat().st_size < MB
    for _ in range(6):
        write(leader)
        moved(leader)
    assert path.stat().st_size > 10 * MB


def test_without_a_thread_the_one_that_wrote_moves_the_log(
    leader: Store, path: Path, monkeypatch: pytest.MonkeyPatch, passes: list[str]
) -> None:
    def none(_self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    for _ in range(5):
        write(leader)
    assert {threading.current_thread().name} == set(passes)
    assert path.stat().st_size > 4 * MB


def test_a_log_that_is_too_long_is_waited_for(leader: Store, path: Path) -> None:
    mover_of(leader).too_long = 1_100
    begun, go = threading.Event(), threading.Event()

    def slowly() -> None:
        begun.set()
        assert go.wait(120)

    writer = threading.Thread(target=write, args=(leader,))
    with at_each_move(slowly):
        try:
            for _ in range(5):
                write(leader, MB - 150_000)
            assert begun.wait(120)
            writer.start()
            writer.join(0.1)
            assert writer.is_alive()
        finally:
            go.set()
        writer.join(120)
    assert not writer.is_alive()


def test_nothing_is_lost_where_many_write_while_it_is_moved_all_the_time(
    path: Path, passes: list[str]
) -> None:
    with open_store(path, durable=False) as store:
        mover_of(store).long, mover_of(store).again = 30, 1
        lease = store.elect("leader")
        assert lease is not None
        before = salts(path)

        def some(of: Callable[[], object]) -> None:
            for _ in range(60):
                of()

        works = [lambda: store.append(ticks(1)), lambda: write(store, 50_000), lambda: store.read(0)]
        threads = [threading.Thread(target=some, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seqs = [seq for seq, _event in store.read(0)]
        assert list(range(1, 121)) == seqs
        assert before != salts(path)
        lease.release()
    assert len(passes) > 10
    whole(path)
    assert [] == [thread.name for thread in threading.enumerate() if thread.name == "yard-move-log"]
