"""Processes of a job are in its group from their first instruction on."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.engines.local.attempt import cgroups, tasks
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import EmulatedGpus, ThisMachine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes groups anywhere")


@pytest.fixture
def group() -> Iterator[cgroups.Cgroup]:
    base, _controllers, why = cgroups.find_group(f"gpuyard-test-{os.getpid()}", wanted=True)
    if not base:
        pytest.skip(why)
    made = cgroups.Cgroup(os.path.join(base, "one"))
    made.make(memory_mib=0, cpu_milli=0)
    yield made
    made.remove()
    os.rmdir(base)


def forked(group: cgroups.Cgroup) -> tuple[bool, bool]:
    """Whether a child that is forked into a group is said to be there, and whether it sees itself there."""
    ears, mouth = os.pipe()
    pid, inside = tasks.fork_into(group)
    if pid == 0:
        os.write(mouth, Path("/proc/self/cgroup").read_bytes())
        os._exit(0)
    os.close(mouth)
    with os.fdopen(ears) as file:
        lines = file.read().splitlines()
    os.waitpid(pid, 0)
    return inside, any(line.startswith("0::") and line.endswith("/one") for line in lines)


def test_a_child_is_forked_into_its_group(group: cgroups.Cgroup) -> None:
    assert (True, True) == forked(group)


def test_where_the_kernel_cannot_the_child_has_to_join(
    group: cgroups.Cgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_SYS_CLONE3", 9999)
    assert (False, False) == forked(group)
    assert (False, False) == forked(cgroups.Cgroup("/nowhere"))


# -- what yards that have ended leave behind ---------------------------------------------------------------------------


@pytest.fixture
def above() -> Iterator[Path]:
    """A group in which yards have theirs."""
    base, _controllers, why = cgroups.find_group(f"gpuyard-test-{os.getpid()}", wanted=True)
    if not base:
        pytest.skip(why)
    yield Path(base)
    for folder, _folders, _files in os.walk(base, topdown=False):
        os.rmdir(folder)


def sleeper(group: Path) -> subprocess.Popen[bytes]:
    """A process in a group."""
    group.mkdir(parents=True)
    made = subprocess.Popen(["sleep", "60"])
    (group / "cgroup.procs").write_text(str(made.pid))
    return made


def ended_soon(process: subprocess.Popen[bytes], after_s: float) -> threading.Timer:
    timer = threading.Timer(after_s, lambda: (process.kill(), process.wait()))
    timer.start()
    return timer


def test_a_start_removes_what_ended_yards_left_and_nothing_of_living_ones(above: Path) -> None:
    own, empty, killed, starting, busy, other = (
        above / f"gpuyard-{number * 12}" for number in ("0", "1", "2", "3", "4", "z")
    )
    for each in (empty, killed / cgroups.SUPERVISORS, other):
        each.mkdir(parents=True)
    held = [cgroups.hold(str(each)) for each in (own, starting)]
    process = sleeper(busy / "y-1-1")

    assert 2 == cgroups.sweep(str(own))
    assert [True, False, False, True, True, True] == [
        each.exists() for each in (own, empty, killed, starting, busy, other)
    ]
    process.kill()
    process.wait()
    for each in held:
        os.close(each)


def test_a_yard_that_starts_while_others_sweep_has_its_group(above: Path) -> None:
    own, base = above / "gpuyard-000000000000", above / "gpuyard-111111111111"
    own.mkdir()
    stopping, swept = threading.Event(), [0]

    def sweep() -> None:
        while not stopping.is_set():
            swept[0] += cgroups.sweep(str(own))

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        for _ in range(200):
            held = cgroups.take(str(base))
            assert base.exists()
            os.close(held)
            until_s = time.monotonic() + 0.01
            while base.exists() and time.monotonic() < until_s:
                pass
    finally:
        stopping.set()
        thread.join()
    assert swept[0]


def test_a_group_is_removed_though_its_last_process_takes_a_while_to_go(above: Path) -> None:
    base = above / "gpuyard-222222222222"
    held = cgroups.hold(str(base))
    timer = ended_soon(sleeper(base / cgroups.SUPERVISORS), 0.6)

    assert cgroups.give_up_group(str(base), held)
    assert not base.exists()
    timer.join()


def test_a_group_in_which_attempts_go_on_stays_and_nobody_waits_for_them(above: Path) -> None:
    base = above / "gpuyard-333333333333"
    held = cgroups.hold(str(base))
    process, began_s = sleeper(base / "y-1-1"), time.monotonic()

    assert not cgroups.give_up_group(str(base), held, wait_s=3600)
    assert time.monotonic() - began_s < 1800
    assert (base / "y-1-1").exists()
    process.kill()
    process.wait()


def test_a_group_that_another_server_of_the_yard_holds_stays(above: Path) -> None:
    base = str(above / "gpuyard-444444444444")
    first, second = cgroups.hold(base), cgroups.hold(base)

    assert not cgroups.give_up_group(base, first)
    assert os.path.isdir(base)
    assert cgroups.give_up_group(base, second)


def test_an_engine_leaves_no_group_behind_and_removes_those_of_others(above: Path, tmp_path: Path) -> None:
    left = above.parent / "gpuyard-0123456789ab"
    (left / cgroups.SUPERVISORS).mkdir(parents=True, exist_ok=True)
    engine = LocalEngine(tmp_path, nodes=ThisMachine("n", emulate=EmulatedGpus(1, "H200")))
    base = Path(engine._groups.base)

    assert (True, False) == (base.exists(), left.exists())
    # A supervisor that takes longer to end than it used to be waited for.
    timer = ended_soon(sleeper(base / cgroups.SUPERVISORS), 0.6)
    engine.close()
    assert not base.exists()
    timer.join()
