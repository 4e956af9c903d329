"""What a yard.yaml says of a cluster that is this machine, as values."""

from enum import StrEnum

LOG_LIMIT_MIB = 1024
"""How much of an attempt's output is kept by default."""


class Fence(StrEnum):
    """How far a yard goes to keep a job to what it was given."""

    AUTO = "auto"
    STRICT = "strict"
    OFF = "off"
