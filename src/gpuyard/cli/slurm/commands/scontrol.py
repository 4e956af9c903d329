"""`scontrol`: show jobs, nodes and partitions, and change the few things that a yard can."""

import sys
from collections.abc import Callable, Sequence

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import parse_id, split_ids
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.terminal.visible_text import visible_text

GRAMMAR = Grammar(
    "scontrol",
    parse_option_table(
        """
        all,a cluster,M= clusters=:cluster details,d federation,F future help,h hide local oneliner,o
        quiet,Q sibling uid,u= usage verbose,v version,V
        """
    ),
)
HELP = """\
Usage: scontrol [-do] COMMAND
  show job [ID] | node [NAMES] | partition [NAME] | hostnames [LIST] | hostlist NAMES
  hold ID... | release ID... | requeue ID... | suspend ID... | resume ID... | top ID...
  update NodeName=NAMES State=DRAIN Reason=TEXT | update NodeName=NAMES State=RESUME
  ping | version
Commands and words may be shortened. What a job asked for cannot be changed on a yard: cancel it and submit it again."""

_VERBS = {"hold": "hold", "uhold": "hold", "release": "release", "requeue": "requeue", "suspend": "suspend",
          "resume": "continue", "top": "top"}  # fmt: skip
"""Slurm's verbs for jobs, and the yard's."""
_OTHERS = ("show", "update", "ping", "version", "help", "quit", "exit")
_ADMIN = ("abort", "cancel_reboot", "create", "delete", "errnumstr", "fsdampeningfactor", "getaddrs", "listpids",
          "notify", "power", "reboot", "reconfigure", "requeuehold", "scontrol", "setdebug", "setdebugflags",
          "shutdown", "takeover", "token", "wait_job", "write", "callerid", "completing", "details")  # fmt: skip


def run(words: Sequence[str]) -> int:
    """Do one command."""
    given = read(GRAMMAR, words)
    if given.has("help"):
        print(HELP)
        return 0
    if not given.rest:
        raise make_stop(
            "scontrol",
            "name a command; `scontrol --help` lists the commands (there is no interactive mode here)",
        )
    first, *rest = given.rest
    name = _whole(first)
    if name in _VERBS:
        return _ask(name, rest)
    if name in ("show", "update"):
        return _show(given, rest) if name == "show" else _update(rest)
    return _PLAIN[name]()


def _whole(word: str) -> str:
    """The command for a word, which may be shortened."""
    known = (*_VERBS, *_OTHERS)
    found = [name for name in known if name == word.lower()] or [
        name for name in known if name.startswith(word.lower())
    ]
    if found:
        return found[0]
    if word.lower() in _ADMIN:
        raise make_stop("scontrol", f"{word} is not served by a yard")
    raise Stop(f"invalid keyword: {word}")


def _ask(name: str, words: list[str]) -> int:
    if not words:
        raise Stop(f"too few arguments for keyword:{name}")
    labels = []
    for part in [
        part for word in words for part in split_ids(word.removeprefix("jobid=").removeprefix("JobId="))
    ]:
        wanted = parse_id(part)
        if wanted is None:
            raise Stop("Invalid job id specified", f"scontrol: error: {part!r} is not a job id")
        labels += wanted.labels()
    if name == "top":
        # The job that is moved last comes first.
        labels.reverse()
    with Client() as yard:
        answers = yard.ask_many(_VERBS[name], labels)
    refused = [answer for answer in answers if answer["status"] >= 400]
    for answer in refused:
        print(
            visible_text(f"{_why(answer['status'], answer['detail'])} for job {answer['label']}"),
            file=sys.stderr,
        )
    return 1 if refused else 0


def _why(status: int, detail: str) -> str:
    """Slurm's sentence where it has one."""
    if status == 404:
        return "Invalid job id specified"
    if status == 403:
        return "Access/permission denied"
    if "has ended" in detail:
        return "Job/step already completing or completed"
    if "does not run" in detail or "waits already" in detail:
        return "Job is pending execution"
    if "is not suspended" in detail or "is not on hold" in detail or "runs already" in detail:
        return "Requested operation is presently disabled"
    return detail


