"""The local engine when something dies: the server, the spawner, a supervisor, the machine, the disk."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from contract.rigs import EPOCH, LocalRig, Program, ended, launch, look, moments, until, until_alive
from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    LinkEnd,
    Phase,
    Recipe,
    Reply,
    StopRequest,
    Transient,
)
from gpuyard.engines.local.attempt.supervisor import NO_ROOM, UNLIMITED
from gpuyard.engines.local.client import Spawner
from gpuyard.engines.machine import files
from gpuyard.engines.node.attempt.fence import UNFENCED, UNSHOWN
from gpuyard.engines.node.attempt.runner import BROKE, now_ms, steady_ms
from gpuyard.engines.node.kernel import processes
from gpuyard.engines.node.visits import frames
from gpuyard.model import Outcome
from gpuyard.model.units import DAY_MS, HOUR_MS
from harness import patience
from rigs.visits.line import Line

LONG = Program(run_ms=60_000)

SERVER = """
import pickle, sys, time
from contextlib import suppress
from pathlib import Path
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import ThisMachine
from gpuyard.engines.local.hosts import EmulatedGpus
data, cgroups, path = sys.argv[1:]
engine = LocalEngine(Path(data), nodes=ThisMachine(emulate=EmulatedGpus(8, "A100-80GB")), use_cgroups=cgroups == "True")
launches = pickle.loads(Path(path).read_bytes())
print("ready", flush=True)
sys.stdin.readline()
for launch in launches:
    print(engine.start(1, [launch])[0].answer.value, flush=True)
sys.stdin.readline()
"""


class Server:
    """Another process with an engine of its own over the same data."""

    def __init__(self, rig: LocalRig, launches: list[object], path: Path) -> None:
        path.write_bytes(pickle.dumps(launches))
        arguments = [sys.executable, "-c", SERVER, str(rig.data), str(rig.use_cgroups), str(path)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert "ready" == self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def claimed_pid(rig: LocalRig, key: str) -> int:
    return int(json.loads(rig.claim(key).read_text())["pid"])


def gone(pid: int) -> bool:
    """Whether a process is gone; it may stay a zombie where nobody reaps it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_gone(pid: int) -> None:
    patience.until(lambda: gone(pid), say=lambda: f"{pid} is still there")


def test_a_server_that_is_killed_leaves_its_job_and_the_next_one_reads_the_true_exit_code(
    local: LocalRig, tmp_path: Path
) -> None:
    one = launch(local, "y-1-1", Program(run_ms=500, exit_code=9))
    server = Server(local, [one], tmp_path / "launches")
    server.go()
    assert "done" == server.read()
    server.kill()

    assert ["y-1-1"] == [report.key for report in local.engine.listing()]
    assert [Answer.DONE] == [reply.answer for reply in local.engine.start(EPOCH, [one])]
    report = ended(local, "y-1-1")
    assert (Outcome.FAILED, 9) == (report.outcome, report.exit_code)
    assert 1 == local.starts("y-1-1")


def test_two_processes_that_start_the_same_keys_at_once_start_each_once(
    local: LocalRig, tmp_path: Path
) -> None:
    keys = [f"y-{i}-1" for i in range(10)]
    launches: list[object] = [launch(local, key, Program(run_ms=10), job_id=i) for i, key in enumerate(keys)]
    servers = [Server(local, launches, tmp_path / f"launches{i}") for i in range(2)]
    for server in servers:
        server.go()
    for server in servers:
        assert ["done"] * len(keys) == [server.read() for _ in keys]
        server.kill()
    for key in keys:
        ended(local, key)

    assert [1] * len(keys) == [local.starts(key) for key in keys]


def test_the_marker_alone_lets_one_supervisor_through(local: LocalRig, tmp_path: Path) -> None:
    """Past the engine's lock: two spawners, eight supervisors, one run."""
    local.engine._write(launch(local, "y-1-1", Program(run_ms=100)))
    folder = str(local.data / "attempts" / "y-1-1")
    spawners = [Spawner(str(tmp_path / "log")) for _ in range(2)]
    words = [spawner.spawn([folder])["y-1-1"] for _ in range(4) for spawner in spawners]
    for spawner in spawners:
        spawner.close()
    ended(local, "y-1-1")

    assert ["claimed"] + ["taken"] * 7 == words
    assert 1 == local.starts("y-1-1")


