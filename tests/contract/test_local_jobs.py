"""What a job finds when the local engine runs it: its user, environment, files, signals and neighbours."""

import json
import os
import pwd
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rigs import EPOCH, LocalRig, Program, ended, launch, pids_of, until, until_alive
from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Container,
    Launch,
    Leftover,
    Part,
    Phase,
    Recipe,
    StopRequest,
)
from gpuyard.model import Outcome
from gpuyard.model.units import HOUR_MS
from harness.patience import patient

NASTY = {
    "LINES": "one\ntwo\n",
    "SHELL_WORDS": "$(touch /tmp/never) `id` ; rm -rf x && \"'\\ *",
    "UNICODE": "Grüße, 世界 🎉",
    "EMPTY": "",
    "RAW": b"\xff\xfe".decode("utf-8", "surrogateescape"),
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    made = LocalRig(tmp_path)
    yield made
    made.close()


def run(rig: LocalRig, recipe: Recipe, key: str = "y-1-1", **options: object) -> AttemptReport:
    rig.keys.add(key)
    (reply,) = rig.engine.start(EPOCH, [launch(rig, key, recipe=recipe, **options)])  # type: ignore[arg-type]
    assert Answer.DONE is reply.answer, reply.why
    return ended(rig, key)


def output(rig: LocalRig, stream: str = "stdout") -> str:
    return rig.engine.log("y-1-1", stream, "", 1_000_000).content.decode("utf-8", "surrogateescape")


def test_a_job_has_a_folder_of_its_own_that_goes_with_it(open_rig: LocalRig) -> None:
    account = pwd.getpwnam("nobody")
    script = (
        '#!/bin/sh\nmkdir "$SLURM_TMPDIR/a" && echo data >"$SLURM_TMPDIR/a/b" && ls -R "$SLURM_TMPDIR"; pwd'
    )
    recipe = Recipe(script=script, uid=account.pw_uid, gid=account.pw_gid, user="nobody", slurm_commands=True)
    assert Outcome.COMPLETED is run(open_rig, recipe).outcome

    folder = open_rig.data / "attempts" / "y-1-1"
    assert f"{folder}/tmp:\na\n\n{folder}/tmp/a:\nb\n" in output(open_rig)
    assert not (folder / "tmp").exists()


def dig(folder: Path, depth: int) -> None:
    """Folders in folders: as a job makes them, whose path is longer than any that can be named."""
    here = os.getcwd()
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)


def test_a_job_that_leaves_folders_in_folders_ends_and_holds_up_nobody(
    rig: LocalRig, request: pytest.FixtureRequest
) -> None:
    script = (
        '#!/bin/sh\ncd "$SLURM_TMPDIR"; for i in $(seq 1200); do mkdir d && cd -P d; done; echo "$i deep"'
    )
    assert Outcome.COMPLETED is run(rig, Recipe(script=script, slurm_commands=True)).outcome

    folder = rig.data / "attempts" / "y-1-1"
    assert "1200 deep\n" == output(rig)
    assert not (folder / "tmp").exists()

    # Its supervisor was killed before it could take them away.
    dig(folder / "tmp", 1200)
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", "--", rig.data], check=True))
    rig.engine.forget(EPOCH, ["y-1-1"])
    assert ["tmp-y-1-1"] == os.listdir(rig.data / "removed")
    rig.engine.remove(Leftover.FOLDERS, [])
    assert [] == os.listdir(rig.data / "removed")


def environment(rig: LocalRig, **options: object) -> dict[str, str]:
    recipe = Recipe(argv=("/usr/bin/env", "-0"), env=NASTY)
    assert Outcome.COMPLETED is run(rig, recipe, **options).outcome
    return dict(entry.split("=", 1) for entry in output(rig).split("\0") if entry)


