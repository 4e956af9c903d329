"""A file of SQLite that is not what was written: a start says so, and nothing is accepted into it."""

import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuyard.store import Store, StoreDamaged, open_store
from gpuyard.store.backend import examining
from gpuyard.store.backend.examining import count_lost_commits
from gpuyard.store.store import choose_backend
from rigs.stores import accepted, submission

PAGE = 4096
LOOK_S = 60.0
"""Longer than any look here takes."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some submissions, closed."""
    path = tmp_path_factory.mktemp("whole") / "yard.db"
    with open_store(path) as store:
        _write(store, 20)
    return path


def _write(store: Store, count: int) -> None:
    for number in range(store.counters().next_job_id, store.counters().next_job_id + count):
        accepted(store, submission(key=f"key-{number}", script=b"#!/bin/sh\n"))


def _roots(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
    finally:
        connection.close()
    return dict(rows)


def _overwrite(path: Path, at: int, size: int = PAGE) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * size)


def _crashed(store: Path, to: Path) -> Path:
    """The files as a server leaves them that was killed just now."""
    for name in (store.name, f"{store.name}-wal"):
        shutil.copy(store.with_name(name), to / name)
    return to / store.name


def _refused(path: Path) -> str:
    with pytest.raises(StoreDamaged) as refusal:
        open_store(path, examine_s=LOOK_S)
    assert 5 == refusal.value.exit_code
    assert "restore a backup" in refusal.value.hint
    return refusal.value.message


def test_a_damaged_page_of_any_table_or_index_is_found_at_the_start(whole: Path, tmp_path: Path) -> None:
    for name, page in {"the header": 1, **_roots(whole)}.items():
        path = tmp_path / "yard.db"
        shutil.copy(whole, path)
        _overwrite(path, (page - 1) * PAGE)
        told: list[str] = []
        examining.Examination(path, told.append, at_once_bytes=0).begin(LOOK_S)
        assert told, f"{name}, by tables"
        assert str(path) in _refused(path), name
        for left in tmp_path.glob("yard.db-*"):
            left.unlink()


def test_a_store_that_is_whole_is_opened_also_after_a_kill(whole: Path, tmp_path: Path) -> None:
    with open_store(whole, examine_s=LOOK_S) as store:
        _write(store, 3)
        path = _crashed(whole, tmp_path)
        before = path.read_bytes()
        with open_store(path, examine_s=LOOK_S) as copy:
            assert (None, store.counters()) == (copy.damage, copy.counters())
            assert before == path.read_bytes(), "a look moves nothing: on a full disk there is no room for it"


@pytest.mark.parametrize("at", [0, 20, 32, 32 + 24 + PAGE + 100], ids=["head", "salts", "first", "later"])
def test_commits_that_are_lost_from_the_log_are_missed(whole: Path, tmp_path: Path, at: int) -> None:
    """SQLite itself would go on without them: they were acknowledged."""
    with open_store(whole, examine_s=LOOK_S) as store:
        _write(store, 3)
        path = _crashed(whole, tmp_path)
    _overwrite(path.with_name("yard.db-wal"), at, 8)
    assert "yard.db-wal is damaged" in _refused(path)
    assert path.with_name("yard.db-wal").exists(), "it is left for somebody to look at"


def test_a_commit_that_was_being_written_is_no_damage(whole: Path, tmp_path: Path) -> None:
    with open_store(whole, examine_s=LOOK_S) as store:
        _write(store, 3)
        path = _crashed(whole, tmp_path)
    log = path.with_name("yard.db-wal")
    _overwrite(log, log.stat().st_size - PAGE, 8)
    with open_store(path, examine_s=LOOK_S) as copy:
        assert copy.damage is None


def _torn(store: Path, to: Path, begin: int) -> Path:
    """The files as a machine leaves them that failed while it wrote the commit that begins there in the log."""
    to.mkdir()
    path = _crashed(store, to)
    _overwrite(path.with_name("yard.db-wal"), begin + 24, 512)
    return path


