"""`yard update`: live jobs get another limit, class, name, other resources, or another place in their line."""

from typing import Annotated, Any

from gpuyard.cli.commands.jobs.verbs import (
    JobFilter,
    SomeJobsArgument,
    ask_first,
    find_matching,
    move_in_line,
    told,
)
from gpuyard.cli.commands.submit import jobfields as f
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Called, Option, with_options
from gpuyard.errors import BadInput, suggest_end
from gpuyard.wire.job_fields import CHANGEABLE

_WHERE = ("name", "state", "user", "tenant")
_WHERE_HINT = "For example: --where name=sweep --where state=PENDING; --where all for all your jobs."


@with_options(f.job_options(fields=CHANGEABLE))
def update(
    ctx: Called,
    jobs: SomeJobsArgument = None,
    *,
    nice: Annotated[
        str,
        Option(
            "--nice",
            metavar="TIME",
            help="Wait as if submitted this much later: 1h; -1h: earlier; 0: as it was.",
        ),
    ] = "",
    array_limit: Annotated[
        int,
        Option("--array-limit", metavar="N", help="How many tasks of an array run at a time; 0: all.", min=0),
    ] = 0,
    top: Annotated[bool, Option("--top", help="Before all other waiting jobs; for administrators.")] = False,
    back: Annotated[
        bool, Option("--back", help="Back from the top to where the policy's order has it.")
    ] = False,
    where: Annotated[
        list[str] | None,
        Option(
            "--where",
            metavar="KEY=VALUE",
            help="All jobs with this name, state, user or tenant; may be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show where and when the job would start then; change nothing.")
    ] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="With --where: do not ask first.")] = False,
    **options: Any,
) -> int:
    """Change jobs that wait; of running ones time limit, name, labels and retries.

    `yard update 12 --time 2h --class urgent` changes job 12, `yard update 12_3 -g 2` one task of an array. A job that
    asks for more than before goes to the end of its line. An empty value, as in --after \'\', takes back what was said.
    """
    change = f.read_changes(ctx, options)
    if top and back:
        raise BadInput("--top and --back exclude each other", "Leave one of them out.")
    if "nice" in ctx.given:
        change["nice_s"] = _nice_s(nice)
    if "array_limit" in ctx.given:
        change["array_limit"] = array_limit
    if not change and not (top or back):
        raise BadInput("change what?", "yard update JOB --time 2h, or another option: yard update --help")
    if bool(jobs) == bool(where):
        raise BadInput(
            "give either job ids or --where, not both" if jobs else "change which job?",
            "yard update JOB..., or yard update --where name=NAME",
        )
    if dry_run:
        return _rehearse(jobs or [], change | ({"place": "top" if top else "back"} if top or back else {}))
    if (top or back) and not change and jobs:
        return move_in_line(jobs, top=top)
    if top or back:
        change["place"] = "top" if top else "back"
    return _change(jobs or [], where, change, top=top, yes=yes)


def _change(jobs: list[str], where: list[str] | None, change: dict[str, Any], *, top: bool, yes: bool) -> int:
    """Change the jobs that are named, or all that match."""
    from gpuyard.cli.terminal.progress import Bar

    with open_client() as yard:
        labels = jobs
        if where:
            rows = find_matching(yard, _filter(where))
            if not rows:
                print("no job matches: nothing is changed")
                return 0
            if not yes:
                ask_first(rows, "change", "changed")
            labels = [row[1] for row in rows]
        # The one that is moved last is at the top.
        ordered = labels[::-1] if top else labels
        with Bar(len(labels)) as bar:
            answers = yard.update(ordered, change, bar.begin("update"))
    return told("update", answers[::-1] if top else answers)


def _nice_s(text: str) -> int:
    plain = text.strip()
    if plain in ("0", "-0"):
        return 0
    sign = -1 if plain.startswith("-") else 1
    return sign * f.limit_s("--nice", plain.lstrip("+-"))


def _filter(where: list[str]) -> JobFilter:
    """Which jobs are meant."""
    found: dict[str, list[str]] = {}
    for text in where:
        key, sign, value = text.partition("=")
        if text == "all":
            found["all"] = [""]
        elif not sign or not value or key not in _WHERE:
            known = "" if key in _WHERE else f": there is no {key!r}{suggest_end(key, [*_WHERE, 'all'])}"
            raise BadInput(f"--where {text!r} says nothing about jobs{known}", _WHERE_HINT)
        else:
            found.setdefault(key, []).extend(value.split(","))
    for key in ("name", "user", "tenant"):
        if len(found.get(key, ())) > 1:
            raise BadInput(f"--where names more than one {key}", "Change them one after the other.")
    one = {key: values[0] for key, values in found.items() if key not in ("state", "all")}
    return JobFilter(
        one.get("name", ""),
        tuple(found.get("state", ())),
        one.get("user", ""),
        one.get("tenant", ""),
        "all" in found,
    )


def _rehearse(jobs: list[str], change: dict[str, Any]) -> int:
    from gpuyard.cli.commands.submit.dry_run import NEVER, show_rehearsal

    if not jobs:
        raise BadInput("--dry-run is for jobs by their ids", "Leave --where out, and name a job.")
    good = True
    with open_client() as yard:
        for place, job in enumerate(jobs):
            found = yard.rehearse_update(job, change)
            if place:
                print()
            show_rehearsal(found, "nothing was changed")
            good = good and found["would_run"]
    return 0 if good else NEVER
