"""A kind: nodes that are alike, indexed by how much each has free."""

from gpuyard.model import Level, Node


class Kind:
    """Nodes that are alike."""

    __slots__ = (
        "buckets",
        "close_gpus",
        "cluster",
        "cpu_milli",
        "domain_size",
        "domains",
        "gpus",
        "group_size",
        "inner_size",
        "members",
        "memory_mib",
        "model",
        "most",
        "one_group",
        "partial",
    )

    def __init__(self, node: Node, model: int) -> None:
        self.cluster = node.cluster
        self.model = model
        """The GPU model's number."""
        self.gpus = node.gpus
        self.cpu_milli = node.cpu_milli
        self.memory_mib = node.memory_mib
        self.domain_size = node.domain_gpus
        """GPUs of one NUMA domain."""
        sizes = sorted({size for size in (node.close_gpus, self.domain_size) if 1 < size < node.gpus})
        nested = len(sizes) > 1 and sizes[1] % sizes[0] == 0
        self.group_size = sizes[1] if nested else node.close_gpus
        """GPUs that are close to each other: those of an NVLink group or of a NUMA domain, whichever is larger."""
        self.inner_size = sizes[0] if nested else 0
        """GPUs within such a group that are closer still; 0: none."""
        self.close_gpus = node.close_gpus
        self.one_group = self.group_size <= 1 or self.group_size >= node.gpus
        """Whether all GPUs of a node are equally close to each other."""
        self.buckets = [0] * (node.gpus + 1)
        """Schedulable nodes by their number of wholly free GPUs."""
        self.most = -1
        """Cached by `most_free` until a bucket changes; -1: not known."""
        self.partial = 0
        """Schedulable nodes with a GPU that is partly taken."""
        self.members = 0
        """All nodes, schedulable or not."""
        self.domains: dict[Level, dict[str, int]] = {level: {} for level in Level}
        """Nodes by switch, by rack and by fabric."""

    def join(self, node: Node, bit: int) -> None:
        """Add a node, as a set of one."""
        self.members |= bit
        for level, domains in self.domains.items():
            name = node.place(level)
            domains[name] = domains.get(name, 0) | bit

    def leave(self, node: Node, bit: int) -> None:
        """Take a node away."""
        self.members &= ~bit
        for level, domains in self.domains.items():
            domains[node.place(level)] &= ~bit

    def most_free(self) -> int:
        """The largest number of wholly free GPUs on one schedulable node."""
        free = self.most
        if free < 0:
            buckets = self.buckets
            free = self.gpus
            while free > 0 and not buckets[free]:
                free -= 1
            self.most = free
        return free

    def too_few(self, gpus: int, count: int) -> bool:
        """Whether fewer than `count` schedulable nodes have `gpus` GPUs wholly free."""
        for bucket in self.buckets[gpus:]:
            if bucket:
                count -= bucket.bit_count()
                if count <= 0:
                    return False
        return True

    def same(self, node: Node, model: int) -> bool:
        """Whether a node belongs to this kind."""
        return (
            self.model == model
            and self.gpus == node.gpus
            and self.cpu_milli == node.cpu_milli
            and self.memory_mib == node.memory_mib
            and self.cluster == node.cluster
            and self.close_gpus == node.close_gpus
            and self.domain_size == node.domain_gpus
        )
