"""Those who may not read a job learn why it ended, and no names of files."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.api.handlers.jobs import without_paths
from rigs.teams import Team, team

SECRET = "/nowhere/merger with ACME/plan"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (
            f"cannot enter folder {SECRET}: No such file or directory",
            "cannot enter folder (a path): No such file or directory",
        ),
        ("cannot open '/a b/c': denied", "cannot open '(a path): denied"),
        ("cannot run /usr/bin/x", "cannot run (a path)"),
        ("preempted for job 7 of research/ana", "preempted for job 7 of research/ana"),
        ("exit code 1", "exit code 1"),
    ],
)
def test_paths_are_left_out(said: str, left: str) -> None:
    assert left == without_paths(said)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("discretion")) as made:
        yield made


def test_a_viewer_sees_that_a_job_failed_and_its_owner_sees_where(yard: Team) -> None:
    asked = {"command": ["true"], "cwd": SECRET, "tenant": "research"}
    number = yard.call("POST", "/api/v1/jobs", yard.tokens["ulla"], asked).json["id"]
    path = f"/api/v1/jobs/{number}"
    yard.until(lambda: yard.call("GET", path, yard.tokens["ulla"]).json["state"] == "FAILED")
    for place in (path, "/api/v1/jobs", "/api/v1/history"):
        seen = {
            who: yard.call("GET", place, yard.tokens[who]).body for who in ("ulla", "tara", "carl", "vera")
        }
        assert (True, True, False, False) == tuple(b"merger with ACME" in body for body in seen.values()), (
            place
        )
        assert b"cannot enter folder (a path): No such file" in seen["vera"]


def test_a_yard_without_space_is_not_ready(tmp_path: Path) -> None:
    """Nobody has written since the disk filled up."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=400", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with team(small) as yard:
            yard.until(lambda: yard.call("GET", "/readyz").status == 200)
            fill = ["dd", "if=/dev/zero", f"of={small}/filler", "bs=64k", "oflag=append", "conv=notrunc"]

            def full() -> bool:
                # What the server gives up meanwhile is filled as well.
                subprocess.run(fill, capture_output=True, check=False)
                return yard.call("GET", "/readyz").status == 503

            yard.until(full)
            answer = yard.call("GET", "/readyz", yard.tokens["adam"])
            assert (503, f"no space is left for {small / 'data'}") == (answer.status, answer.json["error"])
            (small / "filler").unlink()
            yard.until(lambda: yard.call("GET", "/readyz").status == 200)
            many = small / "many"
            many.mkdir()

            def crowded() -> bool:
                with contextlib.suppress(OSError):
                    for number in range(len(list(many.iterdir())), 400):
                        (many / str(number)).touch()
                return yard.call("GET", "/readyz").status == 503

            yard.until(crowded)
            answer = yard.call("GET", "/readyz", yard.tokens["adam"])
            assert (503, "no inode left") == (answer.status, answer.json["error"][-13:])
            shutil.rmtree(many)
            yard.until(lambda: yard.call("GET", "/readyz").status == 200)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
