"""What a job may take of memory and cores, and what is known of it afterwards, on the cgroups that this machine has."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch
from gpuyard.engines.contract import AttemptReport, Recipe
from gpuyard.model import Outcome


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    made = LocalRig(tmp_path)
    if not made.engine._groups.limits:
        made.close()
        pytest.skip(made.engine._groups.note)
    yield made
    made.close()


def run(rig: LocalRig, key: str, script: str, memory_mib: int) -> AttemptReport:
    rig.keys.add(key)
    made = launch(rig, key, recipe=Recipe(script=script), job_id=int(key.split("-")[1]))
    rig.engine.start(EPOCH, [replace(made, parts=(replace(made.parts[0], memory_mib=memory_mib),))])
    return ended(rig, key)


def takes(mib: int) -> str:
    return f"#!/usr/bin/env python3\nimport time\nkept = bytearray({mib} << 20)\ntime.sleep(0.1)\nprint(len(kept))\n"


def test_memory_is_limited_and_its_peak_is_kept(rig: LocalRig) -> None:
    over = run(rig, "y-1-1", takes(300), 64)
    within = run(rig, "y-2-1", takes(700), 1000)

    assert Outcome.OUT_OF_MEMORY is over.outcome, over
    assert "killed for memory" in over.why
    assert "over 64 MiB" in over.why
    assert Outcome.COMPLETED is within.outcome, within
    peak = rig.engine.usage("y-2-1").memory_mib
    assert peak is not None
    assert 680 <= peak <= 720
    v1 = rig.engine._groups.v1.values()
    assert [] == [
        name for base in v1 if os.path.isdir(base) for name in os.listdir(base) if name.startswith("y-")
    ], "no group is left"


def test_a_job_ends_with_the_child_that_the_kernel_killed_for_memory(rig: LocalRig) -> None:
    """On cgroup v1 the kernel kills that child alone: the script would go on, and end well."""
    child = "python3 -c 'bytearray(300 << 20)'"
    waits = run(rig, "y-1-1", f"#!/bin/sh\n{child}\necho went on\nexec sleep 600\n", 64)
    ends_well = run(rig, "y-2-1", f"#!/bin/sh\n{child}\nexit 0\n", 64)

    for report in (waits, ends_well):
        assert Outcome.OUT_OF_MEMORY is report.outcome, report
        assert 137 == report.exit_code
        assert "over 64 MiB" in report.why


def test_cores_are_limited(rig: LocalRig) -> None:
    """Half a core for a program that would take all of one: the kernel holds it back, and counts how often."""
    code = "import time\nend = time.time() + 0.6\nwhile time.time() < end: pass\nprint(time.process_time())"
    made = launch(rig, "y-1-1", recipe=Recipe(script=f"#!/usr/bin/env python3\n{code}\n"))
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [replace(made, parts=(replace(made.parts[0], cpu_milli=300),))])
    ended(rig, "y-1-1")

    assert float(rig.engine.log("y-1-1", "stdout", 0, 100)) < 0.4
