"""Jobs as `sacct` has them and as `squeue` has them.

Pure readers from printed text to typed rows. One row is one try at running a job: Slurm gives a requeued job the same
id and another time of submission, and after a crash of its controller it gives the same id to another job.

A job's name and its workload key are its user's, and both commands print them raw: they may hold columns and whole
lines. So when we run them, a random mark separates the columns, and a row is what has as many as the first line
(`remove_mark`).
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuyard.engines.slurm.words.forms import (
    Tres,
    Unreadable,
    drop_null,
    limit_ms,
    parse_hosts,
    parse_moment_ms,
    parse_table,
    parse_tres,
    parse_whole,
    show,
)
from gpuyard.engines.slurm.words.states import LIVES, WAITS

JOB_FIELDS = (
    "JobIDRaw", "JobID", "DBIndex", "User", "Account", "QOS", "Partition", "State", "ExitCode", "Submit",
    "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList",
    "Reason", "WCKey", "JobName",
)  # fmt: skip
"""For `sacct --format`. The name comes last: it may hold the separator."""
QUEUE_FIELDS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "UserName", "Account", "QOS", "Partition", "State", "SubmitTime",
    "EligibleTime", "StartTime", "EndTime", "TimeLimit", "tres-alloc", "NodeList", "exit_code", "RestartCnt",
    "PriorityLong", "Reason", "wckey", "Name",
)  # fmt: skip
"""For `squeue -O`, each followed by the separator; the name comes last here too."""

LIVE = LIVES | {"PENDING"}
"""States of jobs that have not ended; in all of them but PENDING a job holds its nodes."""
BROKEN_NAMED_MAX = 20
_MARKED = re.compile(r"JobIDRaw(\|[A-Za-z0-9_-]{12})JobID", re.IGNORECASE)
_TASK = re.compile(r"(\d+)_(\d+)")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One try at running a job."""

    id: int
    """Slurm's id: not unique. A task of an array has its own once it has started."""
    label: str
    """The id people use: `17`, or `12_3` for a task of array 12. Components of a job have one each."""
    array_id: int
    array_index: int
    name: str
    user: str
    account: str
    qos: str
    partition: str
    state: str
    """One word: `CANCELLED by 0` is CANCELLED."""
    exit_code: int
    """128 + signal if a signal ended it."""
    submit_ms: int
    eligible_ms: int
    """0: it may not start yet."""
    start_ms: int
    """0: it never started."""
    end_ms: int
    """0: it has not ended."""
    limit_ms: int
    """0: none."""
    held: Tres
    """What it has, or had; what it asks for if it never started."""
    asked: Tres
    nodes: tuple[str, ...] = ()
    reason: str = ""
    """Why it waits, in Slurm's words."""
    elapsed_ms: int = 0
    suspended_ms: int = 0
    restarts: int = 0
    priority: int = 0
    index: int = 0
    """The row's number in Slurm's database, where it is given."""
    wckey: str = ""
    """The workload key, without the star of one that is its user's default; Slurm writes it in lower case."""

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state in LIVE

    @property
    def ran(self) -> bool:
        """Whether it holds, or held, anything. A job that was cancelled in the queue has a start and no time."""
        if not self.start_ms or self.state == "PENDING":
            return False
        return self.live or bool(self.nodes)


@dataclass(slots=True)
class Rows(Generic[Row]):
    """Rows, and how many could not be read."""

    rows: list[Row] = field(default_factory=list)
    broken: int = 0
    broken_named: list[str] = field(default_factory=list)

    def bad(self, where: str, why: object) -> None:
        """Count a row that cannot be used, and keep the first ones by name."""
        self.broken += 1
        if len(self.broken_named) < BROKEN_NAMED_MAX:
            self.broken_named.append(f"{where}: {why}")


Jobs = Rows[JobRow]

# -- reading -------------------------------------------------------------------------------------------------------


def make_mark() -> str:
    """A separator for the columns of one answer, too random for a job's name to hold it."""
    # squeue would take a digit at its beginning for a width.
    return "|" + secrets.token_urlsafe(9)


