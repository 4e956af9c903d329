"""The yard's states and reasons in Slurm's words."""

from gpuyard.cli.slurm.language.stopping import Stop

CODES = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF", "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD", "REQUEUED": "RQ", "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REVOKED": "RV",
    "SIGNALING": "SI", "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
"""States of Slurm, in its order, with their letters."""

LIVE = ("PENDING", "RUNNING", "SUSPENDED")
YARDS = frozenset({*LIVE, "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})
"""States that a job of a yard can be in; of the others only COMPLETING and CONFIGURING are ever found."""

REASONS = {
    "about to start": "None",
    "Slurm: it waits there": "None",
    "not looked at yet": "None",
    "no room": "Resources",
    "room is promised to a job ahead": "Priority",
    "its tenant is at its limit": "AssocGrpGRES",
    "no pool that could hold it takes it": "PartitionConfig",
    "its tenant may not borrow more": "AssocGrpGRES",
    "what is free is guaranteed to others": "Resources",
    "its tenant runs as many jobs as it may": "AssocGrpJobsLimit",
    "its user has as much as one user may": "QOSMaxJobsPerUserLimit",
    "over a budget": "AssocGrpGRESMinutes",
    "an earlier job of its tenant waits for quota": "Priority",
    "GPUs are being freed for it": "Resources",
    "a job ahead waits, and none may overtake": "Priority",
    "jobs ahead of it take what there is": "Priority",
    "on hold": "JobHeldUser",
    "before its begin time": "BeginTime",
    "no node could hold it": "BadConstraints",
    "its kind of GPU sharing cannot be served yet": "BadConstraints",
    "larger than a job of its tenant may be": "AssocMaxGRESPerJob",
    "its tenant has a budget and it has no time limit": "AssocMaxWallDurationPerJobLimit",
    "waits for another job": "Dependency",
    "what it waits for cannot come true": "DependencyNeverSatisfied",
    "as many tasks of its array run as may": "JobArrayTaskLimit",
    "waits to be tried again": "BeginTime",
}
"""Why a job waits, in the words of `yard queue` and in Slurm's."""


_OWN = "Slurm: "
"""How the reason of a job begins that an observed Slurm decides about."""


def slurm_reason(text: str) -> str:
    """Slurm's word for the yard's reason, or its own for a job that it decides about. Without one it is Priority."""
    if text.startswith(_OWN) and text not in REASONS:
        return text.removeprefix(_OWN)
    if not text or text.startswith("in line"):
        return "Priority" if text else "None"
    # The rest of the text names nodes that are out of use, or full.
    return REASONS.get(text.partition(";")[0], "Priority")


def slurm_state(state: str, attempt: str) -> str:
    """A job that is being started or stopped has a state of its own in Slurm."""
    if state == "RUNNING" and attempt == "STARTING":
        return "CONFIGURING"
    if state in LIVE and attempt == "STOPPING":
        return "COMPLETING"
    return state


def parse_states(names: list[str]) -> list[str] | None:
    """States by name or by letters, in any case; None: one of them is no state."""
    by_code = {code: name for name, code in CODES.items()}
    found = []
    for name in names:
        known = name.upper()
        known = by_code.get(known, known)
        if known not in CODES:
            return None
        found.append(known)
    return found


def no_state(program: str, names: list[str]) -> Stop:
    """One of these is no state."""
    wrong = next(name for name in names if parse_states([name]) is None)
    return Stop(
        f"{program}: error: Invalid job state specified: {wrong}",
        f"{program}: error: Valid job states include: {','.join(CODES)}",
        "",
    )