def test_the_environment_is_clean_and_exact(rig: LocalRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    found = environment(rig, gpus=(2, 5), job_id=17, restarts=2)
    uuids = found["CUDA_VISIBLE_DEVICES"].split(",")

    assert NASTY == {name: found[name] for name in NASTY}
    assert "SECRET_OF_THE_SERVER" not in found
    assert ["2", "5"] == [uuid.rpartition("-")[2] for uuid in uuids]
    assert all(uuid.startswith("GPU-emulated-") for uuid in uuids)
    expected = {
        "YARD_JOB_ID": "17",
        "YARD_ATTEMPT": "3",
        "YARD_RESTART_COUNT": "2",
        "YARD_CHECKPOINT_FILE": f"{rig.data}/jobs/17/checkpoint",
        "SLURM_JOB_ID": "17",
        "SLURM_JOBID": "17",
        "SLURM_JOB_NAME": "a job",
        "SLURM_NTASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": rig.node,
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_GPUS": "2",
        "SLURM_JOB_GPUS": "2,5",
        "SLURM_RESTART_COUNT": "2",
        "HOME": pwd.getpwuid(os.geteuid()).pw_dir,
    }
    assert expected == {name: found.get(name) for name in expected}
    assert not {"RANK", "MASTER_ADDR", "SLURM_ARRAY_JOB_ID"} & set(found)


def test_no_gpu_granted_is_no_gpu_seen(rig: LocalRig) -> None:
    assert "" == environment(rig)["CUDA_VISIBLE_DEVICES"]


def test_a_gang_knows_its_ranks_and_where_to_meet(rig: LocalRig) -> None:
    line = 'echo "$RANK $LOCAL_RANK $SLURM_PROCID $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT"'
    assert Outcome.COMPLETED is run(rig, Recipe(argv=("sh", "-c", line)), tasks=3).outcome
    lines = sorted(output(rig).splitlines())
    places = {each.split()[-1] for each in lines}

    assert [f"{rank} {rank} {rank} 3" for rank in range(3)] == [each.rpartition(" ")[0] for each in lines]
    assert 1 == len(places)
    assert 1024 <= int(places.pop().rpartition(":")[2])


def test_arguments_arrive_as_they_are(rig: LocalRig) -> None:
    words = tuple(NASTY.values())
    run(rig, Recipe(argv=("printf", "%s\\0", *words)))

    assert list(words) == output(rig).split("\0")[:-1]


def test_a_script_gets_its_arguments_and_its_interpreter(rig: LocalRig) -> None:
    run(rig, Recipe(script='#!/bin/sh -e\necho $# "$2"\n', argv=("a", "b c")))

    assert "2 b c\n" == output(rig)


@pytest.fixture
def deaf() -> Iterator[None]:
    """A process that ignores every signal that it may, as a yard does that was started from one."""
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("deaf")
def test_standard_input_is_empty_and_signals_are_as_new(rig: LocalRig) -> None:
    run(rig, Recipe(argv=("sh", "-c", "cat; grep -E '^(SigIgn|SigBlk|NoNewPrivs)' /proc/self/status")))

    blocked, ignored, bound = [int(line.split()[1], 16) for line in output(rig).splitlines()]
    # Signals 32 and 33 are the C library's own: it lets nobody change them, and some shells pass them on ignored.
    assert (0, 0, 1) == (blocked, ignored & ~(0b11 << 31), bound)


@pytest.fixture
def confined() -> Iterator[None]:
    """A process as a shell leaves it after `nice` and `ulimit -S`, as a yard is that was started from one."""
    if os.geteuid() != 0:
        pytest.skip("only root can take back what it gave up")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.setpriority(os.PRIO_PROCESS, 0, 5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (333, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    os.setpriority(os.PRIO_PROCESS, 0, 0)


@pytest.mark.usefixtures("confined")
def test_priority_and_limits_are_those_of_the_machine_not_of_the_shell(rig: LocalRig) -> None:
    run(rig, Recipe(argv=("sh", "-c", "nice; grep 'open files' /proc/self/limits")))
    (of_machine,) = [line for line in Path("/proc/1/limits").read_text().splitlines() if "open files" in line]
    wanted = [int(word) for word in of_machine.split()[3:5]]
    if not _may_raise_limits():
        wanted = [min(each, resource.getrlimit(resource.RLIMIT_NOFILE)[1]) for each in wanted]

    nice, limit = output(rig).splitlines()
    assert ("0", wanted) == (nice, [int(word) for word in limit.split()[3:5]])


def _may_raise_limits() -> bool:
    """Whether root has not lost that right (CAP_SYS_RESOURCE), as in some containers."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if "CapEff" in each]
    return bool(int(line.split()[1], 16) >> 24 & 1)


def test_a_users_jobs_may_have_half_of_the_numbers_that_the_machine_has_for_processes(rig: LocalRig) -> None:
    run(rig, Recipe(argv=("sh", "-c", "grep 'Max processes' /proc/self/limits")))
    soft, hard = output(rig).split()[2:4]

    most = int(Path("/proc/sys/kernel/pid_max").read_text()) // 2
    assert (True, True) == (0 < int(soft) <= most, 0 < int(hard) <= most)


BOMB = """
import os, signal, sys
from gpuyard.engines.machine import processes
processes.learn_limits(numbers=sys.argv[1])
processes.be_usual()
os.setgroups([])
os.setgid(54_399)
os.setuid(54_399)
made = []
try:
    while len(made) < 60:
        made.append(os.fork())
        if not made[-1]:
            signal.pause()
except BlockingIOError:
    print(len(made))
finally:
    for pid in made:
        os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_a_user_who_forks_without_end_leaves_numbers_to_others(tmp_path: Path) -> None:
    (tmp_path / "pid_max").write_text("40\n")
    words = [sys.executable, "-c", BOMB, str(tmp_path / "pid_max")]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)

    assert "19" == done.stdout.strip(), "and the first process itself"


def test_a_job_is_the_head_of_its_own_session(rig: LocalRig) -> None:
    run(rig, Recipe(argv=("sh", "-c", "echo $$; cut -d' ' -f5,6 /proc/$$/stat")))
    pid, ids = output(rig).splitlines()

    assert [pid, pid] == ids.split()


@pytest.mark.parametrize(
    ("recipe", "code", "why"),
    [
        (Recipe(argv=("no-such-program",)), 127, "cannot run no-such-program: No such file or directory"),
        (Recipe(argv=("/etc/passwd",)), 126, "cannot run /etc/passwd: Permission denied"),
        (Recipe(argv=("true",), cwd="/no/such/folder"), 126, "cannot enter folder /no/such/folder: "),
        (Recipe(script="#!/no/such/shell\n"), 127, "is the program of its first line there?"),
        (Recipe(argv=("true", "x" * 3_000_000)), 126, "cannot run true: Argument list too long"),
        (Recipe(argv=("true",), stdout="/etc/passwd/file"), 126, "/etc/passwd/file: Not a directory"),
    ],
    ids=["program", "permission", "folder", "interpreter", "length", "output"],
)
def test_what_cannot_run_fails_with_a_reason(rig: LocalRig, recipe: Recipe, code: int, why: str) -> None:
    report = run(rig, recipe, tasks=2)

    assert (Outcome.FAILED, code) == (report.outcome, report.exit_code)
    assert why in report.why


def test_what_is_malformed_is_refused(rig: LocalRig) -> None:
    bad = {
        "../../etc": Recipe(argv=("true",)),
        "y-2-1": Recipe(script="echo no first line"),
        "y-3-1": Recipe(argv=("true",), env={"A=B": "1"}),
        "y-4-1": Recipe(argv=("true",), env={"": "1"}),
        "y-5-1": Recipe(argv=("true",), cwd="relative"),
        "y-6-1": Recipe(argv=("true",), warn_signal=99),
        "y-7-1": Recipe(argv=("true", "\ud800")),
    }
    replies = rig.engine.start(EPOCH, [launch(rig, key, recipe=recipe) for key, recipe in bad.items()])

    assert [Answer.REFUSED] * len(bad) == [reply.answer for reply in replies]
    assert [] == list((rig.data / "attempts").iterdir())


def test_an_array_task_knows_its_index(rig: LocalRig) -> None:
    recipe = Recipe(argv=("sh", "-c", 'echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $YARD_JOB_ID"'))
    parts = (Part(rig.node, (), 1000, 1000, 64, 1),)
    one = Launch("y-1-1", 18, 1, "12_3", "array", recipe, parts, 0, 0, array_id=12, array_index=3)
    rig.engine.start(EPOCH, [one])
    ended(rig, "y-1-1")

    assert "12 3 12_3\n" == output(rig)


def ready_ms() -> int:
    """By when a script has set its traps."""
    return int(1000 * patient(0.3))


def test_the_warning_comes_before_the_limit_and_can_be_used(rig: LocalRig) -> None:
    script = "#!/bin/sh\ntrap 'echo warned; exit 0' USR1\nsleep 30 & wait\n"
    recipe = Recipe(script=script, warn_signal=signal.SIGUSR1, warn_ms=60_000 - ready_ms())
    report = run(rig, recipe, limit_ms=60_000)

    assert "warned\n" == output(rig)
    assert Outcome.COMPLETED is report.outcome
    assert report.ended_ms - report.started_ms < 60_000


def test_the_warning_comes_before_term_when_preempted(rig: LocalRig) -> None:
    script = (
        "#!/bin/sh\nexec 2>/dev/null\ntrap 'echo warned' USR1\ntrap 'echo term; exit 0' TERM\n"
        f"echo >>'{rig.effects}/y-1-1'\nwhile :; do sleep 0.02; done\n"
    )
    recipe = Recipe(script=script, warn_signal=signal.SIGUSR1, warn_ms=300)
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
    until_alive(rig, "y-1-1")
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 5_000)])

    assert Outcome.PREEMPTED is ended(rig, "y-1-1").outcome
    assert ["warned", "term"] == output(rig).split()


