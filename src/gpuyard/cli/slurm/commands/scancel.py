"""`scancel`: cancel jobs by id, or all that match."""

import sys
from collections.abc import Sequence

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.getopt import Grammar, Read, options, read
from gpuyard.cli.slurm.language.ids import WantedJobs, bad_id, split_ids, user_name, wanted_id
from gpuyard.cli.slurm.language.jobs import SlurmJob, of_queue
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.stopping import Stop, error
from gpuyard.cli.slurm.language.words import LIVE, states_named

GRAMMAR = Grammar(
    "scancel",
    options(
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
goes on: what its script started, with -b the script alone, with -f both. A job without a script is sent it whole."""
_FILTERS = ("account", "name", "nodelist", "partition", "qos", "state", "user", "me")
_NOT_SERVED = {
    "clusters": "there is one yard",
    "interactive": "name the jobs you mean",
    "reservation": "there are no reservations by name",
    "wckey": "there are no workload keys",
    "sibling": "there is no federation",
}
_REALTIME_MAX = 64
_RUN = ("RUNNING", "SUSPENDED")


def run(words: Sequence[str]) -> int:
    """Cancel."""
    given = read(GRAMMAR, words)
    for name, why in _NOT_SERVED.items():
        if given.has(name):
            raise error("scancel", f"--{name} is not served: {why}")
    number = _signal(given)
    ids = _ids(given.rest)
    chosen = any(given.has(name) for name in _FILTERS)
    if not ids and not chosen:
        raise error("scancel", "No job identification provided")
    with Client() as yard:
        if chosen or number:
            labels: list[int | str] = [*_found(yard, given, ids, _RUN if number else ())]
        else:
            labels = [label for each in ids for label in each.labels()]
        if not labels:
            return 0
        if given.has("verbose"):
            for label in labels:
                says = f"Signal {number} to" if number else "Terminating"
                print(f"scancel: {says} job {label}", file=sys.stderr)
        if number:
            return _send(yard, given, labels, number)
        answers = [
            answer
            for first in range(0, len(labels), 10_000)
            for answer in yard.ask_many("cancel", labels[first : first + 10_000])
        ]
    return _report(answers, given)


def _signal(given: Read) -> int:
    """The signal to send; 0: jobs are to be cancelled, as KILL does."""
    import signal

    text = given.last("signal").upper().removeprefix("SIG")
    if not text:
        if given.has("batch") or given.has("full"):
            raise error("scancel", "--batch and --full say whom a signal is for: name it with --signal")
        return 0
    known = {each.name.removeprefix("SIG"): int(each) for each in signal.Signals}
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else known.get(text, 0)
    if not 0 < number <= _REALTIME_MAX:
        raise Stop(f"Unknown job signal: {given.last('signal')}")
    if number in (signal.SIGSTOP, signal.SIGCONT):
        verb = "suspend" if number == signal.SIGSTOP else "resume"
        raise error("scancel", f"--signal={text} is not served; use: scontrol {verb} JOB")
    return 0 if number == signal.SIGKILL else number


def _send(yard: Client, given: Read, labels: list[int | str], number: int) -> int:
    """Send jobs a signal."""
    from gpuyard.api.client import Refused
    from gpuyard.cli.connection.piped import send_signal
    from gpuyard.cli.connection.visits import NotThere

    answers: list[object] = []
    for label in labels:
        try:
            asked = "all" if given.has("full") else "batch" if given.has("batch") else ""
            whom = asked or ("steps" if yard.recipe(label)["script"] else "all")
            send_signal(yard, label, number, whom)
        except (Refused, NotThere) as why:
            status = why.status if isinstance(why, Refused) else 409
            answers.append({"status": status, "label": label, "detail": why.message})
    return _report(answers, given)


def _ids(words: Sequence[str]) -> list[WantedJobs]:
    found = []
    for word in words:
        for part in split_ids(word):
            wanted = wanted_id(part)
            if wanted is None:
                raise bad_id("scancel", part)
            if "." in part:
                raise error(
                    "scancel", f"{part}: a yard knows no steps; cancel the job, {part.partition('.')[0]}"
                )
            found.append(wanted)
    return found


def _found(yard: Client, given: Read, ids: list[WantedJobs], among: Sequence[str] = ()) -> list[str]:
    """Live jobs that answer every description; `among`: the states of those that are meant."""
    states = given.listed("state")
    known = states_named(states)
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
            raise error("scancel", f"Invalid user name: {user}") from None
    elif given.has("user"):
        _check_user(user)
    pools = Pools.of_fleet(yard.fleet())
    jobs = of_queue(yard.queue(user=user, states=known or tuple(among), wide=True), pools)
    return [
        job.label
        for job in jobs
        if (not ids or any(each.holds(job) for each in ids)) and _holds(given, pools, job)
    ]


def _check_user(user: str) -> None:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        raise error("scancel", f"Invalid user name: {user}") from None


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
