"""`squeue`: what runs and what waits."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from gpuyard.api.client import Client, Refused
from gpuyard.cli.slurm.language import squeue_fields as f
from gpuyard.cli.slurm.language.columns import Format, parse_long_format, parse_short_format
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import WantedJobs, parse_ids, user_name
from gpuyard.cli.slurm.language.jobs import SlurmJob, fold_arrays, job_from_view, jobs_from_queue
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import clock_line
from gpuyard.cli.slurm.language.words import CODES, LIVE, YARDS, no_state, parse_states

_PLUGIN = {"type": "openapi/v0.0.38", "name": "REST v0.0.38"}
GRAMMAR = Grammar(
    "squeue",
    parse_option_table(
        """
        account,A= all,a array,r array-unique clusters,M= cluster=:clusters federation Format,O= format,o=
        help hide iterate,i= jobs,j? json licenses,L= local long,l me name,n= noconvert nodelist,w=
        nodes=:nodelist noheader,h partition,p= qos,q= reservation,R= sib sibling:sib sort,S= start steps,s?
        states,t= usage user,u= users=:user verbose,v version,V yaml
        """
    ),
)
HELP = """\
Usage: squeue [-A accounts] [-i seconds] [-j jobs] [-n names] [-o format | -O format] [-p partitions] [-q qos]
              [-S fields] [-t states] [-u users | --me] [-w nodes] [--start] [--json] [-hlr]
