"""`sacct`: jobs of today or of any time, ended ones too."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.api.client import Client, Refused
from gpuyard.cli.slurm.language import sacct_fields as f
from gpuyard.cli.slurm.language.columns import Cell, Parsable, format_cells
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import WantedJobs, parse_id, split_ids, user_name
from gpuyard.cli.slurm.language.jobs import SlurmJob, fold_arrays, job_from_view, jobs_from_queue
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import parse_moment_ms
from gpuyard.cli.slurm.language.words import parse_states

GRAMMAR = Grammar(
    "sacct",
    parse_option_table(
        """
        accounts,A= allclusters,L allocations,X allusers,a array batch-script,B brief,b clusters,M=
        completion,c constraints,C= delimiter= duplicates,D endtime,E= env-vars federation file,f= flags,F=
        format,o= fields=:format gid,g= group=:gid help,h helpformat,e jobs,j= json local long,l name=
        ncpus,I= nnodes,i= noconvert nodelist,N= noheader,n parsable,p parsable2,P partition,r= qos,q=
        reason,R= starttime,S= state,s= timelimit-max,K= timelimit-min,k= truncate,T uid,u= units= usage,U
        use-local-uid user=:uid verbose,v version,V wckeys,W= whole-hetjob? yaml
        """
    ),
    try_help=False,
)
HELP = """\
Usage: sacct [-A accounts] [-E end] [-j jobs] [--name names] [-N nodes] [-o format] [-q qos] [-r partitions]
             [-s states] [-S start] [-u users | -a] [--delimiter text] [-bDelnpPX]