def test_a_spawner_that_is_killed_takes_no_job_with_it_and_is_replaced(local: LocalRig) -> None:
    local.engine.start(EPOCH, [launch(local, "y-1-1", Program(run_ms=500, exit_code=4))])
    until_alive(local, "y-1-1")
    spawner = local.engine._spawner.pid
    assert spawner is not None
    os.kill(spawner, signal.SIGKILL)
    (reply,) = local.engine.start(EPOCH, [launch(local, "y-2-1", job_id=2)])

    assert Answer.DONE is reply.answer
    assert Outcome.COMPLETED is ended(local, "y-2-1").outcome
    assert 4 == ended(local, "y-1-1").exit_code
    assert spawner != local.engine._spawner.pid


def test_a_spawner_goes_with_its_engine(local: LocalRig) -> None:
    local.engine.start(EPOCH, [launch(local, "y-1-1", LONG)])
    until_alive(local, "y-1-1")
    spawner = local.engine._spawner.pid
    assert spawner is not None
    local.engine.close()

    assert gone(spawner)
    assert 0 < local.alive("y-1-1")
    local.engine = local.reopen()
    local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 1_000)])
    ended(local, "y-1-1")


def test_supervisors_are_not_in_the_group_of_their_server(local: LocalRig) -> None:
    """A service manager that stops the server kills its whole group."""
    local.engine.start(EPOCH, [launch(local, "y-1-1", LONG)])
    until_alive(local, "y-1-1")
    own, theirs = (
        Path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1]
        for pid in (os.getpid(), claimed_pid(local, "y-1-1"))
    )
    local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(local, "y-1-1")

    assert bool(local.engine._groups.base) is (own != theirs)


def test_another_engine_that_closes_takes_nothing_from_under_this_one(local: LocalRig) -> None:
    local.reopen().close()
    local.engine.start(EPOCH, [launch(local, "y-1-1")])

    assert Outcome.COMPLETED is ended(local, "y-1-1").outcome


def test_what_a_job_leaves_behind_is_gone_at_its_end(local: LocalRig) -> None:
    """Daemons in sessions of their own, forked twice, with TERM ignored."""
    go = local.effects / "go"
    script = (
        "#!/bin/sh\nsetsid sh -c 'trap \"\" TERM; (sleep 61 & sleep 62 & wait) & sleep 63' &\n"
        f"until [ -e '{go}' ]; do sleep 0.05; done\n"
    )
    local.keys.add("y-1-1")
    local.engine.start(EPOCH, [launch(local, "y-1-1", recipe=Recipe(script=script))])

    # The script and five that it leaves behind.
    patience.until(lambda: 6 <= local.alive("y-1-1"))
    go.touch()
    assert Outcome.COMPLETED is ended(local, "y-1-1").outcome
    assert 0 == local.alive("y-1-1")


def test_a_supervisor_that_is_killed_is_noticed_and_its_job_is_killed(local: LocalRig) -> None:
    script = f"#!/bin/sh\nsetsid sh -c 'sleep 61 & sleep 62' &\necho >>'{local.effects}/y-1-1'\nsleep 60\n"
    local.keys.add("y-1-1")
    local.engine.start(EPOCH, [launch(local, "y-1-1", recipe=Recipe(script=script))])
    until_alive(local, "y-1-1")
    os.kill(claimed_pid(local, "y-1-1"), signal.SIGKILL)
    wait_gone(claimed_pid(local, "y-1-1"))
    report = ended(local, "y-1-1")

    assert (Outcome.NODE_FAIL, "its supervisor was killed") == (report.outcome, report.why)
    assert 0 == local.alive("y-1-1")
    assert [report] == local.reopen().listing()
    assert [Answer.DONE] == [
        reply.answer for reply in local.engine.start(EPOCH, [launch(local, "y-1-1", Program())])
    ]
    assert report == look(local, "y-1-1")


