"""What a yard.yaml says of a cluster that is this machine, as values."""

from dataclasses import dataclass
from enum import StrEnum

from gpuyard.model import Capability

LOG_LIMIT_MIB = 1024
"""How much of an attempt's output is kept by default."""


class Fence(StrEnum):
    """How far a yard goes to keep a job to what it was given."""

    AUTO = "auto"
    STRICT = "strict"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """How this machine runs jobs."""

    log_limit_mib: int = LOG_LIMIT_MIB
    """How much is kept of what an attempt writes."""
    hands_off: bool = False
    """Whether the yard leaves the settings of GPUs (MIG, persistence mode) as they are."""
    fence: Fence = Fence.AUTO
    """What keeps jobs to what they were given."""


def find_lacking(settings: LocalSettings | None) -> frozenset[Capability]:
    """What this machine can never do with such settings: a strict fence refuses shares, which nothing enforces."""
    strict = settings is not None and settings.fence is Fence.STRICT
    return frozenset({Capability.SHARES}) if strict else frozenset()
