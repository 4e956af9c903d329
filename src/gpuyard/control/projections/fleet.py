"""The nodes over time: how many GPUs and cores each had, and when it was down or drained.

Rows: `n/NODE`, a node as it is, and since when; `t/UNTIL/NODE`, how it was until then. A report that wants to know what
a cluster had between two moments reads those stretches that end after the first.
"""

from gpuyard.control.projections.following import Projection, Rows
from gpuyard.model import (
    Event,
    Node,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
)

UP, DOWN, DRAINED = 0, 1, 2
"""How a node is; one that is down and drained is down."""


class Fleet(Projection):
    """What clusters had."""

    name = "fleet"
    version = 1

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        """A node came, changed, went down, up, or was drained or resumed."""
        match event:
            case NodeAdded():
                number = rows.get("nodes", 0)
                rows["nodes"] = number + 1
                rows[f"n/{number:06}"] = [*_has(event.node), False, False, event.at_ms]
            case NodeChanged():
                _turn(rows, event.number, event.at_ms, node=event.node)
            case NodeDown() | NodeUp():
                _turn(rows, event.node, event.at_ms, down=isinstance(event, NodeDown))
            case NodeCordoned() | NodeUncordoned():
                _turn(rows, event.node, event.at_ms, drained=isinstance(event, NodeCordoned))
            case _:
                pass


def _has(node: Node) -> list[str | int]:
    return [node.cluster, node.gpus, node.cpu_milli]


def _turn(
    rows: Rows,
    number: int,
    at_ms: int,
    *,
    node: Node | None = None,
    down: bool | None = None,
    drained: bool | None = None,
) -> None:
    """End the stretch of a node, and begin another."""
    was = rows.get(f"n/{number:06}")
    if was is None:
        return
    *has, was_down, was_drained, since_ms = was
    now = [
        *(has if node is None else _has(node)),
        was_down if down is None else down,
        was_drained if drained is None else drained,
    ]
    if now == was[:-1]:
        return
    # The clock of a log may go back; a stretch never does.
    at_ms = max(at_ms, since_ms)
    if at_ms > since_ms:
        how = DOWN if was_down else DRAINED if was_drained else UP
        rows[f"t/{at_ms:015}/{number:06}"] = [*has, how, since_ms]
    rows[f"n/{number:06}"] = [*now, at_ms]
