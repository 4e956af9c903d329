"""What people do first, with the commands themselves: run, submit, look, act."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuyard.api.client import Refused
from harness.patience import patient, until

from .conftest import Box


def test_the_first_job_takes_two_commands(bare: Box) -> None:
    up = bare("up", "-d", "--port", 0)
    done = bare("run", "-g", 1, "--", "python3", "-c", 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])')

    assert (0, 0, "") == (up.code, done.code, done.err)
    assert re.fullmatch(r"GPU-[\w-]+\n", done.out)
    assert up.out.startswith("the yard is up (pid ")


def test_nvidia_smi_shows_the_emulated_gpus_of_the_job_and_no_others(box: Box) -> None:
    line = "echo $CUDA_VISIBLE_DEVICES; nvidia-smi --query-gpu=uuid,memory.used --format=csv,noheader,nounits"
    done = box("run", "-g", 2, "--env", "YARD_EMULATED_LOAD=50% 3GiB", "--", "sh", "-c", line)

    assert 0 == done.code, done.err
    first, *rest = done.out.splitlines()
    assert [f"{uuid}, 3072" for uuid in first.split(",")] == rest


def test_the_exit_code_and_the_output_are_passed_on(box: Box) -> None:
    done = box("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert (7, "") == (done.code, done.err)
    assert ["err", "out"] == sorted(done.out.split())


def test_a_signal_is_128_and_its_number(box: Box) -> None:
    assert 128 + signal.SIGKILL == box("run", "--", "sh", "-c", "kill -9 $$").code


def test_a_time_limit_is_124_or_the_signal_and_says_so(box: Box) -> None:
    done = box("run", "--time", "1s", "--", "sleep", 60)

    assert 0 != done.code
    assert "ended with TIMEOUT" in done.err


def test_output_comes_as_it_is_written_and_ctrl_c_cancels(box: Box) -> None:
    words = box.command("run", "-n", "slow", "--", "sh", "-c", "echo first; sleep 60")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=box.environment
    ) as running:
        assert running.stdout is not None
        assert b"first\n" == running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert 130 == running.wait(120)
    until(lambda: "CANCELLED" in box("history", "--name", "slow").out)


def test_bytes_that_are_no_text_come_through(box: Box) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 400)"
    done = subprocess.run(
        box.command("run", "--", "python3", "-c", code), capture_output=True, env=box.environment, check=True
    )

    assert bytes(range(256)) * 400 == done.stdout


def test_submit_prints_the_id_and_logs_show_the_output(box: Box, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('#!/bin/sh\necho "$0 got $1 in $(pwd) as $YARD_JOB_NAME"\n')
    job_id = box.submit("--name", "mine", script, "7")
    job = box.wait(job_id, "COMPLETED")

    assert "got 7 in" in box("logs", job_id).out
    assert ("mine", 0, 1) == (job["name"], job["exit_code"], job["attempts"])
    assert f"got 7 in {box.data.parent} as mine" in box("logs", "-f", job_id).out
    from_stdin = box("submit", "-", stdin="#!/bin/sh\nexit 3\n")
    assert 3 == box.wait(int(from_stdin.out), "FAILED")["exit_code"]


def test_a_job_is_called_after_its_script_and_told_that_it_asks_for_no_gpus(box: Box, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\necho $YARD_JOB_NAME\n")
    (tmp_path / "fit.py").write_text("import os; print(os.environ['YARD_JOB_NAME'])\n")

    done = box("submit", "train.sh", cwd=tmp_path)
    assert f"note: job {done.out.strip()} asks for no GPUs; -g 1 for one, -g 0 if it needs none\n" == done.err
    box.wait(done.out.strip(), "COMPLETED")
    assert "train\n" == box("logs", done.out.strip()).out

    assert "fit\n" == box("run", "--", "python3", "-u", "fit.py", cwd=tmp_path).out
    for gpus in ("0", "1", "0.25"):
        assert "" == box("submit", "--hold", "-g", gpus, "train.sh", cwd=tmp_path).err


def test_the_environment_goes_along_unless_it_is_not_to(box: Box) -> None:
    say = ("--", "sh", "-c", 'echo "<$MARK$MORE$YARD_TOKEN>"')

    assert "<ab>\n" == box("run", "--env", "MORE=b", *say, MARK="a", YARD_TOKEN="secret").out
    assert "<b>\n" == box("run", "--no-export", "--env", "MORE=b", *say, MARK="a").out


def test_cancel_of_a_waiting_and_of_a_running_job(box: Box) -> None:
    running = box.submit("-g", 8, "--", "sleep", 60)
    box.wait(running, "RUNNING")
    waiting = box.submit("-g", 1, "--", "true")
    assert 0 == box("cancel", waiting, running).code
    assert "CANCELLED" == box.wait(waiting, "CANCELLED")["state"]
    assert "CANCELLED" == box.wait(running, "CANCELLED")["state"]

    again = box("cancel", waiting)
    assert 2 == again.code
    assert f"yard: job {waiting} has ended already: CANCELLED" in again.err
    assert 2 == box("cancel", 999_999).code


def test_hold_and_release(box: Box) -> None:
    held = box.submit("--hold", "--", "true")
    assert "on hold" in box("queue").out
    assert 2 == box("suspend", held).code
    assert 0 == box("release", held).code
    box.wait(held, "COMPLETED")


def test_suspend_and_continue(box: Box, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    job = box.submit("-g", 1, "--", "sh", "-c", f"while :; do date +%s%N > {beat}; sleep 0.05; done")
    until(beat.exists)
    assert 0 == box("suspend", job).code
    box.wait(job, "SUSPENDED")
    before = beat.read_text()
    time.sleep(0.3)
    assert before == beat.read_text(), "a frozen job does nothing"
    assert 0 == box("continue", job).code
    box.wait(job, "RUNNING")
    until(lambda: beat.read_text() != before)
    box("cancel", job)
    box.wait(job, "CANCELLED")


def test_requeue_tries_again_and_says_which_try_it_is(box: Box, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    code = f"echo $YARD_RESTART_COUNT $SLURM_RESTART_COUNT >> {tries}; [ $YARD_RESTART_COUNT = 0 ] && sleep 60; true"
    job = box.submit("--", "sh", "-c", code)
    until(tries.exists)
    assert 0 == box("requeue", job).code
    ended = box.wait(job, "COMPLETED")

    assert (2, "0 0\n1 1\n") == (ended["attempts"], tries.read_text())


def test_an_array_has_an_id_of_its_own_and_tasks_below_it(box: Box) -> None:
    array = box.submit(
        "--array", "0-6:3", "--", "sh", "-c", "echo $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID"
    )
    box.wait(f"{array}_6", "FAILED")
    ended = box.wait(array, "FAILED")

    assert {"COMPLETED": 1, "FAILED": 2} == ended["states"]
    assert [f"{array}_0", f"{array}_3", f"{array}_6"] == [task["label"] for task in ended["jobs"]]
    assert ["0\n", "3\n"] == [box("logs", f"{array}_{index}").out for index in (0, 3)]
    assert array + 4 == box.submit("--", "true"), "an array of three takes four ids"


def test_tasks_that_ask_for_nothing_take_turns_on_the_cores(box: Box, tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    tasks = cores + 4
    seen = f"ls {tmp_path} | wc -l"
    code = f"touch {tmp_path}/$YARD_JOB_ID; sleep 0.5; {seen}; rm {tmp_path}/$YARD_JOB_ID"
    array = box.submit("-g", 0, "--array", f"1-{tasks}", "--", "sh", "-c", code)
    # Those that count no cores, because they say so, wait for each other: all of them run at a time.
    code = f"touch {tmp_path}/$YARD_JOB_ID; while [ $({seen}) -lt {tasks} ]; do sleep 0.1; done; sleep 1"
    box.wait(array, "COMPLETED")
    free = box.submit("-g", 0, "-c", 0, "--array", f"1-{tasks}", "--", "sh", "-c", code)
    box.wait(free, "COMPLETED")

    at_a_time = [int(box("logs", f"{array}_{index}").out) for index in range(1, tasks + 1)]
    assert 1 <= max(at_a_time) <= cores


def test_cancelling_an_array_cancels_its_tasks(box: Box) -> None:
    array = box.submit("--array", "0-2", "--hold", "--", "true")
    box("cancel", array)
    assert {"CANCELLED": 3} == box.wait(array, "CANCELLED")["states"]


def test_a_gang_knows_its_ranks_and_shares_its_gpus(box: Box) -> None:
    say = 'echo $RANK $WORLD_SIZE $MASTER_ADDR $(echo $CUDA_VISIBLE_DEVICES | tr , "\\n" | wc -l)'
    done = box("run", "-g", 2, "--tasks", 3, "--", "sh", "-c", say)

    assert ["0 3 127.0.0.1 6", "1 3 127.0.0.1 6", "2 3 127.0.0.1 6"] == sorted(done.out.splitlines())


@pytest.mark.parametrize("words", [("queue",), ("history",), ("nodes",)])
def test_listings_come_in_five_forms(box: Box, words: tuple[str, ...]) -> None:
    held = box.submit("--hold", "--name", "listed", "--", "true")
    box("run", "--name", "listed", "--", "true")
    forms = {form: box(*words, "-o", form).out for form in ("table", "wide", "json", "yaml", "csv")}
    box("cancel", held)

    rows = json.loads(forms["json"])
    assert rows
    assert yaml.safe_load(forms["yaml"]) == rows
    assert len(rows) == len(list(csv.DictReader(io.StringIO(forms["csv"]))))
    assert len(rows) + 1 == len(forms["table"].splitlines()) == len(forms["wide"].splitlines())
    assert "\x1b" not in "".join(forms.values())


def test_a_drained_node_takes_nothing_new(box: Box) -> None:
    (node,) = json.loads(box("nodes", "-o", "json").out)
    assert 0 == box("drain", node["name"], "--why", "a fan is loud").code
    job = box.submit("-g", 1, "--", "true")
    assert ("DRAINED", "a fan is loud") == _first(box)
    assert "PENDING" == box.wait(job, "PENDING")["state"]
    assert 0 == box("resume", node["name"]).code
    box.wait(job, "COMPLETED")
    assert 2 == box("drain", "nowhere").code


def _first(box: Box) -> tuple[str, str]:
    (node,) = json.loads(box("nodes", "-o", "json").out)
    return node["state"], node["why"]


def test_show_tells_why_a_job_waits(box: Box) -> None:
    running = box.submit("-g", 8, "--time", "1h", "--", "sleep", 60)
    box.wait(running, "RUNNING")
    waiting = box.submit("-g", 4, "--", "true")
    # The scheduler may not have come to it by the first look.
    shown = until(lambda: done if "no room" in (done := box("show", waiting)).out else None)
    box("cancel", running, waiting)

    assert 0 == shown.code
    assert "PENDING" in shown.out
    assert "no room" in shown.out
    assert "expected to start at" in shown.out


def test_what_can_never_run_is_refused_with_the_reason(box: Box) -> None:
    done = box("submit", "-g", 100, "--", "true")
    assert (2, "") == (done.code, done.out)
    assert "it could never start: asks for 100 GPUs on one node; the largest node has 8" in done.err
    assert "did you mean 'batch'?" in box("submit", "--class", "bacth", "--", "true").err
    assert "did you mean 'A100-80GB'?" in box("submit", "-g", 1, "--gpu-model", "A100-8GB", "--", "true").err


def test_without_a_yard_commands_say_how_to_start_one(tmp_path: Path) -> None:
    nobody = Box(tmp_path / "empty")
    for words in (("queue",), ("submit", "--", "true"), ("nodes", "-o", "json")):
        done = nobody(*words)
        assert (4, "") == (done.code, done.out)
        assert "no yard is running here: start one with `yard up -d`" in done.err


def test_over_tcp_the_token_says_who_asks(box: Box) -> None:
    server = f"http://127.0.0.1:{box.note()['port']}"
    token = (box.data / "token").read_text().strip()
    assert 0 == box("queue", YARD_SERVER=server, YARD_TOKEN=token, YARD_DATA="/nowhere").code
    wrong = box("nodes", YARD_SERVER=server, YARD_TOKEN="wrong", YARD_DATA="/nowhere")
    assert 2 == wrong.code
    assert "its token is not this yard's" in wrong.err
    assert 0o600 == (box.data / "token").stat().st_mode & 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="only a server of root runs jobs as other users")
def test_a_server_of_root_runs_each_job_as_whoever_submitted_it() -> None:
    """Known by the socket alone: the other user has no token, and may not act on root's jobs."""
    with tempfile.TemporaryDirectory(prefix="yard-of-test-") as folder:
        os.chmod(folder, 0o711)
        box = Box(Path(folder) / "yard")
        box.up()
        try:
            theirs = box.submit("--hold", "--", "true")
            seen = _as_nobody(box, theirs)
            assert (403, "nobody", "nobody") == (seen["cancel"], seen["user"], seen["tenant"])
            box.wait(seen["id"], "COMPLETED")
            assert "65534 nobody\n" == box("logs", seen["id"]).out
        finally:
            box("down", "--jobs")


