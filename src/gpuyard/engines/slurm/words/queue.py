"""A job in Slurm's queue, and the reader of what `squeue` and `sacct` say of it to an engine that drives.

Lenient, where the readers of `site/` are strict: an attempt that is missing here counts as gone.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gpuyard.engines.name_lists import expand
from gpuyard.engines.slurm.words.forms import (
    CPU_MAX,
    Unreadable,
    parse_memory_mib,
    parse_moment_ms,
    parse_tres_map,
    parse_whole,
)
from gpuyard.engines.slurm.words.states import LIVES, WAITS

SEPARATOR = "\x1f"
QUEUE_FIELDS = (
    "JobID",
    "HetJobID",
    "State",
    "Reason",
    "UserID",
    "SubmitTime",
    "NodeList",
    "tres-alloc",
    "Partition",
    "Comment",
)
"""Fields of `squeue`. Text that people write freely comes last."""

PAST_FIELDS = ("JobIDRaw", "UID", "Submit", "State")
"""Fields of `sacct`, for jobs that Slurm no longer knows."""


class Held(NamedTuple):
    """What a job holds, on all its nodes together."""

    gpus: int
    cpus: int
    memory_mib: int


class SlurmJob(NamedTuple):
    """A job in Slurm's queue, or one that ended not long ago."""

    id: int
    het_id: int
    """The first component's id, where it is a component of a heterogeneous job; 0: it is none."""
    state: str
    reason: str
    uid: int
    submit_s: int
    nodes: tuple[str, ...]
    gpus: int
    """On all its nodes together."""
    cpus: int
    memory_mib: int
    partition: str
    comment: str

    @property
    def first_id(self) -> int:
        """The number under which it was submitted, and by which it is cancelled."""
        return self.het_id or self.id

    @property
    def waits(self) -> bool:
        """Slurm has not given it nodes."""
        return self.state in WAITS

    @property
    def lives(self) -> bool:
        """It holds nodes."""
        return self.state in LIVES


# ---- reading


def queue_format(nonce: str) -> str:
    """The format for `squeue -O`. The nonce is in every true line: a comment may hold lines of its own."""
    first, *others = QUEUE_FIELDS
    return ",".join([f"{first}:{SEPARATOR}{nonce}{SEPARATOR}", *[f"{name}:{SEPARATOR}" for name in others]])


def read_queue(text: str, nonce: str) -> list[SlurmJob]:
    """The lines of `squeue`. An incomplete line is skipped."""
    jobs = []
    for line in text.split("\n"):
        fields = line.split(SEPARATOR)
        if len(fields) < len(QUEUE_FIELDS) + 1 or fields[1] != nonce or not fields[0].strip().isdecimal():
            continue
        number, _, het, state, reason, uid, submit, nodes, tres, partition, comment = fields[:11]
        held = read_held(tres)
        jobs.append(
            SlurmJob(
                id=int(number),
                het_id=_number(het),
                state=state.strip(),
                reason=reason.strip(),
                uid=_number(uid),
                submit_s=_seconds(submit),
                nodes=expand(nodes.strip()),
                gpus=held.gpus,
                cpus=held.cpus,
                memory_mib=held.memory_mib,
                partition=partition.strip(),
                comment=comment.strip(),
            )
        )
    return jobs


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def read_past(text: str) -> list[SlurmJob]:
    """Rows of `sacct` with `PAST_FIELDS`: number, user, submission and state are known, the rest is left empty."""
    found = []
    for line in text.split("\n"):
        cells = line.strip().split("|")
        if len(cells) == len(PAST_FIELDS) and cells[0].isdecimal() and cells[1].isdecimal():
            # "CANCELLED by 1000" also names the user.
            state = cells[3].split(" ")[0]
            found.append(
                SlurmJob(int(cells[0]), 0, state, "", int(cells[1]), _seconds(cells[2]), (), 0, 0, 0, "", "")
            )
    return found


def read_held(text: str) -> Held:
    """`cpu=2,mem=128M,gres/gpu=4`; what cannot be read counts as none."""
    found: dict[str, str] = {}
    with suppress(Unreadable):
        found = parse_tres_map(text)
    gpus = cpus = mib = 0
    with suppress(Unreadable):
        gpus = parse_whole(found.get("gres/gpu", "0"), "gres/gpu")
    with suppress(Unreadable):
        cpus = parse_whole(found.get("cpu", "0"), "cpu", CPU_MAX)
    with suppress(Unreadable):
        mib = parse_memory_mib(found.get("mem", "0"), "mem")
    return Held(gpus, cpus, mib)


def _seconds(text: str) -> int:
    """A moment in seconds; 0: none, or none that can be read."""
    try:
        return parse_moment_ms(text, "SubmitTime") // 1000
    except Unreadable:
        return 0


# ---- meaning


def choose_state(states: Sequence[str]) -> str:
    """One word for a list of them: COMPLETING outweighs how the job ended."""
    return "COMPLETING" if "COMPLETING" in states else states[0] if states else "UNKNOWN"


def index_by_comment(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """Jobs by what they are marked with."""
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        found.setdefault(job.comment, []).append(job)
    return found
