"""`--multi-prog`: a file that says which tasks run what, a line for each: `0 ./head %t` or `1-3,5 ./worker`."""

import re
import shlex
from collections.abc import Sequence

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def commands(text: str, tasks: int) -> list[list[str]]:
    """The command of every task by rank; `ValueError` with what is wrong.

    `%t` in an argument is the rank, `%o` the task's place in its line. A line for `*` is for all that have none.
    """
    found: dict[int, list[str]] = {}
    rest: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if len(words) < 2:
            raise ValueError(f"line {number} names no program")
        if words[0] == "*":
            rest = words[1:]
            continue
        for place, rank in enumerate(_ranks(words[0], number)):
            found.setdefault(rank, _filled(words[1:], rank, place))
    missing = [rank for rank in range(tasks) if rank not in found]
    if missing and not rest:
        raise ValueError(f"there is no program for task {missing[0]}")
    return [
        found[rank] if rank in found else _filled(rest, rank, missing.index(rank)) for rank in range(tasks)
    ]


def _ranks(text: str, line: int) -> list[int]:
    ranks: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"line {line} must begin with tasks such as 0, 1-3 or *, not {text!r}")
        ranks += range(int(match[1]), int(match[2] or match[1]) + 1)
    return ranks


def _filled(words: Sequence[str], rank: int, place: int) -> list[str]:
    return [word.replace("%t", str(rank)).replace("%o", str(place)) for word in words]