@pytest.mark.parametrize("how", ["exit", "stop", "killed"])
def test_a_terminal_outlives_no_attempt_and_keeps_its_true_code(local: LocalRig, how: str) -> None:
    """The keeper is there while the job is, passes on its end, and goes with it, also if nobody is left to tell it."""
    recipe = Recipe(argv=("bash", "--norc", "-i"), env={"PS1": "ready> "}, terminal=True)
    local.engine.start(EPOCH, [launch(local, "y-1-1", recipe=recipe)])
    link = None
    for _ in moments(local):
        link = link or local.engine.terminal("y-1-1", own=True)
        if link is not None:
            break
        local.let_pass(10)
    assert link is not None
    with Line(link) as line:
        line.send(frames.HELLO, json.dumps({"do": "attach", "seen": 0}).encode())
        seen = b""
        while b"ready> " not in seen:
            seen += line.receive().content
        keepers = [
            int(pid)
            for pid in os.listdir("/proc")
            if pid.isdecimal() and _parent(int(pid)) == claimed_pid(local, "y-1-1")
        ]
        if how == "exit":
            line.send(frames.DATA, b"exit 5\r")
        elif how == "stop":
            local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 10_000)])
        else:
            os.kill(claimed_pid(local, "y-1-1"), signal.SIGKILL)
        *_more, last = line.frames()
    report = ended(local, "y-1-1")

    expected = {
        "exit": (Outcome.FAILED, 5),
        "stop": (Outcome.CANCELLED, 128 + signal.SIGHUP),
        "killed": (Outcome.NODE_FAIL, 0),
    }
    assert expected[how] == (report.outcome, report.exit_code)
    assert (how == "exit") == ((b'{"code": 5}', LinkEnd.DONE) == (last.content, last.end)), last
    assert last.end is not None
    # The shell and the keeper.
    assert 2 == len(keepers)
    for pid in keepers:
        wait_gone(pid)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def test_a_job_that_kills_its_supervisor_again_and_again_has_failed(local: LocalRig) -> None:
    script = "#!/bin/sh\nkill -9 $PPID\nsleep 60\n"
    outcomes = []
    for attempt in (1, 2, 3):
        key = f"y-1-{attempt}"
        local.keys.add(key)
        local.engine.start(EPOCH, [launch(local, key, recipe=Recipe(script=script), restarts=attempt - 1)])
        report = ended(local, key)
        outcomes.append(report.outcome)
        local.engine.forget(EPOCH, [key])

    assert [Outcome.NODE_FAIL, Outcome.NODE_FAIL, Outcome.FAILED] == outcomes
    assert "its supervisor was killed, in each of 3 attempts" == report.why


@pytest.mark.parametrize("why", [BROKE, f"{UNFENCED}: {UNSHOWN}"])
def test_a_job_that_its_supervisor_cannot_run_again_and_again_has_failed(local: LocalRig, why: str) -> None:
    """One that did not come to run was tried again without a pause, tens of times in a second."""
    outcomes = []
    for attempt in (1, 2, 3):
        key = f"y-1-{attempt}"
        local.keys.add(key)
        local.engine.start(EPOCH, [launch(local, key, recipe=Recipe(argv=("true",)), restarts=attempt - 1)])
        report = ended(local, key)
        found = local.data / files.ATTEMPTS / key / files.END
        end = json.loads(found.read_text()) | {"outcome": "NODE_FAIL", "why": f"{why}: OSError(5)"}
        found.write_text(json.dumps(end))
        local.engine = local.reopen()
        report = look(local, key)
        outcomes.append(report.outcome)
        local.engine.forget(EPOCH, [key])

    assert [Outcome.NODE_FAIL, Outcome.NODE_FAIL, Outcome.FAILED] == outcomes
    assert f"{why}: OSError(5), in each of 3 attempts" == report.why


def test_a_job_that_ran_between_two_failures_is_not_counted_out(local: LocalRig) -> None:
    outcomes = []
    for attempt, why in enumerate((BROKE, BROKE, "its node failed", BROKE), 1):
        outcomes.append(_ended_so(local, f"y-1-{attempt}", why, attempt).outcome)
        local.engine.forget(EPOCH, [f"y-1-{attempt}"])
    assert [Outcome.NODE_FAIL] * 4 == outcomes


def _ended_so(local: LocalRig, key: str, why: str, attempt: int = 1) -> AttemptReport:
    """An attempt that could not be run, as its supervisor tells of it."""
    local.keys.add(key)
    local.engine.start(EPOCH, [launch(local, key, recipe=Recipe(argv=("true",)), restarts=attempt - 1)])
    found = local.data / files.ATTEMPTS / key / files.END
    for _ in moments(local):
        if found.exists():
            break
        local.let_pass(10)
    found.write_text(json.dumps(json.loads(found.read_text()) | {"outcome": "NODE_FAIL", "why": why}))
    return look(local, key)


