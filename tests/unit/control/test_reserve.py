"""What the yard keeps of its disk, and what it does while the disk is full."""

from pathlib import Path

import pytest

from gpuyard.control.places import DataDir
from gpuyard.control.upkeep import reserve
from gpuyard.control.upkeep.reserve import FILE_BYTES, FREE_BYTES_MIN, Reserve
from gpuyard.store import StoreFull, open_store


class Disk(DataDir):
    """A folder whose disk is as full as a test says."""

    free = 1 << 40

    def free_bytes(self) -> int:
        return self.free


def test_what_is_kept_is_given_back_on_a_full_disk_and_taken_again(tmp_path: Path) -> None:
    data = Disk(tmp_path)
    path = tmp_path / "yard.reserve"
    kept = Reserve(data, path)
    with open_store(tmp_path / "yard.db") as store:
        try:
            kept.start(store)
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


def test_a_store_on_another_disk_takes_jobs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Disk(tmp_path)
    data.free = 0
    kept = Reserve(data, tmp_path / "yard.reserve")
    monkeypatch.setattr(reserve.Reserve, "_of_store", lambda _self: False)
    kept.check()
    assert not kept.has_room(), "and starts none"
