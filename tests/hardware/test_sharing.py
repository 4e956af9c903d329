"""Real GPUs, shared for real: every figure is what the job itself saw."""

import json
import os
import pwd
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.api.client import Client
from gpuyard.engines.local.gpus import persistence
from gpuyard.engines.local.gpus.mig_nvml import NvmlCutter, same_geometry

from .conftest import Hardware

LOOK = Path(__file__).with_name("look.py")


def saw(hardware: Hardware, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hardware("logs", job).splitlines()[-1])
    return found


def run(hardware: Hardware, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hardware("run", *words).splitlines()[-1])
    return found


def test_the_driver_and_we_agree_about_the_geometry(hardware: Hardware) -> None:
    assert [] == same_geometry(NvmlCutter(hardware.geometry), hardware.gpus[0].uuid, hardware.geometry)


def test_the_gpus_are_found(hardware: Hardware) -> None:
    (node,) = json.loads(hardware("nodes", "-o", "json"))
    assert (hardware.geometry.model, len(hardware.gpus)) == (node["gpu_model"], node["gpus"])
    assert 0 == node["gpus_foreign"]


@pytest.mark.changes_settings
@pytest.mark.parametrize("size", [0, 2, 3, 4])
def test_a_job_sees_exactly_its_slice(hardware: Hardware, size: int) -> None:
    profiles = [profile for profile in hardware.geometry.profiles if "+" not in profile.name]
    profile = profiles[min(size, len(profiles) - 1)]
    found = run(hardware, "-g", profile.name, "--", hardware.python, LOOK, "look")
    assert 1 == found["devices"]
    assert abs(found["memory_mib"] - profile.memory_mib) < profile.memory_mib * 0.05


@pytest.mark.changes_settings
def test_a_queue_of_mixed_requests_repartitions_by_itself(hardware: Hardware) -> None:
    profiles = {profile.compute: profile for profile in hardware.geometry.profiles if "+" not in profile.name}
    asked = [profiles[c].name for c in sorted(profiles)[:4]] * 2 + ["1", profiles[max(profiles)].name, "1"]
    jobs = [hardware("submit", "-g", each, "--", hardware.python, LOOK, each, 1).strip() for each in asked]
    ended = hardware.wait(*jobs)
    assert ["COMPLETED"] * len(jobs) == [each["state"] for each in ended], ended
    for job, each in zip(jobs, asked, strict=True):
        found = saw(hardware, job)
        profile = hardware.geometry.profile(each)
        memory = profile.memory_mib if profile else hardware.gpus[0].memory_mib
        assert abs(found["memory_mib"] - memory) < memory * 0.05, (each, found)
    # Some ran beside each other: the slices were there at the same time.
    spans = [(each["started_ms"], each["ended_ms"]) for each in ended]
    assert any(a[0] < b[1] and b[0] < a[1] for i, a in enumerate(spans) for b in spans[:i])


