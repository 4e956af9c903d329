"""A job of an ordinary user and the real GPUs of this machine: those that it was given, and those that it was not.

No setting of a GPU is touched. On a machine with one GPU, a job without GPUs is the one that must not have it.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.contract import Answer, Launch, Part, Phase, Recipe
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.fencing import MEANS, V1, V2, VIEW
from gpuyard.engines.local.gpus.mps import CONTROL
from hardware import settings
from rigs.others import OTHER, needs_root

from . import cuda

pytestmark = needs_root
GREEDY = ("CUDA_VISIBLE_DEVICES=0", "-CUDA_DEVICE_ORDER")
BESIDE = ("-CUDA_MPS_PIPE_DIRECTORY", "-CUDA_MPS_LOG_DIRECTORY", "-CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
UNCAPPED = (*BESIDE, "-CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")


class Machine:
    """The local engine over real GPUs, and jobs of a user without an account."""

    def __init__(self, folder: Path, means: tuple[str, ...]) -> None:
        self.engine = LocalEngine(folder, hands_off=True, fence_by=means)
        self.node = self.engine.nodes()[0].node
        self.jobs = 0

    def run(self, *words: str, gpus: tuple[int, ...] = (), milli: int = 1000) -> dict[str, Any]:
        """What a job met that had these GPUs."""
        self.jobs += 1
        key, program = f"y-{self.jobs}-1", f"#!/usr/bin/env python3\n{Path(cuda.__file__).read_text()}"
        recipe = Recipe(script=program, argv=words, uid=OTHER, gid=OTHER, user=str(OTHER))
        part = Part(self.node.name, gpus, milli, 2000, 8000, 1)
        made = Launch(
            key, self.jobs, 1, str(self.jobs), "a job", recipe, (part,), limit_ms=120_000, grace_ms=1000
        )
        (reply,) = self.engine.start(1, [made])
        assert Answer.DONE is reply.answer, reply.why
        while (report := self.engine.status([key])[0]).phase is not Phase.ENDED:
            self.engine.wait(1.0)
        text = self.engine.log(key, "stdout", "", 10_000).content.decode()
        assert 0 == report.exit_code, (report, text)
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
        return found


@contextmanager
def opened(*means: str) -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="yard-fence-"))
    folder.chmod(0o711)
    before = settings.read()
    made = Machine(folder, means)
    try:
        yield made
    finally:
        made.engine.close()
        shutil.rmtree(folder)
    assert before == settings.read()


def available(machine: Machine, *means: str) -> None:
    fencing = machine.engine._fencing
    if VIEW in means and fencing.flaw:
        pytest.skip(f"this machine makes no view for a job: {fencing.flaw}")
    if set(means) <= {V1, V2} and fencing.refuses not in means:
        pytest.skip(f"this machine has no cgroup {' or '.join(means)} that refuses devices")


@pytest.mark.parametrize("means", [MEANS, (VIEW,), (V2,), (V1,)], ids=["all", "view", "v2", "v1"])
def test_a_gpu_that_was_given_works_and_one_that_was_not_is_refused(means: tuple[str, ...]) -> None:
    with opened(*means) as machine:
        available(machine, *means)
        given = machine.run(gpus=(0,))
        hidden = machine.run(*GREEDY)
        print(means, given, hidden)

        assert 0 == given["error"], given
        assert given["memory_mib"] > 1000
        assert hidden["error"] != 0, "a job without GPUs had one"
        refused = {"EACCES", "EPERM"}
        assert set(hidden["devices"].values()) <= refused
        others = [met for name, met in given["devices"].items() if name != own_device(machine)]
        assert set(others) <= refused
        assert "open" == given["devices"][own_device(machine)]


def own_device(machine: Machine) -> str:
    return f"nvidia{machine.engine._hosts()[machine.node.name].readings[0].minor}"


def test_without_a_fence_a_job_without_gpus_has_one() -> None:
    """So that the test above is known to look at something."""
    with opened() as machine:
        assert 0 == machine.run(*GREEDY)["error"]


def test_a_share_works_inside_the_fence_and_is_none_itself() -> None:
    if shutil.which(CONTROL) is None:
        pytest.skip(f"{CONTROL} is not installed")
    with opened(*MEANS) as machine:
        memory_mib = machine.engine._hosts()[machine.node.name].readings[0].memory_mib
        much = f"ALLOC_MIB={memory_mib * 40 // 100}"
        little = machine.run(gpus=(0,), milli=250)
        capped = machine.run(much, gpus=(0,), milli=250)
        beside = machine.run(much, *UNCAPPED, gpus=(0,), milli=250)
        print(little, capped, beside)

        assert (0, True) == (little["error"], capped["error"] != 0)
        # A job that unsets the variables of MPS computes beside it, without its caps: that is not kept apart.
        assert 0 == beside["error"]
    assert not [name for name in os.listdir("/proc") if name.isdigit() and _is_daemon(name)]


def _is_daemon(pid: str) -> bool:
    try:
        return CONTROL.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
