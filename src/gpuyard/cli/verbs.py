"""`yard cancel`, `hold`, `release`, `suspend`, `continue`, `requeue`, `checkpoint`: wishes about live jobs."""

from typing import Annotated

from gpuyard.cli.options import Argument
from gpuyard.cli.places import client
from gpuyard.errors import BadInput

JobsArgument = Annotated[
    list[str],
    Argument(metavar="JOB...", help="17, 12_3 for a task, 12 for a whole array.", show_default=False),
]
_REFUSED = 2


def cancel(jobs: JobsArgument) -> int:
    """Cancel jobs. One that runs gets its grace to end by itself."""
    return _ask("cancel", jobs)


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


def checkpoint(
    job: Annotated[
        str,
        Argument(metavar="[JOB]", help="Left out: the job that this runs in.", envvar="YARD_JOB_ID"),
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
    """Each job by itself: one that is refused does not keep the others from being served."""
    from gpuyard.cli.streams import notice

    with client() as yard:
        answers = yard.ask_many(verb, jobs)
    refused = [answer for answer in answers if answer["status"] >= 400]
    for answer in refused:
        notice(answer["detail"], before="yard: ", style="bold red")
        if answer.get("hint"):
            notice(answer["hint"])
    if refused:
        return _REFUSED if all(answer["status"] < 500 for answer in refused) else 1
    return 0
