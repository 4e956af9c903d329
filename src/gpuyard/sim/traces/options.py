"""What the caller may choose about an import, in one value that every importer takes."""

from dataclasses import dataclass

from gpuyard.errors import BadInput


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
