"""The fence by itself: as a yard of an ordinary user raises it, and what it makes of devices and of paths in /tmp."""

import ctypes
import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.contract import Transient
from gpuyard.engines.local.attempt import devices
from gpuyard.engines.machine import nvml
from gpuyard.engines.node.attempt import fence
from gpuyard.engines.node.kernel import processes
from rigs.others import OTHER, act, needs_root, refused


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that belongs to somebody, not below one that is root's alone."""
    made = Path(tempfile.mkdtemp(prefix="yard-fence-", dir="/tmp"))
    made.chmod(0o755)
    os.chown(made, OTHER, OTHER)
    yield made
    shutil.rmtree(made)


def dumpable(what: Callable[[], Any]) -> Callable[[], Any]:
    """As a program of that user is; a process that was root's a moment ago has no right to its own /proc."""

    def call() -> Any:
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        return what()

    return call


@needs_root
def test_an_ordinary_user_hides_devices_by_a_user_namespace(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole GPUs are masked, of slices only the own are left, and what is made later is not seen."""
    if why := act(OTHER, dumpable(lambda: fence.find_flaw(True))):
        pytest.skip(f"an ordinary user makes no namespace here: {why}")
    dev, caps, mask = folder / "dev", folder / "caps", folder / "mask"
    for path in (dev, caps):
        path.mkdir()
    for path in (dev / "nvidia0", dev / "nvidia1", dev / "nvidia-uvm", caps / "cap1", caps / "cap2"):
        path.touch(mode=0o666)
        path.chmod(0o666)
    mask.touch(mode=0)

    def inside() -> list[object]:
        fence.enter(
            {"user": True, "gpus": ["nvidia0"], "mask": str(mask), "only": {str(caps): ["cap1"]}},
            fence.open_paths,
            str(dev),
        )
        opened = [refused(lambda name=name: (dev / name).open("rb")) for name in sorted(os.listdir(dev))]  # type: ignore[misc]
        return [os.getuid(), opened, os.listdir(caps), refused((caps / "cap1").read_bytes)]

    assert [OTHER, ["", "", "PermissionError"], ["cap1"], ""] == act(OTHER, dumpable(inside))
    assert ["cap1", "cap2"] == sorted(os.listdir(caps)), "nothing of it is seen outside"


@needs_root
def test_a_process_that_runs_no_program_keeps_no_rights_of_its_fence(folder: Path) -> None:
    if why := act(OTHER, dumpable(lambda: fence.find_flaw(True))):
        pytest.skip(f"an ordinary user makes no namespace here: {why}")
    closed = folder / "closed"
    closed.mkdir(mode=0o555)
    os.chown(closed, OTHER, OTHER)

    def inside() -> list[str]:
        fence.unshare(user=True)
        before = refused((closed / "before").touch)
        processes.give_up_capabilities()
        return [before, refused((closed / "after").touch)]

    assert ["", "PermissionError"] == act(OTHER, dumpable(inside))


@needs_root
def test_paths_that_a_job_names_stay_and_lead_nowhere_that_its_user_may_not_go(folder: Path) -> None:
    work, secret, own = folder / "work", folder / "secret", folder / "private"
    work.mkdir()
    (work / "input").write_text("data")
    secret.mkdir(mode=0o700)
    (secret / "open").mkdir()
    (secret / "open" / "file").write_text("secret")
    (folder / "link").symlink_to(secret / "open")
    os.chown(work, OTHER, OTHER)
    wanted = {
        "tmp": str(own),
        "keep": [str(work), str(work / "below"), str(folder / "link"), "/tmp/nothing-here"],
        "touch": [str(folder / "out")],
    }
    wanted["keep"].append(str(folder / "out"))  # type: ignore[attr-defined]

    def inside() -> list[object]:
        def as_user(wanted: fence.Fence) -> list[fence.Kept]:
            os.setegid(OTHER)
            os.seteuid(OTHER)
            try:
                return fence.open_paths(wanted)
            finally:
                os.seteuid(0)
                os.setegid(0)

        fence.enter(wanted, as_user)
        names = sorted(os.listdir(folder))
        (folder / "out").write_text("told")
        return [names, (work / "input").read_text(), os.listdir("/var/tmp"), oct(os.stat("/tmp").st_mode)]

    assert [["out", "work"], "data", [], "0o41777"] == act(0, inside)
    assert "told" == (folder / "out").read_text(), "its output is where it was"
    assert 0o700 == own.stat().st_mode & 0o777, "another job of the user does not get in"


@needs_root
def test_what_keeps_a_path_from_being_shown_is_the_jobs_or_the_machines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = folder / "work"
    work.mkdir()

    def removed(wanted: fence.Fence) -> list[fence.Kept]:
        found = fence.open_paths(wanted)
        work.rmdir()
        return found

    def inside(name: str, opened: Callable[[fence.Fence], list[fence.Kept]]) -> str:
        try:
            fence.enter({"tmp": str(folder / name), "keep": [str(work)]}, opened)
        except OSError as error:
            return str(error)
        return "shown"

    assert "shown" == act(0, lambda: inside("a", fence.open_paths))
    assert act(0, lambda: inside("b", removed)).startswith(f"{fence.UNSHOWN}: No such file")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    work.mkdir()
    monkeypatch.setattr(fence, "_bind_at", full)
    assert "[Errno 28] full" == act(0, lambda: inside("c", fence.open_paths))


def ends() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fails() -> None:
    raise ValueError("no such thing")


def refuses() -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted", "/dev/shm")


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: None, ""),
        (refuses, "/dev/shm: Operation not permitted"),
        (fails, "ValueError('no such thing')"),
        (ends, "the process that tried it out has ended"),
    ],
)
def test_what_is_tried_out_can_be_had_only_if_that_is_said(
    work: Callable[[], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "unshare", lambda *_: work())
    monkeypatch.setattr(fence, "mount", lambda *_: None)
    assert [why, why] == [fence.find_flaw(False), fence.find_view_flaw(())]


def test_capabilities_are_found_by_the_drivers_names(tmp_path: Path) -> None:
    table = tmp_path / "mig-minors"
    table.write_text("config 1\nmonitor 2\ngpu0/gi5/access 48\ngpu0/gi5/ci0/access 49\ngpu0/gi6/access 57\n")

    assert (48, 49) == nvml.minors_of(["gpu0/gi5/access", "gpu0/gi5/ci0/access"], str(table))
    with pytest.raises(Transient, match="has no gpu0/gi7/access"):
        nvml.minors_of(["gpu0/gi7/access"], str(table))
    with pytest.raises(Transient):
        nvml.minors_of(["config"], str(tmp_path / "none"))


def judged(code: bytes, kind: int, major: int, minor: int) -> int:
    """What the program says of a device: the kernel's machine, as far as the program needs one."""
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    words, registers, at = {0: 7 << 16 | kind, 4: major, 8: minor}, [0] * 11, 0
    while True:
        operation, target, source = steps[at][0], steps[at][1] & 15, steps[at][1] >> 4
        offset = int.from_bytes(steps[at][2:4], "little", signed=True)
        value = int.from_bytes(steps[at][4:8], "little", signed=True)
        at += 1
        if operation == 0x61:
            assert 1 == source
            registers[target] = words[offset]
        elif operation == 0x57:
            registers[target] &= value
        elif operation == 0xB7:
            registers[target] = value
        elif operation == 0x15:
            at += offset if registers[target] == value else 0
        elif operation == 0x55:
            at += offset if registers[target] != value else 0
        else:
            assert 0x95 == operation
            return registers[0]


def test_the_program_lets_own_devices_through_and_refuses_others_of_their_drivers() -> None:
    code = devices.program({195: (0, 3, 255), 511: ()})
    block, character = 1, 2

    assert [1, 0, 1, 1] == [judged(code, character, 195, minor) for minor in (0, 1, 3, 255)]
    assert [0, 0] == [judged(code, character, 511, minor) for minor in (0, 48)]
    assert [1, 1, 1] == [judged(code, *each) for each in ((character, 1, 3), (block, 195, 1), (block, 8, 0))]


def test_rules_come_from_what_the_attempt_has() -> None:
    assert {195: [254, 255, 0, 12]} == devices.rules_of(
        {"gpus": ["nvidia0", "nvidia12"], "only": {"/nowhere": []}}
    )
    assert {} == devices.rules_of({})
