"""`sstat`: what a running job uses now, as far as the processes on this machine show."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.api.client import Client, Refused
from gpuyard.cli.slurm.language.columns import Cell, Parsable, format_cells
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import WantedJobs, parse_ids
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import full_span_text
from gpuyard.cli.slurm.language.usage import Usage, measure_job, used_memory_text

GRAMMAR = Grammar(
    "sstat",
    parse_option_table(
        """
        allsteps,a fields=:format format,o= help,h helpformat,e jobs,j= noconvert noheader,n parsable,p parsable2,P
        pidformat,i usage verbose,v version,V
        """
    ),
)
HELP = """\
Usage: sstat [-e] [-n] [-o format] [-p | -P] -j jobs
Shows the present use of running jobs, read from the processes on this machine: AveCPU and AveRSS of all processes of
the job, and MaxRSS, the peak of the largest one. You see your own jobs; root sees all jobs."""
DEFAULT = "jobid,ntasks,avecpu,averss,maxrss,avevmsize"


class SstatLine(NamedTuple):
    """A job and what it uses."""

    label: str
    usage: Usage


_CELLS = (
    Cell("JobID", 12, lambda line: f"{line.label}.batch", left=True),
    Cell("NTasks", 8, lambda _: "1"),
    Cell("AveCPU", 10, lambda line: full_span_text(int(line.usage.cpu_s))),
    Cell("MinCPU", 10, lambda line: full_span_text(int(line.usage.cpu_s))),
    Cell("AveRSS", 10, lambda line: used_memory_text(line.usage.rss_kib)),
    Cell("MaxRSS", 10, lambda line: used_memory_text(line.usage.peak_kib)),
    Cell("AveVMSize", 10, lambda line: used_memory_text(line.usage.virtual_kib)),
)
CELLS = {cell.head.lower(): cell for cell in _CELLS}


def run(words: Sequence[str]) -> int:
    """Print what jobs use."""
    given = read(GRAMMAR, words)
    if given.has("helpformat"):
        print(" ".join([f"{cell.head:<19}" for cell in _CELLS]).rstrip())
        return 0
    if given.has("pidformat"):
        raise make_stop("sstat", "--pidformat is not served by a yard")
    ids = parse_ids("sstat", ",".join([given.last("jobs"), *given.rest]))
    if not ids:
        raise make_stop("sstat", "You didn't give me any jobs to stat.")
    cells = _cells(given)
    with Client() as yard:
        lines = [_line(yard, wanted) for wanted in ids]
    how = Parsable(
        given.has("parsable") or given.has("parsable2"),
        "|",
        given.has("parsable") and not given.has("parsable2"),
    )
    print("\n".join(format_cells(cells, lines, how, header=not given.has("noheader"))))
    return 0


def _cells(given: Read) -> list[Cell]:
    found = []
    for part in filter(None, (given.last("format") or DEFAULT).split(",")):
        name, _, width = part.strip().lower().partition("%")
        cell = CELLS.get(name)
        if cell is None or (width and not width.isdecimal()):
            raise make_stop(
                "sstat", f'Invalid field requested: "{name}"; `sstat -e` lists the fields that a yard has'
            )
        found.append(cell._replace(width=int(width)) if width else cell)
    return found


def _line(yard: Client, wanted: WantedJobs) -> SstatLine:
    try:
        job = yard.job(wanted.label, explain=False)
    except Refused as refusal:
        if refusal.status != 404:
            raise
        raise Stop("sstat: error: Invalid job id specified") from None
    if job["state"] not in ("RUNNING", "SUSPENDED"):
        raise Stop(f"sstat: error: no steps running for job {wanted.label}")
    if "array" in job:
        raise make_stop(
            "sstat", f"{wanted.label} is an array; name one of its tasks, as in: sstat {wanted.label}_0"
        )
    usage = measure_job(job["id"], job["started_ms"] or 0)
    if usage is None:
        where = ", ".join(dict.fromkeys(job["nodes"]))
        raise make_stop(
            "sstat",
            f"job {wanted.label} runs on {where}, and only its owner there, or root, can see what it uses",
        )
    return SstatLine(job["label"], usage)
