"""`scontrol`: show jobs, nodes and partitions, and change the few things that a yard can."""

import sys
from collections.abc import Callable, Sequence

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
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
  update NodeName=NAMES State=DRAIN|DOWN Reason=TEXT | update NodeName=NAMES State=RESUME
  update JobId=IDS [TimeLimit=] [QOS=] [JobName=] [Partition=] [Account=] [ReqNodeList=] [ExcNodeList=] [Features=]
         [Dependency=] [StartTime=] [Deadline=] [ArrayTaskThrottle=] [Nice=] [Priority=0] [Comment=] [WCKey=] [Requeue=]
  ping | version
Commands and words may be shortened."""

_VERBS = {"hold": "hold", "uhold": "hold", "release": "release", "requeue": "requeue", "suspend": "suspend",
          "resume": "continue", "top": "top"}  # fmt: skip
"""Slurm's verbs for jobs, and the yard's."""
_OTHERS = ("show", "update", "ping", "version", "help", "quit", "exit")
_ADMIN = ("abort", "cancel_reboot", "errnumstr", "fsdampeningfactor", "getaddrs", "listpids",
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
    if first.lower() in ("create", "delete"):
        raise _refuse_creation(rest)
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
    from gpuyard.cli.slurm.commands.scontrol_update import explain_refusal, read_labels

    labels = [
        label for word in words for label in read_labels(word.removeprefix("jobid=").removeprefix("JobId="))
    ]
    if name == "top":
        # The job that is moved last comes first.
        labels.reverse()
    with Client() as yard:
        answers = yard.ask_many(_VERBS[name], labels)
    refused = [answer for answer in answers if answer["status"] >= 400]
    for answer in refused:
        print(
            visible_text(f"{explain_refusal(answer['status'], answer['detail'])} for job {answer['label']}"),
            file=sys.stderr,
        )
    return 1 if refused else 0


def _show(given: Read, words: list[str]) -> int:
    from gpuyard.cli.slurm.commands.scontrol_show import show

    return show(words, one_line=given.has("oneliner"))


def _update(words: list[str]) -> int:
    from gpuyard.cli.slurm.commands.scontrol_update import update_jobs, update_nodes

    fields: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise make_stop("scontrol", f"{word!r} is not Name=value")
        if fields.setdefault(name.lower(), value) != value:
            raise make_stop("scontrol", f"{name} is given twice, with different values")
    if "nodename" in fields:
        return update_nodes(fields)
    if "jobid" in fields or "job" in fields:
        return update_jobs(fields)
    if "partitionname" in fields or "reservation" in fields or "slurmctlddebug" in fields:
        raise make_stop(
            "scontrol", "pools are in yard.yaml; reservations and debug levels a yard does not have"
        )
    raise Stop(
        "No valid entity in update command",
        'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"',
    )


def _refuse_creation(words: Sequence[str]) -> Stop:
    """What to do instead of a reservation."""
    if any(word.lower().startswith("reservation") for word in words):
        return make_stop(
            "scontrol",
            "a yard keeps no room for a time and a team\n"
            "a team's own room is its guarantee, under `tenants` in yard.yaml (others use it until the team asks)\n"
            "for one occasion drain nodes with `scontrol update NodeName=NAMES State=DRAIN Reason=WHY`, and resume "
            "them when the team's jobs, submitted with --nodelist, are first in line (scontrol top)",
        )
    return make_stop("scontrol", "pools and nodes are in yard.yaml; `yard apply` puts a change in force")


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
