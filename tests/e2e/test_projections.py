"""A projection of an installed package, which a server finds by itself: while it works, after it was killed, anew."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from gpuyard.store import open_store
from harness.patience import until
from rigs import gpu_time


class Installed(Box):
    """A yard whose Python has a package with the projection."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": str(self.data.parent / "site")}

    def rows(self, name: str = gpu_time.GpuTime.name) -> dict[str, str]:
        """All of them, byte for byte, as they are on disk."""
        with open_store(self.data / "yard.db") as store:
            return dict(store.projections.rows(name))

    def ends(self) -> int:
        """How many attempts have ended, as the projection tells it."""
        told = [json.loads(text)["ends"] for key, text in self.rows().items() if key.startswith("tenant/")]
        return sum([sum(each.values()) for each in told])


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Installed]:
    info = tmp_path / "site" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gpuyard.projections]\ngpu-time = mine:GpuTime\n")
    (info.parent / "mine.py").write_text(Path(gpu_time.__file__).read_text(encoding="utf-8"))
    box = Installed(tmp_path / "yard")
    box.up()
    yield box
    box("down", "--jobs")


@pytest.mark.rig
def test_it_is_filled_by_servers_that_die_and_filled_anew_it_is_the_same(
    box: Installed, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    line = f"echo x >> {ran}"
    box.submit("-g", 1, "--array", "0-19", "--", "sh", "-c", line)
    until(lambda: ran.is_file() and len(ran.read_text().split()) >= 5)
    os.kill(box.note()["pid"], signal.SIGKILL)
    box.up()
    box.submit("-g", 1, "--", "sh", "-c", f"{line}; exit 3")
    until(lambda: box.ends() == 21, 40)
    assert 21 == len(ran.read_text().split())
    live = box.rows()

    done = box("rebuild", "gpu-time", "-o", "json")
    assert 0 == done.code, done.err
    (told,) = json.loads(done.out)["projections"]
    assert (0, "") == (told["began_seq"], told["error"])
    assert live == box.rows()

    # The books know what the jobs themselves wrote: 21 of them ran, and each was charged for.
    books = box.rows("ledger")
    blocks = [json.loads(text) for key, text in books.items() if key[:2] == "j/"]
    assert 21 == len([1 for block in blocks for job in block.values() if job[-1]])
    done = box("rebuild", "ledger", "-o", "json")
    assert (0, "") == (done.code, done.err)
    assert books == box.rows("ledger")
    assert ["gpu-time", "1", "1"] == box("rebuild").out.splitlines()[2].split()[:3]
    assert "gpu-time" in box("_complete", "bash", 2, "yard", "rebuild", "").out.split()

    done = box("rebuild", "gpu-tiem")
    assert (2, "") == (done.code, done.out)
    assert "there is no projection gpu-tiem" in done.err
    assert "There is: fleet, gpu-time, ledger, waits." in done.err
