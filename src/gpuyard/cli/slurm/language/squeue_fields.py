"""The fields that `squeue` can show of a job, by the letters of -o and the names of -O."""

import pwd
from collections.abc import Callable
from functools import cache

from gpuyard.cli.slurm.language.columns import Field
from gpuyard.cli.slurm.language.jobs import SlurmJob, memory_text
from gpuyard.cli.slurm.language.times import moment_text, short_span_text
from gpuyard.cli.slurm.language.words import CODES

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"


@cache
def find_uid(user: str) -> int:
    """The uid of a user; -1: this machine does not know them."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return -1


@cache
def find_group(user: str) -> tuple[int, str]:
    """Number and name of a user's group."""
    import grp

    try:
        number = pwd.getpwnam(user).pw_gid
        return number, grp.getgrgid(number).gr_name
    except KeyError:
        return -1, "nogroup"


def limit(job: SlurmJob) -> str:
    """The time limit."""
    if job.masked:
        return "N/A"
    return short_span_text(job.limit_s) if job.limit_s else "UNLIMITED"


def left(job: SlurmJob) -> str:
    """The time that is left of its limit."""
    if job.masked:
        return "N/A"
    return short_span_text(job.limit_s - job.ran_s) if job.limit_s else "UNLIMITED"


def start(job: SlurmJob) -> str:
    """When it started, or is expected to."""
    return moment_text(
        job.started_ms or job.start_guess_ms or (job.begin_ms if job.state == "PENDING" else 0)
    )


def end(job: SlurmJob) -> str:
    """When it ended, or will at the latest."""
    if job.ended_ms or not job.started_ms:
        return moment_text(job.ended_ms)
    return moment_text(job.started_ms + job.limit_s * 1000) if job.limit_s else "NONE"


def where(job: SlurmJob) -> str:
    """Its nodes, or in parentheses why it has none."""
    return f"({job.reason})" if job.state == "PENDING" or not job.nodes else job.nodelist


def raw_id(job: SlurmJob) -> str:
    """A number of its own; tasks that are folded have the array's."""
    return str(job.array_id if job.indices else job.id)


def _exit_code(job: SlurmJob) -> str:
    return str(job.exit_code or 0)


def _nothing(_: SlurmJob) -> str:
    return "(null)"


def _no_answer(_: SlurmJob) -> str:
    return "N/A"


def _minimum_memory(job: SlurmJob) -> str:
    return memory_text(job.memory_mib) if job.memory_mib else "0"


