"""The tries of a job: a small table for `yard show`, one line for `yard why`."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.cli.terminal.visible_text import visible_text

_SHOWN_MAX = 20
_NODES_SHOWN_MAX = 2
_WHY_WIDTH_MIN = 30
"""A narrower column does not help: then the terminal breaks the line."""
_HEADS = ("TRY", "STARTED", "RAN", "ON", "END", "WHY")


def tries_table(job: Mapping[str, Any], width: int = 0) -> list[str]:
    """Every try of a job that has run before, oldest first; with a width, reasons are broken to fit it."""
    from gpuyard.reports.table import clock

    tries: Sequence[Mapping[str, Any]] = job.get("tries", ())
    if not tries:
        return []
    rows = [_HEADS]
    for each in tries[-_SHOWN_MAX:]:
        end = _end(each) or job["state"]
        number = str(each["attempt"])
        rows.append((number, clock(each["started_ms"]), _ran(each), _where(each), end, _why(each)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for number, *cells, why in rows:
        texts = [f"{cell:<{wide}}" for cell, wide in zip(cells, widths[1:-1], strict=True)]
        lines += _broken("  ".join([f"{number:>{widths[0]}}", *texts]), why, width)
    first = tries[-_SHOWN_MAX:][0]["attempt"]
    if first > 1:
        lines.append(f"tries before number {first} are not shown")
    # For jobs that are only observed in Slurm, each try is a job of one attempt, and its output is not the yard's.
    if job["attempts"] >= tries[-1]["attempt"]:
        lines.append(f"what a try wrote: yard logs {job['label']} --attempt {tries[0]['attempt']}")
    return lines


def last_try_text(each: Mapping[str, Any]) -> str:
    """How a try ended, in one line."""
    from gpuyard.quantities import span_words
    from gpuyard.reports.table import clock

    why, ran = _why(each), span_words(each["ended_ms"] - each["started_ms"])
    text = f"try {each['attempt']} ran {ran} on {_where(each)} and ended {clock(each['ended_ms'])}"
    return f"{text}, {_end(each)}: {why}" if why else f"{text}, {_end(each)}"


def _end(each: Mapping[str, Any]) -> str:
    """The outcome, and apart from those that made room the tries that somebody asked to end; empty: it runs."""
    from gpuyard.wire.replies.jobs import REQUEUED

    asked = each["outcome"] == "PREEMPTED" and each["why"].startswith(REQUEUED)
    return "REQUEUED" if asked else each["outcome"] or ""


def _ran(each: Mapping[str, Any]) -> str:
    from gpuyard.quantities import span

    return span(each["ended_ms"] - each["started_ms"]) if each["ended_ms"] else "-"


def _where(each: Mapping[str, Any]) -> str:
    """The first nodes with their GPUs; a gang holds several parts of one node."""
    gpus: dict[str, list[int]] = {}
    for node, indices in zip(each["nodes"], each["gpu_indices"], strict=False):
        gpus.setdefault(node, []).extend(indices)
    if not gpus:
        return "-"
    texts = [
        f"{node}[{','.join([str(index) for index in sorted(set(indices))])}]" if indices else node
        for node, indices in list(gpus.items())[:_NODES_SHOWN_MAX]
    ]
    left = len(gpus) - len(texts)
    return " ".join(texts) + (f" and {left} more" if left > 0 else "")


def _why(each: Mapping[str, Any]) -> str:
    """The reason; for a try without one, how its program ended."""
    text = each["why"] or (f"exit code {each['exit_code']}" if each["exit_code"] else "")
    return visible_text(text)


def _broken(start: str, why: str, width: int) -> list[str]:
    """A line with a reason that goes on under where it began."""
    room = width - len(start) - 2
    if not width or room < _WHY_WIDTH_MIN or len(why) <= room:
        return [f"{start}  {why}".rstrip()]
    import textwrap

    first, *more = textwrap.wrap(why, room)
    return [f"{start}  {first}", *[" " * (len(start) + 2) + text for text in more]]
