"""A Slurm user runs their script with only PATH changed: in a terminal, through the installed commands."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import until
from rigs.terminal import Terminal

from .conftest import Box, terminal_of

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --time=00:10:00

echo "job $SLURM_JOB_ID: $SLURM_NTASKS ranks, $(echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l) GPUs"
srun --label bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"'
while [ ! -e go ]; do sleep 0.1; done
exit 3
"""
HOUR_MS = 3_600_000
HEAD = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"


@pytest.fixture(scope="module")
def terminal(box: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A shell in the user's folder, with the commands on its PATH."""
    folder, links = tmp_path_factory.mktemp("user"), tmp_path_factory.mktemp("links")
    (folder / "train.sh").write_text(SCRIPT, encoding="utf-8")
    done = box("slurm", "--install-links", links)
    assert (0, "") == (done.code, done.err)
    clean = {k: v for k, v in box.environment.items() if not k.startswith(("SLURM", "SBATCH", "TMUX"))}
    with terminal_of(tmp_path_factory.mktemp("terminal"), clean) as terminal:
        terminal.run(f"cd {folder}")
        # The line that --install-links prints, and nothing else.
        terminal.run(done.out.splitlines()[-1])
        yield terminal


def folder_of(terminal: Terminal) -> Path:
    return Path(terminal.run("pwd")[0])


def test_only_the_path_is_changed(terminal: Terminal, box: Box) -> None:
    folder = folder_of(terminal)
    user = terminal.run("id -un")[0]
    with box.client() as client:
        node = client.nodes()[0]["name"]

    submitted = terminal.run("sbatch train.sh")
    assert ["Submitted batch job 1", "code=0"] == submitted

    box.wait(1, "RUNNING")
    terminal.run("until grep -q 'rank 1' slurm-1.out; do sleep 0.1; done")
    # The job may have written before the yard hears that it is up.
    until(lambda: box.wait(1, "RUNNING")["attempt_state"] == "RUNNING")
    head, line, code = terminal.run("squeue")
    assert (HEAD, "code=0") == (head, code)
    assert ["1", "local", "train", user, "R"] == line.split()[:5]
    assert ["1", node] == line.split()[-2:]
    # Every field ends where its heading ends.
    assert f"{'1':>18} {'local':>9} {'train':>8} {user:>8.8} {'R':>2} " == line[:50]

    # Allocated is a node whose cores are all taken, which depends on the machine.
    shown, code = terminal.run("sinfo -h")
    assert ["local*", "up", "infinite", "1", "code=0"] == [*shown.split()[:4], code]
    assert shown.split()[4] in ("mix", "alloc")

    wrote = (folder / "slurm-1.out").read_text(encoding="utf-8")
    assert "job 1: 2 ranks, 2 GPUs" in wrote
    assert {"0: rank 0 of 2", "1: rank 1 of 2"} <= set(wrote.splitlines())

    terminal.run("touch go")
    box.wait(1, "FAILED")
    assert [HEAD, "code=0"] == terminal.run("squeue")
    assert [
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode",
        "------------ ---------- ---------- ---------- ---------- ---------- --------",
        f"1                 train      local {user:>10}          2     FAILED      3:0",
        f"1.batch           batch            {user:>10}          2     FAILED      3:0",
        "code=0",
    ] == [each.rstrip() for each in terminal.run("sacct -j 1")]


def test_a_job_is_cancelled(terminal: Terminal, box: Box) -> None:
    (number,) = [
        int(line) for line in terminal.run("sbatch --parsable --wrap 'sleep 600'") if line.isdecimal()
    ]
    box.wait(number, "RUNNING")

    assert ["code=0"] == terminal.run(f"scancel {number}")

    box.wait(number, "CANCELLED")
    assert [f"CANCELLED by {os.geteuid()}", "code=0"] == terminal.run(f"sacct -n -X -P -j {number} -o state")


def test_srun_shows_what_the_command_writes_and_ends_as_it_does(terminal: Terminal) -> None:
    lines = terminal.run("srun --gres=gpu:1 bash -c 'echo here; exit 5'")
    assert "here" in lines
    assert "code=5" == lines[-1]


def test_an_interrupt_cancels_what_srun_runs(terminal: Terminal, box: Box) -> None:
    terminal.enter("clear; srun -J forever sleep 600")
    found: list[list[object]] = []

    def runs() -> bool:
        with box.client() as client:
            found[:] = [row for row in client.queue()["rows"] if row[2] == "forever" and row[6] == "RUNNING"]
        return bool(found)

    until(runs)
    terminal.press("C-c")
    terminal.until(lambda screen: f"cancelling job {found[0][1]}" in screen)
    box.wait(found[0][0], "CANCELLED")


def test_each_task_of_srun_sees_its_own_gpus_where_they_are_counted_by_task(box: Box) -> None:
    say = ("bash", "-c", 'echo "$SLURM_PROCID $CUDA_VISIBLE_DEVICES"')
    own = sorted(box("slurm", "srun", "-Q", "-n2", "--gpus-per-task=2", *say).out.split())
    assert ["0", "1"] == own[:2]
    mine, other = [set(gpus.split(",")) for gpus in own[2:]]
    assert (2, 2, 0) == (len(mine), len(other), len(mine & other))

    shared = box("slurm", "srun", "-Q", "-n2", "--gpus-per-task=1", "--gpu-bind=none", *say).out.split()
    assert [2, 2] == [len(gpus.split(",")) for gpus in sorted(shared)[2:]]


def test_a_job_is_shown_with_the_tasks_that_srun_starts(box: Box) -> None:
    job = int(
        box("slurm", "sbatch", "--parsable", "--ntasks-per-node=2", "--gpus-per-task=1", "--wrap", "true").out
    )
    words = box("slurm", "scontrol", "show", "job", job).out.split()
    assert {"NumTasks=2", "CPUs/Task=1", "NumCPUs=2"} <= set(words)


def test_salloc_runs_a_command_on_an_allocation(box: Box) -> None:
    step = "srun -l -n2 --gpus-per-task=1 sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    done = box(
        "slurm",
        "salloc",
        "-n2",
        "--gpus=2",
        "bash",
        "-c",
        f"echo $SLURM_NTASKS $SLURM_JOB_ID; {step}; exit 3",
    )

    tasks, number, *steps = done.out.split()
    assert (3, "2") == (done.code, tasks)
    assert {"0:", "1:"} <= set(steps)
    assert 2 == len({word for word in steps if word.startswith("GPU-")})
    assert f"salloc: Relinquishing job allocation {number}" in done.err
    shell = box("slurm", "salloc", "--gpus=1")
    assert (2, "") == (shell.code, shell.out)
    assert "salloc -N1 --gpus=1 COMMAND" in shell.err
    never = box("slurm", "salloc", "--gpus=16", "true")
    assert 1 == never.code
    assert "salloc: error: Failed to allocate resources: it could never start" in never.err


