"""What the yard keeps of its disk, and what it does while the disk is full."""

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import DBAPIError

from gpuyard.control.duties.duty import RunningDuty
from gpuyard.control.duties.reserve import (
    BESIDE,
    FAILED,
    FILE_BYTES,
    FREE_BYTES_MIN,
    FREE_FILES_MIN,
    LOOK_S,
    SPARES,
    Reserve,
    duty,
)
from gpuyard.control.places import SPARE_BYTES, DataDir
from gpuyard.store import StoreFull, open_store
from gpuyard.store.errors import explain


class Disk(DataDir):
    """A folder whose disk is as full as a test says."""

    free = 1 << 40

    files = 1 << 20
    trouble: Exception | None = None

    def free_bytes(self) -> int:
        if self.trouble is not None:
            raise self.trouble
        return self.free

    def free_files(self) -> int:
        return self.files


def test_what_is_kept_is_given_back_on_a_full_disk_and_taken_again(tmp_path: Path) -> None:
    data = Disk(tmp_path)
    path = tmp_path / "yard.reserve"
    kept = Reserve(data, path)
    with open_store(tmp_path / "yard.db") as store:
        try:
            kept.keep_for(store)
            size = path.stat().st_blocks * 512
            assert FILE_BYTES == size
            assert 15 << 20 <= (tmp_path / "yard.db-wal").stat().st_blocks * 512, "the store has its blocks"
            kept.check()

            data.free = FREE_BYTES_MIN - 1
            kept.look()
            assert not path.exists()
            with pytest.raises(StoreFull, match="nothing new is taken in or started") as refusal:
                kept.check()
            assert "Jobs can be cancelled meanwhile." in refusal.value.hint

            data.free = FREE_BYTES_MIN + size
            assert not kept.has_room(), "that is only what was given back"
            data.free = 3 * FREE_BYTES_MIN + size
            assert (True, True) == (kept.has_room(), path.exists())
        finally:
            kept.close()
    assert path.exists(), "for a start on a full disk"


def test_what_nobody_expected_does_not_end_the_looks_at_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = Disk(tmp_path)
    kept = Reserve(data, tmp_path / "yard.reserve")
    looks = RunningDuty(duty(kept), lambda: None)
    with open_store(tmp_path / "yard.db") as store:
        kept.keep_for(store)
        data.trouble = RuntimeError("no such thing")
        try:
            assert FAILED.first_s == looks.round()
            assert "reserve: the room on the disk cannot be looked at: no such thing" in caplog.text
            data.trouble, data.free = None, 0
            assert LOOK_S == looks.round()
            assert kept.low
        finally:
            kept.close()


def test_files_are_kept_for_a_start_without_inodes_and_put_beside_its_databases(tmp_path: Path) -> None:
    data = Disk(tmp_path)
    path, spares = tmp_path / "yard.reserve", tmp_path / "yard.spares"
    kept = Reserve(data, path)
    with open_store(tmp_path / "yard.db") as store:
        kept.keep_for(store)
        kept.look()
        assert SPARES == len(os.listdir(spares))
        data.files = FREE_FILES_MIN - 1
        kept.look()
        with pytest.raises(StoreFull, match="no inode left: nothing new is taken in or started"):
            kept.check()
        assert (False, True, SPARES) == (kept.has_room(), path.exists(), len(os.listdir(spares)))
        kept.close()
    beside = [tmp_path / f"yard.db{end}" for end in BESIDE]
    assert [True, True] == [each.exists() for each in beside], (
        "a server that stops without inodes leaves them"
    )

    before = {(spares / name).stat().st_ino for name in os.listdir(spares)}
    for each in beside:
        each.unlink()
    again = Reserve(data, path)
    again.open_on([tmp_path / "yard.db", tmp_path / "none.db"])
    assert {each.stat().st_ino for each in beside} <= before
    with open_store(tmp_path / "yard.db") as store:
        assert store.head() >= 0
    assert [True] * (SPARES - 2) + [False] == [again.give_file() for _ in range(SPARES - 1)]
    assert [] == os.listdir(spares)


