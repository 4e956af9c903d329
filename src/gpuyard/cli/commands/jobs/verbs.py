"""`yard cancel`, `hold`, `release`, `suspend`, `continue`, `requeue`: wishes about live jobs."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput, count_text

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


class JobFilter(NamedTuple):
    """Which jobs are meant, where none are named."""

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
    mine: Annotated[bool, Option("--mine", help="All your jobs, like --all alone.")] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="Do not ask first.")] = False,
) -> int:
    """Cancel jobs by id, or all that match. A running job has its grace to end by itself.

    `yard cancel 17 18` cancels at once. `yard cancel --name sweep --state PENDING` lists the jobs that match and asks
    first; in a script it needs --yes.
    """
    if mine and (user or tenant):
        raise BadInput("--mine and --user or --tenant exclude each other", "Leave one of them out.")
    wanted = JobFilter(name, tuple(state or ()), user, tenant, everything or mine)
    if not any(wanted):
        if not jobs:
            raise BadInput(
                "cancel which job?",
                "yard cancel JOB..., or one of --name, --state, --user, --tenant, --all and --mine",
            )
        return _ask("cancel", jobs)
    if jobs:
        raise BadInput("give either job ids or options that match jobs, not both", "Leave one of them out.")
    return _cancel_all(wanted, yes)


def hold(jobs: JobsArgument) -> int:
    """Keep waiting jobs from starting until they are released."""
    return _ask("hold", jobs)


def release(jobs: JobsArgument) -> int:
    """Let held jobs start, and failed jobs that wait for another try."""
    return _ask("release", jobs)


def suspend(jobs: JobsArgument) -> int:
    """Suspend running jobs. They keep their GPUs, and their time limit stops counting."""
    return _ask("suspend", jobs)


def continue_(jobs: JobsArgument) -> int:
    """Let suspended jobs continue."""
    return _ask("continue", jobs)


def requeue(jobs: JobsArgument) -> int:
    """Stop running jobs and put them back in the queue."""
    return _ask("requeue", jobs)


def move(
    jobs: JobsArgument,
    top: Annotated[bool, Option("--top", help="Put them before all other waiting jobs.")] = False,
    back: Annotated[bool, Option("--back", help="Put them back where the policy's order has them.")] = False,
) -> int:
    """The old spelling of `yard update JOB --top` and `yard update JOB --back`, for this release."""
    from gpuyard.cli.terminal.streams import print_notice

    if top == back:
        raise BadInput("move it where?", "yard update JOB --top, or yard update JOB --back")
    spelt = "--top" if top else "--back"
    print_notice(f"`yard move` is now `yard update {' '.join(jobs)} {spelt}`", before="note: ")
    return move_in_line(jobs, top=top)


def move_in_line(jobs: list[str], *, top: bool) -> int:
    """Before all other jobs, the first named as the first of all; or back to where the order has them."""
    return _ask("top", jobs[::-1]) if top else _ask("back", jobs)


_DONE = {
    "cancel": ("cancelled {}", "cancelled already"),
    "hold": ("held {}", "on hold already"),
    "release": ("released {}", "released already"),
    "suspend": ("suspended {}", "suspended already"),
    "continue": ("continued {}", "continued already"),
    "requeue": ("requeued {}", "requeued already"),
    "top": ("moved {} to the top", "at the top already"),
    "back": ("moved {} back", "where the order has them already"),
    "update": ("changed {}", "so already"),
}
"""What a verb has done, and what of jobs that it did not change."""


def _ask(verb: str, jobs: list[str]) -> int:
    """Each job by itself: if one is refused, the others are still served."""
    with open_client() as yard:
        answers = _asked(yard, verb, jobs)
    return told(verb, answers[::-1] if verb == "top" else answers)


def _asked(yard: "Client", verb: str, jobs: Sequence[int | str]) -> "Sequence[OneOfMany]":
    """Ask, and show how far it is where that takes a while."""
    from gpuyard.cli.terminal.progress import Bar

    with Bar(len(jobs)) as bar:
        return yard.ask_many(verb, jobs, bar.begin(verb))


def told(verb: str, answers: "Sequence[OneOfMany]") -> int:
    """Say what was done and what was refused, and return the exit code."""
    from gpuyard.cli.terminal.streams import print_notice

    said, already = _DONE[verb]
    taken = [answer for answer in answers if answer["status"] < 400]
    done, as_before = [each for each in taken if each["jobs"]], [each for each in taken if not each["jobs"]]
    if done:
        jobs = count_text(sum([each["jobs"] for each in done]), "job")
        print(f"{said.format(jobs)}: {_labels([_with_tasks(each) for each in done])}", flush=True)
    if as_before:
        print(f"{already}: {_labels([each['label'] for each in as_before])}", flush=True)
    for note in dict.fromkeys([each for answer in done for each in answer.get("notes", ())]):
        print_notice(note, before="note: ")
    refused = [answer for answer in answers if answer["status"] >= 400]
    for answer in refused:
        print_notice(answer["detail"], before="yard: ", style="bold red")
        if answer.get("hint"):
            print_notice(answer["hint"])
    if refused:
        return _REFUSED if all(answer["status"] < 500 for answer in refused) else 1
    return 0


def _with_tasks(answer: "OneOfMany") -> str:
    """A job by its label; an array with the number of its tasks that were changed."""
    return (
        f"{answer['label']} ({count_text(answer['jobs'], 'task')})" if answer["jobs"] > 1 else answer["label"]
    )


def _labels(labels: Sequence[str]) -> str:
    """Labels in a row, the first of many."""
    more = f" and {len(labels) - _SHOWN_MAX} more" if len(labels) > _SHOWN_MAX else ""
    return ", ".join(labels[:_SHOWN_MAX]) + more


# -- all jobs that match: shown, and asked about, before any is cancelled ------------------------------------------


def _cancel_all(wanted: JobFilter, yes: bool) -> int:
    """Cancel what matches."""
    with open_client() as yard:
        rows = find_matching(yard, wanted)
        if not rows:
            print("no job matches: nothing is cancelled")
            return 0
        if not yes:
            ask_first(rows, "cancel", "cancelled")
        return told("cancel", _asked(yard, "cancel", [row[1] for row in rows]))


def find_matching(yard: "Client", wanted: JobFilter) -> list[list[Any]]:
    """Live jobs that match: the user's own, unless a user or a tenant is named."""
    user = wanted.user
    if not user and not wanted.tenant:
        user = str(yard.me()["user"])
    found = yard.queue(states=wanted.states, tenant=wanted.tenant, user=user, name=wanted.name)
    # A job `CLUSTER:ID` is another scheduler's.
    return [row for row in found["rows"] if row[10] and ":" not in row[1]]


def ask_first(rows: Sequence[Sequence[Any]], verb: str, done: str) -> None:
    """Go on if the user says yes."""
    from gpuyard.cli.terminal.streams import confirm

    jobs = count_text(len(rows), "job")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(
            f"{jobs} would be {done}, and there is no terminal to ask on: {_labels([row[1] for row in rows])}",
            f"Add --yes to {verb} them without a question.",
        )
    for row in rows[:_SHOWN_MAX]:
        print(f"  {row[1]:<10} {row[6]:<9} {row[4]:<12} {row[2]}", file=sys.stderr)
    if len(rows) > _SHOWN_MAX:
        print(f"  and {len(rows) - _SHOWN_MAX} more", file=sys.stderr)
    if not confirm(f"{verb.capitalize()} {jobs}?"):
        raise BadInput(f"nothing is {done}")
