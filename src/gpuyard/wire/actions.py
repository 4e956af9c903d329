"""What an endpoint does, which decides which people may ask it (`control/access/rights.py`)."""

from enum import Enum


class Action(Enum):
    """What a route does. A route that does not say so is not served."""

    ANYBODY = "anybody"
    """For unknown callers too: health, and how to log in."""
    SELF = "self"
    """About the person that asks: their rights and tokens."""
    SEE_QUEUE = "see-queue"
    SEE_NODES = "see-nodes"
    SEE_JOB = "see-job"
    SUBMIT = "submit"
    ACT_ON_JOB = "act-on-job"
    MOVE_JOB = "move-job"
    """Puts a job before all others, so it needs the right to act on all of them."""
    READ_JOB = "read-job"
    """What is in a job: what it wrote, its script, its environment."""
    ENTER_JOB = "enter-job"
    """Do something inside a running job, as its owner: its terminal, a shell, its ports, its files."""
    SEE_TENANTS = "see-tenants"
    """What tenants may use and use: one's own, with those above it."""
    MAKE_TOKEN = "make-token"
    UNBIND_NAME = "unbind-name"
    """From the person whose it is by their first login, so that another one can have it."""
    MANAGE_NODES = "manage-nodes"
    WRITE_SAMPLES = "write-samples"
    """Hand in what was seen on a node: its collector's token may do that for its own node, and nothing else."""
    MANAGE_CONFIG = "manage-config"
    """The configuration tells what everyone may use."""
    PRUNE = "prune"
    """Remove what is kept of everybody's ended jobs."""
    REBUILD = "rebuild"
    """Fill projections again from the log, and see how far they are."""
    SEE_ALL = "see-all"
    """The log and the whole state, which hold everybody's jobs."""


DOES = {
    Action.ANYBODY: "ask anything",
    Action.SELF: "ask about themselves",
    Action.SEE_QUEUE: "see the queue",
    Action.SEE_NODES: "see the nodes",
    Action.SEE_JOB: "see jobs",
    Action.SUBMIT: "submit jobs",
    Action.ACT_ON_JOB: "act on jobs",
    Action.MOVE_JOB: "move jobs to the top of the line",
    Action.READ_JOB: "read what jobs wrote",
    Action.ENTER_JOB: "enter jobs",
    Action.SEE_TENANTS: "see the tenants",
    Action.MAKE_TOKEN: "make tokens",
    Action.UNBIND_NAME: "unbind names",
    Action.MANAGE_NODES: "drain and resume nodes",
    Action.WRITE_SAMPLES: "hand in samples of nodes",
    Action.MANAGE_CONFIG: "see or change the configuration",
    Action.PRUNE: "remove what is kept of ended jobs",
    Action.REBUILD: "fill projections again",
    Action.SEE_ALL: "see what everybody did",
}
"""What each of them lets someone do, for people."""
