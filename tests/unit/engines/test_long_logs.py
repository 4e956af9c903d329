"""A log that is too long keeps its beginning and its end, and gives the rest back to the disk."""

import errno
import os
from pathlib import Path

import pytest

from gpuyard.engines.local.outputs import LogGap, Trimmer, cut_of
from gpuyard.engines.machine.files import read_own

LIMIT = 1 << 18
LINE = b"%07d\n"


def written(folder: Path, first: int, last: int) -> int:
    """Lines with their numbers, as a job appends them; what the file takes on disk."""
    path = folder / "stdout"
    with path.open("ab") as file:
        file.write(b"".join(LINE % number for number in range(first, last)))
        file.flush()
        os.fsync(file.fileno())
    return path.stat().st_blocks * 512


def text(folder: Path) -> bytes:
    """What is left, as the engine reads it: around what was cut."""
    cut = cut_of(str(folder))
    path = str(folder / "stdout")
    if cut is None:
        return read_own(path, 0, 1 << 30)
    return read_own(path, 0, cut.head) + b"...\n" + read_own(path, cut.tail, 1 << 30)


def test_within_its_limit_nothing_is_cut(tmp_path: Path) -> None:
    written(tmp_path, 0, 1000)
    Trimmer(LIMIT).trim(str(tmp_path))
    assert (None, 8000) == (cut_of(str(tmp_path)), len(text(tmp_path)))


def test_the_beginning_and_the_end_stay_in_whole_lines_and_the_disk_gets_the_rest(tmp_path: Path) -> None:
    trimmer = Trimmer(LIMIT)
    for part in range(6):
        written(tmp_path, part * 50_000, (part + 1) * 50_000)
        trimmer.trim(str(tmp_path))

    lines = text(tmp_path).split(b"\n")
    assert (b"0000000", b"0299999", b"") == (lines[0], lines[-2], lines[-1])
    gap = lines.index(b"...")
    assert all(len(line) == 7 for line in lines[:gap] + lines[gap + 1 : -1])
    assert LIMIT // 8 - 64 <= 8 * gap <= LIMIT // 8
    assert LIMIT // 2 - 64 <= 8 * (len(lines) - gap - 2) <= LIMIT // 2
    assert (tmp_path / "stdout").stat().st_size == 8 * 300_000, "bytes keep their places"
    assert (tmp_path / "stdout").stat().st_blocks * 512 <= LIMIT


def test_a_log_without_lines_is_cut_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"x" * 4 * LIMIT)
    Trimmer(LIMIT).trim(str(tmp_path))
    assert LogGap(LIMIT // 8, 4 * LIMIT - LIMIT // 2) == cut_of(str(tmp_path))


def test_without_a_limit_and_without_a_log_nothing_happens(tmp_path: Path) -> None:
    Trimmer(LIMIT).trim(str(tmp_path))
    written(tmp_path, 0, 300_000)
    Trimmer(0).trim(str(tmp_path))
    assert None is cut_of(str(tmp_path))


def test_where_the_file_system_cannot_it_is_said_once_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Libc:
        def fallocate(self, *_: object) -> int:
            return -1

    trimmer = Trimmer(LIMIT, Libc())
    written(tmp_path, 0, 50_000)
    for _ in range(3):
        trimmer.trim(str(tmp_path))

    assert None is cut_of(str(tmp_path)), "what is not gone is not left out"
    assert 1 == len([record for record in caplog.records if "cannot be cut" in record.message])


def test_a_full_disk_is_given_room_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 0, 50_000)
    rename, tries = os.rename, []

    def full_once(draft: str, path: str) -> None:
        tries.append((tmp_path / "stdout").stat().st_blocks * 512)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "full")
        rename(draft, path)

    monkeypatch.setattr(os, "rename", full_once)
    Trimmer(LIMIT).trim(str(tmp_path))

    assert 2 == len(tries)
    assert tries[1] <= LIMIT < tries[0]
    assert cut_of(str(tmp_path)) is not None