def _show(given: Read, words: list[str]) -> int:
    from gpuyard.cli.slurm.commands.scontrol_show import show

    return show(words, one_line=given.has("oneliner"))


def _update(words: list[str]) -> int:
    fields = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise make_stop("scontrol", f"{word!r} is not Name=value")
        fields[name.lower()] = value
    if "nodename" in fields:
        return _update_nodes(fields)
    if "jobid" in fields or "job" in fields:
        if set(fields) <= {"jobid", "job", "priority", "nice"}:
            return _update_priority(fields)
        asked = [word for word in words if word.partition("=")[0].lower() not in ("jobid", "job")]
        were = "was" if len(asked) == 1 else "were"
        unchanged = f": {', '.join(asked)} {were} not changed" if asked else ""
        raise make_stop(
            "scontrol",
            f"a job on a yard stays as it was submitted{unchanged}\n"
            "cancel it and submit it again with what you want",
        )
    if "partitionname" in fields or "reservation" in fields or "slurmctlddebug" in fields:
        raise make_stop(
            "scontrol", "pools are in yard.yaml; reservations and debug levels a yard does not have"
        )
    raise Stop(
        "No valid entity in update command",
        'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"',
    )


def _update_priority(fields: dict[str, str]) -> int:
    """Slurm holds a job with priority 0. Other numbers mean nothing here: class and share decide the order."""
    job = fields.get("jobid") or fields.get("job", "")
    if fields.get("priority") == "0" and "nice" not in fields:
        return _ask("hold", [job])
    if "priority" not in fields and "nice" not in fields:
        raise Stop("No changes specified")
    raise make_stop(
        "scontrol",
        "a yard has no numeric priorities: class and share decide the turn of a job, and `yard why` explains it\n"
        f"an administrator moves the job to the top with: scontrol top {job}\n"
        f"its owner keeps the job back with: scontrol hold {job}",
    )


def _update_nodes(fields: dict[str, str]) -> int:
    from gpuyard.intake.sbatch.hostlists import expand

    state = fields.get("state", "").upper()
    more = set(fields) - {"nodename", "state", "reason"}
    if more:
        raise make_stop(
            "scontrol", f"of a node only State and Reason can be changed, not {', '.join(sorted(more))}"
        )
    if state not in ("DRAIN", "RESUME", "UNDRAIN", "IDLE"):
        raise Stop(
            "Invalid node state specified" if state else "No changes specified",
            "scontrol: error: a yard takes State=DRAIN with a Reason, and State=RESUME",
        )
    if state == "DRAIN" and not fields.get("reason"):
        raise Stop("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    try:
        names = expand(fields["nodename"])
    except ValueError as wrong:
        raise make_stop("scontrol", f"NodeName {wrong}") from None
    with Client() as yard:
        for name in names:
            if state == "DRAIN":
                yard.drain(name, fields["reason"])
            else:
                yard.resume(name)
    return 0


def _ping() -> int:
    from gpuyard.errors import YardError

    try:
        with Client(patience_s=0.0) as yard:
            ready, _body = yard.ready()
            where = yard.server
    except YardError:
        print("Slurmctld(primary) at yard is DOWN")
        return 1
    print(f"Slurmctld(primary) at {where} is {'UP' if ready else 'DOWN'}")
    return 0 if ready else 1


def _version() -> int:
    from gpuyard import __version__
    from gpuyard.engines.machine.job_commands import VERSION

    print(f"{VERSION} (gpuyard {__version__})")
    return 0


def _help() -> int:
    print(HELP)
    return 0


def _nothing() -> int:
    return 0


_PLAIN: dict[str, Callable[[], int]] = {
    "ping": _ping,
    "version": _version,
    "help": _help,
    "quit": _nothing,
    "exit": _nothing,
}
