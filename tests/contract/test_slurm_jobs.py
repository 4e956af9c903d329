"""What only the Slurm engine promises: nodes together, lost and doubled jobs, others on the cluster, bad weather."""

import json
import os
import pwd
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from contract.rigs import EPOCH, Program, ended, launch, look, moments, until, until_alive
from contract.slurm_rig import SlurmRig
from gpuyard.engines.contract import Answer, Launch, NodeReport, Part, Phase, Recipe, StopRequest, Transient
from gpuyard.model import Outcome
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

LONG = Program(run_ms=60_000)


def start(rig: SlurmRig, *launches: Launch) -> list[Answer]:
    return [reply.answer for reply in rig.engine.start(EPOCH, launches)]


def stop(rig: SlurmRig, *keys: str) -> None:
    rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 400) for key in keys])
    for key in keys:
        ended(rig, key)


def over(one: Launch, *parts: tuple[str, int, int]) -> Launch:
    """The same launch on these nodes: name, GPUs, tasks."""
    return replace(
        one,
        parts=tuple([Part(node, tuple(range(gpus)), 1000, 1000, 64, tasks) for node, gpus, tasks in parts]),
    )


def report_of(rig: SlurmRig, node: str) -> NodeReport:
    (report,) = [each for each in rig.engine.nodes() if each.node.name == node]
    return report


def slurm_ids(rig: SlurmRig, key: str) -> list[int]:
    ids: list[int] = json.loads((rig.data / "attempts" / key / "submit.json").read_text())["ids"]
    return ids


def test_a_gang_over_nodes_starts_together_and_ends_together(slurm: SlurmRig) -> None:
    """Two nodes alike and one with less: to Slurm a heterogeneous job, to the job one world."""
    program = Program(run_ms=1500, exit_code=7, only_rank=4)
    gang = over(launch(slurm, "y-1-1", program), ("n1", 4, 2), ("n2", 4, 2), ("n3", 2, 1))

    assert [Answer.DONE] == start(slurm, gang)
    until_alive(slurm, "y-1-1", 5)
    given = dict(look(slurm, "y-1-1").gpus)
    report = ended(slurm, "y-1-1")
    assert (Outcome.FAILED, 7, "task 4 exit code 7") == (report.outcome, report.exit_code, report.why)
    assert [4, 4, 4, 4, 2] == [len(gpus) for gpus in slurm.gpus_seen("y-1-1")]
    assert {"n1": 4, "n2": 4, "n3": 2} == {node: len(gpus) for node, gpus in given.items()}
    assert 0 == slurm.alive("y-1-1")


def test_a_gang_over_nodes_is_stopped_by_term_and_then_by_kill(slurm: SlurmRig) -> None:
    program = Program(run_ms=60_000, ignores_term=True)
    start(slurm, over(launch(slurm, "y-1-1", program), ("n1", 1, 1), ("n2", 1, 1)))
    until_alive(slurm, "y-1-1", 2)
    until(slurm, "y-1-1", Phase.RUNNING)
    slurm.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 500)])
    report = ended(slurm, "y-1-1")

    assert (Outcome.PREEMPTED, 128 + 9) == (report.outcome, report.exit_code)
    assert 0 == slurm.alive("y-1-1")


def warned(rig: SlurmRig, script: str, *, shell: bool, by: int = signal.SIGUSR1) -> list[str]:
    """What a job writes that is preempted, and so warned, once it has said that it is there; `by` 0: no warning."""
    recipe = Recipe(
        script=script, warn_signal=by, warn_ms=20_000, warn_shell=shell, batch=True, stdout="out",
        cwd=str(rig.effects),
    )  # fmt: skip
    rig.keys.add("y-1-1")
    assert [Answer.DONE] == start(rig, launch(rig, "y-1-1", recipe=recipe))
    until_alive(rig, "y-1-1")
    until(rig, "y-1-1", Phase.RUNNING)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 40_000)])
    ended(rig, "y-1-1")
    return (rig.effects / "out").read_text(encoding="utf-8").splitlines()