def test_what_a_job_uses_is_shown_and_files_are_copied(box: Box, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("weights")
    script = "sbcast data copy && sbcast data copy; echo $? >again; sbcast -f data copy && touch up; sleep 60"
    job = int(box("slurm", "sbatch", "--parsable", "--mem=100M", "--wrap", script, cwd=tmp_path).out)
    until((tmp_path / "up").exists)
    until(lambda: box.wait(job, "RUNNING")["attempt_state"] == "RUNNING")
    assert ("weights", "1\n") == ((tmp_path / "copy").read_text(), (tmp_path / "again").read_text())
    assert "copy: is there already; --force replaces it" in (tmp_path / f"slurm-{job}.out").read_text()
    assert 1 == box("slurm", "sbcast", tmp_path / "data", tmp_path / "x").code

    label, tasks, used = (
        box("slurm", "sstat", "-n", "-P", "-j", job, "-o", "jobid,ntasks,averss").out.strip().split("|")
    )
    assert (f"{job}.batch", "1") == (label, tasks)
    assert float(used[:-1]) > 0
    live = box("slurm", "seff", job).out
    assert {"State: RUNNING", "Cores: 1"} <= set(live.splitlines())
    assert "% of 100M\n" in live
    assert "unknown" not in live
    box("slurm", "scancel", job)
    box.wait(job, "CANCELLED")
    ended = dict([line.split(": ", 1) for line in box("slurm", "seff", job).out.splitlines()])
    assert "CANCELLED" == ended["State"].split()[0]
    with box.client() as client:
        known = client.job(job)["used"]
    assert (known["cpu_s"] is None) == (ended["CPU Utilized"] == "unknown")
    assert (known["memory_mib"] is None) == (ended["Memory Utilized"] == "unknown")
    gone = box("slurm", "sstat", "-j", job)
    assert (1, f"sstat: error: no steps running for job {job}\n") == (gone.code, gone.err)
    assert (1, "Job not found.\n") == (box("slurm", "seff", 999).code, box("slurm", "seff", 999).err)


def test_priorities_by_number_lead_to_what_a_yard_has(box: Box) -> None:
    def submit() -> str:
        return box("slurm", "sbatch", "--parsable", "--gpus=8", "--wrap", "sleep 60").out.strip()

    runs, held, second, first = [submit() for _ in range(4)]
    box.wait(runs, "RUNNING")
    assert 0 == box("slurm", "scontrol", "update", f"JobId={held}", "Priority=0").code
    assert "JobHeldUser\n" == box("slurm", "squeue", "-h", "-j", held, "-o", "%r").out
    refused = box("slurm", "scontrol", "update", f"JobId={second}", "Priority=5000")
    assert 1 == refused.code
    assert f"scontrol top {second}" in refused.err
    last = submit()
    assert 0 == box("slurm", "scontrol", "top", f"{first},{second}").code
    waiting = box("slurm", "squeue", "-h", "-t", "PD", "-o", "%A").out.split()
    assert [first, second, last] == [number for number in waiting if number != held]
    assert 0 == box("slurm", "scancel", runs, held, first, second, last).code


@pytest.mark.rig
def test_sreport_counts_what_jobs_of_the_yard_held(box: Box) -> None:
    """Those of the hour of the last job, to the second. Beside Slurm's own: tests/slurm/test_sreport.py."""
    job = box(
        "slurm", "sbatch", "--parsable", "--gpus=3", "--cpus-per-task=2", "--wrap", "sleep 1.5"
    ).out.strip()
    last = box.wait(job, "COMPLETED")
    with box.client() as client:
        ended = client.history(limit=1000).jobs
    hour_ms = last["started_ms"] // HOUR_MS * HOUR_MS
    gpu_s = core_s = 0
    for each in ended:
        if each["started_ms"]:
            low, high = (
                max(each["started_ms"], hour_ms) // 1000,
                min(each["ended_ms"], hour_ms + HOUR_MS) // 1000,
            )
            gpu_s += int(each["gpus"] * max(0, high - low))
            core_s += round(max(1, each["cpus"] * each["tasks"])) * max(0, high - low)
    start = time.strftime("start=%Y-%m-%dT%H:00", time.localtime(hour_ms / 1000))

    def told(*words: str) -> list[list[str]]:
        done = box("slurm", "sreport", "-nP", "-t", "seconds", *words, start)
        assert (0, "") == (done.code, done.err)
        return [line.split("|") for line in done.out.splitlines()]

    assert gpu_s >= 3
    (utilization,) = told("-T", "gres/gpu", "cluster", "Utilization")
    assert ["local", "gres/gpu", str(gpu_s), "0", "0"] == utilization[:5]
    assert int(utilization[-1]) > 0
    (used,) = told("-T", "cpu,gres/gpu", "user", "TopUsage", "group", "format=tresname,used")[:1]
    assert ["cpu", str(core_s)] == used