def test_a_warning_for_the_shell_alone_leaves_its_children_to_their_work(rig: LocalRig) -> None:
    """The child has no trap: the signal would end it."""
    after_ms = ready_ms()
    script = f"#!/bin/sh\ntrap 'echo warned' USR1\nsleep {after_ms // 1000 + 2} & wait $!\nwait $!\necho child $?\n"
    recipe = Recipe(script=script, warn_signal=signal.SIGUSR1, warn_ms=60_000 - after_ms, warn_shell=True)
    run(rig, recipe, limit_ms=60_000)

    assert ["warned", "child 0"] == output(rig).splitlines()


def test_a_warning_for_steps_reaches_them_and_not_the_shell(rig: LocalRig) -> None:
    """The shell has no trap: the signal would end it."""
    srun = f"{sys.executable} -m gpuyard.cli slurm srun -n1 sh -c"
    step = f'exec 2>/dev/null; trap "echo saved; exit 0" USR1; echo >>{rig.effects}/y-1-1; while :; do sleep 0.05; done'
    recipe = Recipe(
        script=f"#!/bin/sh\n{srun} '{step}'\necho shell $?\n", warn_signal=signal.SIGUSR1, warn_ms=20_000
    )
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
    until_alive(rig, "y-1-1")
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 40_000)])
    ended(rig, "y-1-1")

    assert ["saved", "shell 0"] == output(rig).splitlines()


