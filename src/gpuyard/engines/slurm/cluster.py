"""What a yard.yaml says of a Slurm cluster, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpuyard.model import Capability

HANDOFF_MS = 60_000
PYTHON = "/usr/bin/python3"
"""Of a node, as a full path: what `python3` is depends on the caller's PATH, and may be a slow script."""
LACKS = frozenset({Capability.SHARES, Capability.SLICES})
"""What a driven Slurm cannot do, for any user: it gives whole GPUs."""


class Mode(Enum):
    """How the yard lives with a Slurm cluster."""

    DRIVE = "drive"
    """Jobs wait in the yard, which decides and hands each to Slurm."""
    OBSERVE = "observe"
    """Slurm decides, and the yard looks on."""


class ContainerRuntime(Enum):
    """What runs the containers of jobs on the nodes of a driven Slurm."""

    PODMAN = "podman"
    OCI = "oci"
    """Slurm's own support of containers (oci.conf)."""
    PYXIS = "pyxis"
    APPTAINER = "apptainer"


@dataclass(frozen=True, slots=True)
class Rest:
    """Where slurmrestd listens, and as which user the yard speaks to it."""

    url: str
    token_file: str
    user: str


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """What only a Slurm cluster has."""

    mode: Mode = Mode.DRIVE
    partitions: tuple[str, ...] = ()
    """Empty: Slurm's default one."""
    reservation: str = ""
    account: str = ""
    shared_folder: str = ""
    handoff_ms: int = HANDOFF_MS
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    """GPU models by Slurm's types."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Tenants by Slurm's accounts and users, where their names differ."""
    count_quotas: bool = False
    """Whether its jobs count against quotas while it is observed beside other clusters."""
    conf: str = ""
    programs: str = ""
    python: str = PYTHON
    containers: ContainerRuntime = ContainerRuntime.PODMAN
    rest: Rest | None = None
    """None: Slurm's commands are used."""
