"""The fields that `sacct` can show of a job, by the names of --format."""

from typing import NamedTuple

from gpuyard.cli.slurm.language.columns import Cell
from gpuyard.cli.slurm.language.jobs import SlurmJob, memory_text
from gpuyard.cli.slurm.language.squeue_fields import find_group, find_uid
from gpuyard.cli.slurm.language.times import full_span_text, moment_text

DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = "jobid,jobidraw,jobname,partition,ntasks,alloccpus,elapsed,state,exitcode,reqmem,reqtres,alloctres"
"""Fields of -l that a yard can answer."""

_SIGNALS = range(129, 193)


class SacctLine(NamedTuple):
    """A job, or its batch step."""

    job: SlurmJob
    step: bool = False
    peak_mib: int | None = None
    """The most memory that it took, where a field asks for it and the yard knows."""
    cpu_s: float | None = None
    """The CPU time that it took, likewise."""


def state(line: SacctLine) -> str:
    """The state, with the uid that cancelled the job if it is known; for the job only, not for its step."""
    job = line.job
    if job.state == "CANCELLED" and not line.step:
        user = job.said.partition("cancelled by ")[2].partition(" ")[0] or job.user
        return f"CANCELLED by {find_uid(user)}" if find_uid(user) >= 0 else "CANCELLED"
    return job.state


def exit_code_text(line: SacctLine) -> str:
    """`3:0` for exit code 3, `0:15` for signal 15."""
    job = line.job
    code = job.exit_code or 0
    if job.state in ("CANCELLED", "TIMEOUT") and not line.step:
        return "0:0"
    if job.state == "CANCELLED":
        return f"0:{code - 128 if code in _SIGNALS else 15}"
    return f"0:{code - 128}" if code in _SIGNALS else f"{code}:0"


def _of_job(text: str, line: SacctLine) -> str:
    """Something that a step does not have."""
    return "" if line.step else text


def limit_text(job: SlurmJob) -> str:
    """A time limit as Slurm has it."""
    return full_span_text(job.limit_s) if job.limit_s else "UNLIMITED"


def _memory(job: SlurmJob) -> str:
    return memory_text(job.memory_mib * job.tasks) if job.memory_mib else "0"


def _held(line: SacctLine) -> str:
    return line.job.tres() if line.job.started_ms else ""