def test_a_machine_that_can_run_nothing_is_left_out_until_something_runs(local: LocalRig) -> None:
    local.keys.add("y-1-1")
    local.engine.start(EPOCH, [launch(local, "y-1-1", LONG)])
    until(local, "y-1-1", Phase.RUNNING)
    # What a job itself is in the way of is nothing to blame its node for, however often.
    for number in range(2, 7):
        _ended_so(local, f"y-{number}-1", (BROKE, f"{UNFENCED}: {UNSHOWN}: gone")[number % 2])
    for number, why in enumerate(
        (f"{UNFENCED}: full", f"{UNLIMITED}: busy", f"{UNLIMITED}: no: '/private'"), 7
    ):
        assert local.engine.nodes()[0].up
        assert Outcome.NODE_FAIL is _ended_so(local, f"y-{number}-1", why).outcome
        look(local, "y-1-1")
    (node,) = local.engine.nodes()
    assert (False, f"left out for a while: {UNLIMITED}: no") == (node.up, node.why)
    assert Phase.RUNNING is look(local, "y-1-1").phase

    local.keys.add("y-11-1")
    local.engine.start(EPOCH, [launch(local, "y-11-1", recipe=Recipe(argv=("true",)), job_id=11)])
    assert Outcome.COMPLETED is ended(local, "y-11-1").outcome
    assert local.engine.nodes()[0].up
    local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(local, "y-1-1")


def test_the_engine_goes_on_when_somebody_has_removed_its_folder(local: LocalRig) -> None:
    local.engine.start(EPOCH, [launch(local, "y-1-1", Program())])
    ended(local, "y-1-1")
    shutil.rmtree(local.data)

    assert local.engine.nodes()
    assert [] == local.engine.listing()
    local.keys.add("y-2-1")
    local.engine.start(EPOCH, [launch(local, "y-2-1", recipe=Recipe(argv=("true",)), job_id=2)])
    assert Outcome.COMPLETED is ended(local, "y-2-1").outcome
    assert local.engine.wait(120)


