"""What the caller may choose about an import, in one value that every importer takes."""

from dataclasses import dataclass
from math import gcd

from gpuyard.errors import BadInput
from gpuyard.model import Ask, Whole


@dataclass(frozen=True, slots=True)
class Options:
    """Each importer reads the options that concern it."""

    seed: int = 0
    """For values that a source lacks and that are drawn instead (the time limits of `philly`)."""
    gpus_per_node: int = 8
    """Jobs with more GPUs become gangs (`philly`, `swf`)."""
    processors_per_gpu: int = 1
    """How many processors of a log stand for one GPU (`swf`)."""
    models: bool = False
    """Keep the GPU models that jobs asked for (`sacct`)."""
    cpu_jobs: bool = False
    """Keep the jobs that asked for no GPU (`sacct`)."""

    def __post_init__(self) -> None:
        for what, value in (
            ("gpus_per_node", self.gpus_per_node),
            ("processors_per_gpu", self.processors_per_gpu),
        ):
            if not 1 <= value <= 10**6:
                raise BadInput(f"{what} is {value}", hint="Give a whole number of at least 1.")


def make_gang_ask(gpus: int, gpus_per_node: int, cpu_milli: int = 0) -> Ask:
    """The ask for `gpus` whole GPUs in all, of a source that does not say where; `cpu_milli` is for the whole job too.

    A job that fits on a node stays on one. A larger one has tasks of equal size, the largest that divides both the job
    and the node, so that 16 GPUs on 8-GPU nodes are 2 x 8 and 12 are 3 x 4.
    """
    per_task = gpus if gpus <= gpus_per_node else gcd(gpus, gpus_per_node)
    tasks = gpus // per_task if per_task else 1
    return Ask(Whole(per_task), tasks, cpu_milli=-(-cpu_milli // tasks))