def test_a_warning_for_the_shell_alone_leaves_its_children_to_their_work(slurm: SlurmRig) -> None:
    script = (
        f"#!/bin/sh\ntrap 'echo warned' USR1\n(sleep 2) & echo >>{slurm.effects}/y-1-1\n"
        "wait $!\nwait $!\necho child $?\n"
    )
    assert ["warned", "child 0"] == warned(slurm, script, shell=True)


def test_a_warning_for_steps_reaches_them_and_not_the_shell(slurm: SlurmRig) -> None:
    there = f"{slurm.effects}/y-1-1"
    step = f'exec 2>/dev/null; trap "echo saved; exit 0" USR1; echo >>{there}; while :; do sleep 0.05; done'
    script = f"#!/bin/sh\nsrun -n1 sh -c '{step}'\necho shell $?\n"
    assert ["saved", "shell 0"] == warned(slurm, script, shell=False)


def test_training_that_outlives_its_shell_may_save_its_work(slurm: SlurmRig) -> None:
    """A shell without a trap dies of TERM at once, and what it started has the grace for itself."""
    train = (
        f'trap "sleep 1; echo saved; exit 0" TERM; echo >>{slurm.effects}/y-1-1; while :; do sleep 0.05; done'
    )
    assert "saved" == warned(slurm, f"#!/bin/sh\nsh -c '{train}'\nexit 3\n", shell=False, by=0)[-1]


def test_what_slurm_forgot_is_handed_in_again_and_runs_once(slurm: SlurmRig) -> None:
    one = launch(slurm, "y-1-1", Program(run_ms=500), gpus=(0,))
    # Somebody has the node, so it waits in Slurm; then Slurm does not know it any more.
    number = slurm.cluster.submit("#!/bin/sh\nexec sleep 30\n", "--nodelist=n1", "--gres=gpu:8")
    start(slurm, one)
    assert Phase.STARTING is look(slurm, "y-1-1").phase
    (lost,) = slurm_ids(slurm, "y-1-1")
    forget(slurm, lost)
    slurm.cluster.command("scancel", str(number))

    # A cancelled job that has not run waits again under another key; here its trace is gone altogether.
    assert Phase.UNKNOWN is look(slurm, "y-1-1").phase
    assert [Answer.DONE] == start(slurm, one)
    assert Outcome.COMPLETED is ended(slurm, "y-1-1").outcome
    assert 1 == slurm.starts("y-1-1")


def forget(rig: SlurmRig, number: int) -> None:
    """Let Slurm lose a job: cancelled, and out of its memory, as after a crash."""
    rig.cluster.command("scontrol", "update", f"jobid={number}", "comment=gone")
    rig.cluster.command("scancel", str(number))
    # An answer that is half a second old is still gone by.
    time.sleep(0.7)


def test_what_slurm_has_twice_runs_once(slurm: SlurmRig) -> None:
    start(slurm, launch(slurm, "y-1-1", Program(run_ms=1500)))
    folder = slurm.data / "attempts" / "y-1-1"
    (program,) = slurm.data.glob("program-*")
    code = f"import sys; sys.path.insert(0, '{program}'); from node.slurm.head import main; sys.exit(main())"
    script = f'#!/bin/sh\nexec python3 -I -S -c "{code}" {folder}\n'
    doubles = [slurm.cluster.submit(script, "--nodelist=n2", f"--comment={mark(slurm)}") for _ in range(3)]
    report = ended(slurm, "y-1-1")
    for _ in moments(slurm):
        if not slurm.live_jobs():
            break
        slurm.let_pass(100)

    assert 3 == len(doubles)
    assert (Outcome.COMPLETED, 1) == (report.outcome, slurm.starts("y-1-1"))


def mark(rig: SlurmRig, key: str = "y-1-1") -> str:
    return rig.engine._folder.mark(key)


def test_a_job_that_slurm_does_not_start_is_taken_back_and_its_node_left_out(
    slurm_of_eight: SlurmCluster, tmp_path: Path
) -> None:
    rig = SlurmRig(tmp_path, slurm_of_eight, handoff_ms=1500)
    number = slurm_of_eight.submit("#!/bin/sh\nexec sleep 60\n", "--nodelist=n1", "--gres=gpu:8")
    start(rig, launch(rig, "y-1-1", gpus=(0,)))
    report = ended(rig, "y-1-1")
    aside = report_of(rig, "n1")
    slurm_of_eight.command("scancel", str(number))

    assert (Outcome.PREEMPTED, 0) == (report.outcome, rig.starts("y-1-1"))
    assert report.why.startswith("Slurm did not start it within 1 s: ")
    assert (False, True) == (aside.up, "left out for a while" in aside.why)
    assert report_of(rig, "n2").up
    rig.close()


