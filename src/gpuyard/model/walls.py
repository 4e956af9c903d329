"""The wall of a pool: whose jobs it takes, and what a job may be there.

A wall says nothing of what the nodes are: it depends on the asker, on the job's time limit and on its size.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Askers:
    """Jobs by whose they are. A kind that is left empty says nothing."""

    tenants: tuple[str, ...] = ()
    """With all tenants below them."""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Groups of people: those of the machine, or those that an identity provider names."""
    classes: tuple[str, ...] = ()


NOBODY = Askers()
"""No kind is named."""


@dataclass(frozen=True, slots=True)
class Wall:
    """What keeps jobs out of one pool."""

    allow: Askers = NOBODY
    """A job has to be of each kind that is named here; nothing named: every job."""
    deny: Askers = NOBODY
    """A job that is of any kind named here stays out, whatever `allow` says."""
    time_limit_ms: int = 0
    """The longest time limit of a job in it; 0: any."""
    default_time_ms: int = 0
    """The time limit of a job that names none; 0: the longest that the pool takes."""
    max_nodes_per_job: int = 0
    """A job that needs more nodes stays out; 0: any number."""
    min_gpu_milli: int = 0
    """A job with fewer GPUs, all its tasks together, stays out."""
    priority: int = 0
    """Jobs that name the pool go before jobs that name one with less, whatever their classes."""
    preemptible: bool = True
    """Whether jobs that run in it may be stopped to make room for others, if their classes allow it."""

    @property
    def longest_default_ms(self) -> int:
        """What a job gets that names no time limit; 0: nothing is said."""
        return self.default_time_ms or self.time_limit_ms
