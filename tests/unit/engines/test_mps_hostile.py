"""What may lie where a daemon of MPS has its logs and folders: numbers that are none, other people's files, garbage."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.contract import Transient
from gpuyard.engines.local.gpus import mps
from gpuyard.engines.local.gpus.mps import Mps, NoMps
from gpuyard.engines.local.gpus.mps_inquiry import FILE, MARGIN_MS, Inquiry
from gpuyard.engines.local.gpus.mps_log import DaemonLog
from gpuyard.engines.machine.launches import UnixAccount
from harness.patience import until

T = 1_700_000_000_000
ME = UnixAccount(os.geteuid(), os.getegid(), "", "", "")


@pytest.mark.parametrize(
    "said", ["Client {PID: %s, Context ID: 0} connected", "Client process %s disconnected"]
)
def test_a_number_that_no_process_can_have_is_passed_over(tmp_path: Path, said: str) -> None:
    log = DaemonLog(str(tmp_path))
    long, true = [f"[2026-11-15 18:00:00.000 Server 1] {said % pid}\n" for pid in ("9" * 5000, os.getpid())]
    (tmp_path / "server.log").write_text(long + true)
    assert [os.getpid()] * ("} connected" in said) == log.look()


def test_what_both_logs_say_within_moments_is_one_fault(tmp_path: Path) -> None:
    log = DaemonLog(str(tmp_path))
    start = "[2026-11-15 18:00:00."
    (tmp_path / "control.log").write_text(f"{start}200 Control 1] Server 11 exited with status 1\n")
    said = [
        f"{start}{ms} Server 11] Client {{PID: {pid}, Context: 1}} encountered a fatal GPU error."
        for ms, pid in (("100", 7), ("101", 8))
    ]
    later = "[2026-11-15 18:00:01.000 Server 12] Server encountered a fatal exception."
    (tmp_path / "server.log").write_text("\n".join([*said, later, ""]))
    log.look()
    assert [{7, 8}, set()] == [fault.culprits for fault in log.faults]


@pytest.mark.parametrize(
    "content", ["[]", "5", '{"a": 1}', '{"a": {"at_ms": "x"}}', "[" * 100_000, '{"a": {"at_ms": 1e300}}']
)
def test_a_list_of_suspects_that_is_none_suspects_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    inquiry = Inquiry(str(tmp_path), lambda: T)
    assert not inquiry.waits("a", {"b": T})
    assert not inquiry.guilty("a", T, {"a": T - 1, "b": T - 1}, set())
    assert not inquiry.guilty("b", T, {"a": T - 1, "b": T - 1}, set())
    assert inquiry.waits("a", {"b": T - MARGIN_MS + 1})


def test_a_list_of_suspects_that_cannot_be_read_or_written_suspects_nobody(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    inquiry = Inquiry(str(tmp_path), lambda: T)
    assert not inquiry.guilty("a", T, {"a": T - 1, "b": T - 1}, set())
    assert not inquiry.waits("a", {"b": T})


def test_folders_that_somebody_else_made_first_are_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mps = NoMps(str(tmp_path))
    daemon = mps.ensure("GPU-a", ME)
    root = Path(daemon.folder).parent
    try:
        (root / "of-nobody").mkdir()
        assert [daemon.folder] == [each.folder for each in mps.all()]
        monkeypatch.setattr(os, "geteuid", lambda: ME.uid + 1)
        assert [] == mps.all()
    finally:
        monkeypatch.undo()
        (root / "of-nobody").rmdir()
        mps.stop_unused(set())
    assert not root.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives folders away")
@pytest.mark.parametrize("released", [False, True], ids=["now", "by an earlier release"])
def test_a_link_in_place_of_a_folder_gives_its_user_nothing_else(tmp_path: Path, released: bool) -> None:
    """The folder was its user's, who put a link to /etc in it: the next share of a GPU made /etc theirs."""
    user = UnixAccount(65_534, 65_534, "", "", "")
    mps, precious = NoMps(str(tmp_path)), tmp_path / "precious"
    precious.mkdir()
    daemon = mps.ensure("GPU-a", user)
    try:
        assert [0, user.uid, user.uid] == [
            os.lstat(path).st_uid for path in (daemon.folder, daemon.pipe, daemon.log)
        ]
        if released:
            os.chown(daemon.folder, user.uid, user.gid)
        os.rmdir(daemon.pipe)
        os.symlink(precious, daemon.pipe)
        os.rmdir(daemon.log)
        os.symlink("/nowhere", daemon.log)
        mps.ensure("GPU-a", user)
        assert 0 == precious.stat().st_uid
        assert [0, user.uid, user.uid] == [
            os.lstat(path).st_uid for path in (daemon.folder, daemon.pipe, daemon.log)
        ]
    finally:
        mps.stop_unused(set())


