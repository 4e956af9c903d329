"""What a configuration file comes to: values that need neither YAML nor pydantic to be used."""

from dataclasses import dataclass
from enum import Enum

from gpuyard.config.problems import quoted, remedy
from gpuyard.errors import BadInput
from gpuyard.model import PolicySpec, Pool, Settings


class Engine(Enum):
    """What runs the jobs of a cluster."""

    LOCAL = "local"
    """This machine."""
    SLURM = "slurm"
    """A Slurm cluster."""
    KUBERNETES = "kubernetes"
    """A Kubernetes cluster."""
    SIM = "sim"
    """Nothing: jobs only pass in simulated time."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One engine's nodes."""

    name: str
    engine: Engine
    pools: tuple[str, ...]
    """Names of its pools, in the order of the file."""
    emulated: frozenset[str] = frozenset()
    """Those of its pools whose GPUs the local engine only pretends to have."""
    gpus: tuple[int, str] | None = None
    """The GPUs that this machine pretends to have: number and model. None: those that are found."""
    allow_root: bool = False
    """Whether root's own jobs run as root where other people use the machine."""
    features: tuple[str, ...] = ()
    """What jobs may ask of this machine by name."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a configuration file says, in the units the rest of gpuyard counts in."""

    settings: Settings
    pools: tuple[Pool, ...]
    """All pools of all clusters, in the order of the file."""
    policies: dict[str, PolicySpec]
    """Every policy by name: the presets and the file's own."""
    clusters: dict[str, Cluster]

    def policy(self, name: str) -> PolicySpec:
        """The preset or own policy of that name; `BadInput` if there is none."""
        if name not in self.policies:
            raise BadInput(f"unknown policy {quoted(name)}; {remedy(name, self.policies, 'policies')}")
        return self.policies[name]
