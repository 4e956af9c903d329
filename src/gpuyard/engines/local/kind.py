"""This machine as an engine of the registry: what a cluster says of it, and how the engine is built from that."""

from dataclasses import dataclass, field

from gpuyard.core.phrases import memory_text
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.fencing import MEANS
from gpuyard.engines.local.hosts import PretendedNodes, ThisMachine
from gpuyard.engines.local.keys import LOG_LIMIT_MIB, Fence
from gpuyard.engines.registry import Context, EngineKind


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """What only a cluster of this machine has."""

    nodes: ThisMachine | PretendedNodes = field(default_factory=ThisMachine)
    """This machine, or what it pretends to be."""
    log_limit_mib: int = LOG_LIMIT_MIB
    """How much is kept of what an attempt writes."""
    hands_off: bool = False
    """Whether the settings of GPUs stay as they are."""
    fence: Fence = Fence.AUTO
    """What keeps jobs to what they were given."""


def _build(keys: LocalCluster, context: Context) -> LocalEngine:
    return LocalEngine(
        context.folder,
        nodes=keys.nodes,
        yard=context.yard,
        log_limit_mib=keys.log_limit_mib,
        hands_off=keys.hands_off,
        fence_by=() if keys.fence is Fence.OFF else MEANS,
        strict=keys.fence is Fence.STRICT,
    )


def _words(keys: LocalCluster) -> str:
    return f"jobs run on this machine: {keys.nodes.words()}"


def _differences(here: LocalCluster, there: LocalCluster) -> list[str]:
    found = []
    ours, theirs = here.nodes.words(), there.nodes.words()
    if ours != theirs:
        found.append(f"the fleet is {ours} here and {theirs} in the file")
    elif here.nodes != there.nodes:
        found.append(f"the fleet is {ours} here and in the file, but its nodes are described otherwise")
    if here.log_limit_mib != there.log_limit_mib:
        found.append(
            f"log_limit is {memory_text(here.log_limit_mib)} here and {memory_text(there.log_limit_mib)} in the file"
        )
    if here.hands_off != there.hands_off:
        words = ["leave" if each.hands_off else "change" for each in (here, there)]
        found.append(f"card_settings is {words[0]} here and {words[1]} in the file")
    if here.fence != there.fence:
        found.append(f"fence is {here.fence} here and {there.fence} in the file")
    return found


KIND = EngineKind("local", _build, words=_words, title="the machine it runs on", differences=_differences)
