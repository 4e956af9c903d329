"""`scancel`: cancel jobs by id, or all that match."""

import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import WantedJobs, bad_id, parse_id, split_ids, user_name
from gpuyard.cli.slurm.language.jobs import SlurmJob, jobs_from_queue
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.words import LIVE, parse_states

GRAMMAR = Grammar(
    "scancel",
    parse_option_table(
        """
        account,A= batch,b clusters,M= ctld full,f help hurry,H interactive,i jobname=:name me name,n=
        nodelist,w= partition,p= qos,q= quiet,Q reservation,R= sibling= signal,s= state,t= usage user,u=
        verbose,v version,V wckey=
        """
    ),
)
HELP = """\
Usage: scancel [-A account] [-n name] [-p partition] [-q qos] [-s signal] [-b | -f] [-t states] [-u user | --me]
               [-w nodes] [-Qv] [job_id[_array_id] ...]
Cancels jobs of the yard. One that runs gets the grace of its class to end by itself. With -s it is sent that signal and
goes on: what its script started, with -b the script alone, with -f both. A job without a script is sent it whole.
-s KILL cancels, and kills at once."""
_FILTERS = ("account", "name", "nodelist", "partition", "qos", "state", "user", "me")
_NOT_SERVED = {
    "clusters": "there is one yard",
    "interactive": "name the jobs you mean",
    "reservation": "there are no reservations by name",
    "wckey": "there are no workload keys",
    "sibling": "there is no federation",
}
_REALTIME_MAX = 64
_RUN, _STARTS = ("RUNNING", "SUSPENDED"), "CONFIGURING"


def run(words: Sequence[str]) -> int:
    """Cancel."""
    given = read(GRAMMAR, words)
    for name, why in _NOT_SERVED.items():
        if given.has(name):
            raise make_stop("scancel", f"--{name} is not served: {why}")
    for name in _FILTERS:
        # Left out it would be no bound: an unset variable of a script is not to mean every job.
        if name != "me" and given.has(name) and not given.listed(name):
            raise make_stop("scancel", f"--{name} is empty: give it a value, or leave it out")
    number = _signal(given)
    ids = _ids(given.rest)
    chosen = any(given.has(name) for name in _FILTERS)
    if not ids and not chosen:
        raise make_stop("scancel", "No job identification provided")
    with Client() as yard:
        there = _found(yard, given, ids) if chosen or number else []
        running: list[int | str] = [job.label for job in there if job.state in _RUN]
        # One that starts has its processes soon, and is waited for: it may have told its user that it is up.
        starting: list[int | str] = [job.label for job in there if job.state == _STARTS]
        if number not in (0, signal.SIGKILL):
            running += starting
            _say(given, running, f"Signal {number} to")
            silent = _silent(ids, there, bounded=chosen)
            return _report(silent + _send(yard, given, running, number), given)
        labels: list[int | str] = [job.label for job in there]
        if not chosen:
            labels = [label for each in ids for label in each.labels()]
        _say(given, labels, "Terminating")

        def cancel() -> list[object]:
            return [
                answer
                for first in range(0, len(labels), 10_000)
                for answer in yard.ask_many("cancel", labels[first : first + 10_000])
            ]

        answers = kill(cancel, partial(_send, yard, given), running, starting) if number else cancel()
    return _report(answers, given)


def _say(given: Read, labels: Sequence[int | str], what: str) -> None:
    if given.has("verbose"):
        for label in labels:
            print(f"scancel: {what} job {label}", file=sys.stderr)


def _silent(ids: Sequence[WantedJobs], there: Sequence[SlurmJob], *, bounded: bool) -> list[object]:
    """Answers for jobs that were named and of which nothing runs: there is nobody to get a signal.

    `bounded`: other options may have left them out.
    """
    found: list[object] = []
    for each in ids:
        states = {job.state for job in there if each.holds(job)}
        if states == {"PENDING"} or not (states or bounded):
            why = "Job is pending execution, and gets no signal" if states else "Invalid job id specified"
            found.append({"status": 400, "label": each.label, "detail": why})
    return found


def _signal(given: Read) -> int:
    """The signal to send; 0: jobs are to be cancelled."""
    text = given.last("signal").upper().removeprefix("SIG")
    if not given.has("signal"):
        if given.has("batch") or given.has("full"):
            raise make_stop(
                "scancel",
                "--batch and --full say which processes get a signal: name the signal with --signal",
            )
        return 0
    known = {each.name.removeprefix("SIG"): int(each) for each in signal.Signals}
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else known.get(text, 0)
    if not 0 < number <= _REALTIME_MAX:
        raise Stop(f"Unknown job signal: {given.last('signal')}")
    if number in (signal.SIGSTOP, signal.SIGCONT):
        verb = "suspend" if number == signal.SIGSTOP else "resume"
        raise make_stop("scancel", f"--signal={text} is not served; use: scontrol {verb} JOB")
    return number


