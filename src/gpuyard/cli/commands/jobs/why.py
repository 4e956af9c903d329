"""`yard why`: every blocker of a job, what would lift it, when it starts, and what would let it start sooner."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import JobArgument, Option, Output, OutputOption
from gpuyard.cli.terminal.visible_text import visible_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client


def why(
    job: JobArgument,
    at: Annotated[
        str,
        Option(
            "--at",
            metavar="TIME",
            help="Answer for a past time: -2h, 14:05, yesterday, 2026-03-02T14:05, or milliseconds "
            "since 1970.",
        ),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show why a job waits: everything that is in its way, most important first, and what would lift it."""
    at_ms = None
    if at:
        from gpuyard.cli.line.times import now_ms, parse_past_ms

        at_ms = parse_past_ms("--at", at, now_ms())
    with open_client() as yard:
        found: Any = yard.why(job, at_ms=at_ms)
        # There is no estimate for the past.
        if at_ms is None and found["state"] == "PENDING":
            found |= _estimate(yard, job)
    from gpuyard.cli.listings.tables import print_records, write_document

    if output in (Output.JSON, Output.YAML):
        write_document(found, output)
    elif output is Output.CSV:
        rows = [
            {name: each[name] for name in ("code", "by", "text", "lifted_by")} for each in found["blockers"]
        ]
        print_records(rows, [], output)
    else:
        _told(found, past=at_ms is not None)


def _estimate(yard: "Client", job: str) -> dict[str, Any]:
    """When it starts, by runs forward. An error in this does not hide why it waits."""
    from gpuyard.errors import YardError

    try:
        return {"eta": yard.eta(job)}
    except YardError as trouble:
        return {"eta": None, "eta_error": trouble.message}


def _told(found: Mapping[str, Any], *, past: bool) -> None:
    """The story, in lines that fit a terminal."""
    from gpuyard.reports.table import clock

    waits = found["state"] == "PENDING"
    when = f" at {clock(found['at_ms'])}" if past else ""
    head = f"job {found['label']} of {found['tenant']} is {found['state']}"
    if past:
        head = f"job {found['label']} of {found['tenant']} was {found['state']}{when}"
    said = found.get("said", "")
    if said:
        # A server of an earlier release does not say by whom.
        said = f"{found.get('said_by') or 'Slurm'} says: {said}"
    if not waits or not found["blockers"]:
        _headline(f"{head}: {said}" if said else f"{head}: {found['start']['how']}")
        for name, text in _before(found):
            _line(f"{name}  {text}", " " * (len(name) + 2))
        return
    if said:
        _headline(f"{head}: {said}")
        print()
        head = "from the same state, by the yard's own rules"
    count = len(found["blockers"])
    one, several = ("was", "were") if past else ("is", "are")
    things = f"one thing {one}" if count == 1 else f"{count} things {several}"
    _headline(f"{head}: {things} in its way")
    for number, blocker in enumerate(found["blockers"], start=1):
        print()
        _line(f"{number}. {blocker['text']}", "   ")
        _line(f"   lifted by: {blocker['lifted_by']}", "              ")
    print()
    lines: list[tuple[str, str]] = []
    if not found["judged"]:
        lines.append(
            ("note", "no set of changes was found that lets it start; this is all that is true of it")
        )
    else:
        lines.append(("judged", _judged(count, found.get("left_out", 0))))
    lines.append(("in line", _place(found)))
    lines.append(("start", _start(found)))
    lines += _likely(found)
    lines += [("also true", each["text"]) for each in found["also"]]
    lines += _before(found)
    lines += [("sooner", f"{each['text']}: {each['flags']}") for each in found["helps"]]
    width = max(len(name) for name, _text in lines)
    for name, text in lines:
        _line(f"{name:<{width}}  {text}", " " * (width + 2))


def _judged(count: int, left_out: int) -> str:
    """What happens when all of that is lifted, and how much of a long line was tried out."""
    what = "that" if count == 1 else "both" if count == 2 else f"all {count}"
    text = f"with {what} lifted it would start at once"
    if count > 1:
        text += "; with any one left it would not"
    if left_out:
        text += f" (tried out without {left_out:,} of the jobs that wait: all of them would take too long)"
    return text


def _start(found: Mapping[str, Any]) -> str:
    """By promised ends alone: running jobs take all the time they may."""
    from gpuyard.reports.table import clock

    start = found["start"]
    if not start["at_ms"]:
        how: str = start["how"]
        return how if how.startswith("never:") else f"unknown: {how}"
    # An overdue end is expected at once: that moment is past by the time it is read.
    soon = start["at_ms"] - found["at_ms"] < 1000
    return f"{'any moment' if soon else clock(start['at_ms'])}: {start['how']}"


def _likely(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """By runs forward, as `yard eta` shows it; nothing where it knows no more than the line before."""
    from gpuyard.cli.commands.jobs.eta import earliest_text, estimate_text

    if "eta_error" in found:
        return [("likely", f"no estimate: {found['eta_error']}")]
    eta = found.get("eta")
    if eta is None:
        return []
    if eta["starts_by_ms"] is None and eta["runs"] and eta.get("left_out_ahead"):
        return [
            (
                "likely",
                f"{earliest_text(eta)}: {eta['left_out_ahead']:,} of the jobs ahead of it were not counted",
            )
        ]
    if eta["starts_by_ms"] is None:
        known, _, more = eta["how"].rpartition("; no more can be told: ")
        return [("likely", f"no estimate: {more}")] if known else []
    ended = eta["basis"]["history_jobs"]
    rests = (
        f"run times of {ended} ended job{'' if ended == 1 else 's'}"
        if ended
        else "a guess: no job has ended yet"
    )
    return [("likely", f"{estimate_text(eta)} ({rests})")]


def _before(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """For a job that has run and waits again, how that ended."""
    from gpuyard.cli.commands.jobs.tries import last_try_text

    return [("before", last_try_text(found["last_try"]))] if found.get("last_try") else []


def _headline(text: str) -> None:
    """In bold, on a terminal."""
    import sys

    from gpuyard.cli.terminal.streams import style_text

    print(style_text(visible_text(text), "bold", sys.stdout))


_ASIDE = frozenset({"HELD", "DEPENDENCY", "BEGIN"})


def _place(found: Mapping[str, Any]) -> str:
    """Its place in line, and why there."""
    from gpuyard.reports.table import ordinal

    # What it waits for may end with a blocker and so stand among what is also true.
    if any(each["code"] in _ASIDE for each in (*found["blockers"], *found["also"])):
        return "not yet"
    place = f"{ordinal(found['ahead'] + 1)} of {found['waiting']}"
    return f"{place}; {found['position']}" if found["position"] else place


def _line(text: str, indent: str) -> None:
    """A line for a pipe; on a terminal it is wrapped, and continues under where it began."""
    import sys

    plain = visible_text(text)
    if sys.stdout.isatty():
        import shutil
        import textwrap

        width = max(40, shutil.get_terminal_size().columns)
        plain = textwrap.fill(plain, width, subsequent_indent=indent, break_long_words=False)
    print(plain)