def test_another_yard_with_the_same_keys_keeps_its_jobs(local: LocalRig, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = LocalRig(tmp_path / "other", use_cgroups=local.use_cgroups)
    for rig in (local, other):
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", LONG)])
        until_alive(rig, "y-1-1")
    os.kill(claimed_pid(local, "y-1-1"), signal.SIGKILL)
    wait_gone(claimed_pid(local, "y-1-1"))

    assert Outcome.NODE_FAIL is ended(local, "y-1-1").outcome
    assert 0 == local.alive("y-1-1")
    assert 0 < other.alive("y-1-1")
    other.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(other, "y-1-1")
    other.close()


def test_after_a_restart_of_the_machine_nothing_from_before_is_adopted(local: LocalRig) -> None:
    one = launch(local, "y-1-1", Program(run_ms=600))
    local.engine.start(EPOCH, [one])
    until_alive(local, "y-1-1")
    local.engine._write(launch(local, "y-2-1", job_id=2))
    rebooted = local.reopen(boot_id=lambda: "another boot")
    reports = rebooted.status(["y-1-1", "y-2-1"])

    assert [(Phase.ENDED, Outcome.NODE_FAIL, "the machine was restarted")] * 2 == [
        (report.phase, report.outcome, report.why) for report in reports
    ]
    assert [Answer.DONE] == [reply.answer for reply in rebooted.start(EPOCH, [one])]
    wait_gone(claimed_pid(local, "y-1-1"))
    assert 1 == local.starts("y-1-1")
    assert reports == local.reopen(boot_id=lambda: "another boot").status(["y-1-1", "y-2-1"])


def test_an_attempt_that_a_restart_of_the_machine_ended_ran_no_longer_than_it_could(local: LocalRig) -> None:
    limits_ms = {"y-1-1": 0, "y-2-1": HOUR_MS, "y-3-1": HOUR_MS}
    for job_id, (key, limit_ms) in enumerate(limits_ms.items(), 1):
        local.engine.start(EPOCH, [launch(local, key, LONG, limit_ms=limit_ms, grace_ms=1000, job_id=job_id)])
        until_alive(local, key)
    until(local, "y-3-1", Phase.RUNNING)
    local.engine.suspend(EPOCH, ["y-3-1"])
    until(local, "y-3-1", Phase.SUSPENDED)
    # The machine is off for some days: this boot began at a time that the engine's clock reckons back to.
    booted_ms = now_ms() + 10 * DAY_MS
    rebooted = local.reopen(boot_id=lambda: "another boot", now_ms=lambda: booted_ms + steady_ms())
    reports = rebooted.status(list(limits_ms))
    ran_ms = [report.ended_ms - report.started_ms for report in reports]

    assert [Outcome.NODE_FAIL] * 3 == [report.outcome for report in reports]
    assert HOUR_MS + 1000 <= ran_ms[1] <= HOUR_MS + 2000, "its time limit and its grace"
    for number in (0, 2):
        assert booted_ms - 60_000 < reports[number].ended_ms <= booted_ms, "and none after the boot"
    for key in limits_ms:
        wish = {"outcome": "CANCELLED", "grace_ms": 0}
        files.create(str(local.data / "attempts" / key / files.HALT), wish, durable=False)
        os.kill(claimed_pid(local, key), signal.SIGUSR1)
        wait_gone(claimed_pid(local, key))


def test_files_broken_by_the_crash_of_a_machine_break_nothing_else(local: LocalRig) -> None:
    """What is not durable may be empty after a loss of power."""
    local.engine.start(EPOCH, [launch(local, "y-2-1", job_id=2)])
    ended(local, "y-2-1")
    runs = Program(run_ms=500)
    local.engine.start(EPOCH, [launch(local, "y-1-1", runs)])
    until_alive(local, "y-1-1")
    supervisor = claimed_pid(local, "y-1-1")
    for name in ("claim.json", "running.json", "halt.json"):
        (local.data / "attempts" / "y-1-1" / name).write_bytes(b"")
    reports = local.reopen(boot_id=lambda: "another boot").status(["y-1-1", "y-2-1"])

    assert [Outcome.NODE_FAIL, Outcome.COMPLETED] == [report.outcome for report in reports]
    wait_gone(supervisor)


def test_a_checkpoint_does_not_grow_younger_when_the_clock_is_set_back_after_it(local: LocalRig) -> None:
    file, ahead_ms = local.data / "jobs" / "1" / "checkpoint", HOUR_MS
    engine = local.reopen(now_ms=lambda: now_ms() + ahead_ms)
    engine.start(EPOCH, [launch(local, "y-1-1", LONG)])
    until_alive(local, "y-1-1")
    file.touch()
    # As a clock that was set an hour ahead after the start gives it.
    at_s = time.time() + ahead_ms / 1000
    os.utime(file, (at_s, at_s))

    def seen() -> bool:
        (report,) = engine.status(["y-1-1"])
        return bool(report.started_ms and report.checkpoint_ms)

    patience.until(seen)
    (first,) = engine.status(["y-1-1"])
    ahead_ms = 0
    time.sleep(1.0)
    (later,) = engine.status(["y-1-1"])

    engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])

    assert Outcome.CANCELLED == ended(local, "y-1-1").outcome
    assert first.started_ms - 10 <= first.checkpoint_ms <= now_ms()
    assert first.checkpoint_ms == later.checkpoint_ms


@pytest.mark.parametrize("set_by_ms", [HOUR_MS, -HOUR_MS])
def test_an_attempt_whose_supervisor_is_killed_ran_as_long_as_it_ran_wherever_the_clock_is(
    local: LocalRig, set_by_ms: int
) -> None:
    local.engine.start(EPOCH, [launch(local, "y-1-1", LONG)])
    patience.until(lambda: local.engine.status(["y-1-1"])[0].started_ms)
    began_ms = steady_ms()
    time.sleep(1.0)
    os.kill(claimed_pid(local, "y-1-1"), signal.SIGKILL)
    wait_gone(claimed_pid(local, "y-1-1"))
    (report,) = local.reopen(now_ms=lambda: now_ms() + set_by_ms).status(["y-1-1"])
    least_ms = steady_ms() - began_ms

    assert Outcome.NODE_FAIL is report.outcome
    assert 900 <= report.ended_ms - report.started_ms <= least_ms + 60_000