Shows the running and the waiting jobs of the yard. Partitions are pools, accounts are tenants, a QOS is a class."""
_NOT_SERVED = {
    "clusters": "there is one yard",
    "licenses": "there are no licenses",
    "reservation": "there are no reservations by name",
    "steps": "a yard knows no steps",
    "yaml": "ask for --json",
}
_STATES_BY_DEFAULT = {*LIVE, "COMPLETING", "CONFIGURING"}
_ENDED_MS = 300_000
"""Slurm forgets a job five minutes after its end (MinJobAge); -t CD shows as far back."""


def run(words: Sequence[str]) -> int:
    """Print the queue."""
    given = read(GRAMMAR, words)
    if given.rest and given.has("jobs") and not given.last("jobs"):
        # `-j 17` is two words for the option parser and one option for everyone else.
        given.given.append(("jobs", given.rest.pop(0)))
    if given.rest:
        raise Stop(f"squeue: error: Unrecognized option: {given.rest[0]}", *HELP.splitlines()[:2])
    for name, why in _NOT_SERVED.items():
        if given.has(name):
            raise make_stop("squeue", f"--{name} is not served: {why}")
    chosen = _format(given)
    with Client() as yard:
        while True:
            _print(yard, given, chosen)
            pause = given.last("iterate")
            if not pause:
                return 0
            if not pause.isdecimal() or not int(pause):
                raise make_stop("squeue", f"--iterate: {pause!r} is not a number of seconds")
            sys.stdout.flush()
            time.sleep(int(pause))
            print(clock_line())


def _format(given: Read) -> Format:
    which = next((key for key, _ in reversed(given.given) if key in ("format", "Format")), "")
    if which == "Format":
        chosen = parse_long_format(given.last("Format"), f.BY_NAME)
    else:
        default = f.START if given.has("start") else f.LONG if given.has("long") else f.DEFAULT
        chosen = parse_short_format(given.last("format") if which else default, f.BY_LETTER)
    for name in chosen.unknown:
        print(f"squeue: error: Invalid job format specification: {name}", file=sys.stderr)
    return chosen


def _print(yard: Client, given: Read, chosen: Format) -> None:
    jobs = _chosen(yard, given)
    if given.has("json"):
        print(jobs_json(jobs))
        return
    lines = []
    if given.has("long") and not given.has("noheader"):
        lines.append(clock_line())
    if not given.has("noheader"):
        lines.append(chosen.header())
    lines += chosen.lines(jobs)
    if lines:
        print("\n".join(lines))


def _chosen(yard: Client, given: Read) -> list[SlurmJob]:
    """The jobs that were asked for, in order."""
    states = _states(given)
    users = _users(given)
    pools = Pools.of_fleet(yard.fleet())
    found = yard.queue(user=users[0] if users and len(users) == 1 else "", wide=True)
    jobs = jobs_from_queue(found, pools)
    ids = parse_ids("squeue", given.last("jobs"))
    if states - _STATES_BY_DEFAULT:
        jobs += _ended(yard, pools, found["at_ms"], states - _STATES_BY_DEFAULT)
    if ids:
        _check_ids(yard, ids, jobs, found["at_ms"])
        jobs = [job for job in jobs if any(want.holds(job) for want in ids)]
        states = states if given.has("states") else _STATES_BY_DEFAULT
    jobs = [job for job in jobs if job.state in states and _holds(given, users, pools, job)]
    if given.has("start"):
        jobs = [job for job in jobs if job.state == "PENDING"]
        _guess(yard, jobs)
    if not given.has("array"):
        jobs = fold_arrays(jobs)
    return _sorted(jobs, given.last("sort") or ("S" if given.has("start") else "P,t,-p"))


def _states(given: Read) -> set[str]:
    names = given.listed("states")
    if not names:
        return set(_STATES_BY_DEFAULT)
    if [name.lower() for name in names] == ["all"]:
        return set(CODES)
    known = parse_states(names)
    if known is None:
        raise no_state("squeue", names)
    return set(known)


def _users(given: Read) -> list[str] | None:
    """Names; None: all users. An unknown name is reported, and has no jobs, as with Slurm."""
    if given.has("me"):
        return [user_name()]
    if not given.has("user"):
        return None
    import pwd

    users = []
    for name in given.listed("user"):
        if name.isdecimal():
            with suppress(KeyError):
                users.append(pwd.getpwuid(int(name)).pw_name)
                continue
        try:
            users.append(pwd.getpwnam(name).pw_name)
        except KeyError:
            print(f"squeue: error: Invalid user: {name}\n", file=sys.stderr)
            # A yard elsewhere may know users that this machine does not.
            users.append(name)
    return users


def _holds(given: Read, users: list[str] | None, pools: Pools, job: SlurmJob) -> bool:
    """Whether a job is one of those that were asked for, apart from its id and state."""
    if users is not None and job.user not in users:
        return False
    if given.has("name") and job.name not in given.listed("name"):
        return False
    if given.has("partition") and not pools.uses_partition(job, given.listed("partition")):
        return False
    if given.has("qos") and not pools.of_qos(job, given.listed("qos")):
        return False
    if given.has("account") and not pools.of_account(job.tenant, given.listed("account")):
        return False
    if given.has("nodelist"):
        from gpuyard.intake.sbatch.hostlists import expand

        try:
            return bool(set(expand(given.last("nodelist"))) & set(job.nodes))
        except ValueError as wrong:
            raise make_stop("squeue", f"--nodelist {wrong}") from None
    return True


def _ended(yard: Client, pools: Pools, now_ms: int, states: set[str]) -> list[SlurmJob]:
    """Jobs that ended a moment ago, which Slurm still lists."""
    wanted = sorted(states & YARDS)
    jobs, cursor = [], None
    while wanted:
        page = yard.history(states=wanted, since_ms=max(0, now_ms - _ENDED_MS), limit=1000, cursor=cursor)
        jobs += [job_from_view(each, pools, now_ms) for each in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
    return jobs


def _check_ids(yard: Client, ids: list[WantedJobs], jobs: list[SlurmJob], now_ms: int) -> None:
    """A single id without a job is an error; of several, those that exist are shown."""
    if len(ids) > 1 or any(ids[0].holds(job) for job in jobs):
        return
    try:
        found = yard.job(ids[0].label, explain=False)
    except Refused as refusal:
        if refusal.status != 404:
            raise
        raise Stop("slurm_load_jobs error: Invalid job id specified") from None
    # Slurm forgets a job a while after its end; so does this `squeue`.
    ended_ms = None if "array" in found else found["ended_ms"]
    if (ended_ms or now_ms) < now_ms - _ENDED_MS:
        raise Stop("slurm_load_jobs error: Invalid job id specified")


def _guess(yard: Client, jobs: list[SlurmJob]) -> None:
    """When each is expected to start. One request for each, so not for thousands."""
    for job in jobs[:100]:
        if not job.begin_ms and job.reason in ("Resources", "Priority", "None"):
            with suppress(Refused):
                found = yard.job(job.label)
                job.start_guess_ms = 0 if "array" in found else found.get("expected_start_ms") or 0


def _sorted(jobs: list[SlurmJob], keys: str) -> list[SlurmJob]:
    """Sort by several keys, the last first: each sort is stable."""
    for key in reversed([key.strip() for key in keys.split(",") if key.strip()]):
        letter, down = key.lstrip("+-"), key.startswith("-")
        if letter in ("p", "Q"):
            if not down:
                jobs.reverse()
            continue
        by = f.KEYS.get(letter)
        if by is None:
            raise make_stop("squeue", f"Invalid sort specification: {letter}")
        jobs.sort(key=by, reverse=down)  # type: ignore[arg-type]
    return jobs


def jobs_json(jobs: Sequence[SlurmJob]) -> str:
    """`squeue --json`: the fields of Slurm's answer that a yard has, under their names."""
    from gpuyard import __version__

    meta = {
        "plugin": _PLUGIN,
        "Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"},
    }
    meta["gpuyard"] = {"version": __version__}
    return json.dumps({"meta": meta, "errors": [], "jobs": [_plain(job) for job in jobs]}, indent=2)


def _plain(job: SlurmJob) -> dict[str, object]:
    return {
        "account": job.tenant,
        "array_job_id": job.array_id,
        "array_max_tasks": job.array_limit,
        "array_task_id": job.array_index if job.array_id and not job.indices else None,
        "array_task_string": job.shown_indices if job.indices else "",
        "cpus": job.cpu_count,
        "dependency": job.waits_for,
        "eligible_time": max(job.submitted_ms, job.begin_ms) // 1000,
        "end_time": job.ended_ms // 1000,
        "exit_code": job.exit_code or 0,
        "group_id": f.find_group(job.user)[0],
        "job_id": job.array_id if job.indices else job.id,
        "job_state": job.state,
        "name": job.name,
        "node_count": job.node_count,
        "nodes": job.nodelist,
        "partition": job.partition,
        "qos": job.klass,
        "restart_cnt": job.restarts,
        "start_time": job.started_ms // 1000,
        "state_reason": job.reason,
        "submit_time": job.submitted_ms // 1000,
        "tasks": job.tasks,
        "time_limit": job.limit_s // 60 or None,
        "tres_alloc_str" if job.started_ms else "tres_req_str": job.tres(),
        "user_id": f.find_uid(job.user),
        "user_name": job.user,
    }
