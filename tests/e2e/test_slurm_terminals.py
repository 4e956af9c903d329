"""Terminals of jobs that a real Slurm runs: a shell, keys, sizes, a server that is killed, a shell beside, files."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.slurm_yard import SlurmYard
from e2e.test_terminals import JUPYTER, SERVER, fetched, free_port, newest
from harness.patience import patient, until
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
        piped = yard.box("shell", job, "--", "sh", "-c", "cat; echo apart >&2; exit 5", stdin="from a pipe\n")
        assert (5, "from a pipe\n", "apart\n") == (piped.code, piped.out, piped.err)
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
    assert time.monotonic() - began < patient(25)


def test_srun_and_salloc_through_the_yard_have_terminals_on_slurm(yard: SlurmYard) -> None:
    with at(yard, "slurm", "srun", "--gpus=1", "--pty", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type("tty; stty size; echo job=$SLURM_JOB_ID gpus=$CUDA_VISIBLE_DEVICES; exit 6\r")
        shown = shell.until("gpus=0")
        assert 6 == shell.code(), shell.shown.decode()
    with at(yard, "slurm", "salloc", "--gpus=2", *SHELL) as shell:
        shell.until(PROMPT)
        shell.resize(40, 120)
        shell.type("stty size; echo gpus=$CUDA_VISIBLE_DEVICES\r")
        shell.until("40 120")
        shell.until("gpus=0,1")
        # Inside, `srun` is Slurm's own: a step of the very job.
        shell.type("srun -n1 --pty bash --norc --noprofile\r")
        shell.until(PROMPT)
        shell.type("tty; echo step=$SLURM_STEP_ID\r")
        shell.until("/dev/pts/")
        shell.until("step=0")
        shell.type("sleep 100\r")
        time.sleep(0.3)
        shell.type("\x03")
        shell.until("^C")
        shell.until(PROMPT)
        shell.type("exit 0\r")
        shell.until("exit\r\n")
        shell.until(PROMPT)
        shell.type("exit 0\r")
        shell.until("salloc: Relinquishing job allocation")
        assert 0 == shell.code()
    for part in ("/dev/pts/", "30 100", "job="):
        assert part in shown


def test_a_port_and_a_notebook_of_jobs_of_slurm_are_reached_from_here(
    yard: SlurmYard, tmp_path: Path
) -> None:
    there, here, work = free_port(), free_port(), tmp_path / "work"
    work.mkdir()
    served = ("--chdir", work, "--", sys.executable, "-c", SERVER.format(port=there))
    job = yard.box.submit("-g", 1, *served)
    until((work / "served").exists, 60)
    with at(yard, "forward", job, f"{here}:{there}") as forward:
        forward.until(f"http://127.0.0.1:{here} is port {there} of job {job}")
        assert str(job).encode() == fetched(here, "served")
        yard.box("cancel", job)
        assert 2 == forward.code()
        assert f"job {job} has ended" in forward.shown.decode()

    lab = tmp_path / "bin" / "jupyter-lab"
    lab.parent.mkdir()
    lab.write_text(JUPYTER.format(python=sys.executable), encoding="utf-8")
    lab.chmod(0o755)
    environment = yard.box.environment | {"PATH": f"{lab.parent}:{os.environ['PATH']}"}
    command = yard.box.command("notebook", "-g", 1, "--idle", "4s", "--port", 0, "--chdir", work)
    with Pseudo(command, environment, tmp_path) as notebook:
        notebook.until("http://127.0.0.1:")
        address = notebook.until("\r\n").strip()
        assert b"the lab" == fetched(int(address.partition("/")[0]), address.partition("/")[2])
        notebook.until("yard: the notebook was idle for 4 s and is stopped")
        assert 0 == notebook.code()
    yard.box.wait(newest(yard.box), "COMPLETED", s=60)