def test_a_store_that_cannot_be_opened_for_want_of_inodes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "yard.db"
    place.touch()
    with pytest.raises(sqlite3.OperationalError) as failed:
        sqlite3.connect(tmp_path / "none" / "yard.db")
    none_left = SimpleNamespace(f_bavail=9, f_files=400, f_ffree=0)
    monkeypatch.setattr("gpuyard.store.errors.os.statvfs", lambda _path: none_left)
    told = explain(DBAPIError(None, None, failed.value), str(place))
    assert (StoreFull, True) == (type(told), "no inode left" in told.message)
    assert "Remove some files there" in told.hint


def test_a_store_on_another_disk_takes_jobs_in(tmp_path: Path) -> None:
    data = Disk(tmp_path)
    data.free = 0
    kept = Reserve(data, tmp_path / "yard.reserve")
    kept.look()
    assert kept.low
    kept.check()
    assert not kept.has_room(), "and starts none"


def test_what_a_start_remembers_is_written_over_blocks_that_were_kept(tmp_path: Path) -> None:
    data, started, spare = DataDir(tmp_path), tmp_path / "started.json", tmp_path / "started.spare"
    data.remember("first", "yard.yaml")
    data.keep_spare()
    before = (started.stat().st_ino, spare.stat().st_ino)
    (tmp_path / ".started.4711").touch()

    data.remember("second", "other.yaml")
    assert ("second", "other.yaml") == data.remembered()
    assert before == (spare.stat().st_ino, started.stat().st_ino), "they have changed places"
    assert SPARE_BYTES == started.stat().st_size
    lock = ["started.lock"]
    assert [started.name, *lock, spare.name] == sorted([path.name for path in tmp_path.iterdir()])

    data.remember("second", "other.yaml")
    assert before == (spare.stat().st_ino, started.stat().st_ino), "nothing new is not written"
    data.keep_spare()
    assert SPARE_BYTES == spare.stat().st_size, "neither grows"
    data.remember("x" * SPARE_BYTES, "long.yaml")
    data.keep_spare()
    assert started.stat().st_size == spare.stat().st_size > SPARE_BYTES, "a longer one has room the next time"


KILLED = """if True:
    import os, signal, sys
    from pathlib import Path
    from gpuyard.control.places import DataDir

    left = int(sys.argv[2])

    def deadly(real):
        def call(*args, **named):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            done = real(*args, **named)
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done
        return call

    for name in ("open", "write", "link", "rename", "unlink"):
        setattr(os, name, deadly(getattr(os, name)))
    DataDir(Path(sys.argv[1])).remember("second", "yard.yaml")
"""
"""A start that is killed before or after one of the calls that it makes of the system, by their number."""


def test_a_start_that_was_killed_at_any_call_leaves_what_the_next_one_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 100):
        folder = tmp_path / str(call)
        folder.mkdir()
        data = DataDir(folder)
        data.remember("first", "yard.yaml")
        data.keep_spare()
        child = subprocess.Popen([sys.executable, "-c", KILLED, folder, str(call)])
        child.wait()
        assert data.remembered() in (("first", "yard.yaml"), ("second", "yard.yaml")), call

        # In a container the next start has the same number.
        with monkeypatch.context() as same:
            same.setattr(os, "getpid", lambda pid=child.pid: pid)
            for text in ("third", "fourth"):
                data.remember(text, "yard.yaml")
                data.keep_spare()
                assert (text, "yard.yaml") == data.remembered(), call
        left = {path.name: path.stat().st_nlink for path in folder.iterdir() if path.stat().st_size}
        assert {"started.json": 1, "started.spare": 1} == left, call
        if child.returncode == 0:
            break
    assert child.returncode == 0
    assert call > 5


def test_a_file_system_without_hard_links_keeps_no_blocks_and_takes_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_args: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    data = DataDir(tmp_path)
    for text in ("first", "second", "third"):
        data.remember(text, "yard.yaml")
        assert (text, "yard.yaml") == data.remembered()
        assert not (tmp_path / "started.spare").exists()
        data.keep_spare()
    assert SPARE_BYTES == (tmp_path / "started.spare").stat().st_size


def test_the_log_of_a_store_that_is_left_keeps_its_blocks(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from gpuyard.store import open_store
        with open_store(sys.argv[1]) as store:
            store.keep_room()
            store.leave_log()
    """
    path = tmp_path / "yard.db"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert 15 << 20 <= (tmp_path / "yard.db-wal").stat().st_blocks * 512
    with open_store(path):
        pass
    assert not (tmp_path / "yard.db-wal").exists(), "closed as usual, it is moved and removed"
