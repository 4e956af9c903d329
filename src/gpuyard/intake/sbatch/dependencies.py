"""Dependencies: `afterok:12:13,afterany:14`, any of several with `?`, `singleton` without a job."""

import re
from typing import Any, NamedTuple

from gpuyard.errors import quote, suggest
from gpuyard.wire.job_fields import DEPENDENCIES_MAX, DEPENDENCY_KINDS

_NOT_SERVED = {
    "afterburstbuffer": "burst buffers are not there",
    "expand": "a job cannot be enlarged",
}
_JOB = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,9}|\*|\[[0-9,-]{1,200}\]))?(?:\+([0-9]{1,9}))?")


class Dependencies(NamedTuple):
    """What has to happen first."""

    each: tuple[dict[str, Any], ...]
    """`{"kind": "afterok", "job": 12}`; a task of an array is `"12_3"`, and `delay_s` a wait after the start."""
    any_will_do: bool


def parse_dependencies(text: str) -> Dependencies:
    """What has to happen first; else `ValueError` with the rest of a sentence."""
    if not text.strip():
        return Dependencies((), False)
    if "?" in text and "," in text:
        raise ValueError(f"mixes ',' (all of them) and '?' (any of them): {quote(text)}")
    found: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    for part in re.split(r"[,?](?![^\[]*\])", text):
        for each in _part(part.strip(), text):
            found[tuple(each.items())] = each
        if len(found) > DEPENDENCIES_MAX:
            raise ValueError(f"names more than {DEPENDENCIES_MAX} jobs")
    return Dependencies(tuple(found.values()), "?" in text)


def _part(part: str, text: str) -> list[dict[str, Any]]:
    kind, sign, jobs = part.partition(":")
    kind = kind.strip().lower()
    if kind.isdecimal() and not sign:
        # A bare number is the oldest form.
        kind, sign, jobs = "afterany", ":", kind
    if kind == "singleton" and not sign:
        return [{"kind": "singleton"}]
    if kind in _NOT_SERVED:
        raise ValueError(f"{quote(kind)} is not served: {_NOT_SERVED[kind]}")
    if kind not in DEPENDENCY_KINDS:
        raise ValueError(f"has an unknown kind {quote(kind)}; {suggest(kind, DEPENDENCY_KINDS, 'kinds')}")
    if not sign or kind == "singleton":
        raise ValueError(f"must be written as afterok:12:13, not {quote(text)}")
    return [each for job in jobs.split(":") for each in _job(kind, job.strip())]


def _job(kind: str, job: str) -> list[dict[str, Any]]:
    match = _JOB.fullmatch(job)
    if not match or int(match[1]) == 0:
        raise ValueError(f"must name jobs by their number, as in {kind}:12, not {quote(job)}")
    each: dict[str, Any] = {"kind": kind, "job": int(match[1])}
    delay = {"delay_s": int(match[3]) * 60} if match[3] and int(match[3]) else {}
    task = match[2]
    if task is None or task == "*":
        return [{**each, **delay}]
    return [{**each, "job": f"{each['job']}_{number}", **delay} for number in _tasks(task)]


def _tasks(text: str) -> list[int]:
    if text.isdecimal():
        return [int(text)]
    found: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise ValueError(f"must name tasks as in 12_[1-3], not {quote(text)}")
        if int(last or first) - int(first) >= DEPENDENCIES_MAX:
            raise ValueError(f"names more than {DEPENDENCIES_MAX} jobs")
        found += range(int(first), int(last or first) + 1)
    return found