def queue_command(mark: str) -> tuple[str, ...]:
    """The command that shows all live jobs, and those that ended a moment ago."""
    first, last = QUEUE_FIELDS[:-1], QUEUE_FIELDS[-1]
    columns = ",".join([f"{name}:{mark}" for name in first] + [f"{last}:"])
    return "squeue", "--all", "--array", "--states=all", "-O", columns


def remove_mark(text: str, mark: str) -> str:
    """The same rows, separated by `|`. A line behind the last column is part of a name, and is left out."""
    lines = text.split("\n")
    if text and mark not in lines[0]:
        raise Unreadable(f"the first line is not parted as was asked for: {show(lines[0])}")
    width = lines[0].count(mark) + 1
    rows: list[list[str]] = []
    for line in lines:
        cells = line.split(mark)
        if rows and len(rows[-1]) < width:
            # The line before ended within a cell: a workload key may have several.
            rows[-1][-1] += f" {cells[0]}"
            rows[-1] += cells[1:]
        elif len(cells) > 1:
            rows.append(cells)
    return "".join(["|".join([*[_plain(cell) for cell in row[:-1]], row[-1]]) + "\n" for row in rows])


def _plain(cell: str) -> str:
    return cell.replace("|", " ") if "|" in cell else cell


def find_mark(text: str) -> str:
    """The mark in a saved answer of `sacct`, by its first line; empty: the separator is `|`, or it is no answer."""
    match = _MARKED.match(text)
    return match[1] if match else ""


def read_jobs(text: str) -> Jobs:
    """`sacct --parsable2` with `JOB_FIELDS`, in any order. Steps and unstarted tasks of arrays are passed over."""
    found = Jobs()
    # Not splitlines: a name may hold other characters that count as line ends there.
    lines = text.split("\n")
    header = lines[0].split("|")
    missing = {name.lower() for name in ("JobIDRaw", "JobID", "State", "Submit", "Start", "End")}
    missing -= {name.strip().lower() for name in header}
    if missing:
        raise Unreadable(f"the first line has no column {', '.join(sorted(missing))}: is it sacct's?")
    for number, line in enumerate(lines[1:], start=2):
        try:
            for _, cells in parse_table(f"{lines[0]}\n{line}"):
                if "." not in cells["jobid"] and "[" not in cells["jobid"]:
                    found.rows.append(make_job_row(cells))
        except Unreadable as wrong:
            found.bad(f"line {number}", wrong)
    return found


def make_job_row(cells: Mapping[str, str]) -> JobRow:
    """A row from its cells, by the names of sacct's columns in lower case."""
    label = cells["jobid"].strip()
    if "+" in label:
        # A component of a heterogeneous job, 12+1: the queue knows it by its own number.
        label = cells["jobidraw"].strip()
    array_id, array_index = _task(label)
    held, asked = parse_tres(cells.get("alloctres", "")), parse_tres(cells.get("reqtres", ""))
    limit = cells.get("timelimitraw") or cells.get("timelimit", "")
    return JobRow(
        id=parse_whole(cells["jobidraw"], "JobIDRaw", 10**12),
        label=label,
        array_id=array_id,
        array_index=array_index,
        name=_printable(cells.get("jobname", "")),
        user=drop_null(cells.get("user", "")),
        account=drop_null(cells.get("account", "")),
        qos=drop_null(cells.get("qos", "")),
        partition=drop_null(cells.get("partition", "")).partition(",")[0],
        state=_state(cells["state"]),
        exit_code=_exit_code(cells.get("exitcode", "")),
        submit_ms=parse_moment_ms(cells["submit"], "Submit"),
        eligible_ms=parse_moment_ms(cells.get("eligible", ""), "Eligible"),
        start_ms=parse_moment_ms(cells["start"], "Start"),
        end_ms=parse_moment_ms(cells["end"], "End"),
        limit_ms=limit_ms(limit, "Timelimit"),
        held=held if cells.get("alloctres", "").strip() else asked,
        asked=asked,
        nodes=tuple(parse_hosts(cells.get("nodelist", ""))),
        reason=drop_null(cells.get("reason", "")),
        elapsed_ms=parse_whole(cells.get("elapsedraw") or "0", "ElapsedRaw", 10**12) * 1000,
        suspended_ms=limit_ms(cells.get("suspended", ""), "Suspended"),
        index=parse_whole(cells.get("dbindex") or "0", "DBIndex", 10**15),
        wckey=_wckey(cells.get("wckey", "")),
    )


