"""This machine as an engine of the registry: its keys, what is so of its cluster, and where it is made."""

from gpuyard.engines.local.keys import LocalKeys, settled
from gpuyard.engines.local.settings import lacks
from gpuyard.engines.registry import EngineKind, Later, Stand

KIND = EngineKind(
    "local",
    Later("gpuyard.engines.local.making:build"),
    LocalKeys,
    lacks=lacks,
    words=Later("gpuyard.engines.local.making:words"),
    title="the machine it runs on",
    differences=Later("gpuyard.engines.local.making:differences"),
    settled=settled,
    stand=Stand.BESIDE,
    this_machine=True,
    pool="local",
)
