"""The Slurm rig is real: a job gets the GPUs it asked for, REST answers, and nothing is left when it goes."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.patience import Patience, patient
from rigs.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.rig, pytest.mark.slurm]


def eventually(true: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Whether it comes true in time."""
    patience = Patience(timeout_s)
    while not true():
        if not patience:
            return False
        time.sleep(0.05)
    return True


def processes_naming(text: str) -> list[str]:
    """Command lines on this machine that hold the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def ask(slurm: SlurmCluster, path: str, body: dict[str, object] | None = None) -> dict[str, object]:
    headers = {
        "X-SLURM-USER-NAME": "root",
        "X-SLURM-USER-TOKEN": slurm.token(),
        "Content-Type": "application/json",
    }
    url = f"http://127.0.0.1:{slurm.rest_port}/slurm/v0.0.38/{path}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=patient(20)) as reply:
        return json.load(reply)


def test_a_job_runs_by_command_and_by_rest_and_nothing_is_left(tmp_path: Path) -> None:
    # Its own cluster, because this test ends it.
    with SlurmCluster(nodes=2, gpus=4) as slurm:
        by_command, by_rest = tmp_path / "command", tmp_path / "rest"
        number = slurm.submit(f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" >{by_command}\n', "--gres=gpu:2")
        reply = ask(
            slurm,
            "job/submit",
            {
                "script": f"#!/bin/sh\necho $SLURM_JOB_ID $SLURM_GPUS_ON_NODE >{by_rest}\n",
                "job": {"gres": "gpu:a100:1", "tasks": 1, "environment": {"PATH": "/usr/bin:/bin"}},
            },
        )
        assert eventually(lambda: by_command.exists() and by_rest.exists()), slurm.command("squeue")
        assert eventually(lambda: "0,1\n" == by_command.read_text())
        assert eventually(lambda: f"{reply['job_id']} 1\n" == by_rest.read_text())
        assert eventually(lambda: f"{number}|COMPLETED" in slurm.command("sacct", "-XPno", "jobid,state"))

        sleeper = slurm.submit("#!/bin/sh\nsleep 4321\n", "--gres=gpu:1")
        state = ("squeue", "-h", "-o", "%T", "-j", str(sleeper))
        assert eventually(lambda: "RUNNING" == slurm.command(*state).strip())
        assert eventually(lambda: bool(processes_naming("sleep 4321")))
        folder = slurm.folder

    assert not folder.exists()
    assert eventually(lambda: [] == processes_naming(str(folder)) + processes_naming("sleep 4321"))
