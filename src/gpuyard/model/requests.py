"""What a task may ask of GPUs: a closed sum, so that code which cannot serve one form refuses it explicitly.

A count of zero whole GPUs is a CPU-only task.
"""

from dataclasses import dataclass
from enum import Enum


class Isolation(Enum):
    """How far apart sharers of one GPU are kept."""

    STRICT = "strict"
    """A MIG slice or a whole GPU: its own memory and bandwidth, and no faults of others reach it."""
    SHARED = "shared"
    """A capped share of a GPU beside others."""
    ANY = "any"
    """Whichever is cheapest."""


@dataclass(frozen=True, slots=True)
class Whole:
    """`count` whole GPUs of one node."""

    count: int


@dataclass(frozen=True, slots=True)
class Milli:
    """`count` shares of `milli` thousandths, each on a different GPU of one node."""

    count: int
    milli: int
    user: str = ""
    """The user of the shares, if shares of one GPU belong to one user; empty: it does not matter."""


@dataclass(frozen=True, slots=True)
class Mig:
    """`count` MIG slices of a profile such as `1g.18gb`."""

    count: int
    profile: str


@dataclass(frozen=True, slots=True)
class Memory:
    """`count` GPUs, or parts of one, with at least this much memory and this isolation."""

    count: int
    memory_mib: int
    isolation: Isolation


GpuRequest = Whole | Milli | Mig | Memory


def request_text(request: GpuRequest) -> str:
    """What one task asks for, in short: `4`, `0.25`, `2x0.25`, `1g.18gb`, `2x1g.18gb`; empty: by memory."""
    match request:
        case Whole(count):
            return str(count)
        case Milli(1, milli) if milli < 1000:
            return thousandths_text(milli)
        case Milli(count, milli):
            return f"{count}x{thousandths_text(milli)}"
        case Mig(count, profile):
            return profile if count == 1 else f"{count}x{profile}"
    return ""


def thousandths_text(thousandths: int) -> str:
    """An integer of thousandths as a decimal number, exactly."""
    whole, part = divmod(thousandths, 1000)
    return f"{whole}.{part:03d}".rstrip("0") if part else str(whole)