def test_jobs_of_others_are_counted_and_left_alone(slurm: SlurmRig) -> None:
    number = slurm.cluster.submit("#!/bin/sh\nexec sleep 60\n", "--nodelist=n1", "--gres=gpu:3", "--mem=100")
    start(slurm, launch(slurm, "y-1-1", LONG, gpus=(6, 7)))
    until_alive(slurm, "y-1-1")
    for _ in moments(slurm):
        busy = report_of(slurm, "n1").busy
        if busy:
            break
        slurm.let_pass(100)
    stop(slurm, "y-1-1")
    state = slurm.cluster.command("squeue", "-h", "-j", str(number), "-o", "%T").strip()
    slurm.cluster.command("scancel", str(number))

    # Not those that ours holds in the books, whatever Slurm calls them.
    assert [3, 4, 5] == [each.gpu for each in busy]
    assert f"Slurm job {number} of root" == busy[0].user
    assert "RUNNING" == state


def test_cancelled_in_slurm_is_cancelled(slurm: SlurmRig) -> None:
    start(slurm, launch(slurm, "y-1-1", LONG))
    until_alive(slurm, "y-1-1")
    until(slurm, "y-1-1", Phase.RUNNING)
    slurm.cluster.command("scancel", str(slurm_ids(slurm, "y-1-1")[0]))
    report = ended(slurm, "y-1-1")

    assert (Outcome.CANCELLED, "Slurm ended it: CANCELLED") == (report.outcome, report.why)


def test_cancelled_in_slurm_which_has_forgotten_it_is_cancelled_by_the_accountings_word(
    slurm: SlurmRig,
) -> None:
    """As after a yard that was away for longer than Slurm remembers."""
    start(slurm, launch(slurm, "y-1-1", LONG))
    until_alive(slurm, "y-1-1")
    until(slurm, "y-1-1", Phase.RUNNING)
    forget(slurm, slurm_ids(slurm, "y-1-1")[0])
    report = ended(slurm, "y-1-1")

    assert (Outcome.CANCELLED, "Slurm ended it: CANCELLED") == (report.outcome, report.why)


def test_a_node_that_goes_down_ends_its_jobs_as_node_fail(slurm: SlurmRig) -> None:
    start(slurm, over(launch(slurm, "y-1-1", LONG), ("n4", 1, 1), ("n5", 1, 1)))
    until_alive(slurm, "y-1-1", 2)
    until(slurm, "y-1-1", Phase.RUNNING)
    slurm.cluster.command("scontrol", "update", "nodename=n5", "state=down", "reason=pulled")
    report = ended(slurm, "y-1-1")
    with suppress(RuntimeError):
        # A node whose slurmd answers comes back by itself.
        slurm.cluster.command("scontrol", "update", "nodename=n5", "state=resume")

    assert Outcome.NODE_FAIL is report.outcome
    assert 0 == slurm.alive("y-1-1")


def test_a_drained_node_keeps_what_runs_and_takes_nothing_new(slurm: SlurmRig) -> None:
    start(slurm, launch(slurm, "y-1-1", LONG, node="n6"))
    until_alive(slurm, "y-1-1")
    slurm.cluster.command("scontrol", "update", "nodename=n6", "state=drain", "reason=fan")
    report = report_of(slurm, "n6")
    phase = look(slurm, "y-1-1").phase
    slurm.cluster.command("scontrol", "update", "nodename=n6", "state=resume")
    stop(slurm, "y-1-1")

    assert (False, "drained in Slurm: fan") == (report.up, report.why)
    assert Phase.RUNNING is phase


