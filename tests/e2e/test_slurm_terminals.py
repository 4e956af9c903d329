"""Terminals of jobs that a real Slurm runs: a shell, keys, sizes, a server that is killed, a shell beside, files."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.slurm_yard import SlurmYard
from rigs.slurm.cluster import SlurmCluster
from rigs.terminal import Pseudo

pytestmark = pytest.mark.slurm

SHELL = ("bash", "--norc", "--noprofile")
PROMPT = "ready> "


@pytest.fixture
def yard(slurm_of_eight: SlurmCluster, tmp_path: Path) -> Iterator[SlurmYard]:
    made = SlurmYard(tmp_path, slurm_of_eight, policy="")
    made.up()
    yield made
    made.close()


def at(yard: SlurmYard, *words: object) -> Pseudo:
    return Pseudo(yard.box.command(*words), {**yard.box.environment, "PS1": PROMPT}, yard.box.data.parent)


def test_a_job_of_slurm_has_a_terminal_and_may_be_entered(yard: SlurmYard, tmp_path: Path) -> None:
    with at(yard, "run", "-g", 1, "-i", "--", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type("tty; stty size; echo gpus=$CUDA_VISIBLE_DEVICES job=$SLURM_JOB_ID; echo to''ld\r")
        told = shell.until("told\r\n")
        shell.type("echo be''gun; sleep 100\r")
        shell.until("begun\r\n")
        time.sleep(0.2)
        shell.type("\x03")
        shell.type("echo code=$?\r")
        shell.until("code=130")
        with yard.box.client() as client:
            job = client.jobs(limit=1).jobs[0]["label"]

        with at(yard, "shell", job, "--", *SHELL) as beside:
            beside.until(PROMPT)
            beside.type("echo job=$YARD_JOB_ID; exit 4\r")
            beside.until(f"job={job}")
            assert 4 == beside.code()
        (tmp_path / "sent").write_text("into Slurm", encoding="utf-8")
        assert 0 == yard.box("cp", tmp_path / "sent", f"{job}:{tmp_path}/arrived").code
        assert "into Slurm" == (tmp_path / "arrived").read_text(encoding="utf-8")

        os.kill(yard.box.note()["pid"], signal.SIGKILL)
        shell.until("the yard is away")
        yard.box.up()
        shell.until("the yard is back")
        shell.until(PROMPT)
        shell.type("exit 7\r")
        assert 7 == shell.code()
    for part in ("/dev/pts/", "30 100", "gpus=0"):
        assert part in told
    assert 7 == yard.box.wait(job, "FAILED", s=60)["exit_code"]
    assert "gpus=0" in yard.box("logs", job).out


def test_a_shell_beside_a_job_without_a_terminal_ends_when_that_is_cancelled(yard: SlurmYard) -> None:
    job = yard.box.submit("-g", 1, "--env", f"PS1={PROMPT}", "--", "sleep", 600)
    yard.box.wait(job, "RUNNING", s=60)
    with at(yard, "shell", job, "--", *SHELL) as beside:
        beside.until(PROMPT)
        began = time.monotonic()
        assert 0 == yard.box("cancel", job).code
        assert 0 != beside.code()
    yard.box.wait(job, "CANCELLED", s=60)
    assert time.monotonic() - began < 25
