"""`yard cancel`, `hold`, `release`, `suspend`, `continue`, `requeue`, `checkpoint`: wishes about live jobs."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from gpuyard.cli.connection.places import client
from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput, counted

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.wire.replies.jobs import OneOfMany

JobsArgument = Annotated[
    list[str], Argument(metavar="JOB...", help="17, 12_3 for a task, 12 for a whole array.")
]
SomeJobsArgument = Annotated[
    list[str] | None, Argument(metavar="JOB...", help="17, 12_3 for a task, 12 for a whole array.")
]
_REFUSED = 2
_SHOWN_MAX = 10


class CancelFilter(NamedTuple):
    """Which jobs to cancel, where none are named."""

    name: str
    states: tuple[str, ...]
    user: str
    tenant: str
    everything: bool


def cancel(
    jobs: SomeJobsArgument = None,
    name: Annotated[str, Option("-n", "--name", metavar="NAME", help="Your jobs of this name.")] = "",
    state: Annotated[
        list[str] | None, Option("--state", metavar="STATE", help="Your jobs in this state; may be repeated.")
    ] = None,
    user: Annotated[str, Option("-u", "--user", metavar="USER", help="Jobs of this user, not yours.")] = "",
    tenant: Annotated[
        str, Option("--tenant", metavar="TENANT", help="Everybody's jobs of this tenant and those below it.")
    ] = "",
    everything: Annotated[
        bool, Option("--all", help="All your jobs; with --user or --tenant, all of theirs.")
    ] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="Do not ask first.")] = False,
) -> int:
    """Cancel jobs by their ids, or all that match. One that runs gets its grace to end by itself.

    `yard cancel 17 18` cancels at once. `yard cancel --name sweep --state PENDING` lists what matches and asks first;
    in a script it wants --yes.
    """
    wanted = CancelFilter(name, tuple(state or ()), user, tenant, everything)
    if not any(wanted):
        if not jobs:
            raise BadInput(
                "cancel which job?",
                "yard cancel JOB..., or one of --name, --state, --user, --tenant and --all",
            )
        return _ask("cancel", jobs)
    if jobs:
        raise BadInput(
            "a job's id and an option that matches jobs exclude each other", "Leave one of them out."
        )
    return _cancel_all(wanted, yes)


def hold(jobs: JobsArgument) -> int:
    """Keep waiting jobs from starting until they are released."""
    return _ask("hold", jobs)


def release(jobs: JobsArgument) -> int:
    """Let held jobs start, and failed ones that wait to be tried again."""
    return _ask("release", jobs)


def suspend(jobs: JobsArgument) -> int:
    """Freeze running jobs. They keep their GPUs, and their time limit waits."""
    return _ask("suspend", jobs)


def continue_(jobs: JobsArgument) -> int:
    """Let frozen jobs go on."""
    return _ask("continue", jobs)


def requeue(jobs: JobsArgument) -> int:
    """Stop running jobs and let them wait again."""
    return _ask("requeue", jobs)


def move(
    jobs: JobsArgument,
    top: Annotated[bool, Option("--top", help="Before all others that wait.")] = False,
    back: Annotated[bool, Option("--back", help="Back to where the order has them.")] = False,
) -> int:
    """Move waiting jobs to the top of the line, or back. For administrators: all others wait longer for it.

    The first of them comes first. Class, fair share and age no longer count for it until it starts; quotas do.
    """
    if top == back:
        raise BadInput("move it where?", "yard move JOB --top, or yard move JOB --back")
    return _ask("top", jobs[::-1]) if top else _ask("back", jobs)


def checkpoint(
    job: Annotated[
        str,
        Argument(metavar="[JOB]", help="Default: the job that this command runs in.", envvar="YARD_JOB_ID"),
    ] = "",
) -> None:
    """Say that a running job has just saved its work, so that less of it counts as lost if it is stopped.

    Jobs that write to $YARD_CHECKPOINT_FILE need not: the time of that file says the same.
    """
    if not job:
        raise BadInput("no job was named, and this runs in none", "For example: yard checkpoint 17")
    with client() as yard:
        yard.checkpoint(job)


def _ask(verb: str, jobs: list[str]) -> int:
    """Each job by itself: if one is refused, the others are still served."""
    with client() as yard:
        answers = yard.ask_many(verb, jobs)
    return told(answers)


def told(answers: "Sequence[OneOfMany]") -> int:
    """Say what was refused, and return the exit code."""
    from gpuyard.cli.terminal.streams import notice

    refused = [answer for answer in answers if answer["status"] >= 400]
    for answer in refused:
        notice(answer["detail"], before="yard: ", style="bold red")
        if answer.get("hint"):
            notice(answer["hint"])
    if refused:
        return _REFUSED if all(answer["status"] < 500 for answer in refused) else 1
    return 0


# -- all jobs that match: shown, and asked about, before any is cancelled ------------------------------------------


def _cancel_all(wanted: CancelFilter, yes: bool) -> int:
    """Cancel what matches."""
    with client() as yard:
        rows = _matching(yard, wanted)
        if not rows:
            print("no job matches: nothing is cancelled")
            return 0
        if not yes:
            _ask_first(rows)
        answers = yard.ask_many("cancel", [row[0] for row in rows])
    done = [row for row, answer in zip(rows, answers, strict=True) if answer["status"] < 400]
    print(f"cancelled {counted(len(done), 'job')}{': ' if done else ''}{_labels(done)}")
    return told(answers)


def _matching(yard: "Client", wanted: CancelFilter) -> list[list[Any]]:
    """Live jobs that match: the user's own, unless a user or a tenant is named."""
    user = wanted.user
    if not user and not wanted.tenant:
        user = str(yard.me()["user"])
    found = yard.queue(states=wanted.states, tenant=wanted.tenant, user=user, name=wanted.name)
    # A job `CLUSTER:ID` is another scheduler's.
    return [row for row in found["rows"] if row[10] and ":" not in row[1]]


def _ask_first(rows: Sequence[Sequence[Any]]) -> None:
    """Go on if the user says yes."""
    from gpuyard.cli.terminal.streams import confirmed

    jobs = counted(len(rows), "job")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(
            f"{jobs} would be cancelled, and this is no terminal to ask at: {_labels(rows)}",
            "With --yes they are cancelled without a question.",
        )
    for row in rows[:_SHOWN_MAX]:
        print(f"  {row[1]:<10} {row[6]:<9} {row[4]:<12} {row[2]}", file=sys.stderr)
    if len(rows) > _SHOWN_MAX:
        print(f"  and {len(rows) - _SHOWN_MAX} more", file=sys.stderr)
    if not confirmed(f"Cancel {jobs}?"):
        raise BadInput("nothing is cancelled")


def _labels(rows: Sequence[Sequence[Any]]) -> str:
    labels = [str(row[1]) for row in rows[:_SHOWN_MAX]]
    more = f" and {len(rows) - _SHOWN_MAX} more" if len(rows) > _SHOWN_MAX else ""
    return ", ".join(labels) + more
