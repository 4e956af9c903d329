"""`yard slurm import`, `export` and `doctor` against real daemons."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from gpuyard.config.reading import load, loads
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.observed import ObservedSlurm, key_of
from gpuyard.engines.slurm.site.accounting import JobRow
from gpuyard.engines.slurm.site.site import read_running_site
from harness.patience import patient, until
from rigs.slurm.cluster import SlurmCluster
from rigs.slurm.policy import said

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


def test_export_sacctmgr_import_is_the_identity(
    own_rig: SlurmCluster, yard: Callable, tmp_path: Path
) -> None:
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
            env=own_rig.environment,
            capture_output=True,
            text=True,
            timeout=patient(120),
            check=False,
        )
        assert (0, "") == (ran.returncode, ran.stderr)
    _take_over(own_rig, (out / "slurm.conf").read_text())

    back = yard(
        "slurm",
        "import",
        "--conf",
        own_rig.folder / "slurm.conf",
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
        own_rig.submit("#!/bin/sh\n", "--account=arts", "--gres=gpu:1", "--mem=1G")


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


def test_a_name_is_no_row_about_somebody_else(rig: SlurmCluster) -> None:
    free = ("--mem=1G", "-t10")
    other = rig.submit("#!/bin/sh\nexec sleep 600\n", *free)
    cells = (other, other, "N/A", "bob", "nlp", "normal", "main", "COMPLETED", 100, 100, 110, 120, "5:00",
             "gres/gpu=8,node=1", "n1", 0, 0, 1, "None", "y")  # fmt: skip
    row = "|".join(map(str, cells))
    past = (
        f"{other}|{other}|9|bob|nlp|normal|main|COMPLETED|0:0|100|100|110|120|10|00:00:00|5|"
        "gres/gpu=8|gres/gpu=8|n1|None|y"
    )
    liars = [rig.submit("#!/bin/sh\nexec sleep 600\n", *free, "-J", f"x\n{lie}\n") for lie in (row, past)]
    slurm = ObservedSlurm("yardrig", Commands(conf=str(rig.folder / "slurm.conf")))

    def known(rows: list[JobRow]) -> dict[int, tuple[str, str, str]]:
        return {
            each.id: (each.state, each.user, each.name[:1]) for each in rows if each.id in (other, *liars)
        }

    true = {other: ("RUNNING", "root", "s")} | dict.fromkeys(liars, ("RUNNING", "root", "x"))
    try:
        # Slurm really prints them so.
        assert f"\n{row}\n" in rig.command("squeue", "--all", "-O", "Name:")
        until(lambda: true == known(slurm.queue().rows))
        assert 0 == slurm.queue().broken
        until(lambda: f"\n{past}\n" in rig.command("sacct", "-aXPn", "--format=JobName"))
        history = slurm.history(0)
        assert (true, 0) == (known(history.rows), history.broken)
    finally:
        rig.command("scancel", *map(str, (other, *liars)))


def test_who_is_stopped_or_has_components_is_told_of_once(rig: SlurmCluster) -> None:
    part = "#SBATCH --mem=1G -t10 --gres=gpu:1\n"
    stopped = rig.submit(f"#!/bin/sh\n{part}exec sleep 600\n")
    parts = rig.submit(f"#!/bin/sh\n{part}#SBATCH hetjob\n{part}exec sleep 600\n")
    slurm = ObservedSlurm("yardrig", Commands(conf=str(rig.folder / "slurm.conf")))

    def known(rows: list[JobRow]) -> dict[str, str]:
        return {key_of(each): each.state for each in rows if each.live and each.id >= stopped}

    try:
        until(lambda: ["RUNNING"] * 3 == [*known(slurm.queue().rows).values()])
        rig.command("scancel", "--signal=STOP", str(stopped))
        until(lambda: "STOPPED" in known(slurm.queue().rows).values())
        queue = known(slurm.queue().rows)
        assert {f"{stopped}", f"{parts}", f"{parts + 1}"} == {key.partition("@")[0] for key in queue}
        until(lambda: queue.keys() == known(slurm.history(0).rows).keys())
    finally:
        rig.command("scancel", "--signal=CONT", str(stopped))
        rig.command("scancel", str(stopped), str(parts))


def test_limits_and_names_of_the_accounting_are_read(
    rig: SlurmCluster, yard: Callable, tmp_path: Path
) -> None:
    """Every field that is asked for is one that sacctmgr knows, and its column is found again."""
    limits = "GrpTRESRunMins=cpu=61 GrpSubmitJobs=62 GrpWall=63 MaxTRESMins=cpu=64 MaxSubmitJobs=65"
    of_qos = (
        "GrpTRESMins=cpu=71 GrpTRESRunMins=cpu=72 GrpJobs=73 MaxTRESPerAccount=cpu=74 MaxJobsPerAccount=75 "
        "MaxSubmitJobsPerUser=76 MaxSubmitJobsPerAccount=77 MinTRESPerJob=cpu=1 UsageFactor=2 LimitFactor=3"
    )
    rig.command("sacctmgr", "-i", "add", "account", "_odd", "fairshare=5", *limits.split())
    rig.command("sacctmgr", "-i", "add", "qos", "strict", *of_qos.split())
    try:
        done = yard("slurm", "import", "--conf", rig.folder / "slurm.conf", "--dir", tmp_path / "site")
    finally:
        rig.command("sacctmgr", "-i", "delete", "account", "_odd")
        rig.command("sacctmgr", "-i", "delete", "qos", "strict")

    assert (0, "") == (done.code, done.err)
    notes = (tmp_path / "site" / "notes.txt").read_text()
    names = [word.partition("=")[0] for word in limits.split()]
    for name in ["MaxTRESMinsPerJob" if name == "MaxTRESMins" else name for name in names]:
        assert re.search(rf"- {name} .* of account '_odd': a tenant has no such limit", notes), (name, notes)
    for name in [word.partition("=")[0] for word in of_qos.split()]:
        assert re.search(rf"- {name} .* of QOS 'strict': a class has no such limit", notes), (name, notes)
    assert "has no column for" not in notes
    assert "account '_odd' is called 'odd'" in notes
    assert (
        5
        == {each.path: each.weight for each in load(tmp_path / "site" / "yard.yaml").settings.tenants}["odd"]
    )


def test_a_recorded_run_is_replayed_much_as_it_was(rig: SlurmCluster) -> None:
    """Six jobs of a whole node each on two nodes: when each starts follows from when the ones before it end."""
    replay = _program("bench_slurm_replay")
    commands = Commands(conf=str(rig.folder / "slurm.conf"))
    scripts = [f"#!/bin/sh\nexec sleep {1 + number % 3}\n" for number in range(6)]
    first, *_ = [rig.submit(script, "--gres=gpu:8", "--mem=1G", "-t2") for script in scripts]
    until(lambda: not rig.command("squeue", "-h").strip())
    until(
        lambda: (
            6
            == len(
                [row for row in read_running_site(commands, 1).jobs.rows if row.id >= first and row.end_ms]
            )
        )
    )
    site = read_running_site(commands, 1)
    site.jobs.rows = [row for row in site.jobs.rows if row.id >= first]

    config, past = replay.imported(site, site.jobs.rows)
    errors = replay.replayed(config, past)

    waits = [(row.start_ms - row.submit_ms) / 1000 for row in past.rows]
    assert 6 == len(errors)
    # Slurm's seconds are whole, and its passes are apart; but the order and the room are the same.
    assert sum(map(abs, errors)) / 6 <= max(3.0, 0.5 * sum(waits) / 6)


def _program(name: str) -> ModuleType:
    """A benchmark program as a module."""
    folder = Path(__file__).parents[2] / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(folder))