def _send(yard: Client, given: Read, labels: Sequence[int | str], number: int) -> list[object]:
    """Send jobs a signal, which KILL is for all of a job; answers for those that got none."""
    from gpuyard.api.client import Refused
    from gpuyard.cli.connection.piped_command import send_signal
    from gpuyard.cli.connection.visits import NotThere

    answers: list[object] = []
    for label in labels:
        try:
            asked = (
                "all"
                if given.has("full") or number == signal.SIGKILL
                else "batch"
                if given.has("batch")
                else ""
            )
            whom = asked or ("steps" if yard.recipe(label)["script"] else "all")
            send_signal(yard, label, number, whom)
        except (Refused, NotThere) as why:
            status = why.status if isinstance(why, Refused) else 409
            answers.append({"status": status, "label": label, "detail": why.message})
    return answers


def kill(
    cancel: Callable[[], list[object]],
    send: Callable[[Sequence[int | str], int], list[object]],
    running: Sequence[int | str],
    starting: Sequence[int | str],
) -> list[object]:
    """Cancel jobs and kill at once what runs of them; answers of the cancel. `send` sends jobs a signal, and gives
    answers for those that got none.
    """
    # A process that is to let a signal in later has to be there before the job is told to end.
    send(running, signal.SIGCONT)
    up = [*running]
    for label in starting:
        # One that is not up yet is waited for, and then no other: nodes may be long in coming, for all of them.
        if send([label], signal.SIGCONT):
            break
        up.append(label)
    answers = cancel()
    # They are cancelled; what cannot be killed from here has its grace.
    send(up, signal.SIGKILL)
    return answers


def _ids(words: Sequence[str]) -> list[WantedJobs]:
    found = []
    for word in words:
        for part in split_ids(word):
            wanted = parse_id(part)
            if wanted is None:
                raise bad_id("scancel", part)
            if "." in part:
                raise make_stop(
                    "scancel", f"{part}: a yard knows no steps; cancel the job, {part.partition('.')[0]}"
                )
            found.append(wanted)
    return found


def _found(yard: Client, given: Read, ids: list[WantedJobs]) -> list[SlurmJob]:
    """Live jobs that answer every description."""
    states = given.listed("state")
    known = parse_states(states)
    if known is None or set(known) - set(LIVE):
        raise Stop(
            f"Invalid job state specified: {given.last('state')}",
            "Valid job states are PENDING, RUNNING, and SUSPENDED",
        )
    user = user_name() if given.has("me") else given.last("user")
    if user.isdecimal():
        import pwd

        try:
            user = pwd.getpwuid(int(user)).pw_name
        except KeyError:
            raise make_stop("scancel", f"Invalid user name: {user}") from None
    elif given.has("user"):
        _check_user(user)
    pools = Pools.of_fleet(yard.fleet())
    jobs = jobs_from_queue(yard.queue(user=user, states=known, wide=True), pools)
    return [
        job for job in jobs if (not ids or any(each.holds(job) for each in ids)) and _holds(given, pools, job)
    ]


def _check_user(user: str) -> None:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        raise make_stop("scancel", f"Invalid user name: {user}") from None


def _holds(given: Read, pools: Pools, job: SlurmJob) -> bool:
    nodes = set(given.listed("nodelist"))
    return (
        (not given.has("name") or job.name in given.listed("name"))
        and (not given.has("account") or pools.of_account(job.tenant, [given.last("account")]))
        and (not given.has("partition") or pools.in_partition(job, [given.last("partition")]))
        and (not given.has("qos") or pools.of_qos(job, [given.last("qos")]))
        and (not nodes or bool(nodes & set(job.nodes)))
    )


def _report(answers: Sequence[object], given: Read) -> int:
    """For Slurm it is no error if a job is gone, but it is one if it is another user's."""
    code = 0
    for answer in answers:
        assert isinstance(answer, dict)
        status = answer["status"]
        gone = status in (404, 409)
        if status < 400 or (gone and not given.has("verbose")):
            continue
        if not given.has("quiet"):
            why = "Access/permission denied" if status == 403 else answer["detail"]
            print(f"scancel: error: Kill job error on job id {answer['label']}: {why}", file=sys.stderr)
        code = code if gone else 1
    return code
