"""What users of one machine learn of one another through the local engine's folder: nothing."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch, look, until
from gpuyard.engines.contract import Phase, Recipe, StopRequest
from gpuyard.model import Outcome
from rigs.others import OTHER, THIRD, act, needs_root, refused

pytestmark = needs_root


@pytest.fixture
def rig(open_rig: LocalRig) -> LocalRig:
    """An engine of root whose folder every user may pass through."""
    return open_rig


def start(rig: LocalRig, key: str, job_id: int, uid: int, *argv: str, **env: str) -> None:
    recipe = Recipe(argv=argv, uid=uid, gid=uid, user=str(uid), env=env)
    rig.keys.add(key)
    rig.engine.start(EPOCH, [launch(rig, key, recipe=recipe, job_id=job_id)])


def test_the_log_of_a_job_that_ended_is_the_servers_alone(rig: LocalRig) -> None:
    """A user's number may be given to somebody else; and what a job wrote is not changed afterwards."""
    link = rig.data / "jobs" / "1" / "x"
    start(rig, "y-1-1", 1, OTHER, "sh", "-c", "echo secret; ln $YARD_ATTEMPT_DIR/stdout x")
    ended(rig, "y-1-1")
    assert "" == act(OTHER, lambda: refused(lambda: link.open("a").close())), "while it is the job's"
    rig.engine.forget(EPOCH, ["y-1-1"])

    kept = rig.data / "logs" / "y-1-1" / "stdout"
    for path in (kept, link):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
            assert "PermissionError" == act(OTHER, lambda p=path, f=flags: refused(lambda: os.open(p, f)))  # type: ignore[misc]
    assert b"secret\n" == rig.engine.log("y-1-1", "stdout", "", 100).content


def test_a_checkpoint_path_tells_nothing_of_other_peoples_files(rig: LocalRig) -> None:
    start(rig, "y-1-1", 1, OTHER, "sh", "-c", "touch private; sleep 60")
    until(rig, "y-1-1", Phase.RUNNING)
    theirs = rig.data / "jobs" / "1" / "private"
    while not theirs.exists():
        rig.let_pass(20)
    log = rig.data / "attempts" / "y-1-1" / "stdout"
    for job_id, path in ((2, theirs), (3, log), (4, Path("/etc/shadow"))):
        key = f"y-{job_id}-1"
        start(rig, key, job_id, THIRD, "sleep", "60", YARD_CHECKPOINT_FILE=str(path))
        until(rig, key, Phase.RUNNING)
        seen = look(rig, key).checkpoint_ms
        rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 0)])
        # A file that its user may look at by name alone, as anybody may, says no more than it says to anybody.
        known = act(THIRD, lambda p=path: refused(p.stat)) == ""  # type: ignore[misc]
        assert (0, known) == (seen, ended(rig, key).checkpoint_ms > 0)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(rig, "y-1-1")


def change_attribute(how: str, path: Path) -> bool:
    """Whether the file has it now: not every file system knows of it, nor every machine the program."""
    program = shutil.which("chattr")
    return program is not None and subprocess.run([program, how, str(path)], check=False).returncode == 0


def test_what_cannot_be_removed_keeps_no_attempt_from_being_forgotten(rig: LocalRig) -> None:
    """A file system that is mounted in an attempt's folder, or a file that even root cannot remove."""
    keys = ["y-1-1", "y-2-1", "y-3-1"]
    for number, key in enumerate(keys, 1):
        start(rig, key, number, OTHER, "true")
        ended(rig, key)
    mounted, immutable = rig.data / "attempts" / keys[0] / "tmp", rig.data / "attempts" / keys[1] / "script"
    mounted.mkdir()
    immutable.touch()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mounted)], check=True)
    fixed = change_attribute("+i", immutable)
    try:
        rig.engine.forget(EPOCH, keys)
        left = {report.key for report in rig.engine.listing()}
        assert ({keys[1]} if fixed else set()) == left
        assert os.path.ismount(rig.data / "logs" / keys[0] / "tmp")
    finally:
        for place in ("attempts", "logs"):
            subprocess.run(["umount", "-l", str(rig.data / place / keys[0] / "tmp")], check=False)
        change_attribute("-i", immutable)
    rig.engine.forget(EPOCH, keys)
    assert [] == rig.engine.listing()


def test_a_yard_in_shared_memory_runs_jobs_of_others(monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    """Where jobs have a /dev/shm of their own, its folder was gone from their view, and each attempt broke."""
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    rig: LocalRig = request.getfixturevalue("open_rig")
    assert rig.data.is_relative_to("/dev/shm")
    start(rig, "y-1-1", 1, OTHER, "true")
    report = ended(rig, "y-1-1")
    assert (Outcome.COMPLETED, "") == (report.outcome, report.why)


def test_a_folder_that_is_a_link_shows_nothing_of_the_machine(rig: LocalRig) -> None:
    """What the link led to was mounted in the job, were it the machine's own /tmp, /proc or /dev/shm."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        (folder / "anothers").touch()
        (folder / "mine").mkdir()
        (folder / "mine" / "input").write_text("read")
        for path in (folder, folder / "mine"):
            os.chown(path, OTHER, OTHER)
            path.chmod(0o755)
        targets = ("/", "/proc", "/tmp", "/dev/shm", folder / "mine")
        for number, target in enumerate(targets, 1):
            link = folder / f"link{number}"
            link.symlink_to(target)
            below = f"{folder.name}/anothers"
            looks = f"exec 2>/dev/null; ls -d 1 tmp/{below} {below}; cat input; echo done >out"
            recipe = Recipe(
                argv=("sh", "-c", looks),
                uid=OTHER,
                gid=OTHER,
                user=str(OTHER),
                cwd=str(link),
                stdout=str(folder / "mine" / f"seen{number}"),
            )
            key = f"y-{number}-1"
            rig.keys.add(key)
            rig.engine.start(EPOCH, [launch(rig, key, recipe=recipe, job_id=number)])
            ended(rig, key)
        seen = [(folder / "mine" / f"seen{number}").read_text() for number in range(1, 6)]
        assert ["", "", "", "", "read"] == seen
        assert "done\n" == (folder / "mine" / "out").read_text()