def test_folders_in_folders_of_a_daemons_user_are_removed_however_deep(tmp_path: Path) -> None:
    mps = NoMps(str(tmp_path))
    above = os.open(mps.ensure("GPU-a", ME).pipe, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=above)
        below = os.open("d", os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    os.close(above)

    def gone() -> bool:
        mps.stop_unused(set())
        return not os.path.exists(mps.root)

    assert until(gone)


def test_a_daemon_that_does_not_answer_holds_up_nobody_for_long_and_is_replaced(
    tmp_path: Path,
) -> None:
    """Its user can stop it: each start of a share waited for it for 30 s, and all other jobs with it."""
    asked: list[str] = []
    daemon = NoMps(str(tmp_path)).ensure("GPU-a", ME)
    Path(daemon.pipe, "control").touch()

    class SilentMps(Mps):
        @staticmethod
        def _run(_daemon: object, _uid: int, _gid: int, words: list[str], said: str = "", **_: Any) -> str:
            asked.append(said or words[-1])
            if os.path.exists(f"{daemon.pipe}/{mps.CONTROL}.pid"):
                raise mps.Silent("nothing")
            Path(daemon.pipe, "control").touch()
            return ""

    made = SilentMps(str(tmp_path))
    with subprocess.Popen(["sleep", "600"]) as silent:
        Path(daemon.pipe, f"{mps.CONTROL}.pid").write_text(str(silent.pid))
        try:
            made._silent[daemon.folder] = (7, 0.0)
            with pytest.raises(mps.Silent):
                made.ensure("GPU-a", ME)
            assert silent.poll() is None, "one that runs may be slow, and jobs compute there"
            silent.send_signal(signal.SIGSTOP)
            until(lambda: mps._stands_still(daemon))
            asked.clear()
            made._silent[daemon.folder] = (0, 0.0)
            for _ in range(3):
                with pytest.raises(mps.Silent):
                    made.ensure("GPU-a", ME)
                if silent.poll() is None and made._silent:
                    with pytest.raises(Transient, match="a moment ago"):
                        made.ensure("GPU-a", ME)
                    times, _again_s = made._silent[daemon.folder]
                    made._silent[daemon.folder] = (times, 0.0)
            assert ["get_server_list\n"] * 3 == asked, "one question each, and no other daemon meanwhile"
            assert -9 == silent.wait(60)
            assert daemon.folder == made.ensure("GPU-a", ME).folder
            assert "-d" in asked
        finally:
            silent.kill()
    os.unlink(f"{daemon.pipe}/control")
    made.stop_unused(set())


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can clear it away")
def test_a_user_who_makes_the_folder_first_keeps_nobody_from_shares(tmp_path: Path) -> None:
    mps = NoMps(str(tmp_path))
    for make in (os.mkdir, lambda path: os.symlink("/nowhere", path), lambda path: Path(path).touch()):
        make(mps.root)
        os.chown(mps.root, 65_534, 65_534, follow_symlinks=False)
        daemon = mps.ensure("GPU-a", ME)
        assert os.path.isdir(daemon.pipe)
        assert 0 == os.lstat(mps.root).st_uid
        mps.stop_unused(set())
        aside = list(Path("/tmp").glob(f"{Path(mps.root).name}.*"))
        assert 1 == len(aside)
        aside[0].rmdir() if aside[0].is_dir() else aside[0].unlink()


def test_a_daemon_writes_its_log_by_the_clock_that_it_is_read_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    daemon = NoMps(str(tmp_path)).daemon("GPU-a", ME.uid)
    assert "Asia/Tokyo\n" == Mps._run(daemon, ME.uid, ME.gid, ["sh", "-c", "echo $TZ"])
