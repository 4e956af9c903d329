"""The local engine and jobs whose file system does not answer, or answers their user alone: they hold up nobody."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from contract.rigs import EPOCH, LocalRig, Program, ended, launch, look, until
from gpuyard.engines.contract import Answer, Phase, Recipe, StopRequest
from gpuyard.model import Outcome
from harness import patience
from rigs.hung import hung_mount, own_mount
from rigs.others import OTHER, needs_root


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    made = LocalRig(tmp_path)
    yield made
    made.close()


@pytest.fixture
def gone(tmp_path: Path) -> Path:
    folder = tmp_path / "gone"
    folder.mkdir()
    return folder


def test_a_checkpoint_on_a_dead_file_system_holds_up_neither_the_engine_nor_its_end(
    rig: LocalRig, gone: Path
) -> None:
    with hung_mount(gone, taken=True):
        recipe = Recipe(argv=("sleep", "60"), env={"YARD_CHECKPOINT_FILE": f"{gone}/saved"})
        rig.keys.add("y-1-1")
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
        until(rig, "y-1-1", Phase.RUNNING)
        began_s = time.monotonic()
        assert 0 == look(rig, "y-1-1").checkpoint_ms
        assert patience.patient(30) > time.monotonic() - began_s
        rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 100)])
        assert Outcome.CANCELLED is ended(rig, "y-1-1").outcome
        assert patience.patient(30) > time.monotonic() - began_s


def test_a_checkpoint_elsewhere_is_seen_as_the_jobs_user_sees_it(rig: LocalRig, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    recipe = Recipe(argv=("sh", "-c", f"echo >{saved}; exit 3"), env={"YARD_CHECKPOINT_FILE": str(saved)})
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
    assert ended(rig, "y-1-1").checkpoint_ms == saved.stat().st_mtime_ns // 1_000_000


@pytest.mark.parametrize("where", ["cwd", "stdout"])
def test_a_job_that_hangs_before_its_program_runs_heeds_its_limit(
    rig: LocalRig, gone: Path, where: str
) -> None:
    with hung_mount(gone, taken=False):
        place = {"cwd": str(gone)} if where == "cwd" else {"stdout": f"{gone}/out"}
        rig.keys.add("y-1-1")
        recipe = Recipe(argv=("true",), **place)  # type: ignore[arg-type]
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe, tasks=2, limit_ms=400, grace_ms=100)])
        assert Outcome.TIMEOUT is ended(rig, "y-1-1").outcome
    assert 0 == rig.alive("y-1-1")


@needs_root
@pytest.mark.parametrize("where", ["cwd", "stdout"])
def test_a_job_of_another_user_that_hangs_on_its_way_into_its_fence_heeds_its_limit(where: str) -> None:
    """Of the machine's /tmp a job sees its own folder and outputs: somebody has to look for them there first."""
    with TemporaryDirectory(dir="/tmp") as top:
        os.chmod(top, 0o755)
        rig, gone = LocalRig(Path(top)), Path(top, "gone")
        gone.mkdir()
        with hung_mount(gone, taken=False):
            place = {"cwd": str(gone)} if where == "cwd" else {"stdout": f"{gone}/out"}
            rig.keys.add("y-1-1")
            recipe = Recipe(argv=("true",), uid=OTHER, gid=OTHER, user=str(OTHER), **place)  # type: ignore[arg-type]
            rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe, limit_ms=400, grace_ms=100)])
            assert Outcome.TIMEOUT is ended(rig, "y-1-1").outcome
        assert 0 == rig.alive("y-1-1")
        rig.close()


@pytest.fixture
def mounted() -> Iterator[Callable[[], list[str]]]:
    """The machine's folders of temporary files are mounted, as /tmp of Debian 13 is; gives which of them still are."""
    folders = ["/tmp", "/var/tmp"]

    def there() -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        return [line.split()[4] for line in lines if line.split()[4] in folders]

    before = there()
    for folder in folders:
        subprocess.run(["mount", "--bind", folder, folder], check=True)
    yield there
    for folder in folders:
        if there().count(folder) > before.count(folder):
            subprocess.run(["umount", "--lazy", folder], check=True)


