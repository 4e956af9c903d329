"""A yard of emulated H200: cut by demand, pinned by an admin, and the same after the server was killed."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import until

from .conftest import Box

PARTED = """
version: v1
mig-configs:
  two-ways:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.18gb": 7}
    - device-filter: ["0x233510DE"]
      devices: [1]
      mig-enabled: false
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Box]:
    box = Box(
        tmp_path / "yard", "version: 1\nclusters: {here: {gpus: 2 x H200, emulate: true, allow_root: true}}\n"
    )
    box.up()
    yield box
    box("down", "--jobs")


def pins(box: Box) -> dict[int, tuple[str, bool]]:
    with box.client() as client:
        (node,) = client.mig()["nodes"]
        return {pin["gpu"]: (pin["layout"], pin["made"]) for pin in node["pins"]}


@pytest.mark.rig
def test_a_layout_is_planned_applied_used_kept_over_a_kill_and_released(yard: Box) -> None:
    assert "whole -> 3g.71gb+2x2g.35gb" in yard("mig", "plan", "3g.71gb+2x2g.35gb").out
    done = yard("mig", "apply", "3g.71gb+2x2g.35gb", "--gpu", 0)
    assert (0, "") == (done.code, done.err)
    assert "[2g.35gb -     ][2g.35gb -     ][3g.71gb -                     ]  pinned" in done.out
    job = yard.submit("-g", "2g.35gb", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 60")
    yard.wait(job, "RUNNING")
    refused = yard("mig", "apply", "7x1g.18gb", "--gpu", 0)
    assert 2 == refused.code
    assert f"2g.35gb is in use by job {job}, and a slice is never moved" in refused.err
    os.kill(int(yard.note()["pid"]), signal.SIGKILL)
    until(lambda: yard("up", "-d", "--port", 0, "--config", yard.config).code == 0)
    assert {0: ("3g.71gb+2x2g.35gb", True)} == pins(yard)
    assert yard("logs", job).out.startswith("MIG-")
    assert "GPU 0 is cut by demand again" in yard("mig", "release").out
    assert {} == pins(yard)
    audit = json.loads(yard("audit", "-o", "json").out)
    assert ["pin", "unpin"] == sorted([line["what"] for line in audit if line["what"] in ("pin", "unpin")])


@pytest.mark.rig
def test_a_server_killed_right_after_the_answer_leaves_the_next_one_to_cut(yard: Box) -> None:
    with yard.client() as client:
        (node,) = client.mig()["nodes"]
        client.mig_apply(node["node"], [{"layout": "7x1g.18gb"}])
    os.kill(int(yard.note()["pid"]), signal.SIGKILL)
    until(lambda: yard("up", "-d", "--port", 0, "--config", yard.config).code == 0)
    until(lambda: pins(yard) == {0: ("7x1g.18gb", True), 1: ("7x1g.18gb", True)})
    with yard.client() as client:
        assert 14 == len(client.mig()["nodes"][0]["slices"])


def test_mig_parted_files_are_read_and_written(yard: Box, tmp_path: Path) -> None:
    file = tmp_path / "parted.yaml"
    file.write_text(PARTED, encoding="utf-8")
    done = yard("mig", "apply", "-f", file, "two-ways")
    assert (0, "") == (done.code, done.err)
    assert {0: ("7x1g.18gb", True), 1: ("whole", True)} == pins(yard)
    written = yard("mig", "export").out
    again = tmp_path / "again.yaml"
    again.write_text(written, encoding="utf-8")
    with yard.client() as client:
        name = client.mig()["nodes"][0]["node"]
    planned = yard("mig", "plan", "-f", again, name, "-o", "json")
    assert ["as it is already"] * 2 == [gpu["why"] for gpu in json.loads(planned.out)["gpus"]]
    assert 2 == yard("mig", "apply", "-f", file, "two-way").code
    assert "nothing to gain" in yard("defrag", "--plan").out
    assert 2 == yard("defrag").code


BREAKS = """
while ! [ -f "$CUDA_MPS_LOG_DIRECTORY/there" ]; do sleep 0.05; done
echo "[$(date '+%Y-%m-%d %H:%M:%S.%3N') Control 1] Server encountered a fatal exception. Shutting down" \
    >> "$CUDA_MPS_LOG_DIRECTORY/control.log"
exit 1
"""
SHARES = """
[ "$YARD_ATTEMPT" = 2 ] && exit 0
touch "$CUDA_MPS_LOG_DIRECTORY/there"
while ! [ -f "$CUDA_MPS_LOG_DIRECTORY/control.log" ]; do sleep 0.05; done
sleep 1
exit 3
"""


@pytest.mark.rig
def test_who_loses_its_gpu_to_the_fault_of_another_runs_again(yard: Box) -> None:
    good = yard.submit("-g", 0.2, "--", "sh", "-c", SHARES)
    bad = yard.submit("-g", 0.2, "--", "sh", "-c", BREAKS)
    other = yard.submit("-g", 0.2, "--", "sh", "-c", "sleep 4")
    assert 1 == yard.wait(bad, "FAILED")["exit_code"]
    job = yard.wait(good, "COMPLETED")
    assert 2 == job["attempts"]
    assert 1 == yard.wait(other, "COMPLETED")["attempts"]


def test_each_gpu_is_shown_with_its_jobs_and_what_cannot_be_measured_is_not(yard: Box) -> None:
    jobs = [
        int(yard("submit", "-g", size, "--", "sleep", 60, YARD_EMULATED_LOAD="80% 20GiB").out)
        for size in ("0.25", "2g.35gb")
    ]
    for job in jobs:
        yard.wait(job, "RUNNING")
    shown = yard("nodes", "--gpus")
    assert ["NODE", "GPU", "MODEL", "BUSY", "MEMORY", "POWER", "TEMP", "JOBS"] == shown.out.split("\n")[
        0
    ].split()
    assert re.search(rf" 20%  20.0/1\d\d GiB  196 W  42 C  {jobs[0]} \(\w+, 0.25, 20.0 GiB\)", shown.out), (
        shown.out
    )
    assert re.search(rf" -  +-/1\d\d GiB +- +-  {jobs[1]} \(\w+, 2g.35gb\)", shown.out), shown.out
    assert "does not say what it does there (YARD_EMULATED_LOAD)" in shown.err
    told = json.loads(yard("nodes", "--gpus", "-o", "json").out)
    assert [(0, 20, True), (1, None, True)] == [
        (each["gpu"], each["busy_pct"], each["emulated"]) for each in told
    ]