def test_a_process_that_got_the_number_of_a_dead_supervisor_is_left_alone(local: LocalRig) -> None:
    """The number is this test's own, so that a signal sent to it would be seen."""
    local.engine.start(EPOCH, [launch(local, "y-1-1", LONG)])
    until_alive(local, "y-1-1")
    claim = json.loads(local.claim("y-1-1").read_text())
    os.kill(claim["pid"], signal.SIGKILL)
    wait_gone(claim["pid"])
    local.claim("y-1-1").write_text(json.dumps(claim | {"pid": os.getpid()}))
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        fresh = local.reopen()
        fresh.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
        (report,) = fresh.status(["y-1-1"])
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert [] == heard
    assert (Phase.ENDED, Outcome.NODE_FAIL) == (report.phase, report.outcome)
    assert 0 == local.alive("y-1-1")


@pytest.mark.parametrize("name", ["launch.json", "work.json"])
def test_a_launch_that_a_crash_of_the_machine_broke_is_written_again(local: LocalRig, name: str) -> None:
    one = launch(local, "y-1-1")
    local.engine._write(one)
    (local.data / "attempts" / "y-1-1" / name).write_bytes(b"")

    assert [Answer.DONE] == [reply.answer for reply in local.engine.start(EPOCH, [one])]
    assert Outcome.COMPLETED is ended(local, "y-1-1").outcome
    assert 1 == local.starts("y-1-1")


def test_written_but_never_spawned_is_unknown_and_starts_when_asked_again(local: LocalRig) -> None:
    """The server died between the two."""
    one = launch(local, "y-1-1")
    local.engine._write(one)

    assert Phase.UNKNOWN is look(local, "y-1-1").phase
    assert [] == local.engine.listing()
    local.engine.start(EPOCH, [one])
    assert Outcome.COMPLETED is ended(local, "y-1-1").outcome
    assert 1 == local.starts("y-1-1")


def test_stopped_before_it_was_spawned_never_runs(local: LocalRig) -> None:
    one = launch(local, "y-1-1")
    local.engine._write(one)
    local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    local.engine.start(EPOCH, [one])
    report = ended(local, "y-1-1")

    assert (Outcome.CANCELLED, "stopped before it ran") == (report.outcome, report.why)
    assert 0 == local.starts("y-1-1")


def test_the_newest_epoch_outlives_every_process(local: LocalRig) -> None:
    local.engine.start(7, [])
    local.engine.close()
    local.engine = local.reopen()

    with pytest.raises(Exception, match="epoch 6 is over, the newest is 7"):
        local.engine.start(6, [launch(local, "y-1-1")])


