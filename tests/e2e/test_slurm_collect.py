"""Collectors on the nodes of a real Slurm: what each of two jobs takes is put down to that job, and to its user."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.slurm_yard import SlurmYard
from harness.patience import until
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

BUSY = "held = bytearray(b'x') * (300 << 20)\nwhile True: pass"
IDLE = "import time; held = bytearray(b'x') * (100 << 20); time.sleep(600)"


@pytest.fixture
def yard(slurm_of_eight: SlurmCluster, tmp_path: Path) -> Iterator[SlurmYard]:
    made = SlurmYard(tmp_path, slurm_of_eight)
    made.up()
    yield made
    made.close()
    made.heal()


def told(yard: SlurmYard) -> dict[tuple[str, str, str], float]:
    """Signals of attempts in the yard's own metrics, by name, node and job."""
    with yard.box.client() as client:
        _head, content = client._exchange("GET", "/metrics", None, {})
    row = re.compile(r'gpuyard_attempt_(\w+)\{node="(\w+)",job_id="(\d+)"\} (\S+)')
    return {(name, node, job): float(value) for name, node, job, value in row.findall(content.decode())}


def test_use_on_slurm_nodes_is_put_down_to_job_and_user(yard: SlurmYard) -> None:
    with yard.box.client() as client:
        jobs = [
            client.submit(command=[sys.executable, "-c", code], name=name, tenant="research", gpus=8)["id"]
            for name, code in (("busy", BUSY), ("idle", IDLE))
        ]
    views = [yard.box.wait(job, "RUNNING", s=60) for job in jobs]
    nodes = [view["nodes"][0] for view in views]
    busy, idle = [(node, str(job)) for node, job in zip(nodes, jobs, strict=True)]
    collectors = [
        subprocess.Popen(
            yard.box.command("collect", "--node", node, "--slurm", yard.shared, "--every", 1),
            env=yard.box.environment,
        )
        for node in nodes
    ]
    try:
        until(lambda: told(yard).get(("memory_bytes", *busy), 0) > 300 << 20, 60)
        until(lambda: told(yard).get(("memory_bytes", *idle), 0) > 100 << 20, 60)
        until(lambda: told(yard)["cpu_seconds_total", *busy] > 2, 60)
        found = told(yard)
        with yard.box.client() as client:
            _head, content = client._exchange("GET", "/metrics", None, {})
    finally:
        for each in collectors:
            each.terminate()
        ends = [each.wait(120) for each in collectors]

    # All fake nodes are one machine: each collector sees both jobs, and is heard about its own alone.
    assert {busy, idle} == {(node, job) for _name, node, job in found}
    assert found["memory_bytes", *busy] < 400 << 20
    assert found["memory_bytes", *idle] < 200 << 20
    assert found["cpu_seconds_total", *idle] < found["cpu_seconds_total", *busy]
    assert (
        f'gpuyard_job_info{{job_id="{jobs[0]}",name="busy",user="root",tenant="research"' in content.decode()
    )
    assert 'cause="of an attempt elsewhere"' in content.decode()
    assert [0, 0] == ends