def test_a_share_is_capped_in_memory_and_compute(hardware: Hardware) -> None:
    whole = run(hardware, "-g", 1, "--", hardware.python, LOOK, "whole")
    gib = hardware.gpus[0].memory_mib >> 10
    much = run(hardware, "-g", 0.25, "--", hardware.python, LOOK, "hog", 0, gib * 40 // 100)
    little = run(hardware, "-g", 0.25, "--", hardware.python, LOOK, "hog", 0, gib * 15 // 100)
    assert (True, False) == (much["refused"], little["refused"])
    assert little["multiprocessors"] <= 0.3 * whole["multiprocessors"]


@pytest.mark.parametrize("size", ["1", "0.2", pytest.param("slice", marks=pytest.mark.changes_settings)])
def test_what_a_gpu_does_is_told_with_whose_memory_it_is(hardware: Hardware, size: str) -> None:
    size = hardware.geometry.profiles[0].name if size == "slice" else size
    job = hardware("submit", "-g", size, "--", hardware.python, LOOK, "good", 6).strip()
    seen: list[tuple[int | None, int]] = []
    while json.loads(hardware("show", job, "-o", "json"))["ended_ms"] is None:
        (gpu,) = json.loads(hardware("nodes", "--gpus", "-o", "json"))
        assert 0 < gpu["temperature_c"] < 110
        assert 10 < gpu["power_w"] < 1200
        assert 0 <= gpu["memory_used_mib"] <= gpu["memory_mib"]
        seen += [
            (gpu["busy_pct"], each["memory_used_mib"] or 0) for each in gpu["jobs"] if each["label"] == job
        ]
    print(size, seen)
    assert max(mib for _busy, mib in seen) > 100
    # A GPU that is cut does not say how busy it is, and nothing is made up for it.
    assert max(busy or 0 for busy, _mib in seen) > 20 or size == hardware.geometry.profiles[0].name


def test_shares_of_two_users_and_a_fault_harm_nobody_else(hardware: Hardware) -> None:
    other = next((each.pw_name for each in pwd.getpwall() if 1000 <= each.pw_uid < 60_000), "")
    try_it = ["runuser", "-u", other, "--", hardware.python, "-c", "import torch"]
    if not other or subprocess.run(try_it, check=False).returncode:
        pytest.skip("there is no second user here who can run PyTorch")
    words = ("-g", 0.2, "--", hardware.python, LOOK)
    good = [hardware("submit", *words, "good", 12).strip() for _ in range(2)]
    theirs = [hardware("submit", *words, "good", 12, user=other).strip() for _ in range(2)]
    bad = hardware("submit", *words, "bad", 4).strip()
    time.sleep(1)
    ended = hardware.wait(*good, *theirs, bad)
    assert "FAILED" == ended[-1]["state"]
    assert ["COMPLETED"] * 4 == [each["state"] for each in ended[:-1]]
    assert {other} == {each["user"] for each in ended[2:4]}


def test_a_wild_write_costs_its_neighbours_at_most_a_try(hardware: Hardware) -> None:
    words = ("-g", 0.2, "--", hardware.python, LOOK)
    good = [hardware("submit", *words, "good", 12).strip() for _ in range(2)]
    # One that would notice only long after: until it is gone, the server lets nobody in.
    idle = hardware("submit", *words, "idle", 20).strip()
    wild = hardware("submit", *words, "wild", 5).strip()
    ended = hardware.wait(*good, idle, wild)
    for each in ended[:-1]:
        assert "COMPLETED" == each["state"], each
        assert saw(hardware, each["label"])["role"] in {"good", "idle"}
        # One more where the log named another one than whose work it was, and that one ran beside it.
        assert each["attempts"] in (2, 3)
        assert "broke by a fault of one of them" in each["tries"][0]["why"]
    assert "FAILED" == ended[-1]["state"]
    assert "a fatal error of its work on the GPU" in ended[-1]["reason"]


def test_a_daemon_that_dies_costs_its_jobs_a_try(hardware: Hardware) -> None:
    words = ("-g", 0.2, "--", hardware.python, LOOK, "good", 10)
    jobs = [hardware("submit", *words).strip() for _ in range(2)]
    until = time.monotonic() + 60
    while not (
        computing := [
            log for log in Path("/tmp").glob("gpuyard-mps-*/*/log/server.log") if connected(log) > 1
        ]
    ):
        assert time.monotonic() < until
        time.sleep(0.2)
    os.kill(int((computing[0].parents[1] / "pipe/nvidia-cuda-mps-control.pid").read_text()), signal.SIGKILL)
    for each in hardware.wait(*jobs):
        assert ("COMPLETED", 2) == (each["state"], each["attempts"]), each
        # Within its caps again: through a daemon that was started anew.
        assert saw(hardware, each["label"])["multiprocessors"] < 40


def connected(log: Path) -> int:
    """How many processes compute through a daemon."""
    there: set[str] = set()
    for line in log.read_text(errors="replace").splitlines():
        if came := re.search(r"Status of client {PID: (\d+), Context ID: 1} is ACTIVE", line):
            there.add(came[1])
        elif went := re.search(r"Client process (\d+) disconnected", line):
            there.discard(went[1])
    return len(there)


@pytest.mark.changes_settings
def test_strict_is_never_a_share(hardware: Hardware) -> None:
    found = run(
        hardware, "--gpu-memory", "10G", "--isolation", "strict", "--", hardware.python, LOOK, "strict"
    )
    small = hardware.geometry.profiles[0]
    assert found["memory_mib"] < 2.2 * max(small.memory_mib, 10 * 1024)


@pytest.mark.changes_settings
def test_a_layout_is_applied_used_and_released(hardware: Hardware) -> None:
    small, large = hardware.geometry.profiles[0], hardware.geometry.profiles[-1]
    seven = f"{small.count_max}x{small.name}"
    hardware("mig", "apply", seven, "--gpu", 0)
    pin = pinned(hardware)
    assert (seven, True, "") == (pin["layout"], pin["made"], pin["why"])
    assert pin["took_ms"] > 0
    seen = NvmlCutter(hardware.geometry).places(hardware.gpus[0].uuid)
    assert small.count_max == len(seen or ())
    found = run(hardware, "-g", small.name, "--", hardware.python, LOOK, "look")
    assert abs(found["memory_mib"] - small.memory_mib) < small.memory_mib * 0.05
    # The slice that was there was used: nothing was cut for the job.
    assert seen == NvmlCutter(hardware.geometry).places(hardware.gpus[0].uuid)
    hardware("mig", "apply", large.name, "--gpu", 0)
    assert large.name == pinned(hardware)["layout"]
    hardware("mig", "release")
    whole = run(hardware, "-g", 1, "--", hardware.python, LOOK, "whole")
    assert abs(whole["memory_mib"] - hardware.gpus[0].memory_mib) < hardware.gpus[0].memory_mib * 0.05


def pinned(hardware: Hardware) -> dict[str, Any]:
    with Client(data=hardware.data) as yard:
        pins = [pin for node in yard.mig()["nodes"] for pin in node["pins"] if pin["gpu"] == 0]
    assert len(pins) == 1, pins
    found: dict[str, Any] = pins[0]
    return found


@pytest.mark.changes_settings
def test_gpus_are_kept_awake_where_the_yard_may(hardware: Hardware) -> None:
    told = subprocess.run(
        ["nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    if "Disabled" in told.stdout and persistence.switch_on(str(hardware.folder)):
        pytest.skip("this machine does not let persistence mode be switched on")
    assert "Enabled" in told.stdout
