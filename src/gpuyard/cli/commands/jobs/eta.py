"""`yard eta`: when waiting jobs will start, and how that is known."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Output, OutputOption
from gpuyard.quantities import percent_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client

OWN_MAX = 10
"""At most this many waiting jobs are estimated without being named: each takes the yard a moment."""


def eta(
    jobs: Annotated[
        list[str] | None,
        Argument(
            metavar="[JOB...]", help="17, 12_3 for a task, 12 for an array. Default: your own waiting jobs."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Estimate by when jobs start, with a chance of 50 % and of 90 %. Without JOB: your own waiting jobs.

    The yard simulates its future many times, with run times and arrivals drawn from its past, and counts when the jobs
    start. `-o wide` adds what the estimate rests on.
    """
    from gpuyard.cli.terminal.streams import result

    with open_client() as yard:
        found = [yard.eta(job) for job in jobs or _own(yard)]
    if output in (Output.TABLE, Output.WIDE):
        for each in found:
            result(f"job {each['job']}: {estimate_text(each)}", rest="  ")
            if each["starts_by_ms"] is not None:
                result(each["how"], "  ", "  ")
            if output is Output.WIDE:
                for name, text in _basis(each):
                    result(text, f"  {name:<12}  ", " " * 16)
        return
    from gpuyard.cli.listings.tables import print_records

    print_records([_flat(each) for each in found] if output is Output.CSV else found, [], output)


def _own(yard: "Client") -> list[str]:
    """The asker's jobs that wait, in line first; an array is one."""
    from gpuyard.cli.terminal.streams import print_notice

    user = str(yard.me()["user"])
    found = yard.queue(states=["PENDING"], user=user)
    place = found["columns"].index("label")
    labels = list(dict.fromkeys([str(row[place]).partition("_")[0] for row in found["rows"]]))
    if not labels:
        print_notice(f"no job of {user} waits; for another one: yard eta JOB")
    elif len(labels) > OWN_MAX:
        print_notice(
            f"the first {OWN_MAX} of {len(labels)} jobs of {user} that wait; for another one: yard eta JOB"
        )
    return labels[:OWN_MAX]


def estimate_text(found: Mapping[str, Any]) -> str:
    """An estimate in one line, or why there is none."""
    if found["starts_by_ms"] is None and found["runs"] and found.get("left_out_ahead"):
        return f"{earliest_text(found)}: {found['how']}"
    if found["starts_by_ms"] is None:
        bound = by_limits(found)
        return f"{bound}: {found['how']}" if bound else found["how"]
    task = f"task {found['task']}, the next to start, " if found.get("task") else ""
    return f"{task}{quantiles_text(found)}"


def by_limits(found: Mapping[str, Any]) -> str:
    """`by time limits alone by 14:05 (in 12 min)`; empty where limits do not tell it either."""
    if found["state"] != "PENDING" or not found["bound_ms"]:
        return ""
    return f"by time limits alone {_when(found['bound_ms'], found['now_ms'])}"


def earliest_text(found: Mapping[str, Any]) -> str:
    """For a job with too many ahead of it: `not before 14:05 (in 12 min)`."""
    at_ms = found["not_before_ms"]
    if at_ms is None:
        return "not within 14 days"
    if at_ms <= found["now_ms"]:
        return "it cannot be told"
    return _when(at_ms, found["now_ms"]).replace("by", "not before", 1)


def quantiles_text(found: Mapping[str, Any]) -> str:
    """`50 % by 14:05 (in 12 min), 90 % by 14:40 (in 47 min)`."""
    now_ms, starts = found["now_ms"], found["starts_by_ms"]
    if starts["p50"] == starts["p90"] == now_ms:
        return "now"
    parts = []
    for percent, at_ms in ((50, starts["p50"]), (90, starts["p90"])):
        parts.append(f"{percent_text(percent)} {_when(at_ms, now_ms)}")
    return ", ".join(parts)


def _when(at_ms: int | None, now_ms: int) -> str:
    from gpuyard.quantities import span_words
    from gpuyard.reports.table import clock

    if at_ms is None:
        return "not within 14 days"
    return "now" if at_ms <= now_ms else f"by {clock(at_ms)} (in {span_words(at_ms - now_ms)})"


def _basis(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not found["runs"]:
        return []
    basis = found["basis"]
    bound = _when(found["bound_ms"], found["now_ms"]) if found["bound_ms"] else "cannot be told"
    stretch = ", ".join(f"{name} x{value:.2f}" for name, value in basis["stretch"].items())
    learned = basis["past_estimates"]
    ended = basis["history_jobs"]
    return [
        ("limits only", bound),
        ("runs", f"{found['runs']}, of which it did not start in {found['never_of_runs']}"),
        ("run times", f"{ended} ended job{'' if ended == 1 else 's'}; for this one: {basis['level']}"),
        ("stretch", f"{stretch}, from {learned} estimates of this yard" if learned else stretch),
        ("seed", str(found["seed"])),
    ]


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """For csv: one level."""
    starts = found["starts_by_ms"] or {"p50": None, "p90": None}
    names = ("job", "task", "state", "now_ms", "started_ms")
    rest = ("bound_ms", "not_before_ms", "left_out_ahead", "runs", "never_of_runs", "seed", "how")
    return (
        {name: found[name] for name in names}
        | {"p50_ms": starts["p50"], "p90_ms": starts["p90"]}
        | {name: found.get(name) for name in rest}
        | {"history_jobs": found["basis"]["history_jobs"], "level": found["basis"]["level"]}
    )
