"""How a plain number of GPUs becomes a gang, for sources that say how many GPUs a job had but not where.

A job that fits on a node stays on one. A larger one has tasks of equal size, the largest that divides both the job and
the node, so that 16 GPUs on 8-GPU nodes are 2 x 8 and 12 are 3 x 4.
"""

from math import gcd

from gpuyard.model import Ask, Whole


def gang(gpus: int, gpus_per_node: int, cpu_milli: int = 0) -> Ask:
    """The ask for `gpus` whole GPUs in all; `cpu_milli` is for the whole job too."""
    per_task = gpus if gpus <= gpus_per_node else gcd(gpus, gpus_per_node)
    tasks = gpus // per_task if per_task else 1
    return Ask(Whole(per_task), tasks, cpu_milli=-(-cpu_milli // tasks))
