"""What a yard says and keeps of the limits of jobs: `yard doctor`, cores next to GPUs, the peak of memory."""

import json
import os
from collections.abc import Iterator

import pytest

from e2e.conftest import Box

CONFIG = """\
version: 1
clusters:
  here:
    engine: local
    fence: strict
    allow_root: true
    pools: {h100: {nodes: 1, gpus: 8 x H100, cpus: 32, memory: 256G, numa: 2, emulate: true}}
"""
AFFINITY = "import os, time; print(sorted(os.sched_getaffinity(0)), flush=True); time.sleep(60)"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    if os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("it takes root, and two cores for two domains")
    box = Box(tmp_path_factory.mktemp("fence") / "yard", CONFIG.replace("strict", "auto"))
    box.up()
    yield box
    assert 0 == box("down", "--jobs").code


def test_the_doctor_says_what_is_enforced_by_what(yard: Box) -> None:
    done = yard("doctor", "-o", "json")
    rows = {row["kind"]: row for row in json.loads(done.out)}

    assert ["yes", "yes", "no"] == [rows[kind]["enforced"] for kind in ("whole GPU", "slice", "share")]
    assert "view of the file system" in rows["whole GPU"]["by"]
    assert "ask for a slice" in rows["share"]["by"]
    assert {"memory", "cores", "cores near the GPUs", "/tmp and /dev/shm", "processes"} <= rows.keys()
    assert yard("doctor").out.startswith("REQUEST")


def test_two_jobs_have_the_cores_of_their_gpus_domains(yard: Box) -> None:
    """Four GPUs each: the second job is in the other domain, as it sees itself."""
    jobs = [yard.submit("-g", 4, "--cpus", 4, "--", "python3", "-c", AFFINITY) for _ in range(2)]
    for job in jobs:
        yard.wait(job, "RUNNING")
    told = []
    for job in jobs:
        while not (text := yard("logs", job).out):
            pass
        told.append(json.loads(text))
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2

    assert [cores[:half], cores[half:]] == told
    gpus = [yard.wait(job, "RUNNING")["nodes"] for job in jobs]
    assert gpus[0] == gpus[1], "both are on the one node"
    assert 0 == yard("cancel", *jobs).code


def test_a_job_of_700_mib_shows_them(yard: Box) -> None:
    job = yard.submit("--memory", "1G", "--", "python3", "-c", "kept = bytearray(700 << 20)")
    yard.wait(job, "COMPLETED")
    shown = json.loads(yard("show", job, "-o", "json").out)["used"]
    accounted = yard("slurm", "sacct", "-n", "-P", "-j", job, "-o", "jobid,maxrss").out.split()

    assert 680 <= (shown["memory_mib"] or shown["process_mib"]) <= 720
    (step,) = [line.partition("|")[2] for line in accounted if line.startswith(f"{job}.batch|")]
    assert 680 <= int(step.rstrip("K")) >> 10 <= 720
    assert [f"{job}|"] == [line for line in accounted if ".batch" not in line]


@pytest.mark.rig
def test_a_strict_yard_gives_no_shares_and_runs_nothing_of_roots(yard: Box) -> None:
    assert 0 == yard("down", "--jobs").code
    yard.config.write_text(CONFIG, encoding="utf-8")
    yard.up()
    share = yard("submit", "-g", 0.5, "--", "true")
    of_root = yard("run", "-g", 1, "--", "true")

    assert (1, "") == (min(1, share.code), share.out)
    assert "jobs on shares of one GPU are not kept apart, and cluster here says `fence: strict`" in share.err
    assert of_root.code != 0
    assert "a job of root can undo its fence" in of_root.err
