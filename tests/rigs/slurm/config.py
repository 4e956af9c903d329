"""The files a private Slurm cluster is made of, as text: pure functions from a layout to configuration.

Values that look odd are answers to traps of Slurm 22.05 on one machine without systemd; each says which.
"""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """What the cluster looks like and where its parts listen."""

    folder: Path
    host: str
    """The machine's short name: daemons compare it with the configuration."""
    node_ports: tuple[int, ...]
    """One port for each slurmd: all of them live on one address."""
    ctld_port: int
    dbd_port: int
    db_port: int
    gpus: int = 8
    """GPUs of each node."""
    gpu_type: str = "a100"
    accounting: bool = True
    scheduler: str = ""
    """SchedulerParameters; empty: Slurm's own."""
    extra: tuple[str, ...] = field(default=())
    """Lines at the end of slurm.conf, as they are."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes: n1, n2 and so on."""
        return tuple(f"n{number}" for number in range(1, len(self.node_ports) + 1))

    @property
    def munge_socket(self) -> Path:
        """Where credentials come from."""
        return self.folder / "run" / "munge.sock"


def slurm_conf(layout: Layout) -> str:
    """The main file, read by every daemon and every command."""
    folder = layout.folder
    lines = [
        "ClusterName=yardrig",
        f"SlurmctldHost={layout.host}(127.0.0.1)",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"SlurmctldPort={layout.ctld_port}",
        "AuthType=auth/munge",
        # A requeued job waits for its credential to expire, two minutes unless told otherwise.
        f"AuthInfo=cred_expire=5,socket={layout.munge_socket}",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={folder / 'jwt.key'}",
        "CredType=cred/munge",
        "MailProg=/bin/true",
        f"StateSaveLocation={folder / 'state'}",
        f"SlurmdSpoolDir={folder / 'spool'}/%n",
        f"SlurmctldPidFile={folder / 'run'}/slurmctld.pid",
        f"SlurmdPidFile={folder / 'run'}/%n.pid",
        f"SlurmctldLogFile={folder / 'log'}/slurmctld.log",
        f"SlurmdLogFile={folder / 'log'}/%n.log",
        # No cgroups of ours: several slurmd of one host would fight over them.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "ReturnToService=2",
        # Nodes may claim more cores and memory than the machine has.
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        *([f"SchedulerParameters={layout.scheduler}"] if layout.scheduler else []),
        "GresTypes=gpu",
        "PriorityType=priority/multifactor",
        "PriorityWeightAge=1000",
        "PriorityWeightFairshare=10000",
        "PriorityWeightQOS=2000",
        "PreemptType=preempt/qos" if layout.accounting else "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        *_accounting(layout),
        "MaxJobCount=100000",
        "MaxArraySize=20001",
        "KillWait=2",
        "MinJobAge=60",
        "SlurmdTimeout=30",
        *layout.extra,
        "NodeName=DEFAULT Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000 State=UNKNOWN",
        # NodeHostname is refused on the DEFAULT line.
        *[
            f"NodeName={name} NodeHostname={layout.host} NodeAddr=127.0.0.1 Port={port} "
            f"Gres=gpu:{layout.gpu_type}:{layout.gpus}"
            for name, port in zip(layout.nodes, layout.node_ports, strict=True)
        ],
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


def _accounting(layout: Layout) -> list[str]:
    if not layout.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={layout.dbd_port}",
        # The way from slurmctld to slurmdbd ignores AuthInfo and takes the socket from here.
        f"AccountingStoragePass={layout.munge_socket}",
        "AccountingStorageEnforce=associations,limits,qos,safe",
        f"AccountingStorageTRES=gres/gpu,gres/gpu:{layout.gpu_type}",
    ]


def gres_conf(layout: Layout) -> str:
    """The fake GPUs. Without a device file each, Slurm counts none and rejects the node."""
    files = f"{layout.folder / 'dev'}/nvidia[0-{layout.gpus - 1}]"
    return f"AutoDetect=off\nName=gpu Type={layout.gpu_type} File={files}\n"


def cgroup_conf(v2: bool) -> str:
    """slurmd loads a cgroup plugin even where nothing uses it; 22.05 cannot do without one."""
    kind = "cgroup/v2" if v2 else "cgroup/v1"
    return f"CgroupPlugin={kind}\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"


def oci_conf() -> str:
    """Slurm's own support of containers, by crun as the job's user: without the cgroups that only root could make.

    22.05 knows a user's name (%u) and not the number (%U), and wants all four commands.
    """
    crun = "crun --rootless=true --cgroup-manager=disabled --root=/tmp/crun-%u-%n"
    name = "%n.%u.%j.%s.%t"
    commands = {
        "Query": f"state {name}",
        "Kill": f"kill -a {name} SIGKILL",
        "Delete": f"delete --force {name}",
        "Run": f"run --bundle %b {name}",
    }
    return "".join([f'RunTime{verb}="{crun} {words}"\n' for verb, words in commands.items()])


def slurmdbd_conf(layout: Layout) -> str:
    """The accounting daemon. Slurm insists that only its owner can read this file."""
    folder = layout.folder
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={folder / 'jwt.key'}",
        "DbdAddr=127.0.0.1",
        f"DbdHost={layout.host}",
        f"DbdPort={layout.dbd_port}",
        "SlurmUser=root",
        f"LogFile={folder / 'log'}/slurmdbd.log",
        f"PidFile={folder / 'run'}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={layout.db_port}",
        "StorageUser=slurm",
        "StoragePass=slurm",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join(lines) + "\n"


def database_sql() -> str:
    """slurmdbd's database and its user, for the database's own client."""
    grants = "".join(
        f"CREATE USER 'slurm'@'{host}' IDENTIFIED BY 'slurm';"
        f"GRANT ALL ON slurm_acct_db.* TO 'slurm'@'{host}';"
        for host in ("127.0.0.1", "localhost")
    )
    return f"CREATE DATABASE slurm_acct_db;{grants}"