def test_what_a_shell_started_keeps_its_grace_when_the_shell_dies_of_term(rig: LocalRig) -> None:
    """The shell has no trap; the training that it started saves its work for a while."""
    saving = (
        f"trap 'sleep 0.5; echo saved; exit 0' TERM; echo >>{rig.effects}/y-1-1; while :; do sleep 0.05; done"
    )
    rig.keys.add("y-1-1")
    recipe = Recipe(script=f'#!/bin/bash\nbash -c "{saving}" 2>/dev/null\ntrue\n')
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])
    until_alive(rig, "y-1-1")
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 20_000)])
    report = ended(rig, "y-1-1")

    assert Outcome.CANCELLED is report.outcome
    assert "saved" in output(rig)


def test_the_folder_of_an_output_file_is_made(rig: LocalRig) -> None:
    out = rig.effects / "logs" / "deep" / "out"
    run(rig, Recipe(script="#!/bin/sh\necho here\n", stdout=str(out)))

    assert "here\n" == out.read_text()


def test_ending_well_after_term_is_still_preempted(rig: LocalRig) -> None:
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", Program(run_ms=60_000, ends_well_on_term=True))])
    until_alive(rig, "y-1-1")
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 5_000)])
    report = ended(rig, "y-1-1")

    assert (Outcome.PREEMPTED, 0) == (report.outcome, report.exit_code)


def test_a_frozen_job_stands_still(rig: LocalRig) -> None:
    """What it writes stops growing, with a process of another session in it."""
    path = rig.effects / "y-1-1"
    script = f"#!/bin/sh\nsetsid sh -c 'while :; do echo x >>{path}; sleep 0.01; done'\n"
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=Recipe(script=script))])
    until_alive(rig, "y-1-1", 3)
    until(rig, "y-1-1", Phase.RUNNING)
    rig.engine.suspend(EPOCH, ["y-1-1"])
    rig.let_pass(150)
    frozen = rig.starts("y-1-1")
    rig.let_pass(150)

    assert frozen == rig.starts("y-1-1")
    rig.engine.resume(EPOCH, ["y-1-1"])
    until_alive(rig, "y-1-1", frozen + 2)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(rig, "y-1-1")


