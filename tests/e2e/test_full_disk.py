"""A yard whose disk a job has filled, with blocks or with files: it starts again, however it ended, and the job is
cancelled.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import until

from .conftest import Box

pytestmark = pytest.mark.rig

FIRST = """\
version: 1
clusters:
  box: {engine: local, gpus: 8 x A100-80GB, emulate: true, allow_root: true}
tenants:
  first: {weight: 1}
"""
FILLS = """\
trap "" XFSZ
folder=$(dirname "$YARD_CHECKPOINT_FILE")
cat /dev/zero >"$folder/fill" 2>/dev/null
while :; do head -c 30000 /dev/zero >>"$folder/fill" || sleep 0.001; done 2>/dev/null
"""
"""Takes every block as soon as it is free."""
MAKES_FILES = """\
import os, time
folder = os.path.join(os.path.dirname(os.environ["YARD_CHECKPOINT_FILE"]), "fill")
os.mkdir(folder)
number = 0
while True:
    try:
        open(f"{folder}/{number}", "x").close()
        number += 1
    except OSError:
        time.sleep(0.0005)
"""
"""Takes every inode as soon as it is free."""
WAYS = {
    "blocks": (("sh", "-c", FILLS), "no space is left", lambda found: found.f_bavail),
    "inodes": (("python3", "-c", MAKES_FILES), "no inode left", lambda found: found.f_ffree),
}
"""How a job fills the disk: its command, what is said, and how much is left."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128m,nr_inodes=400", "none", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["killed", "stopped", "goes on"])
def test_a_yard_on_a_full_disk_starts_with_another_file_and_the_job_is_cancelled(
    small: Path, tmp_path: Path, end: str, way: str
) -> None:
    command, said, left = WAYS[way]
    box = Box(small / "yard")
    file = tmp_path / "yard.yaml"
    file.write_text(FIRST)
    up = ("up", "-d", "--port", 0, "--config", file)
    try:
        assert 0 == box(*up).code
        job = box.submit("--tenant", "first", "-g", 1, "--", *command)
        until(lambda: 0 == left(os.statvfs(small)))
        with box.client() as client:
            until(lambda: not client.ready()[0])
        if end == "killed":
            os.kill(box.note()["pid"], signal.SIGKILL)
        elif end == "stopped":
            assert 0 == box("down").code

        if end != "goes on":
            file.write_text(FIRST + "  second: {weight: 1}\n" + "# told at length\n" * 1_000)
            done = box(*up)
            assert (0, True) == (done.code, said in done.err), done
            assert 0 == left(os.statvfs(small))
            assert "rrno" not in done.err + box("queue").out + (small / "yard" / "yard.log").read_text()
        assert 0 == box("cancel", job).code
        assert "CANCELLED" == box.wait(job, "CANCELLED", s=60)["state"]

        for path in [*(small / "yard" / "engine").rglob("fill")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with box.client() as client:
            until(lambda: client.ready()[0])
        assert (
            "COMPLETED"
            == box.wait(box.submit("--tenant", "first", "-g", 1, "--", "true"), "COMPLETED")["state"]
        )
        assert 0 == box("down").code
        # The file of that start is the one that the next start remembers.
        assert 0 == box("up", "-d", "--port", 0).code
        assert (end != "goes on") is ("second" in box("tenants").out)
    finally:
        # Whether there is a server or not: what fills the disk ends.
        box.kill()


@pytest.mark.parametrize("left_kib", [0, 40, 100])
def test_a_yard_that_finds_no_room_to_begin_says_so_and_what_to_do(small: Path, left_kib: int) -> None:
    subprocess.run(["mount", "-o", "remount,size=3m", small], check=True)
    room_kib = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize // 1024
    (small / "fill").write_bytes(bytes(1024 * (room_kib - left_kib)))
    box = Box(small / "yard")

    done = box("up", "-d", "--port", 0, "--emulate", "2 x A100-80GB")

    assert (1, "Free some space there, and start the yard again.") == (done.code, done.err.splitlines()[1])
    assert "no space left" in done.err.lower()
    assert str(small / "yard") in done.err
    (small / "fill").unlink()
    assert 0 == box("up", "-d", "--port", 0, "--emulate", "2 x A100-80GB").code
    assert 0 == box("down").code
