"""Commands beside a job without a terminal, from pipes as cron and CI have them; signals; Slurm's words for both."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from harness.patience import patient, until
from rigs.terminal import Pseudo

CONFIG = """\
version: 1
clusters:
  here: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}
classes:
  batch: {}
  slow: {grace: 100s}
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A yard that runs, for all tests of this file."""
    box = Box(tmp_path_factory.mktemp("beside") / "yard", CONFIG)
    box.up()
    yield box
    done = box("down", "--jobs")
    assert 0 == done.code, done.err


@pytest.fixture(scope="module")
def job(yard: Box) -> int:
    """A job that runs for long."""
    number = yard.submit("-g", 2, "--", "sleep", "600")
    yard.wait(number, "RUNNING")
    return number


@pytest.mark.parametrize("words", [("shell", "{}", "--"), ("slurm", "srun", "--jobid={}", "--overlap")])
def test_a_command_in_a_pipe_is_as_it_is_over_ssh(yard: Box, job: int, words: tuple[str, ...]) -> None:
    before = [word.format(job) for word in words]
    content = bytes(range(256)) * 3000
    done = subprocess.run(
        yard.command(*before, "sh", "-c", "echo job=$YARD_JOB_ID >&2; tty >&2; cat; exit 7"),
        input=content,
        capture_output=True,
        env=yard.environment,
        timeout=patient(60),
        check=False,
    )
    assert (7, f"job={job}\nnot a tty\n") == (done.returncode, done.stderr.decode())
    assert content == done.stdout


def test_a_command_that_reads_little_of_its_input_is_whole(yard: Box, job: int, tmp_path: Path) -> None:
    done = yard("shell", job, "--", "head", "-1", stdin="".join([f"{n}\n" for n in range(1, 20_001)]))
    assert (0, "1\n", "") == (done.code, done.out, done.err)
    ended = tmp_path / "ended"
    with (tmp_path / "large").open("wb+") as large:
        large.truncate(50_000_000)
        with subprocess.Popen(
            yard.command("shell", job, "--", "sh", "-c", f"head -c 1000000 /dev/zero; touch {ended}"),
            stdin=large,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=yard.environment,
        ) as slow:
            assert slow.stdout is not None
            assert slow.stderr is not None
            # Nothing is read until the command has ended.
            until(ended.exists)
            assert (1_000_000, b"") == (len(slow.stdout.read()), slow.stderr.read())
            assert 0 == slow.wait(120)


def test_a_script_comes_in_by_standard_input_and_input_may_be_left_alone(yard: Box, job: int) -> None:
    typed = yard("shell", job, stdin="echo $YARD_JOB_ID\n")
    assert (0, f"{job}\n") == (typed.code, typed.out)
    unread = yard("shell", "-n", job, "--", "cat", stdin="unread\n")
    assert (0, "") == (unread.code, unread.out)
    done = yard("shell", job, "--", "no-such-program")
    assert (127, "yard: cannot run no-such-program: no such program\n") == (done.code, done.err)
    wants = yard("shell", "-t", job)
    assert (2, True) == (wants.code, "needs a terminal" in wants.err)
    assert 2 == yard("shell", "-tT", job).code


def test_at_a_terminal_the_command_has_one_unless_it_is_not_wanted(yard: Box, job: int) -> None:
    for flag, tells in (("-t", "/dev/pts/"), ("-T", "not a tty")):
        with Pseudo(
            yard.command("shell", flag, job, "--", "tty"), yard.environment, yard.data.parent
        ) as shell:
            shell.until(tells)
            assert (0 if flag == "-t" else 1) == shell.code()


def test_a_signal_is_passed_on_to_the_command(yard: Box, job: int) -> None:
    script = "trap 'echo heard; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        yard.command("shell", job, "--", "sh", "-c", script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=yard.environment,
    ) as running:
        assert running.stdout is not None
        assert b"ready\n" == running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        assert b"heard\n" == running.stdout.read()
        assert 5 == running.wait(120)


def test_a_job_that_ends_ends_its_commands_with_a_reason(yard: Box) -> None:
    number = yard.submit("-g", 1, "--", "sleep", "600")
    yard.wait(number, "RUNNING")
    with subprocess.Popen(
        yard.command("shell", number, "--", "sh", "-c", "echo ready; sleep 600"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=yard.environment,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert b"ready\n" == running.stdout.readline()
        yard("cancel", number)
        assert 2 == running.wait(120)
        assert b"has ended" in running.stderr.read()


def test_scancel_sends_a_signal_and_the_job_goes_on(yard: Box, tmp_path: Path) -> None:
    script, told = tmp_path / "job.sh", tmp_path / "told"
    script.write_text(
        "#!/bin/sh\n"
        f"trap 'echo batch >> {told}' USR1\n"
        f"sh -c \"trap 'echo step >> {told}' USR1; echo up >> {told}; while :; do sleep 0.05; done\" &\n"
        "while :; do wait; done\n"
    )
    script.chmod(0o755)
    number = yard.submit("-g", 1, script)
    yard.wait(number, "RUNNING")

    def lines() -> list[str]:
        return sorted(told.read_text().split()) if told.exists() else []

    until(lambda: lines() == ["up"])
    for words, after in (
        (("-s", "USR1"), ["step", "up"]),
        (("--signal=SIGUSR1", "-b"), ["batch", "step", "up"]),
        (("-fs", 10), ["batch", "batch", "step", "step", "up"]),
    ):
        done = yard("slurm", "scancel", *words, number)
        assert (0, "", "") == (done.code, done.out, done.err)
        until(lambda after=after: lines() == after)
    assert "RUNNING" == yard.wait(number, "RUNNING")["state"]
    assert 1 == yard("slurm", "scancel", "-s", "NOSUCH", number).code
    assert 1 == yard("slurm", "scancel", "-b", number).code
    assert 0 == yard("slurm", "scancel", number).code
    yard.wait(number, "CANCELLED")
    # Nobody got it, which is an error in Slurm as well; one that is to end has ended.
    gone = yard("slurm", "scancel", "-s", "USR1", number)
    assert (1, f"scancel: error: Kill job error on job id {number}: Invalid job id specified\n") == (
        gone.code,
        gone.err,
    )
    assert 0 == yard("slurm", "scancel", number).code


def test_scancel_kills_at_once_what_takes_its_time_to_end(yard: Box, tmp_path: Path) -> None:
    go, script = tmp_path / "go", tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\necho up\nuntil [ -e {go} ]; do sleep 0.1; done\n")
    script.chmod(0o755)
    number = yard.submit("-g", 1, "--class", "slow", "--retries", 3, script)
    until(lambda: "up" in yard("logs", number).out)
    done = yard("slurm", "scancel", "-s", "KILL", number)
    job = yard.wait(number, "CANCELLED")

    assert (0, "", "") == (done.code, done.out, done.err)
    assert (1, 137) == (job["attempts"], job["exit_code"])


def test_scancel_says_that_a_job_which_waits_gets_no_signal(yard: Box) -> None:
    number = yard.submit("--hold", "--", "sleep", "600")
    sent = yard("slurm", "scancel", "-s", "USR1", number)
    says = "Job is pending execution, and gets no signal"

    assert (1, f"scancel: error: Kill job error on job id {number}: {says}\n") == (sent.code, sent.err)
    assert "PENDING" == yard.wait(number, "PENDING")["state"]
    assert 0 == yard("slurm", "scancel", "-s", "KILL", number).code
    yard.wait(number, "CANCELLED")
    late = yard("slurm", "scancel", "-s", "USR1", number)
    says = "Invalid job id specified"
    assert (1, f"scancel: error: Kill job error on job id {number}: {says}\n") == (late.code, late.err)
    assert (0, "") == (yard("slurm", "scancel", number).code, yard("slurm", "scancel", number).err)


def test_sattach_shows_what_a_job_writes_and_ends_as_it_does(yard: Box, tmp_path: Path) -> None:
    go = tmp_path / "go"
    number = yard.submit(
        "-g", 1, "--", "sh", "-c", f"echo first; until [ -e {go} ]; do sleep 0.05; done; exit 4"
    )
    with subprocess.Popen(
        yard.command("slurm", "sattach", f"{number}.0"), stdout=subprocess.PIPE, env=yard.environment
    ) as running:
        assert running.stdout is not None
        assert b"first\n" == running.stdout.readline()
        go.touch()
        assert 4 == running.wait(120)
    assert 1 == yard("slurm", "sattach", "x").code