Text = Callable[[SlurmJob], str]
_TABLE: tuple[tuple[str, str, str, Text], ...] = (
    ("a", "account", "ACCOUNT", lambda job: job.tenant),
    ("A", "jobid", "JOBID", raw_id),
    ("b", "tres-per-node", "TRES_PER_NODE", SlurmJob.tres_per_node),
    ("B", "batchhost", "EXEC_HOST", lambda job: job.nodes[0] if job.nodes else "n/a"),
    ("c", "mincpus", "MIN_CPUS", lambda job: str(max(1, round(job.cpus)))),
    ("C", "numcpus", "CPUS", lambda job: str(job.cpu_count)),
    ("d", "mintmpdisk", "MIN_TMP_DISK", lambda _: "0"),
    ("D", "numnodes", "NODES", lambda job: str(job.node_count)),
    ("e", "endtime", "END_TIME", end),
    ("E", "dependency", "DEPENDENCY", lambda job: f"{job.waits_for}(unfulfilled)" if job.waits_for else "(null)"),
    ("f", "feature", "FEATURES", lambda job: job.gpu_models.replace(",", "|") or "(null)"),
    ("F", "arrayjobid", "ARRAY_JOB_ID", lambda job: str(job.array_id or job.id)),
    ("g", "groupname", "GROUP", lambda job: find_group(job.user)[1]),
    ("G", "groupid", "GROUP", lambda job: str(find_group(job.user)[0])),
    ("h", "oversubscribe", "OVER_SUBSCRIBE", lambda _: "OK"),
    ("i", "jobarrayid", "JOBID", lambda job: job.shown_id),
    ("j", "name", "NAME", lambda job: job.name),
    ("k", "comment", "COMMENT", _nothing),
    ("K", "arraytaskid", "ARRAY_TASK_ID", lambda job: job.shown_indices or "N/A"),
    ("l", "timelimit", "TIME_LIMIT", limit),
    ("L", "timeleft", "TIME_LEFT", left),
    ("m", "minmemory", "MIN_MEMORY", _minimum_memory),
    ("M", "timeused", "TIME", lambda job: "N/A" if job.masked else short_span_text(job.ran_s)),
    ("n", "reqnodes", "REQ_NODES", lambda _: ""),
    ("N", "nodelist", "NODELIST", lambda job: job.nodelist),
    ("P", "partition", "PARTITION", lambda job: job.partition),
    ("q", "qos", "QOS", lambda job: job.klass),
    ("r", "reason", "REASON", lambda job: job.reason),
    ("R", "reasonlist", "NODELIST(REASON)", where),
    ("S", "starttime", "START_TIME", start),
    ("t", "statecompact", "ST", lambda job: CODES[job.state]),
    ("T", "state", "STATE", lambda job: job.state),
    ("u", "username", "USER", lambda job: job.user),
    ("U", "userid", "UID", lambda job: str(find_uid(job.user))),
    ("v", "reservation", "RESERVATION", _nothing),
    ("V", "submittime", "SUBMIT_TIME", lambda job: moment_text(job.submitted_ms)),
    ("w", "wckey", "WCKEY", _nothing),
    ("W", "licenses", "LICENSES", _nothing),
    ("x", "exc_nodes", "EXC_NODES", lambda _: ""),
    ("X", "corespec", "CORE_SPEC", _no_answer),
    ("y", "nice", "NICE", lambda _: "0"),
    ("Y", "schednodes", "SCHEDNODES", _nothing),
    ("z", "sct", "S:C:T", lambda _: "*:*:*"),
    ("", "numtasks", "TASKS", lambda job: str(job.tasks)),
    ("", "gres", "TRES_PER_NODE", SlurmJob.tres_per_node),
    ("", "tres-alloc", "TRES_ALLOC", SlurmJob.tres),
    ("", "restartcnt", "RESTART_COUNT", lambda job: str(job.restarts)),
    ("", "exit_code", "EXIT_CODE", _exit_code),
    ("", "cpus-per-task", "CPUS_PER_TASK", lambda job: str(max(1, round(job.cpus)))),
    ("", "pendingtime", "PENDING_TIME", lambda job: str(((job.started_ms or job.now_ms) - job.submitted_ms) // 1000)),
    ("", "eligibletime", "ELIGIBLE_TIME", lambda job: moment_text(max(job.submitted_ms, job.begin_ms))),
)  # fmt: skip

_WHOLE = frozenset({"timelimit", "timeleft", "timeused"})
"""Durations are not cut, whatever their width."""
BY_NAME = {name: Field(head, text, name not in _WHOLE) for _, name, head, text in _TABLE}
BY_LETTER = {letter: BY_NAME[name] for letter, name, _, _ in _TABLE if letter}

NOT_HERE = frozenset("HIJoOpQsZ")
"""Letters of `squeue` that a yard cannot answer: sockets, the command, priorities, the folder."""
NAMES_NOT_HERE = frozenset({"priority", "prioritylong", "command", "workdir", "stdout", "stderr", "network"})

_NO_FIELD = {
    "H": "SOCKETS_PER_NODE", "I": "CORES_PER_SOCKET", "J": "THREADS_PER_CORE", "o": "COMMAND", "O": "CONTIGUOUS",
    "p": "PRIORITY", "Q": "PRIORITY", "s": "", "Z": "WORK_DIR", "priority": "PRIORITY", "prioritylong": "PRIORITY",
    "command": "COMMAND", "workdir": "WORK_DIR", "stdout": "STDOUT", "stderr": "STDERR", "network": "NETWORK",
}  # fmt: skip
BY_LETTER |= {letter: Field(_NO_FIELD[letter], _no_answer) for letter in NOT_HERE}
BY_NAME |= {name: Field(_NO_FIELD[name], _no_answer) for name in NAMES_NOT_HERE}


_ORDER = {state: place for place, state in enumerate(CODES)}


def _state_order(job: SlurmJob) -> int:
    return _ORDER[job.state]


KEYS: dict[str, Callable[[SlurmJob], object]] = {
    "i": lambda job: (job.array_id or job.id, job.array_index if job.array_id else -1),
    "A": lambda job: job.id,
    "F": lambda job: job.array_id or job.id,
    "K": lambda job: job.array_index,
    "P": lambda job: job.partition,
    "t": _state_order,
    "T": _state_order,
    "u": lambda job: job.user,
    "U": lambda job: find_uid(job.user),
    "j": lambda job: job.name,
    "a": lambda job: job.tenant,
    "M": lambda job: job.ran_s,
    "D": lambda job: job.node_count,
    "C": lambda job: job.cpu_count,
    "l": lambda job: job.limit_s or 1 << 40,
    "L": lambda job: (job.limit_s or 1 << 40) - job.ran_s,
    "N": lambda job: job.nodelist,
    "R": where,
    "r": lambda job: job.reason,
    "S": lambda job: job.started_ms or job.start_guess_ms or job.begin_ms or 1 << 60,
    "e": lambda job: (job.started_ms or 1 << 60) + (job.limit_s or 1 << 40) * 1000,
    "V": lambda job: job.submitted_ms,
    "q": lambda job: job.klass,
    "m": lambda job: job.memory_mib,
    "g": lambda job: find_group(job.user)[1],
}
"""What -S sorts by. `p` and `Q`, the priority, are the order in which the yard itself has its jobs."""
