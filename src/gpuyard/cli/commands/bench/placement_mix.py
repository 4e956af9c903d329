"""A fleet and a mix of tasks to time placement on, made of numbers alone: large and small nodes, whole GPUs and shares.

The kinds of node have about the proportions of a large production cluster (Alibaba's of 2023), the tasks have rounder
proportions than real ones.
"""

from gpuyard.packing.tasks import NodeShape, Task

_KINDS = (
    # GPU model, GPUs, cores, GiB, and how many of a thousand nodes.
    ("G2", 8, 96, 384, 453),
    ("T4", 2, 104, 512, 319),
    ("P100", 2, 16, 120, 90),
    ("G3", 8, 128, 768, 32),
    ("V100M16", 4, 32, 128, 23),
    ("P100", 2, 64, 256, 18),
    ("V100M32", 8, 96, 768, 17),
    ("V100M16", 1, 8, 32, 16),
    ("T4", 4, 96, 384, 14),
    ("V100M32", 4, 48, 368, 8),
    ("V100M16", 8, 64, 256, 6),
    ("P100", 1, 8, 60, 3),
    ("A10", 1, 128, 1024, 1),
)

_TASKS = (
    # Milli-cores, MiB, GPUs, milli of each, and how many of a thousand tasks.
    (3_000, 6_144, 1, 800, 130), (11_500, 49_152, 1, 1000, 120), (11_000, 49_152, 1, 1000, 100),
    (3_000, 6_144, 1, 1000, 90), (12_000, 48_128, 1, 480, 70), (8_000, 30_720, 1, 480, 60),
    (12_500, 57_344, 0, 0, 55), (32_000, 65_536, 0, 0, 45), (12_000, 24_576, 1, 1000, 45),
    (18_000, 65_536, 1, 1000, 40), (12_000, 47_104, 1, 650, 40), (4_000, 22_528, 1, 320, 35),
    (8_000, 30_720, 0, 0, 30), (10_000, 41_984, 1, 1000, 25), (8_000, 16_384, 1, 1000, 22),
    (16_000, 59_392, 1, 1000, 20), (4_000, 16_384, 1, 240, 16), (6_000, 6_144, 1, 460, 14),
    (24_000, 98_304, 1, 1000, 10), (4_000, 10_240, 1, 550, 8), (4_000, 10_240, 1, 160, 8),
    (4_000, 10_240, 1, 360, 6), (64_000, 262_144, 8, 1000, 5), (16_000, 65_536, 2, 1000, 3),
    (32_000, 131_072, 4, 1000, 3),
)  # fmt: skip


def mixed_nodes(count: int) -> list[NodeShape]:
    """`count` nodes of all kinds, those of a kind together."""
    total = sum([many for *_rest, many in _KINDS])
    shapes: list[NodeShape] = []
    reached = 0
    for model, gpus, cores, gib, many in _KINDS:
        reached += many
        shape = NodeShape(model, gpus, cores * 1000, gib * 1024)
        shapes.extend([shape] * (-(-count * reached // total) - len(shapes)))
    return shapes


_VARIANTS = 6
"""Variants of each row, slightly apart: jobs for the same GPU ask for different cores and memory."""


def mixed_tasks() -> list[Task]:
    """A thousand tasks, of some 150 sizes: about as many as a large production cluster sees."""
    return [
        Task(cpu - i % _VARIANTS // 2 * 100, memory - i % _VARIANTS * 512, gpus, milli)
        for cpu, memory, gpus, milli, many in _TASKS
        for i in range(many)
    ]
