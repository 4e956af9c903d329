"""GPUs that are taken without an attempt: used from outside the yard, or pinned to a layout of MIG slices.

A pinned GPU keeps its layout until it is released, whatever jobs wait. For jobs without slices it counts as wholly
taken, so that none waits for it to become whole; its slices are given out by the layout alone (`mig_placing`). A GPU
that is pinned to stay whole counts like any other, but is never cut.
"""

from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.model.plans import Grant
from gpuyard.model.serialise import Plain
from gpuyard.model.units import MILLI


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


def set_foreign(nodes: Nodes, number: int, gpus: int, why: str) -> None:
    """Mark GPUs as used from outside the yard, even if an attempt holds them: then they are overdrawn."""
    before, _why = nodes.foreign.pop(number, (0, ""))
    if before:
        nodes.give((Grant(number, before, MILLI, 0, 0, 0),))
    if gpus:
        nodes.take((Grant(number, gpus, MILLI, 0, 0, 0),))
        nodes.foreign[number] = (gpus, why)
    nodes.room_generation += 1


def pin(nodes: Nodes, number: int, gpu: int, found: Pin) -> None:
    """Pin a GPU to a layout."""
    unpin(nodes, number, gpu)
    if found.held:
        nodes.take((Grant(number, 1 << gpu, MILLI, 0, 0, 0),))
    nodes.pins.setdefault(number, {})[gpu] = found
    # A pin that keeps a GPU whole takes no room, and yet it changes what may be cut there.
    nodes.touched.append(number)
    nodes.room_generation += 1


def unpin(nodes: Nodes, number: int, gpu: int) -> None:
    """Let a GPU be cut on demand again; a GPU without a pin stays as it is."""
    row = nodes.pins.get(number, {})
    before = row.pop(gpu, None)
    if before is None:
        return
    if not row:
        del nodes.pins[number]
    if before.held:
        nodes.give((Grant(number, 1 << gpu, MILLI, 0, 0, 0),))
    nodes.touched.append(number)
    nodes.room_generation += 1


def pinned_mask(nodes: Nodes, number: int) -> int:
    """The GPUs of a node that are pinned to slices."""
    return sum([1 << gpu for gpu, found in nodes.pins.get(number, {}).items() if found.held])


def drop(nodes: Nodes, number: int) -> None:
    """A node has different GPUs: forget the claims on the old ones."""
    set_foreign(nodes, number, 0, "")
    nodes.slices_idle.pop(number, None)
    for gpu in list(nodes.pins.get(number, {})):
        unpin(nodes, number, gpu)