def _end_of_commit(log: Path, begin: int) -> int:
    """Where the commit ends that begins there in the log."""
    content = log.read_bytes()
    while not any(content[begin + 4 : begin + 8]):
        begin += 24 + PAGE
    return begin + 24 + PAGE


def test_two_machine_failures_one_after_the_other_are_no_damage(whole: Path, tmp_path: Path) -> None:
    """SQLite goes on in the same log, and a short commit leaves the end of a longer one that was torn behind it."""
    with open_store(whole, examine_s=LOOK_S) as store:
        _write(store, 1)
        begin = whole.with_name("yard.db-wal").stat().st_size
        accepted(store, submission(key="long", script=b"#" * 20 * PAGE))
        path = _torn(whole, tmp_path / "once", begin)
    with open_store(path, examine_s=LOOK_S) as store:
        _write(store, 1)
        known = store.counters()
        begin = _end_of_commit(path.with_name("yard.db-wal"), begin)
        accepted(store, submission(key="torn", script=b"#" * 5 * PAGE))
        path = _torn(path, tmp_path / "twice", begin)
    with open_store(path, examine_s=LOOK_S) as store:
        assert (None, known) == (store.damage, store.counters())


def test_what_sqlite_has_summed_up_is_not_summed_up_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB of log were five seconds of CPU time before anything answered; both ways find the same."""
    with open_store(whole) as store:
        _write(store, 3)
        path = _crashed(whole, tmp_path)
    log, summed = path.with_name("yard.db-wal"), 0
    database, content, real = path.read_bytes(), log.read_bytes(), examining._sum

    def sums(head: bytes, words: bytes, before: tuple[int, int]) -> tuple[int, int]:
        nonlocal summed
        summed += len(words)
        return real(head, words, before)

    monkeypatch.setattr(examining, "_sum", sums)
    frames = range(32, len(content), 24 + PAGE)
    assert len(frames) > 10
    for at in frames:
        for is_open in (False, True):
            path.write_bytes(database)
            log.write_bytes(content)
            _overwrite(log, at + 24, 512)
            with closing(sqlite3.connect(path)) as connection:
                if is_open:
                    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                summed = 0
                found = count_lost_commits(path, PAGE)
                if not is_open:
                    by_sums = found
        assert by_sums == found, at
        assert summed <= 24, "of the log its head"


def test_the_log_of_a_large_store_begins_anew_between_looks_at_two_tables(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at all of them together would keep all that is written meanwhile in the log."""
    path, looks = tmp_path / "yard.db", 0
    shutil.copy(whole, path)
    with open_store(path) as store, closing(sqlite3.connect(path, check_same_thread=False)) as mover:

        class Looking(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                nonlocal looks
                if "quick_check" in args[0]:
                    _write(store, 1)
                    looks += 1
                    assert 0 == mover.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                return super().execute(*args)

        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Looking))
        told: list[str] = []
        look = examining.Examination(path, told.append, at_once_bytes=0)
        look.begin(LOOK_S)
        ((tables,),) = mover.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchall()
        assert (tables + 1, []) == (looks, told), "each of them, and the list of all"


def test_nothing_is_written_any_more_once_damage_was_met(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "yard.db"
    shutil.copy(whole, path)
    with open_store(path) as store:
        _overwrite(path, (_roots(whole)["idempotency_at_ms"] - 1) * PAGE)
        with pytest.raises(StoreDamaged):
            store.forget_keys(10)
        assert store.damage is not None
        with pytest.raises(StoreDamaged, match="something is wrong with the contents of"):
            store.submit([submission()], 99)


def test_damage_that_a_new_connection_meets_first_is_told_as_damage(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "yard.db"
    shutil.copy(whole, path)
    with closing(choose_backend(path, 1.0, 1.0)) as backend, backend.reading():
        _overwrite(path, 0)
        with pytest.raises(StoreDamaged, match="something is wrong with the contents of"):
            backend.counters()
        assert backend.damage is not None