def read_queue(text: str) -> Jobs:
    """`squeue --array --states=all -O` with `QUEUE_FIELDS`: live jobs, and those that ended a moment ago."""
    found = Jobs()
    for number, line in enumerate(text.split("\n")[1:], start=2):
        if not line.strip():
            continue
        cells = line.split("|", len(QUEUE_FIELDS) - 1)
        if len(cells) < len(QUEUE_FIELDS):
            found.bad(f"line {number}", f"has {len(cells)} of {len(QUEUE_FIELDS)} columns: {show(line)}")
            continue
        try:
            found.rows.append(_queued(dict(zip(QUEUE_FIELDS, cells, strict=True))))
        except Unreadable as wrong:
            found.bad(f"line {number}", wrong)
    return found


def _queued(cells: Mapping[str, str]) -> JobRow:
    index = drop_null(cells["ArrayTaskID"])
    array_id = parse_whole(cells["ArrayJobID"], "ArrayJobID", 10**12) if index.isdecimal() else 0
    state = _state(cells["State"])
    waits = state in WAITS
    if waits:
        state = "PENDING"
    held = parse_tres(cells["tres-alloc"])
    return JobRow(
        id=parse_whole(cells["JobID"], "JobID", 10**12),
        label=f"{array_id}_{index}" if array_id else cells["JobID"].strip(),
        array_id=array_id,
        array_index=int(index) if array_id else 0,
        name=_printable(cells["Name"].rstrip()),
        user=drop_null(cells["UserName"]),
        account=drop_null(cells["Account"]),
        qos=drop_null(cells["QOS"]),
        partition=drop_null(cells["Partition"]).partition(",")[0],
        state=state,
        exit_code=_wait_status(cells["exit_code"]),
        submit_ms=parse_moment_ms(cells["SubmitTime"], "SubmitTime"),
        eligible_ms=parse_moment_ms(cells["EligibleTime"], "EligibleTime"),
        # For a job that waits it is a guess of the backfill scheduler.
        start_ms=0 if waits else parse_moment_ms(cells["StartTime"], "StartTime"),
        end_ms=0 if state in LIVE else parse_moment_ms(cells["EndTime"], "EndTime"),
        limit_ms=limit_ms(cells["TimeLimit"], "TimeLimit"),
        held=held,
        asked=held,
        nodes=() if waits else tuple(parse_hosts(cells["NodeList"])),
        reason=drop_null(cells["Reason"]) if waits else "",
        restarts=parse_whole(cells["RestartCnt"] or "0", "RestartCnt", 10**9),
        priority=parse_whole(cells["PriorityLong"] or "0", "Priority", 1 << 32),
        wckey=_wckey(cells["wckey"]),
    )


def _printable(name: str) -> str:
    """A name as it may appear on a terminal: Slurm allows control characters in it."""
    return name if name.isprintable() else "".join([char if char.isprintable() else "?" for char in name])


def _wckey(text: str) -> str:
    """Slurm that tracks keys marks a default one by a star, and has a star alone for a user without a default."""
    return _printable(drop_null(text).removeprefix("*").strip())


def _task(label: str) -> tuple[int, int]:
    match = _TASK.fullmatch(label)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _state(text: str) -> str:
    words = text.strip().upper().split()
    if not words or not words[0].replace("_", "").isalpha():
        raise Unreadable(f"the state is {show(text)}")
    return words[0]


def _exit_code(text: str) -> int:
    """`3:0` is exit code 3, `0:9` is signal 9."""
    code, _, signal = text.strip().partition(":")
    if signal.isdecimal() and int(signal):
        return 128 + int(signal)
    return int(code) if code.isdecimal() else 0


def _wait_status(text: str) -> int:
    """squeue shows what wait(2) gave."""
    status = int(text) if text.strip().isdecimal() else 0
    return 128 + (status & 127) if status & 127 else status >> 8 & 255
