"""Processes of a job are in its group from their first instruction on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.engines.local import cgroups, tasks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes groups anywhere")


@pytest.fixture
def group() -> Iterator[cgroups.Group]:
    base, _controllers, notes = cgroups.found(f"gpuyard-test-{os.getpid()}", wanted=True)
    if not base:
        pytest.skip("; ".join(notes))
    made = cgroups.Group(os.path.join(base, "one"))
    made.make(memory_mib=0, cpu_milli=0)
    yield made
    made.remove()
    os.rmdir(base)


def forked(group: cgroups.Group) -> tuple[bool, bool]:
    """Whether a child that is forked into a group is said to be there, and whether it sees itself there."""
    ears, mouth = os.pipe()
    pid, inside = tasks.fork_into(group)
    if pid == 0:
        os.write(mouth, Path("/proc/self/cgroup").read_bytes())
        os._exit(0)
    os.close(mouth)
    with os.fdopen(ears) as file:
        lines = file.read().splitlines()
    os.waitpid(pid, 0)
    return inside, any(line.startswith("0::") and line.endswith("/one") for line in lines)


def test_a_child_is_forked_into_its_group(group: cgroups.Group) -> None:
    assert (True, True) == forked(group)


def test_where_the_kernel_cannot_the_child_has_to_join(
    group: cgroups.Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_SYS_CLONE3", 9999)
    assert (False, False) == forked(group)
    assert (False, False) == forked(cgroups.Group("/nowhere"))