def test_a_partition_that_is_gone_costs_no_job(slurm: SlurmRig) -> None:
    slurm.cluster.command("scontrol", "create", "partitionname=brief", "nodes=n7", "state=up")
    slurm.site = replace(slurm.site, partitions=("brief",))
    slurm.engine = slurm.reopen()
    assert report_of(slurm, "n7").up
    slurm.cluster.command("scontrol", "delete", "partitionname=brief")
    (answer,) = start(slurm, launch(slurm, "y-1-1", node="n7"))
    report = ended(slurm, "y-1-1")

    assert (Answer.DONE, Outcome.PREEMPTED) == (answer, report.outcome)
    assert "nvalid partition" in report.why
    assert [] == [each for each in slurm.engine.nodes() if each.up]
    assert "Slurm has no partition brief: nothing can start there" in slurm.engine.notes


def test_nothing_starts_that_would_run_into_a_maintenance(slurm: SlurmRig) -> None:
    slurm.cluster.command(
        "scontrol", "create", "reservation", "reservationname=fix", "starttime=now+30minutes",
        "duration=10", "nodes=n8", "flags=maint", "users=root",
    )  # fmt: skip
    slurm.engine.nodes()
    start(
        slurm,
        launch(slurm, "y-1-1", node="n8", limit_ms=3_600_000),
        launch(slurm, "y-2-1", node="n8", limit_ms=60_000),
    )
    refused, ran = ended(slurm, "y-1-1"), ended(slurm, "y-2-1")
    slurm.cluster.command("scontrol", "delete", "reservationname=fix")

    assert (Outcome.PREEMPTED, "maintenance fix of Slurm begins before it would end") == (
        refused.outcome,
        refused.why,
    )
    assert Outcome.COMPLETED is ran.outcome


@pytest.fixture
def nobody(slurm_of_eight: SlurmCluster) -> pwd.struct_passwd:
    with suppress(RuntimeError):
        # It may be there already.
        slurm_of_eight.command("sacctmgr", "-i", "add", "user", "nobody", "account=root")
    return pwd.getpwnam("nobody")


def test_a_job_of_another_user_runs_as_that_user(
    slurm: SlurmRig, nobody: pwd.struct_passwd, tmp_path: Path
) -> None:
    open_up(tmp_path)
    recipe = Recipe(argv=("sh", "-c", "id -u; touch $YARD_CHECKPOINT_FILE; ls -ld $YARD_ATTEMPT_DIR/run"))
    recipe = replace(recipe, uid=nobody.pw_uid, gid=nobody.pw_gid, user="nobody")
    start(slurm, launch(slurm, "y-1-1", recipe=recipe))
    report = ended(slurm, "y-1-1")
    said = slurm.engine.log("y-1-1", "stdout", "", 1000).content.decode()

    assert (Outcome.COMPLETED, True) == (report.outcome, report.checkpoint_ms > 0), (said, report.why)
    assert str(nobody.pw_uid) == said.splitlines()[0]
    assert (slurm.data / "attempts" / "y-1-1").stat().st_uid == os.geteuid()


def test_what_a_user_writes_into_its_folder_is_not_believed(
    slurm: SlurmRig, nobody: pwd.struct_passwd
) -> None:
    """A link in place of an end, and an end of somebody else's making."""
    start(slurm, launch(slurm, "y-1-1", LONG))
    until_alive(slurm, "y-1-1")
    until(slurm, "y-1-1", Phase.RUNNING)
    end = slurm.data / "attempts" / "y-1-1" / "run" / "end.json"
    for lie in (
        '{"outcome": "GREAT"}',
        '{"outcome": "COMPLETED", "exit_code": "0"}',
        "[",
        "\0",
        "[" * 100_000,
    ):
        end.write_text(lie)
        assert Phase.RUNNING is look(slurm, "y-1-1").phase
        end.unlink()
    end.symlink_to("/etc/passwd")
    assert Phase.RUNNING is look(slurm, "y-1-1").phase
    end.unlink()
    os.mkfifo(end)
    assert Phase.RUNNING is look(slurm, "y-1-1").phase
    end.unlink()
    stop(slurm, "y-1-1")