_CELLS: tuple[Cell, ...] = (
    Cell("Account", 10, lambda line: line.job.tenant),
    Cell("AllocCPUS", 10, lambda line: str(line.job.cpu_count)),
    Cell("AllocGRES", 12, lambda line: line.job.gres() if line.job.started_ms else ""),
    Cell("AllocNodes", 10, lambda line: str(len(line.job.nodes))),
    Cell("AllocTRES", 10, _held),
    Cell("Cluster", 10, lambda _: "yard"),
    Cell("CPUTime", 10, lambda line: full_span_text(line.job.ran_s * line.job.cpu_count)),
    Cell("CPUTimeRAW", 10, lambda line: str(line.job.ran_s * line.job.cpu_count)),
    Cell("DerivedExitCode", 15, lambda line: _of_job("0:0", line)),
    Cell("Elapsed", 10, lambda line: full_span_text(line.job.ran_s)),
    Cell("ElapsedRaw", 10, lambda line: str(line.job.ran_s)),
    Cell("Eligible", 19, lambda line: moment_text(max(line.job.submitted_ms, line.job.begin_ms))),
    Cell("End", 19, lambda line: moment_text(line.job.ended_ms, "Unknown")),
    Cell("ExitCode", 8, exit_code_text),
    Cell("GID", 6, lambda line: _of_job(str(find_group(line.job.user)[0]), line)),
    Cell("Group", 9, lambda line: _of_job(find_group(line.job.user)[1], line)),
    Cell("JobID", 12, lambda line: line.job.shown_id + (".batch" if line.step else ""), left=True),
    Cell("JobIDRaw", 12, lambda line: str(line.job.id) + (".batch" if line.step else ""), left=True),
    Cell("JobName", 10, lambda line: "batch" if line.step else line.job.name),
    Cell("MaxRSS", 10, lambda line: f"{line.peak_mib << 10}K" if line.peak_mib and line.step else ""),
    Cell("NCPUS", 10, lambda line: str(line.job.cpu_count)),
    Cell("NNodes", 8, lambda line: str(line.job.node_count)),
    Cell("NodeList", 15, lambda line: line.job.nodelist or "None assigned"),
    Cell("NTasks", 8, lambda line: "1" if line.step else ""),
    Cell("Partition", 10, lambda line: _of_job(line.job.partition, line)),
    Cell("QOS", 10, lambda line: _of_job(line.job.klass, line)),
    Cell("Reason", 22, lambda line: _of_job(line.job.reason, line)),
    Cell("ReqCPUS", 8, lambda line: str(line.job.cpu_count)),
    Cell("ReqGRES", 12, lambda line: line.job.gres()),
    Cell("ReqMem", 10, lambda line: _of_job(_memory(line.job), line)),
    Cell("ReqNodes", 8, lambda line: str(line.job.node_count)),
    Cell("ReqTRES", 10, lambda line: _of_job(line.job.tres(), line)),
    Cell("Reserved", 10, lambda line: _of_job(_waited(line.job), line)),
    Cell(
        "Start", 19, lambda line: moment_text(line.job.started_ms, "None" if line.job.ended_ms else "Unknown")
    ),
    Cell("State", 10, state),
    Cell("Submit", 19, lambda line: moment_text(line.job.started_ms if line.step else line.job.submitted_ms)),
    Cell("Timelimit", 10, lambda line: _of_job(limit_text(line.job), line)),
    Cell("TimelimitRaw", 10, lambda line: _of_job(str(line.job.limit_s // 60 or "UNLIMITED"), line)),
    Cell("TotalCPU", 10, lambda line: "" if line.cpu_s is None else _cpu_time(line.cpu_s)),
    Cell("UID", 6, lambda line: _of_job(str(find_uid(line.job.user)), line)),
    Cell("User", 9, lambda line: _of_job(line.job.user, line)),
)
CELLS = {cell.head.lower(): cell for cell in _CELLS}

_EMPTY: tuple[tuple[str, int], ...] = (
    ("AveCPU", 10), ("AveRSS", 10), ("AveVMSize", 10), ("Comment", 14), ("Constraints", 19), ("ConsumedEnergy", 14),
    ("MaxVMSize", 10), ("MinCPU", 10), ("Priority", 10), ("Reservation", 20), ("SubmitLine", 20),
    ("Suspended", 10), ("SystemCPU", 10), ("UserCPU", 10), ("WCKey", 10), ("WorkDir", 20),
    ("MaxDiskRead", 12), ("MaxDiskWrite", 12), ("AdminComment", 19), ("TRESUsageInTot", 14), ("TRESUsageInMax", 14),
    ("TRESUsageInAve", 14),
)  # fmt: skip
"""Fields that `sacct` has and a yard does not measure: they are there, and empty, as they are for jobs of Slurm
without accounting of usage."""
NOT_MEASURED = frozenset(head.lower() for head, _ in _EMPTY)
CELLS |= {head.lower(): Cell(head, width, lambda _: "") for head, width in _EMPTY}


MEASURED = frozenset({"maxrss", "totalcpu"})
"""Fields for which a job is asked for by itself: lists do not tell what a job took."""


def _cpu_time(seconds: float) -> str:
    """As Slurm has it: `00:07.250` below an hour, `01:02:03` from there on."""
    if seconds >= 3600:
        return full_span_text(int(seconds))
    minutes, rest_ms = divmod(int(1000 * seconds), 60_000)
    return f"{minutes:02d}:{rest_ms // 1000:02d}.{rest_ms % 1000:03d}"


def _waited(job: SlurmJob) -> str:
    from gpuyard.core.jobs.records import waited_ms

    until_ms = job.started_ms or job.ended_ms or job.now_ms
    return full_span_text(waited_ms(job.submitted_ms, until_ms, job.ran_ms) // 1000)


def find_cell(text: str) -> Cell | None:
    """`state`, `state%20` or `jobname%-5`; None: there is no such field. Names may be shortened."""
    name, _, width = text.strip().partition("%")
    name = name.lower()
    found = CELLS.get(name) or next(
        (each for key, each in CELLS.items() if name and key.startswith(name)), None
    )
    if found is None or not width:
        return found
    if not width.lstrip("-").isdecimal() or not int(width):
        return None
    return found._replace(width=abs(int(width)), left=width.startswith("-"))