def comes_from_here(pid: int) -> bool:
    """Whether a process was started by this one, or by one that was: beside it other tests run jobs of that user."""
    while pid not in (0, os.getpid()):
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return pid != 0


@needs_root
@pytest.mark.parametrize("how", ["limit", "cancelled", "killed"])
def test_an_attempt_that_never_got_into_its_fence_leaves_the_machines_own_folders(
    mounted: Callable[[], list[str]], how: str
) -> None:
    """At its end it took the machine's /tmp and /var/tmp away, for everybody, where they were mounted."""
    before = mounted()
    with TemporaryDirectory(dir="/tmp") as top:
        os.chmod(top, 0o755)
        rig, gone = LocalRig(Path(top)), Path(top, "gone")
        gone.mkdir()
        rig.keys.add("y-1-1")
        with hung_mount(gone, taken=False) as hangs:
            recipe = Recipe(argv=("true",), uid=OTHER, gid=OTHER, user=str(OTHER), cwd=str(gone))
            limit_ms = 400 if how == "limit" else 0
            rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe, limit_ms=limit_ms, grace_ms=100)])
            patience.until(hangs)
            if how == "killed":
                # What looks for the folder is a process of the job's user, who may kill it.
                for each in Path("/proc").glob("[0-9]*"):
                    with suppress(OSError):
                        if each.stat().st_uid == OTHER and comes_from_here(int(each.name)):
                            os.kill(int(each.name), signal.SIGKILL)
            elif how == "cancelled":
                rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 100)])
            outcomes = {"limit": Outcome.TIMEOUT, "cancelled": Outcome.CANCELLED, "killed": Outcome.NODE_FAIL}
            assert outcomes[how] is ended(rig, "y-1-1").outcome
        assert before == mounted()
        rig.close()


@needs_root
def test_a_job_works_in_a_file_system_of_its_user_alone() -> None:
    """Not even root may look at it. The fence failed, and the job was tried again tens of times in a second."""
    with TemporaryDirectory(dir="/tmp") as top:
        os.chmod(top, 0o755)
        rig, own = LocalRig(Path(top)), Path(top, "own")
        own.mkdir()
        with own_mount(own, OTHER):
            with pytest.raises(PermissionError):
                own.stat()
            rig.keys.add("y-1-1")
            recipe = Recipe(argv=("pwd",), uid=OTHER, gid=OTHER, user=str(OTHER), cwd=str(own))
            rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
            report = ended(rig, "y-1-1")
            assert (Outcome.COMPLETED, "") == (report.outcome, report.why)
            assert f"{own}\n".encode() == rig.engine.log("y-1-1", "stdout", "", 1000).content
        rig.close()


def test_a_job_that_hangs_before_its_program_runs_can_be_cancelled(rig: LocalRig, gone: Path) -> None:
    with hung_mount(gone, taken=False) as hangs:
        rig.keys.add("y-1-1")
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=Recipe(argv=("true",), cwd=str(gone)))])
        patience.until(hangs)
        rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 100)])
        assert Outcome.CANCELLED is ended(rig, "y-1-1").outcome


def test_what_does_not_end_though_it_was_killed_is_said(rig: LocalRig, gone: Path) -> None:
    with hung_mount(gone, taken=True) as hangs:
        rig.keys.add("y-1-1")
        recipe = Recipe(argv=("sh", "-c", f"exec 2>&1; cat {gone}/data"))
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
        patience.until(hangs)
        rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
        patience.until(lambda: look(rig, "y-1-1").why)
        report = look(rig, "y-1-1")
        assert Phase.STOPPING is report.phase
        assert "killed, and has not ended: process" in report.why
        assert "cat" in report.why
    assert Outcome.CANCELLED is ended(rig, "y-1-1").outcome


def test_a_folder_of_a_job_on_which_something_was_mounted_is_not_touched(rig: LocalRig) -> None:
    rig.keys.update({"y-1-1", "y-1-2"})
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", Program())])
    ended(rig, "y-1-1")
    with hung_mount(rig.data / "jobs" / "1", taken=True):
        (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-1-2", Program(), restarts=1)])
    assert Answer.REFUSED is reply.answer
