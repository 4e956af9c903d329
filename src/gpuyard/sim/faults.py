"""What goes wrong in a simulation: nodes that fail at a rate, and spot nodes that follow a recorded availability."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gpuyard.errors import BadInput, error_text
from gpuyard.model.units import HOUR_MS, SECOND_MS

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node goes down or comes back."""

    at_ms: int
    node: int
    up: bool
    why: str = ""


def draw_failures(
    nodes: int, until_ms: int, *, mtbf_hours: float, repair_hours: float, seed: int
) -> list[NodeChange]:
    """Independent failures of each node, exponential in time, with a constant time to repair."""
    changes: list[NodeChange] = []
    repair_ms = max(1, round(repair_hours * HOUR_MS))
    for node in range(nodes):
        random = Random(f"{seed}:node:{node}")
        at_ms = 0
        while True:
            at_ms += max(1, round(random.expovariate(1.0) * mtbf_hours * HOUR_MS))
            if at_ms > until_ms:
                break
            changes.append(NodeChange(at_ms, node, False, "failed"))
            at_ms += repair_ms
            changes.append(NodeChange(at_ms, node, True))
    changes.sort(key=lambda c: (c.at_ms, c.node, c.up))
    return changes


def read_spot_reclaims(path: Path, spot_nodes: list[int], until_ms: int) -> list[NodeChange]:
    """Follow a recorded availability: `{"metadata": {"gap_seconds": n}, "data": [available, …]}`.

    With a count per tick, that many spot nodes are up; with 0 and 1, all or none. A trace shorter than the simulation
    repeats. Nodes with the highest numbers are reclaimed first.
    """
    gap_ms, available = _read(path)
    most = max(available, default=0)
    if most == 0:
        raise BadInput(f"{path}: no tick has anything available", "use a trace with some availability")
    changes: list[NodeChange] = []
    up = len(spot_nodes)
    tick = 0
    while tick * gap_ms <= until_ms:
        share = available[tick % len(available)]
        want = len(spot_nodes) * share // most
        at_ms = tick * gap_ms
        for position in range(want, up):
            changes.append(NodeChange(at_ms, spot_nodes[position], False, "spot reclaim"))
        for position in range(up, want):
            changes.append(NodeChange(at_ms, spot_nodes[position], True))
        up = want
        tick += 1
    # At the end of the record all nodes are back, so that interrupted jobs can finish.
    changes += [NodeChange(tick * gap_ms, node, True) for node in spot_nodes[up:]]
    return changes


def _read(path: Path) -> tuple[int, list[int]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        gap_s = document["metadata"]["gap_seconds"]
        data = document["data"]
        bad = [i for i, v in enumerate(data) if not isinstance(v, int) or v < 0]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: not an availability trace ({error_text(error, path)})",
            'expected {"metadata": {"gap_seconds": n}, "data": [0, 1, …]}',
        ) from error
    if bad or not data or not isinstance(gap_s, int | float) or gap_s <= 0:
        where = f"entries {bad[:_NAMED_MAX]}" if bad else "gap_seconds or data"
        raise BadInput(f"{path}: {where} must be whole numbers above zero", "see docs/how-to/traces.md")
    return max(1, round(gap_s * SECOND_MS)), data
