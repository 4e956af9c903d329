"""A whole yard with jobs in images: as people submit them, and through the death of the server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuyard.intake import Caller
from gpuyard.intake.forms import read
from rigs.images.rig import Images

from .conftest import Box, until

AI_JOB = """\
apiVersion: v1
kind: Pod
metadata:
  name: ai-job
spec:
  nodeSelector:
    accelerator: nvidia
  containers:
  - name: trainer
    image: myrepo/train:latest
    resources:
      limits:
        nvidia.com/gpu: 1
"""
SUBMIT = """
import json, os, sys
from gpuyard.api.client import Client
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
with Client(data=sys.argv[3]) as client:
    print(client.submit(json.loads(sys.argv[4]))["id"])
"""


class Users(Box):
    """A yard of root, and its user who has images."""

    images: Images

    def hand_in(self, **fields: object) -> int:
        """Submit a job as the user."""
        account = self.images.account
        fields = {"cwd": "", "env": {}, **fields}
        words = [sys.executable, "-c", SUBMIT, str(account.pw_uid), str(account.pw_gid), str(self.data)]
        done = subprocess.run(
            [*words, json.dumps(fields)], capture_output=True, text=True, check=False, timeout=60
        )
        assert 0 == done.returncode, done.stderr
        return int(done.stdout)


@pytest.fixture(scope="module")
def box(images: Images) -> Iterator[Users]:
    folder = Path(tempfile.mkdtemp(prefix="yard-images-"))
    folder.chmod(0o711)
    found = Users(folder / "yard")
    found.images = images
    found.up()
    yield found
    assert 0 == found("down", "--jobs").code
    shutil.rmtree(folder)
    assert [] == images.processes()


def test_the_pod_of_an_introduction_runs_as_it_is_written(box: Users) -> None:
    (box.data.parent / "pod.yaml").write_text(AI_JOB)
    held = box("submit", "--hold", box.data.parent / "pod.yaml")
    assert 0 == held.code, held.err
    with box.client() as client:
        assert "" == client.recipe(int(held.out))["cwd"], "a pod sees nothing of the submitter's folder"
    (taken,) = read(AI_JOB, "pod.yaml", Caller(now=datetime.now(UTC)))
    job = box.wait(box.hand_in(**taken.request()), "COMPLETED", "FAILED", s=60)
    shown = box("show", job["id"])

    assert ("COMPLETED", "hello from the image\n") == (job["state"], box("logs", job["id"]).out), shown.out
    assert "image      docker.io/myrepo/train:latest, pulled in " in shown.out
    assert ", first output after " in shown.out


def test_a_job_in_an_image_outlives_its_server_and_keeps_its_exit_code(box: Users) -> None:
    line = "echo up; while [ ! -e $HOME/go ]; do sleep 0.1; done; exit 5"
    job_id = box.hand_in(image=box.images.plain, command=["sh", "-c", line], gpus=2)
    until(lambda: "up" in box("logs", job_id).out, s=60)
    os.kill(box.note()["pid"], signal.SIGKILL)
    box.up()
    assert "RUNNING" == box.wait(job_id, "RUNNING")["state"]
    (box.data / "engine" / "jobs" / str(job_id) / "go").touch()

    assert ("FAILED", 5) == tuple(
        box.wait(job_id, "FAILED", "COMPLETED")[key] for key in ("state", "exit_code")
    )


def test_an_image_that_is_missing_says_so_where_people_look(box: Users) -> None:
    name = f"{box.images.open.name}/team/absent:1"
    job_id = box.hand_in(image=name, gpus=1)
    box.wait(job_id, "FAILED", s=60)

    assert (
        f"image {name} cannot be pulled: {box.images.open.name} has no such image" in box("show", job_id).out
    )
