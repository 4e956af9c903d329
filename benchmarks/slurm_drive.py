"""The sides of `bench_slurm`: Slurm with its own scheduler, and the same daemons driven by a yard."""

import json
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from figures import ROOT
from load_clients import cpu_s_of
from load_yard import YardProcess
from slurm_trace import GPUS_PER_NODE, WEIGHTS, Sent, script

sys.path.insert(0, str(ROOT / "tests"))

from rigs.slurm.cluster import SlurmCluster

NODES = 8
HALF_LIFE_MIN = 10
SCHEDULER = (
    "bf_interval=1,bf_resolution=1,bf_window=60,bf_continue,bf_max_job_test=1000,"
    "sched_interval=1,sched_min_interval=0,default_queue_depth=1000,batch_sched_delay=0"
)
"""As eager as Slurm can be: both of its loops every second, over the whole queue."""

EXTRA = (
    "Epilog=/bin/true",
    f"PriorityDecayHalfLife=00:{HALF_LIFE_MIN}:00",
    "PriorityCalcPeriod=00:01:00",
    # Shares are of GPUs; without it Slurm counts cores.
    "PartitionName=DEFAULT TRESBillingWeights=GRES/gpu=1",
)


class Side(Protocol):
    """What takes a job."""

    def send(self, sent: Sent, folder: Path) -> None:
        """Submit one; returns when it is acknowledged."""

    def waiting(self) -> int:
        """How many have not ended, by its own replica; for the progress line."""

    def cpu_s(self) -> float:
        """Of all its daemons so far."""

    def stop(self) -> None:
        """End what was started."""


def cluster(folder: Path) -> SlurmCluster:
    """Eight nodes, the tenants as accounts of root with their shares: the same for both sides."""
    slurm = SlurmCluster(NODES, GPUS_PER_NODE, scheduler=SCHEDULER, extra=EXTRA, parent=folder)
    try:
        for tenant, weight in WEIGHTS.items():
            slurm.command("sacctmgr", "-i", "add", "account", tenant, f"fairshare={weight}")
            slurm.command("sacctmgr", "-i", "add", "user", "root", f"account={tenant}")
        while not all(shares(slurm, WEIGHTS)):
            time.sleep(1)
    except BaseException:
        slurm.stop()
        raise
    return slurm


def shares(slurm: SlurmCluster, accounts: Collection[str]) -> list[float]:
    """The fair-share factors of these accounts: nought until Slurm has counted for the first time."""
    said = slurm.command("sshare", "-hP", "-a", "-o", "Account,User,FairShare")
    cells = [line.strip().split("|") for line in said.splitlines()]
    return [float(factor) for account, user, factor in cells if user and account in accounts]


class OwnScheduler:
    """slurmctld decides."""

    name = "Slurm"

    def __init__(self, folder: Path) -> None:
        self._slurm = cluster(folder)

    def send(self, sent: Sent, folder: Path) -> None:
        """By `sbatch`, as its users do: slurmrestd of this release passes over how many nodes a job wants."""
        self._slurm.submit(
            script(sent, folder),
            f"--account={sent.tenant}",
            f"--gres=gpu:a100:{min(sent.gpus, GPUS_PER_NODE)}",
            f"--nodes={sent.nodes}",
            f"--ntasks={sent.nodes}",
            "--mem=100",
            f"--time={sent.limit_min}",
            "--chdir=/tmp",
        )

    def waiting(self) -> int:
        """In squeue."""
        return len(self._slurm.command("squeue", "-h", "-o", "%i").split())

    def cpu_s(self) -> float:
        """Of every daemon."""
        return cpu_s_of([self._slurm.pid(name) for name in self._slurm.names])

    def stop(self) -> None:
        """The cluster."""
        self._slurm.stop()


_CONFIG = """\
version: 1
clusters:
  slurm:
    engine: slurm
    mode: drive
    partitions: [main]
    shared_folder: {shared}
    conf: {conf}
    gpu_types: {{a100: A100-80GB}}
    handoff: 60s
    allow_root: true
tenants:
{tenants}
policies:
  own: {{order: {order}, backfill: easy, backfill_depth: 1000, depth_per_tenant: 1000}}
policy: own
fairness:
  half_life: {half_life}m
  period: 1m
"""


class Driven:
    """A yard decides, and the same daemons run what it says."""

    def __init__(self, folder: Path, order: Sequence[str]) -> None:
        self.name = f"gpuyard, {' then '.join(order)}"
        self._slurm = cluster(folder)
        try:
            shared = folder / "shared"
            shared.mkdir(mode=0o755)
            text = _CONFIG.format(
                shared=shared,
                conf=self._slurm.folder / "slurm.conf",
                order=json.dumps(list(order)),
                tenants="\n".join(f"  {tenant}: {{weight: {weight}}}" for tenant, weight in WEIGHTS.items()),
                half_life=HALF_LIFE_MIN,
            )
            self._yard = YardProcess(folder, text)
        except BaseException:
            self._slurm.stop()
            raise
        self._caller = self._yard.caller()
        while len(json.loads(self._yard.ask("GET", "/api/v1/nodes"))["nodes"]) < NODES:
            time.sleep(0.1)

    def send(self, sent: Sent, folder: Path) -> None:
        """POST /api/v1/jobs."""
        job = {
            "script": script(sent, folder),
            "gpus": min(sent.gpus, GPUS_PER_NODE),
            "tasks": sent.nodes,
            "batch": True,
            "tenant": sent.tenant,
            "memory_mib": 100,
            "time_limit_s": 60 * sent.limit_min,
            "stdout": "/dev/null",
            "cwd": "/tmp",
        }
        reply = self._caller.ask("POST", "/api/v1/jobs", json.dumps(job).encode())
        if reply.status != 201:
            raise RuntimeError(f"the yard refused job {sent.number}: {reply.status} {reply.body[:500]!r}")

    def waiting(self) -> int:
        """In the queue."""
        return len(json.loads(self._yard.ask("GET", "/api/v1/queue"))["rows"])

    def cpu_s(self) -> float:
        """Of the yard and of every daemon below it."""
        return self._yard.cpu_s() + cpu_s_of([self._slurm.pid(name) for name in self._slurm.names])

    def stop(self) -> None:
        """Yard first: it stops its jobs through Slurm."""
        self._caller.close()
        self._yard.stop()
        self._slurm.stop()
