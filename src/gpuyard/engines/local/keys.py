"""What a yard.yaml says of a cluster that is this machine, as values."""

from enum import StrEnum

from gpuyard.model import Capability

LOG_LIMIT_MIB = 1024
"""How much of an attempt's output is kept by default."""


class Fence(StrEnum):
    """How far a yard goes to keep a job to what it was given."""

    AUTO = "auto"
    STRICT = "strict"
    OFF = "off"


def lacks(fence: Fence) -> frozenset[Capability]:
    """What this machine can never do with such a fence: a strict one refuses shares, which nothing enforces."""
    return frozenset({Capability.SHARES}) if fence is Fence.STRICT else frozenset()
