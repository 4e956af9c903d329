"""What a job may take of memory and cores, and what is known of it afterwards, on the cgroups that this machine has."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch, look, until
from gpuyard.engines.contract import AttemptReport, Phase, Recipe, StopRequest
from gpuyard.engines.local.attempt import v1
from gpuyard.model import Outcome
from harness import patience


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

    assert float(rig.engine.log("y-1-1", "stdout", "", 100).content) < 0.4


def groups_of(rig: LocalRig, key: str) -> list[Path]:
    """The groups of an attempt, in all trees, and those below them."""
    bases = filter(None, [rig.engine._groups.base, *rig.engine._groups.v1.values()])
    return [path for base in bases for path in Path(base).glob(f"{key}*")]


def test_a_group_with_others_below_it_goes_with_its_attempt(rig: LocalRig) -> None:
    """A job of root can make some there: its groups stayed for as long as the yard ran."""
    rig.keys.add("y-1-1")
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=Recipe(argv=("sleep", "60")))])
    until(rig, "y-1-1", Phase.RUNNING)
    made = groups_of(rig, "y-1-1")
    assert made
    for path in made:
        (path / "a" / "b").mkdir(parents=True)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ended(rig, "y-1-1")
    assert [] == groups_of(rig, "y-1-1")


def test_a_group_that_was_left_is_none_of_the_next_attempts_and_goes_later(rig: LocalRig) -> None:
    """What it refused and counted would be the job's: it could not even open /dev/null."""
    of_v1 = [Path(base) for base in rig.engine._groups.v1.values()]
    bases = [Path(base) for base in filter(None, [rig.engine._groups.base])] + of_v1
    busy = subprocess.Popen(["sleep", "600"])
    try:
        for base in bases:
            # Another yard that ends may remove the yard's own meanwhile.
            v1._make(str(base / "y-1-1"))
            if base in of_v1 and (base / "cpuset.cpus").exists():
                v1._spread(str(base.parent), str(base))
                v1._spread(str(base), str(base / "y-1-1"))
            if (base / "devices.deny").exists():
                (base / "y-1-1" / "devices.deny").write_text("a")
            (base / "y-1-1" / "cgroup.procs").write_text(str(busy.pid))
        rig.keys.add("y-1-1")
        # A job with a card on emulated GPUs asks for no rule of v1 here: the group is named all the same.
        plan = {"key": "y-1-1", "cpu_milli": 1000, "cpus": "0", "fence": {"devices": "v1"}}
        rig.engine._groups.add_to(plan)
        assert {str(base / "y-1-1~2") for base in of_v1} == set(plan.get("v1", {}).values())
        rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=Recipe(argv=("true",)))])
        assert Outcome.COMPLETED is ended(rig, "y-1-1").outcome
        rig.engine.nodes()
        assert [base / "y-1-1" for base in bases] == groups_of(rig, "y-1-1"), "one in use stays"
    finally:
        busy.kill()
        busy.wait()
    assert Phase.ENDED is look(rig, "y-1-1").phase
    patience.until(lambda: rig.engine.nodes() and [] == groups_of(rig, "y-1-1"))
