"""Annotations that keep the pods of a Job near to each other: Kueue's and JobSet's.

Each names a label of nodes, such as `cloud.provider.com/topology-rack`. Of such labels the last word says the level.
"""

import re
from typing import Any

from gpuyard.errors import quote
from gpuyard.intake.kubernetes.tree import Part

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
ANNOTATIONS = (REQUIRED, PREFERRED, EXCLUSIVE)
_NODE = "node"
_LEVELS = (
    (_NODE, r"hostname|host|node"),
    ("switch", r"switch|leaf|leafgroup|tor"),
    ("rack", r"rack|subblock|network-node-layer-3"),
    ("fabric", r"fabric|block|spine|zone|network-node-layer-[12]"),
)
"""Levels by the last words of labels: of Kueue's examples, of clouds, and of the yard."""


def read_level(key: str) -> str:
    """The level that a label of nodes stands for; empty: none that is known."""
    last = key.rpartition("/")[2].lower()
    for level, words in _LEVELS:
        if re.fullmatch(rf"(?:.*[-_.])?(?:{words})", last):
            return level
    return ""


def topology_fields(metadata: Part, job: dict[str, Any]) -> dict[str, Any]:
    """Fields of a job whose pods are kept near to each other; `job`: what it has of tasks so far.

    Pods that are to be near start together: what would be an array becomes one job of as many tasks.
    """
    annotations = metadata.part("annotations")
    named = [key for key in ANNOTATIONS if annotations.has(key)]
    if not named:
        return {}
    key = named[0]
    value = annotations.text(key)
    level = read_level(value)
    if not level:
        levels = "rack, block, switch, fabric or kubernetes.io/hostname"
        annotations.problem(
            key, f"names no level that a yard knows: {quote(value)}; one that ends in {levels}"
        )
        return {}
    indices = str(job.get("array", ""))
    count = int(indices.rpartition("-")[2] or 0) + 1
    if count == 1:
        return {}
    if job.get("array_limit"):
        annotations.warn(
            key, "is left out: fewer of its pods run at a time than there are, one after the other"
        )
        return {}
    if key == EXCLUSIVE:
        annotations.warn(key, "is read as required: other jobs may be there, too")
    annotations.warn(key, f"makes it one job of {count} tasks: each finds its number as RANK")
    found: dict[str, Any] = {"array": None, "tasks": count}
    if level == _NODE:
        if key == PREFERRED:
            return found
        return found | {"nodes_max": 1}
    return found | {"topology": {"level": level, "required": key != PREFERRED}}
