"""What would remove a blocker, for a reader, as a value: which thing, with its names and times.

A lift can be applied; a remedy is told to a user, often one of several. The commands and options that bring it about
belong to the face, and so do the words (`control/wording.py`).
"""

from dataclasses import dataclass
from enum import StrEnum


class Cure(StrEnum):
    """The kinds of remedy. What `names` and `ms` of a remedy are stands with the kind; most have neither."""

    # The job itself.
    RELEASE = "release"
    """The job is on hold; its label."""
    SUBMIT_AGAIN = "submit_again"
    LESS_TIME = "less_time"
    """A shorter time limit; with `ms`, of at most so much."""
    TIME_LIMIT = "time_limit"
    """The job has no time limit."""
    FEWER_GPUS = "fewer_gpus"
    LESS = "less"
    GPUS_A_NODE = "gpus_a_node"
    """How many GPUs a job may ask for on one node."""
    NO_GPUS = "no_gpus"
    """There are none in the whole fleet."""
    FEWER_CORES = "fewer_cores"
    LESS_MEMORY = "less_memory"
    ONE_TASK = "one_task"
    WHOLE_GPUS = "whole_gpus"
    WHOLE_OR_SHARE = "whole_or_share"
    RUN_IMAGES = "run_images"
    """No engine that the job may go to runs images."""
    OTHER_MODEL = "other_model"
    """GPU models that could hold it."""
    SLICE_MODEL = "slice_model"
    """A GPU model that is a slice of the asked size."""
    SLICE_SIZE = "slice_size"
    OTHER_POOL = "other_pool"
    """Pools that could hold it."""
    OTHER_CLUSTER = "other_cluster"
    """Clusters that could hold it."""
    OPEN_POOL = "open_pool"
    """Pools with a wall that keeps it out."""
    OTHER_NODES = "other_nodes"
    OTHER_LABELS = "other_labels"
    TOLERATE = "tolerate"
    """Taints."""
    SEVERAL_DOMAINS = "several_domains"
    """There are nodes that could hold it, if not in one NUMA domain."""
    FURTHER_APART = "further_apart"
    """There is room on nodes that are further apart than the job requires."""

    # Time, and other jobs.
    TIME = "time"
    NEXT_TICK = "next_tick"
    NEXT_WINDOW = "next_window"
    DEPENDENCY = "dependency"
    """What the job waits for, if that is one thing."""
    JOBS_START = "jobs_start"
    """Labels."""
    JOBS_END = "jobs_end"
    """Labels."""
    JOBS_END_BY = "jobs_end_by"
    """Labels; and within which time the last of them is promised to end."""
    JOBS_STOPPED = "jobs_stopped"
    """Labels; none: the jobs that the reason is about."""
    ROOM_FREED = "room_freed"
    JOBS_OF_END = "jobs_of_end"
    """A tenant or a user."""
    JOB_OF_ENDS = "job_of_ends"
    """A tenant or a user."""
    JOB_THERE_ENDS = "job_there_ends"
    AHEAD_START = "ahead_start"
    OTHERS_MOVE = "others_move"
    ANY_CHANGE = "any_change"
    COMES_FREE = "comes_free"
    """A GPU model; none: room without GPUs."""
    LESS_USE = "less_use"

    # The fleet.
    RESUME_NODE = "resume_node"
    """A node that is drained."""
    NODE_BACK = "node_back"
    """A node that is down."""
    NODES_OPEN = "nodes_open"
    """Nodes that take no new jobs."""
    FOREIGN_ENDS = "foreign_ends"
    RELEASE_LAYOUT = "release_layout"
    """A node with GPUs pinned to slices."""
    MORE_GPUS = "more_gpus"

    # Settings.
    HIGHER_LIMIT = "higher_limit"
    """The tenant, if it is to be named."""
    HIGHER_BORROW = "higher_borrow"
    HIGHER_LEND = "higher_lend"
    HIGHER_BUDGET = "higher_budget"
    MORE_PER_USER = "more_per_user"
    """The tenant that has the rule, if it is to be named."""
    MORE_PER_JOB = "more_per_job"
    MORE_RUNNING = "more_running"
    MORE_OF_CLASS = "more_of_class"
    """The class, and the tenant that has the rule."""
    MORE_CORES = "more_cores"
    MORE_MEMORY = "more_memory"
    MORE_ATTEMPTS = "more_attempts"
    MORE_PER_NODE = "more_per_node"


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing that would remove a blocker."""

    kind: Cure
    names: tuple[str, ...] = ()
    ms: int = 0
