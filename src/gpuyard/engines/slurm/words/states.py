"""The states of Slurm's jobs and nodes: the one table of them, for driving, observing and reading accounts."""

from gpuyard.model import Outcome, WaitCause

# -- jobs ----------------------------------------------------------------------------------------------------------

WAITS = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
"""Slurm has it and has not given it nodes, for the first time or again."""
LIVES = frozenset(
    {"RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT",
     "POWER_UP_NODE"}
)  # fmt: skip
"""States in which it holds nodes, even if its user has stopped it, or if they are still being powered up."""
AGAIN = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"})
"""Ends after which the same job may wait again."""
OUTCOMES = {
    "COMPLETED": Outcome.COMPLETED,
    "FAILED": Outcome.FAILED,
    "CANCELLED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "TIMEOUT": Outcome.TIMEOUT,
    "DEADLINE": Outcome.TIMEOUT,
    "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "LAUNCH_FAILED": Outcome.NODE_FAIL,
    "RECONFIG_FAIL": Outcome.NODE_FAIL,
}
"""How jobs end, in our words; any other end is a failure."""


def find_outcome(state: str) -> Outcome | None:
    """How a job ended, in our words; None: it has not."""
    return None if state in WAITS or state in LIVES else OUTCOMES.get(state, Outcome.FAILED)


_CAUSES = {
    "Resources": WaitCause.ROOM,
    "Nodes": WaitCause.ROOM,
    "ReqNodeNotAvail": WaitCause.ROOM,
    "Reservation": WaitCause.ROOM,
    "Licenses": WaitCause.ROOM,
    "Priority": WaitCause.ORDER,
    "JobHeld": WaitCause.HOLD,
    "Dependency": WaitCause.DEPENDENCY,
    "BeginTime": WaitCause.BEGIN,
    "JobArrayTaskLimit": WaitCause.QUOTA,
    "Assoc": WaitCause.QUOTA,
    "QOS": WaitCause.QUOTA,
    "MaxGRES": WaitCause.QUOTA,
    "Partition": WaitCause.OVER_ASKING,
    "BadConstraints": WaitCause.OVER_ASKING,
    "NodeDown": WaitCause.CRASHES,
}
"""What the reasons of waiting jobs count as, by how they begin."""


def wait_cause(reason: str) -> WaitCause:
    """What a job waits for, by the reason that Slurm gives."""
    found = [cause for begin, cause in _CAUSES.items() if reason.startswith(begin)]
    return found[0] if found else WaitCause.UNKNOWN


# -- nodes ---------------------------------------------------------------------------------------------------------

DOWN = frozenset({"DOWN", "ERROR", "UNKNOWN", "FUTURE", "INVAL", "INVALID", "INVALID_REG"})
DRAINED = {
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "FAIL": "failing",
    "FAILING": "failing",
    "MAINT": "in maintenance",
    "MAINTENANCE": "in maintenance",
    "REBOOT_ISSUED": "reboots",
    "REBOOT_REQUESTED": "is to be rebooted",
}
"""Closed to new work by an administrator; what runs there goes on."""
CLOSED = {**DRAINED, "NOT_RESPONDING": "does not respond", "POWERING_DOWN": "powers down"}
"""States in which a node takes nothing new though it is not down, with the words for it."""


def parse_node_states(text: str) -> frozenset[str]:
    """The words of `MIXED+DRAIN` or `DOWN*+DRAIN`, without the marks behind them; `*` says that it does not respond."""
    words = [word.strip("*~#!%$@^-") for word in text.strip().upper().split("+")]
    return frozenset([word for word in words if word] + (["NOT_RESPONDING"] if "*" in text else []))