def test_memory_that_runs_out_ends_jobs_before_the_server_and_its_supervisors(open_rig: LocalRig) -> None:
    account = pwd.getpwnam("nobody")
    recipe = Recipe(argv=("sleep", "60"), uid=account.pw_uid, gid=account.pw_gid, user="nobody")
    open_rig.keys.add("y-1-1")
    open_rig.engine.start(EPOCH, [launch(open_rig, "y-1-1", recipe=recipe)])
    until(open_rig, "y-1-1", Phase.RUNNING)
    (pid,) = pids_of(open_rig.data, "y-1-1")
    supervisor = json.loads(open_rig.claim("y-1-1").read_text())["pid"]
    found = [
        int(Path(f"/proc/{each}/oom_score_adj").read_text(encoding="ascii"))
        for each in (pid, supervisor, "self")
    ]
    open_rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(open_rig, "y-1-1")
    assert 500 == found[0]
    assert found[1] == found[2] < 500


def test_root_runs_a_job_as_its_user(open_rig: LocalRig) -> None:
    user = pwd.getpwnam("nobody")
    script = '#!/bin/sh\nid -u; id -g; id -G; pwd; echo $HOME; touch mine "$YARD_CHECKPOINT_FILE"; cat /etc/shadow\n'
    recipe = Recipe(script=script, uid=user.pw_uid, gid=user.pw_gid, user="nobody")
    report = run(open_rig, recipe)
    folder = open_rig.data / "jobs" / "1"

    assert Outcome.FAILED is report.outcome
    assert [str(user.pw_uid), str(user.pw_gid), str(user.pw_gid), str(folder), user.pw_dir] == output(
        open_rig
    ).splitlines()[:5]
    assert user.pw_uid == (folder / "mine").stat().st_uid
    assert 0 < report.checkpoint_ms
    assert 0 == (open_rig.data / "attempts" / "y-1-1" / "end.json").stat().st_uid
    assert 0o600 == (open_rig.data / "attempts" / "y-1-1" / "launch.json").stat().st_mode & 0o777


def test_named_outputs_are_opened_and_read_as_the_user(open_rig: LocalRig, tmp_path: Path) -> None:
    """Neither may the job write where its user may not, nor may its log show what its user may not read."""
    user = pwd.getpwnam("nobody")
    argv = ("sh", "-c", "echo out; echo err >&2; ln -sf /etc/shadow link")
    owner = {"uid": user.pw_uid, "gid": user.pw_gid, "user": "nobody"}
    run(open_rig, Recipe(argv=argv, stdout="out.txt", stderr="link", **owner))  # type: ignore[arg-type]

    assert "out\n" == output(open_rig)
    assert "" == output(open_rig, "stderr")
    secret = tmp_path / "only-root"
    secret.touch(0o600)
    recipe = Recipe(argv=argv, stdout="/etc/yard-contract", **owner)  # type: ignore[arg-type]
    open_rig.engine.start(EPOCH, [launch(open_rig, "y-2-1", recipe=recipe, job_id=2)])
    report = ended(open_rig, "y-2-1")
    assert (Outcome.FAILED, 126) == (report.outcome, report.exit_code)
    assert not Path("/etc/yard-contract").exists()


def test_a_pipe_that_nobody_reads_does_not_hold_the_supervisor(rig: LocalRig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert Outcome.FAILED is run(rig, Recipe(argv=("true",), stdout=str(tmp_path / "pipe"))).outcome


def test_a_server_of_a_user_runs_jobs_of_that_user_only(
    rig: LocalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=Recipe(("true",), uid=54_321, user="x"))])

    assert Answer.REFUSED is reply.answer
    assert "only a server of root" in reply.why