Shows jobs of the yard that ran, waited or ended since midnight, or since -S; with -j since ever.
-e lists the fields of --format."""
_NOT_SERVED = (
    "allclusters", "batch-script", "clusters", "completion", "constraints", "env-vars", "federation", "file",
    "flags", "gid", "ncpus", "nnodes", "reason", "timelimit-max", "timelimit-min", "truncate", "units",
    "wckeys", "json", "yaml",
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    """Print jobs."""
    given = read(GRAMMAR, words)
    if given.has("help") or given.has("usage"):
        print(HELP)
        return 0
    if given.has("helpformat"):
        _print_fields()
        return 0
    for name in _NOT_SERVED:
        if given.has(name):
            raise make_stop("sacct", f"--{name} is not served by a yard")
    cells = _cells(given)
    with Client() as yard:
        jobs = _jobs(yard, given)
        lines = [line for job in jobs for line in _lines(job, given)]
        if any([cell.head.lower() in f.MEASURED for cell in cells]):
            lines = _measured(yard, lines)
    bare = given.has("parsable") or given.has("parsable2")
    how = Parsable(bare, given.last("delimiter", "|"), given.has("parsable") and not given.has("parsable2"))
    text = format_cells(cells, lines, how, header=not given.has("noheader"))
    if text:
        print("\n".join(text))
    return 0


def _print_fields() -> None:
    names = sorted([cell.head for cell in f.CELLS.values()], key=str.lower)
    for first in range(0, len(names), 4):
        print(" ".join([f"{name:<19}" for name in names[first : first + 4]]))


def _cells(given: Read) -> list[Cell]:
    text = ",".join([value for key, value in given.given if key == "format"])
    if text.startswith("+"):
        text = f"{f.DEFAULT},{text[1:]}"
    if not text:
        default = os.environ.get("SACCT_FORMAT") or f.DEFAULT
        text = f.LONG if given.has("long") else f.BRIEF if given.has("brief") else default
    cells, empty = [], []
    for part in filter(None, text.split(",")):
        found = f.find_cell(part)
        if found is None:
            raise make_stop("sacct", f'Invalid field requested: "{part.partition("%")[0]}"')
        cells.append(found)
        if found.head.lower() in f.NOT_MEASURED:
            empty.append(found.head)
    if empty:
        print(f"sacct: a yard does not measure {', '.join(empty)}: left empty", file=sys.stderr)
    return cells


def _jobs(yard: Client, given: Read) -> list[SlurmJob]:
    pools = Pools.of_fleet(yard.fleet())
    now_ms = int(time.time() * 1000)
    if given.has("jobs"):
        jobs = _named(yard, pools, _ids(given), now_ms)
        since_ms = _moment(given, "starttime", 0)
    else:
        since_ms = _moment(given, "starttime", _midnight_ms())
        jobs = _since(yard, pools, since_ms)
    until_ms = _moment(given, "endtime", now_ms + 1000)
    states = _states(given)
    users = _users(given)
    found = [
        job
        for job in jobs
        if (not job.ended_ms or job.ended_ms >= since_ms)
        and job.submitted_ms <= until_ms
        and (not states or job.state in states)
        and (users is None or job.user in users)
        and _holds(given, pools, job)
    ]
    found.sort(key=lambda job: (job.array_id or job.id, job.array_index))
    return found if given.has("array") else fold_arrays(found)


def _since(yard: Client, pools: Pools, since_ms: int, name: str = "") -> list[SlurmJob]:
    """Live jobs, and those that have ended since; with a name, ended ones of that name."""
    queue = yard.queue(wide=True)
    # Slurm's accounting has no lines for jobs that a user may not see.
    jobs = {job.id: job for job in jobs_from_queue(queue, pools) if not job.masked}
    cursor = None
    while True:
        page = yard.history(since_ms=since_ms, name=name, limit=1000, cursor=cursor)
        # A job that ended between the two requests is found twice; it has ended.
        jobs |= {each["id"]: job_from_view(each, pools, queue["at_ms"]) for each in page.jobs}
        cursor = page.next_cursor
        if cursor is None:
            return list(jobs.values())


def _named(yard: Client, pools: Pools, ids: list[WantedJobs], now_ms: int) -> list[SlurmJob]:
    found: dict[int, SlurmJob] = {}
    for wanted in ids:
        try:
            job = yard.job(wanted.label, explain=False)
        except Refused as refusal:
            if refusal.status != 404:
                raise
            continue
        if job.get("array"):
            tasks = _since(yard, pools, job["submitted_ms"], job["name"])
            found |= {task.id: task for task in tasks if wanted.holds(task)}
        else:
            found[job["id"]] = job_from_view(job, pools, now_ms)
    return list(found.values())


def _measured(yard: Client, lines: Sequence[f.SacctLine]) -> list[f.SacctLine]:
    """Lines with what their jobs took; memory is of all processes together where the yard has limits, else of one."""
    taken: dict[str, Mapping[str, Any]] = {}
    found = []
    for line in lines:
        label = line.job.label
        if label not in taken:
            view = yard.job(label, explain=False)
            taken[label] = {} if "array" in view else view.get("used", {})
        used = taken[label]
        peak_mib = used.get("memory_mib") or used.get("process_mib")
        found.append(line._replace(peak_mib=peak_mib if line.step else None, cpu_s=used.get("cpu_s")))
    return found


def _ids(given: Read) -> list[WantedJobs]:
    found = []
    for part in split_ids(given.last("jobs")):
        wanted = parse_id(part)
        if wanted is None:
            raise Stop(f"sacct: fatal: Bad job/step specified: {part}")
        found.append(wanted)
    return found


def _moment(given: Read, name: str, default: int) -> int:
    text = given.last(name)
    if not text:
        return default
    try:
        return parse_moment_ms(text)
    except ValueError:
        raise Stop(f"sacct: error: Invalid time specification (pos=0): {text}") from None


def _midnight_ms() -> int:
    now = time.localtime()
    return int(time.mktime((*now[:3], 0, 0, 0, 0, 0, -1)) * 1000)


def _states(given: Read) -> set[str]:
    names = given.listed("state")
    if not names or [name.lower() for name in names] == ["all"]:
        return set()
    known = parse_states(names)
    if known is None:
        wrong = next(name for name in names if parse_states([name]) is None)
        raise Stop(f"sacct: fatal: unrecognized job state value '{wrong}'")
    # What is being started or stopped is running to the accounting.
    return {*known, *({"CONFIGURING", "COMPLETING"} if "RUNNING" in known else set())}


def _users(given: Read) -> set[str] | None:
    if given.has("allusers"):
        return None
    if not given.has("uid"):
        return None if os.geteuid() == 0 or given.has("jobs") else {user_name()}
    import pwd

    names = set()
    for each in given.listed("uid"):
        try:
            names.add(pwd.getpwuid(int(each)).pw_name if each.isdecimal() else pwd.getpwnam(each).pw_name)
        except KeyError:
            raise Stop(f"sacct: fatal: Invalid user id: {each}") from None
    return names


def _holds(given: Read, pools: Pools, job: SlurmJob) -> bool:
    return (
        (not given.has("name") or job.name in given.listed("name"))
        and (not given.has("partition") or pools.uses_partition(job, given.listed("partition")))
        and (not given.has("qos") or pools.of_qos(job, given.listed("qos")))
        and (not given.has("nodelist") or bool(set(given.listed("nodelist")) & set(job.nodes)))
        and (not given.has("accounts") or pools.of_account(job.tenant, given.listed("accounts")))
    )


def _lines(job: SlurmJob, given: Read) -> list[f.SacctLine]:
    """The job and, once it has started, its batch step."""
    job.state = {"CONFIGURING": "RUNNING", "COMPLETING": "RUNNING"}.get(job.state, job.state)
    alone = given.has("allocations") or not job.started_ms or bool(job.indices)
    return [f.SacctLine(job)] if alone else [f.SacctLine(job), f.SacctLine(job, step=True)]
