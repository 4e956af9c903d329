"""Why a job ran more than once: after a requeue, and after faults of an MPS server that is shared with others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local.gpus.mps_faults import NOTICE_MS
from harness.patience import until

from .conftest import Box

CLIENT = Path(__file__).with_name("mps_client.sh")

CONFIG = """
version: 1
clusters: {here: {gpus: 1 x H200, emulate: true, allow_root: true}}
classes: {batch: {min_run: 0s, grace: 2s}, urgent: {priority: 100}}
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "yard", CONFIG)
    box.up()
    yield box
    box("down", "--jobs")


def share(yard: Box, *words: object) -> int:
    """A job on a fifth of the GPU."""
    return yard.submit("-g", 0.2, "--", "bash", CLIENT, *words)


def ends(job: dict[str, Any]) -> list[tuple[int, str]]:
    return [(each["attempt"], each["outcome"]) for each in job["tries"]]


@pytest.mark.rig
def test_a_job_says_why_it_ran_before_while_it_waits_and_when_it_has_ended(yard: Box) -> None:
    script = "echo try $YARD_ATTEMPT; [ $YARD_ATTEMPT = 3 ] || sleep 60"
    job = yard.submit("-g", 1, "--name", "train", "--", "sh", "-c", script)
    assert [] == yard.wait(job, "RUNNING")["tries"]
    until(lambda: yard("logs", job).out)
    yard("requeue", job)
    until(lambda: yard("logs", job).out == "try 2\n")
    running = yard.wait(job, "RUNNING")
    assert [(1, "PREEMPTED"), (2, None)] == ends(running)
    assert "requeued on request" == running["tries"][0]["why"]
    urgent = yard.submit("-g", 1, "--class", "urgent", "--", "sleep", 60)
    yard.wait(urgent, "RUNNING")
    waiting = yard.wait(job, "PENDING")

    why = f"preempted for job {urgent}, which is of a higher class"
    assert [(1, "PREEMPTED"), (2, "PREEMPTED")] == ends(waiting)
    last = waiting["tries"][1]
    assert (why, [[0]], 143) == (last["why"], last["gpu_indices"], last["exit_code"])
    assert waiting["tries"][0]["ended_ms"] <= last["started_ms"] < last["ended_ms"]
    assert f"  PREEMPTED  {why}\n" in yard("show", job).out
    (line,) = [line for line in yard("why", job).out.splitlines() if line.startswith("before ")]
    assert line.endswith(f", PREEMPTED: {why}")
    yard("cancel", urgent)
    assert [(1, "PREEMPTED"), (2, "PREEMPTED"), (3, "COMPLETED")] == ends(yard.wait(job, "COMPLETED"))
    assert ["try 1\n", "try 3\n"] == [yard("logs", job, "--attempt", each).out for each in (1, 3)]
    # Lists do not carry it, and a job that ran once has none.
    assert all(["tries" not in each for each in json.loads(yard("history", "-o", "json").out)])
    assert [] == yard.wait(urgent, "CANCELLED")["tries"]
    assert "TRY" not in yard("show", urgent).out


@pytest.mark.rig
def test_who_breaks_an_mps_server_has_failed_and_the_others_run_again(yard: Box) -> None:
    good = [share(yard, "good") for _ in range(2)]
    # What computes is not the process that the yard started, but one below it.
    script = f"bash {CLIENT} bad 3; exit 7"
    bad = yard.submit("-g", 0.2, "--", "sh", "-c", script)
    failed = yard.wait(bad, "FAILED", s=40)
    assert "exit code 7: a fatal error of its work on the GPU, which broke the MPS server" == failed["reason"]
    # It ran again, alone: then it was plain whose fault it was.
    assert [(1, "NODE_FAIL"), (2, "FAILED")] == ends(failed)
    for job in good:
        found = yard.wait(job, "COMPLETED", "FAILED", s=40)
        assert [(1, "NODE_FAIL"), (2, "COMPLETED")] == ends(found), found
        assert "broke by a fault of one of them" in found["tries"][0]["why"]
        assert 1 == found["tries"][0]["exit_code"]
        shown = yard("show", job).out
        assert "NODE_FAIL  the MPS server that it shared" in shown
        assert "good, try 1\n" == yard("logs", job, "--attempt", 1).out


@pytest.mark.rig
def test_who_does_not_notice_is_ended_and_nobody_fails_for_it(yard: Box) -> None:
    idle, bad = share(yard, "idle"), share(yard, "bad", 2)
    until(lambda: json.loads(yard("show", bad, "-o", "json").out)["tries"], s=30)
    late = share(yard, "late")
    found = yard.wait(idle, "COMPLETED", "FAILED", s=60)
    assert [(1, "NODE_FAIL"), (2, "COMPLETED")] == ends(found), found
    lost = found["tries"][0]
    assert "the MPS server that it shared with other jobs broke by a fault of one of them" == lost["why"]
    assert lost["ended_ms"] - yard.wait(bad, "FAILED", s=30)["tries"][0]["ended_ms"] >= NOTICE_MS - 1000
    found = yard.wait(late, "COMPLETED", "FAILED", s=30)
    assert ("COMPLETED", 1, []) == (found["state"], found["attempts"], found["tries"]), found
    assert "late, try 1\n" == yard("logs", late).out
