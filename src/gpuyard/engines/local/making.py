"""How the engine of this machine is made from what its cluster says, and what two such clusters differ in."""

from dataclasses import dataclass, field

from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.fencing import MEANS
from gpuyard.engines.local.hosts import PretendedNodes, ThisMachine
from gpuyard.engines.local.settings import Fence, LocalSettings
from gpuyard.engines.registry import Context
from gpuyard.quantities import memory_words


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """What only a cluster of this machine has."""

    nodes: ThisMachine | PretendedNodes = field(default_factory=ThisMachine)
    """This machine, or what it pretends to be."""
    settings: LocalSettings = field(default_factory=LocalSettings)


def build(keys: LocalCluster, context: Context) -> LocalEngine:
    """The engine of this machine."""
    settings = keys.settings
    return LocalEngine(
        context.folder,
        nodes=keys.nodes,
        yard=context.yard,
        log_limit_mib=settings.log_limit_mib,
        hands_off=settings.hands_off,
        fence_by=() if settings.fence is Fence.OFF else MEANS,
        strict=settings.fence is Fence.STRICT,
    )


def words(keys: LocalCluster) -> str:
    """What becomes of jobs, for people."""
    return f"jobs run on this machine: {keys.nodes.words()}"


def differences(here: LocalCluster, there: LocalCluster) -> list[str]:
    """What the clusters of the running yard and of a file differ in, in words."""
    found = []
    ours, theirs = here.nodes.words(), there.nodes.words()
    if ours != theirs:
        found.append(f"the fleet is {ours} here and {theirs} in the file")
    elif here.nodes != there.nodes:
        found.append(f"the fleet is {ours} here and in the file, but its nodes are described otherwise")
    mine, other = here.settings, there.settings
    if mine.log_limit_mib != other.log_limit_mib:
        found.append(
            f"log_limit is {memory_words(mine.log_limit_mib)} here and {memory_words(other.log_limit_mib)} in the file"
        )
    if mine.hands_off != other.hands_off:
        answers = ["leave" if each.hands_off else "change" for each in (mine, other)]
        found.append(f"card_settings is {answers[0]} here and {answers[1]} in the file")
    if mine.fence != other.fence:
        found.append(f"fence is {mine.fence} here and {other.fence} in the file")
    return found
