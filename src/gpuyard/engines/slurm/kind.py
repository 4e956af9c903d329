"""Slurm as an engine of the registry: its keys, what is so of all its clusters, and where they are made."""

from gpuyard.engines.registry import EngineKind, Later, Stand
from gpuyard.engines.slurm.cluster import LACKS, Mode, SlurmCluster
from gpuyard.engines.slurm.keys import SlurmKeys, check_fit, settle_keys
from gpuyard.errors import BadInput, quote


def _words(keys: SlurmCluster) -> str:
    return "Slurm decides, and the yard looks on" if _observes(keys) else "jobs are handed to Slurm"


def _observes(keys: SlurmCluster | None) -> bool:
    """Whether the yard only looks on."""
    return keys is not None and keys.mode is Mode.OBSERVE


def _check(cluster: str, keys: SlurmCluster | None) -> None:
    if keys is None or (not _observes(keys) and not keys.shared_folder):
        raise BadInput(
            f"cluster {quote(cluster)} has no 'shared_folder'",
            "Add `shared_folder: /shared/gpuyard`, a folder that this machine and all nodes see under that path.",
        )


KIND = EngineKind(
    "slurm",
    Later("gpuyard.engines.slurm.making:build"),
    SlurmKeys,
    lacks=LACKS,
    words=_words,
    title="Slurm",
    takes_nodes=False,
    observer=Later("gpuyard.engines.slurm.making:observer"),
    observes=_observes,
    counts=lambda keys: keys.count_quotas,
    check=_check,
    fits=check_fit,
    settled=settle_keys,
    stand=Stand.EITHER,
    example={"shared_folder": "/shared/gpuyard"},
)
