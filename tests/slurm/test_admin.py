"""`yard slurm import`, `export` and `doctor` against real daemons."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.config import load, loads
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
    # Twice: it may be run again.
    for _ in range(2):
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