def _as_nobody(box: Box, theirs: int) -> dict[str, Any]:
    """What another user gets to see, in a process of its own: this checkout need not be readable for them."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            # The folder goes along with the job, and this one need not be theirs.
            os.chdir("/")
            client = box.client()
            say = "import os; print(os.getuid(), os.environ['USER'])"
            job: dict[str, Any] = dict(client.submit(command=["/usr/bin/env", "python3", "-c", say]))
            try:
                client.cancel(theirs)
            except Refused as refused:
                job["cancel"] = refused.status
            os.write(write, json.dumps(job).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as news:
        found: dict[str, Any] = json.loads(news.read() or b"{}")
    os.waitpid(child, 0)
    return found


def test_a_job_waits_for_another_and_goes_or_is_ended_with_it(box: Box) -> None:
    first = box.submit("--hold", "--", "false")
    well, ill = (
        box.submit("--after", first, "--", "true"),
        box.submit("--after", f"afternotok:{first}", "--", "true"),
    )
    assert f"it waits for job {first} to complete" in box("show", well).out
    box("release", first)
    assert "COMPLETED" == box.wait(ill, "COMPLETED")["state"]
    box.wait(well, "CANCELLED")
    assert f"job {first} is FAILED and was to complete" in box("show", well).out
    refused = box("submit", "--after", first, "--", "true")
    assert (2, True) == (refused.code, "could never start" in refused.err)


def test_a_run_at_its_time_limit_ends_with_124(box: Box) -> None:
    assert 124 == box("run", "-t", "1s", "--", "sleep", "30").code


def test_a_run_that_nobody_reads_is_cancelled(box: Box, tmp_path: Path) -> None:
    """`yard run -- … | head`: the job tells by its own file that it has stopped."""
    pid = tmp_path / "pid"
    script = f"echo $$ > {pid}; while echo y; do sleep 0.05; done"
    command = [*box.command("run", "--", "sh", "-c", script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=box.environment
    ) as run:
        assert run.stdout is not None
        assert b"y\n" == run.stdout.readline()
        run.stdout.close()
        assert 141 == run.wait(patient(30))
    until(lambda: not Path("/proc", pid.read_text().strip()).exists(), say=lambda: "the job goes on")


def test_a_batch_script_runs_once_with_room_for_what_it_starts(box: Box, tmp_path: Path) -> None:
    script = tmp_path / "batch.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --ntasks=2 --gpus-per-task=3\n#SBATCH --output=%x-%j.out\n"
        'echo "$SLURM_NTASKS $SLURM_PROCID $(echo $CUDA_VISIBLE_DEVICES | tr , "\\n" | wc -l) ${WORLD_SIZE-none}"\n'
    )
    done = box("submit", str(script), cwd=tmp_path)
    assert (0, "") == (done.code, done.err)
    job = int(done.out)
    box.wait(job, "COMPLETED")
    assert ["2 0 6 none"] == (tmp_path / f"batch.sh-{job}.out").read_text().splitlines()
