"""Slurm's short form of many names: `n[1-3,5],m`."""

import re

HOSTS_MAX = 100_000
_HOSTS = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]+)\])?")


def expand(text: str) -> tuple[str, ...]:
    """`n[1-3,5],m` as names, in order."""
    if not text or text in ("(null)", "N/A", "None"):
        return ()
    found: list[str] = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names = [""]
        for literal, ranges in _HOSTS.findall(word):
            numbers = _numbers(ranges) if ranges else [""]
            names = [name + literal + number for name in names for number in numbers]
            if len(names) > HOSTS_MAX:
                raise ValueError(f"{text[:50]!r} names too many nodes")
        found += names
    return tuple(found)


def _numbers(ranges: str) -> list[str]:
    numbers = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if len(span) > HOSTS_MAX:
            raise ValueError(f"{part!r} names too many nodes")
        numbers += [str(number).zfill(len(first)) for number in span]
    return numbers
