"""This machine as an engine of the registry: its keys, what is so of its cluster, and where it is made."""

from gpuyard.engines.local.keys import LocalKeys, settle_keys
from gpuyard.engines.local.settings import find_lacking
from gpuyard.engines.registry import EngineKind, Later, Stand

KIND = EngineKind(
    "local",
    Later("gpuyard.engines.local.making:build"),
    LocalKeys,
    lacks=find_lacking,
    words=Later("gpuyard.engines.local.making:words"),
    title="the machine it runs on",
    differences=Later("gpuyard.engines.local.making:differences"),
    settled=settle_keys,
    stand=Stand.BESIDE,
    this_machine=True,
    pool="local",
)