def test_who_says_it_has_ended_and_runs_on_is_ended_by_slurm(
    slurm: SlurmRig,
) -> None:
    slurm.engine._monitor.linger_s = 1.0
    start(slurm, launch(slurm, "y-1-1", LONG))
    until_alive(slurm, "y-1-1")
    until(slurm, "y-1-1", Phase.RUNNING)
    lie = {
        "outcome": "COMPLETED",
        "exit_code": 0,
        "why": "",
        "started_ms": 1,
        "ended_ms": 2,
        "checkpoint_ms": 0,
    }
    end = slurm.data / "attempts" / "y-1-1" / "run" / "end.json"
    end.write_text(json.dumps(lie | {"slurm_id": slurm_ids(slurm, "y-1-1")[0]}))
    assert Phase.ENDED is look(slurm, "y-1-1").phase
    slurm.engine.forget(EPOCH, ["y-1-1"])
    for _ in moments(slurm):
        slurm.engine.nodes()
        if not slurm.live_jobs() and not slurm.alive("y-1-1"):
            break
        slurm.let_pass(200)
    assert [] == slurm.live_jobs()


@pytest.mark.soak
def test_while_the_controller_is_away_nothing_is_concluded_and_ends_are_seen(slurm: SlurmRig) -> None:
    start(slurm, launch(slurm, "y-1-1", LONG), launch(slurm, "y-2-1", Program(run_ms=3000), job_id=2))
    for key in ("y-1-1", "y-2-1"):
        until_alive(slurm, key)
        until(slurm, key, Phase.RUNNING)
    # What is running has to be in Slurm's memory for it to be there afterwards.
    time.sleep(6)
    os.kill(slurm.cluster.pid("slurmctld"), signal.SIGKILL)
    slurm.cluster.end("slurmctld")
    try:
        with pytest.raises(Transient, match=r"ontact slurm controller|did not answer"):
            slurm.engine.nodes()
        assert [Answer.UNSURE] == start(slurm, launch(slurm, "y-3-1", job_id=3))
        assert Outcome.COMPLETED is ended(slurm, "y-2-1").outcome
        assert Phase.RUNNING is look(slurm, "y-1-1").phase
        # Stops need no controller: the wrapper finds the wish by itself.
        stop(slurm, "y-1-1")
    finally:
        slurm.cluster.start("slurmctld")
    for _ in moments(slurm):
        if [Answer.DONE] == start(slurm, launch(slurm, "y-3-1", job_id=3)):
            break
        slurm.let_pass(500)
    assert Outcome.COMPLETED is ended(slurm, "y-3-1").outcome
    assert 1 == slurm.starts("y-3-1")
    # Slurm still takes those for running whose ends nobody could tell it.
    for _ in moments(slurm):
        slurm.engine.nodes()
        if not slurm.live_jobs():
            break
        slurm.let_pass(500)
    assert [] == slurm.live_jobs()


def test_a_user_cannot_have_the_files_of_others_read(
    slurm: SlurmRig, nobody: pwd.struct_passwd, tmp_path: Path
) -> None:
    """By a plan of its own making, or by a link in place of what it printed."""
    open_up(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    words = f"ln -sf {secret} $YARD_ATTEMPT_DIR/run/stdout; ls -l $YARD_ATTEMPT_DIR >&2"
    lie = f's|"uid": [0-9]*|"uid": 0|; s|"stdout": ""|"stdout": "{secret}"|'
    words += f"; sed -i '{lie}' $YARD_ATTEMPT_DIR/run/plan.json"
    words += "; echo broken >$YARD_ATTEMPT_DIR/launch.json; echo broken >$YARD_ATTEMPT_DIR/end.json"
    recipe = Recipe(argv=("sh", "-c", words), uid=nobody.pw_uid, gid=nobody.pw_gid, user="nobody")
    start(slurm, launch(slurm, "y-1-1", recipe=recipe))
    ended(slurm, "y-1-1")
    again = slurm.reopen()

    assert [b"", b""] == [each.log("y-1-1", "stdout", "", 100).content for each in (slurm.engine, again)]
    again.forget(EPOCH, ["y-1-1"])
    assert b"" == again.log("y-1-1", "stdout", "", 100).content


def open_up(tmp_path: Path) -> None:
    """pytest keeps its folders to itself, and jobs of others pass through them."""
    for folder in (tmp_path, *tmp_path.parents):
        mode = folder.stat().st_mode & 0o7777
        if mode & 0o011 == 0o011:
            # What everybody may pass through is left alone: it may be the machine's own.
            break
        folder.chmod(mode | 0o011)
