"""GPUs that are pinned to a layout of MIG slices: which they are, and how a dump has them (`Nodes.pin` pins them).

A pinned GPU keeps its layout until it is released, whatever jobs wait. For jobs without slices it counts as wholly
taken, so that none waits for it to become whole; its slices are given out by the layout alone (`mig_placing`). A GPU
that is pinned to stay whole counts like any other, but is never cut.
"""

from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.model.serialise import Plain


def write_pin(found: Pin) -> dict[str, Plain]:
    """A pin in JSON's own types."""
    return {
        "held": [list(place) for place in found.held],
        "made": found.made,
        "why": found.why,
        "took_ms": found.took_ms,
        "found": found.found,
    }


def read_pin(plain: dict[str, Plain]) -> Pin:
    """The pin from those values."""
    held = tuple([PlacedSlice(*place) for place in plain["held"]])
    return Pin(held, plain["made"], plain["why"], plain["took_ms"], plain.get("found", False))


def pinned_mask(nodes: Nodes, number: int) -> int:
    """The GPUs of a node that are pinned to slices."""
    return sum([1 << gpu for gpu, found in nodes.pins.get(number, {}).items() if found.held])
