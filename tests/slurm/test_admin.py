"""`yard slurm import`, `export` and `doctor` against real daemons."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from gpuyard.config import load, loads
from gpuyard.engines.slurm.commands import Commands
from gpuyard.engines.slurm.site import from_commands
from rigs.slurm import SlurmCluster
from rigs.slurm_policy import said

pytestmark = pytest.mark.xdist_group("slurm-admin")

POLICY = """\
version: 1
clusters:
  yardrig:
    engine: slurm
    pools:
      main: {nodes: 2, gpus: 8 x A100-80GB, cpus: 64, memory: 500G}
tenants:
  physics: {weight: 3, limit: {total: 16, A100-80GB: 12}, max_gpus_per_job: 8, max_running_jobs: 20}
  lab: {parent: physics, weight: 2, limit: 8}
  daemon: {parent: lab, weight: 7, limit: 4}
  arts: {limit: {A100-80GB: 0}}
classes:
  urgent: {priority: 100, preemptible: false, limit: 12h, grace: 45s, min_run: 0s}
  batch: {priority: 10, preemptible: true, limit: 3d, min_run: 10m, grace: 60s}
default_class: batch
fairness: {half_life: 3d, period: 10m}
policy: mine
policies:
  mine: {order: [class, fair], backfill: easy, backfill_depth: 200, depth_per_tenant: 40, preemption: [class]}
auth:
  users: {daemon: {tenant: physics/lab}}
"""


def test_export_sacctmgr_import_is_the_identity(rig: SlurmCluster, yard: Callable, tmp_path: Path) -> None:
    (tmp_path / "yard.yaml").write_text(POLICY)
    out = tmp_path / "out"
    done = yard(
        "slurm", "export", "--dir", out, "--config", tmp_path / "yard.yaml", "--gpu-type", "a100=A100-80GB",
        "--nodes", "main=n[1-2]",
    )  # fmt: skip
    assert (0, "") == (done.code, done.err)
    # It may be run again; that takes long.
    for _ in range(2 if os.environ.get("GPUYARD_SOAK") else 1):
        ran = subprocess.run(
            [out / "sacctmgr.sh"],
            env=rig.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (0, "") == (ran.returncode, ran.stderr)
    _take_over(rig, (out / "slurm.conf").read_text())

    back = yard(
        "slurm",
        "import",
        "--conf",
        rig.folder / "slurm.conf",
        "--dir",
        tmp_path / "back",
        "--gpu-type",
        "a100=A100-80GB",
    )

    assert (0, "") == (back.code, back.err)
    ours, theirs = said(loads(POLICY)), said(load(tmp_path / "back" / "yard.yaml"))
    # Slurm always has the QOS normal.
    theirs["classes"].pop("normal")
    assert ours == theirs
    # And Slurm holds people to it: arts may have no GPU.
    with pytest.raises(RuntimeError, match="Invalid account"):
        rig.submit("#!/bin/sh\n", "--account=arts", "--gres=gpu:1", "--mem=1G")


def _take_over(rig: SlurmCluster, fragment: str) -> None:
    """The lines that concern the policy; nodes are the rig's own."""
    lines = [line for line in fragment.splitlines() if line and not line.startswith("#")]
    names = {line.split("=")[0] for line in lines if not line.startswith(("NodeName", "PartitionName"))}
    conf = rig.folder / "slurm.conf"
    kept = [line for line in conf.read_text().splitlines() if line.split("=")[0] not in names]
    ours = [line for line in lines if line.split("=")[0] in names]
    conf.write_text("\n".join([*ours, *kept]) + "\n")
    rig.command("scontrol", "reconfigure")
    (partition,) = [line for line in lines if line.startswith("PartitionName=")]
    wanted = [
        word for word in partition.split() if word.startswith(("AllowAccounts=", "TRESBillingWeights="))
    ]
    rig.command("scontrol", "update", "PartitionName=main", *wanted)


def test_the_doctor_sees_the_site_and_works_without_slurmctld(rig: SlurmCluster, yard: Callable) -> None:
    conf = rig.folder / "slurm.conf"

    rig.command("scontrol", "update", "nodename=n2", "state=drain", "reason=bad fan")
    sick = yard("slurm", "doctor", "--conf", conf, "-o", "json")
    rig.command("scontrol", "update", "nodename=n2", "state=resume")
    rig.end("slurmctld")
    away = yard("slurm", "doctor", "--conf", conf)
    rig.start("slurmctld")
    rig.settle()

    # The rig has no cgroups and counts no memory: faults that are really there.
    assert {"devices", "default-memory"} <= {each["code"] for each in json.loads(sick.out)}
    (node,) = [each for each in json.loads(sick.out) if each["code"] == "node"]
    assert node["seen"].startswith("node n2 is idle+drain: bad fan, since ")
    assert (1, 1) == (away.code, sick.code)
    assert "Slurmctld(primary)" in away.out
    assert f"settings are from {conf}" in away.out


def test_a_recorded_run_is_replayed_much_as_it_was(rig: SlurmCluster) -> None:
    """Six jobs of a whole node each on two nodes: when each starts follows from when the ones before it end."""
    replay = _program("bench_slurm_replay")
    rig.command("scontrol", "update", "PartitionName=main", "AllowAccounts=ALL")
    commands = Commands(conf=str(rig.folder / "slurm.conf"))
    scripts = [f"#!/bin/sh\nexec sleep {1 + number % 3}\n" for number in range(6)]
    first, *_ = [rig.submit(script, "--gres=gpu:8", "--mem=1G", "-t2") for script in scripts]
    _until(lambda: not rig.command("squeue", "-h").strip())
    _until(
        lambda: (
            6 == len([row for row in from_commands(commands, 1).jobs.rows if row.id >= first and row.end_ms])
        )
    )
    site = from_commands(commands, 1)
    site.jobs.rows = [row for row in site.jobs.rows if row.id >= first]

    config, past = replay.imported(site, site.jobs.rows)
    errors = replay.replayed(config, past)

    waits = [(row.start_ms - row.submit_ms) / 1000 for row in past.rows]
    assert 6 == len(errors)
    # Slurm's seconds are whole, and its passes are apart; but the order and the room are the same.
    assert sum(map(abs, errors)) / 6 <= max(3.0, 0.5 * sum(waits) / 6)


def _until(what: Callable[[], object], s: float = 60.0) -> None:
    until = time.monotonic() + s
    while not what():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.5)


def _program(name: str) -> ModuleType:
    """A benchmark program as a module."""
    folder = Path(__file__).parents[2] / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(folder))
