"""Nodes grouped as `sinfo` shows them: by partition and by what they have in common."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.engines.name_lists import fold_names, natural_key

STATES = {
    "idle": "idle", "mixed": "mix", "allocated": "alloc", "draining": "drng", "drained": "drain", "down": "down",
}  # fmt: skip
"""States of nodes, long and short."""
NO_NODE = "n/a"
"""The state where there is no node."""


class SlurmNode(NamedTuple):
    """A node in Slurm's words."""

    name: str
    pool: str
    state: str
    why: str
    model: str
    gpus: int
    gpus_used: int
    """A GPU of which a part is used is used, as Slurm counts."""
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used: int
    jobs: int
    features: str
    """Joined by commas, as Slurm has them."""

    @property
    def gres(self) -> str:
        """`gpu:a100-80gb:8`."""
        return f"gpu:{self.model.lower()}:{self.gpus}" if self.gpus else "(null)"

    @property
    def up(self) -> bool:
        """Whether it takes work."""
        return self.state in ("idle", "mixed", "allocated")


def node_from_view(node: Mapping[str, Any]) -> SlurmNode:
    """A node as the yard has it."""
    used = node["gpus"] - int(node["gpus_free"])
    cpus = round(node["cpus"])
    cpus_used = min(cpus, max(round(node["cpus"] - node["cpus_free"]), 1 if node["jobs"] else 0))
    return SlurmNode(
        node["name"], node["pool"], _state(node), node["why"], node["gpu_model"], node["gpus"], used,
        cpus, cpus_used, node["memory_mib"], node["memory_mib"] - node["memory_mib_free"], len(node["jobs"]),
        ",".join(node.get("features", ())) or "(null)",
    )  # fmt: skip


def _state(node: Mapping[str, Any]) -> str:
    if node["state"] == "DOWN":
        return "down"
    busy = bool(node["jobs"])
    if node["state"] == "DRAINED":
        return "draining" if busy else "drained"
    if not busy:
        return "idle"
    # As in Slurm the cores count: a node with all its GPUs taken may still be mixed.
    return "mixed" if node["cpus_free"] > 0 else "allocated"


class SinfoLine(NamedTuple):
    """Nodes of one line."""

    partition: str
    default: bool
    nodes: list[SlurmNode]

    @property
    def shown_partition(self) -> str:
        """The name, with a star for the default partition."""
        return self.partition + ("*" if self.default else "")

    @property
    def nodelist(self) -> str:
        """Names, folded."""
        return fold_names(sorted([node.name for node in self.nodes], key=natural_key))

    def sums(self, *parts: Iterable[int]) -> str:
        """Numbers with slashes."""
        return "/".join([str(sum(part)) for part in parts])

    def counted(self) -> tuple[int, int, int]:
        """Nodes that are busy, that are idle, and that take no work."""
        idle = sum([node.state == "idle" for node in self.nodes])
        out = sum([not node.up for node in self.nodes])
        return len(self.nodes) - idle - out, idle, out

    def span(self, values: Iterable[int]) -> str:
        """One number, or the least with a plus."""
        found = sorted(set(values))
        return f"{found[0] if found else 0}{'+' if len(found) > 1 else ''}"


NOTHING = SlurmNode("", "", NO_NODE, "", "", 0, 0, 0, 0, 0, 0, 0, "(null)")
"""A placeholder for the nodes of a line without any."""

_ORDER = ("down", "draining", "drained", "mixed", "allocated", "idle")
"""As Slurm has them in a partition."""


def group_nodes(
    nodes: Iterable[SlurmNode], partitions: Mapping[str, Sequence[str]], default: str, alike: Any
) -> list[SinfoLine]:
    """Lines: partitions, each with its pools, and in each the nodes that are alike."""
    ordered = sorted(nodes, key=lambda node: (_ORDER.index(node.state), natural_key(node.name)))
    found: dict[tuple[Any, ...], SinfoLine] = {}
    for name, pools in partitions.items():
        for node in [node for node in ordered if node.pool in pools]:
            group = found.setdefault((name, alike(node)), SinfoLine(name, name == default, []))
            group.nodes.append(node)
    return list(found.values())