def test_a_full_disk_loses_no_end_and_refuses_no_more_than_it_must(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    rig = LocalRig(tmp_path)
    rig.data = small / "data"
    try:
        rig.engine = rig.reopen()
        recipe = Recipe(argv=("sh", "-c", "head -c 1000000 /dev/zero; echo $? >&2; exit 6"))
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
        report = ended(rig, "y-1-1")

        assert (Outcome.FAILED, 6) == (report.outcome, report.exit_code)
        (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-2-1", recipe=recipe, job_id=2)])
        assert Answer.UNSURE is reply.answer
        assert "No space left" in reply.why
        assert ["y-1-1"] == [each.key for each in rig.engine.listing()]
        rig.engine.stop(EPOCH + 1, [])
        with pytest.raises(Exception, match=f"epoch {EPOCH} is over"):
            rig.engine.stop(EPOCH, [])
        (small / "data" / "attempts" / "y-1-1" / "stdout").write_bytes(b"")
        rig.engine.start(EPOCH + 1, [launch(rig, "y-2-1", recipe=Recipe(argv=("true",)), job_id=2)])
        assert Outcome.COMPLETED is ended(rig, "y-2-1").outcome
    finally:
        rig.close()
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_start_without_room_costs_the_job_nothing_wherever_the_room_ends(tmp_path: Path) -> None:
    """Inodes run out at the first write of a start, at the second, and so on, until it goes through."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=200", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    rig = LocalRig(tmp_path)
    rig.data = small / "data"
    told = []
    try:
        rig.engine = rig.reopen()
        recipe = Recipe(script="#!/bin/sh\necho ran\n")
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
        ended(rig, "y-1-1")
        for room in range(30):
            key = f"y-{room + 2}-1"
            rig.keys.add(key)
            found = os.statvfs(small)
            left = f"remount,nr_inodes={found.f_files - found.f_ffree + room}"
            subprocess.run(["mount", "-o", left, str(small)], check=True)
            try:
                (reply,) = rig.engine.start(EPOCH, [launch(rig, key, recipe=recipe, job_id=room + 2)])
            except Transient as error:
                reply = Reply(Answer.UNSURE, str(error))
            if reply.answer is Answer.DONE:
                report = ended(rig, key)
                told.append((report.outcome, report.why.partition(":")[0]))
            else:
                assert Answer.UNSURE is reply.answer
                assert [] == list((rig.data / "attempts").glob(f"{key}/end.json.*")), "no place is kept twice"
            if told and told[-1][0] is Outcome.COMPLETED:
                break
        assert (Outcome.COMPLETED, "") == told[-1]
        assert {NO_ROOM, UNFENCED} >= {why for _outcome, why in told[:-1]}
        assert {Outcome.NODE_FAIL} >= {outcome for outcome, _why in told[:-1]}
        assert told[:-1]
    finally:
        rig.close()
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_stop_without_room_for_the_end_is_a_stop(local: LocalRig) -> None:
    """The stop had claimed the attempt, which was then taken for one whose supervisor was killed."""
    local.engine._write(launch(local, "y-1-1"))
    local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    end = local.data / "attempts" / "y-1-1" / files.END
    end.unlink()
    (report,) = local.reopen().status(["y-1-1"])
    assert (Outcome.CANCELLED, "stopped before it ran") == (report.outcome, report.why)
    assert end.exists()


def test_what_a_restart_of_the_machine_ended_is_not_started(local: LocalRig) -> None:
    """It had not run before: nobody had claimed it, so that asking for it again ran it though its end was told."""
    one = launch(local, "y-1-1", Program())
    local.engine._write(one)
    rebooted = local.reopen(boot_id=lambda: "another boot")
    assert Phase.ENDED is rebooted.status(["y-1-1"])[0].phase
    (local.data / "attempts" / "y-1-1" / files.END).unlink()
    rebooted = local.reopen(boot_id=lambda: "another boot")
    assert [Answer.DONE] == [reply.answer for reply in rebooted.start(EPOCH, [one])]
    assert Outcome.NODE_FAIL is rebooted.status(["y-1-1"])[0].outcome
    assert 0 == local.starts("y-1-1")
    assert not local.claim("y-1-1").exists()


HEADLESS = """
import ctypes, os, sys, threading, time
if os.fork():
    time.sleep(60)
os.setsid()
def go_on():
    time.sleep(0.1)
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(60)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A daemon whose first thread has ended: it looks like a zombie, and runs."""


def headless(told: Path) -> int:
    """The daemon that tells of itself there, once it looks so."""
    pid = int(patience.until(lambda: told.exists() and told.read_text()))
    patience.until(lambda: gone(pid))
    return pid


def test_a_process_whose_first_thread_has_ended_is_killed_like_any_other(
    local: LocalRig, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    local.keys.add("y-1-1")
    recipe = Recipe(argv=(sys.executable, "-c", HEADLESS, str(told)))
    local.engine.start(EPOCH, [launch(local, "y-1-1", recipe=recipe)])
    pid = headless(told)
    try:
        local.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 200)])
        assert Outcome.CANCELLED is ended(local, "y-1-1").outcome
        assert not processes.is_running(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_process_whose_first_thread_has_ended_does_not_outlive_its_supervisor(
    local: LocalRig, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    local.keys.add("y-1-1")
    recipe = Recipe(argv=(sys.executable, "-c", HEADLESS, str(told)))
    local.engine.start(EPOCH, [launch(local, "y-1-1", recipe=recipe)])
    pid = headless(told)
    try:
        os.kill(claimed_pid(local, "y-1-1"), signal.SIGKILL)
        wait_gone(claimed_pid(local, "y-1-1"))
        assert Outcome.NODE_FAIL is ended(local, "y-1-1").outcome
        assert not processes.is_running(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