def test_nothing_of_a_jobs_environment_is_kept_with_its_log(rig: LocalRig) -> None:
    run(rig, Recipe(("sh", "-c", "echo said"), env={"TOKEN": "s3cret"}))
    rig.engine.forget(EPOCH, ["y-1-1"])
    old = rig.data / "attempts" / "y-2-1"
    run(rig, Recipe(("sh", "-c", "echo said"), env={"TOKEN": "s3cret"}), key="y-2-1")
    # As an earlier yard wrote it: in one file.
    plan = json.loads((old / "launch.json").read_text()) | json.loads((old / "work.json").read_text())
    (old / "launch.json").write_text(json.dumps(plan))
    (old / "work.json").unlink()
    rig.engine.forget(EPOCH, ["y-2-1"])

    kept = [path for path in (rig.data / "logs").rglob("*") if path.is_file()]
    assert {"y-1-1", "y-2-1"} == {path.parent.name for path in kept}
    assert [] == [path for path in kept if b"s3cret" in path.read_bytes()]
    assert (
        b"said\n"
        == rig.engine.log("y-1-1", "stdout", "", 10).content
        == rig.engine.log("y-2-1", "stdout", "", 10).content
    )


def test_five_hundred_live_attempts_are_looked_at_quickly(rig: LocalRig) -> None:
    """Measured at 27 ms for 500, of the CPU and by this thread alone."""
    rig.engine.start(EPOCH, [launch(rig, "y-0-1", Program(run_ms=60_000))])
    until_alive(rig, "y-0-1")
    until(rig, "y-0-1", Phase.RUNNING)
    attempts = rig.data / "attempts"
    keys = [f"y-{i}-1" for i in range(500)]
    for key in keys[1:]:
        (attempts / key).mkdir()
        for name in ("launch.json", "claim.json", "running.json"):
            os.link(attempts / "y-0-1" / name, attempts / key / name)
    rig.engine.status(keys)

    def took_s() -> float:
        begun = time.thread_time()
        rig.engine.status(keys)
        return time.thread_time() - begun

    reports = rig.engine.status(keys)
    quickest_s = min([took_s() for _ in range(5)])
    rig.engine.stop(EPOCH, [StopRequest("y-0-1", Outcome.CANCELLED, 0)])
    ended(rig, "y-0-1")

    assert [(key, Phase.RUNNING) for key in keys] == [(report.key, report.phase) for report in reports]
    assert quickest_s < 1


def test_a_job_that_removes_its_own_folder_does_not_run_again(rig: LocalRig, tmp_path: Path) -> None:
    mark, folder = tmp_path / "ran", rig.data / "attempts" / "y-1-1"
    # Again, where its supervisor writes something there in between.
    gone = 'while [ -e "$YARD_ATTEMPT_DIR" ]; do rm -rf "$YARD_ATTEMPT_DIR"; done'
    recipe = Recipe(script=f"#!/bin/sh\necho ran >>{mark}\n{gone}\nsleep 60\n")
    rig.keys.add("y-1-1")
    again = launch(rig, "y-1-1", recipe=recipe)
    assert [Answer.DONE] == [reply.answer for reply in rig.engine.start(EPOCH, [again])]
    for _ in range(1500):
        if mark.exists() and not folder.exists():
            break
        rig.let_pass(20)
    assert [Answer.REFUSED] == [reply.answer for reply in rig.engine.start(EPOCH, [again])]
    assert (["ran"], 0) == (mark.read_text().split(), rig.alive("y-1-1"))


def test_a_job_in_an_image_is_refused_with_the_exit_code_of_images_where_no_runtime_is_left(
    rig: LocalRig,
) -> None:
    # The yard was started anew after the job was handed in.
    rig.engine._images.missing = ["runc"]
    recipe = Recipe(("true",), containers=(Container("train"),))
    (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])

    assert (Answer.REFUSED, 125) == (reply.answer, reply.exit_code)
    assert "runs in an image, and runc is not installed on this machine" == reply.why


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_work_that_is_saved_after_the_clock_was_set_counts(rig: LocalRig, by_ms: int) -> None:
    """Time in the log goes by no clock that is set; a file that seemed to be from before the start was left out."""
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=Recipe(argv=("sleep", "600")))])
    started_ms = until(rig, "y-1-1", Phase.RUNNING).started_ms
    file = rig.data / "jobs" / "1" / "checkpoint"
    file.touch()
    at_s = file.stat().st_mtime + by_ms / 1000
    os.utime(file, (at_s, at_s))
    another = rig.reopen(now_ms=lambda: time.time_ns() // 1_000_000 + by_ms)
    (report,) = another.status(["y-1-1"])
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(rig, "y-1-1")
    (last,) = another.status(["y-1-1"])
    assert started_ms - 10 <= report.checkpoint_ms <= last.ended_ms + 1_000
