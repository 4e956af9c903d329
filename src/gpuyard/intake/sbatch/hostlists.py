"""Node names in brackets: `n[01-03,7]` is n01, n02, n03 and n7, `r[1-2]c[0-1]` is four nodes."""

import re
from itertools import product

from gpuyard.config.problems import quoted

HOSTS_MAX = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand(text: str) -> list[str]:
    """Every name once, in the order they are written; `ValueError` with the rest of a sentence otherwise."""
    found: dict[str, None] = {}
    for part in _outside_brackets(text):
        for name in _expanded(part, text):
            if not _NAME.fullmatch(name):
                raise ValueError(f"has a name that no node can have: {quoted(name)}")
            found[name] = None
        if len(found) > HOSTS_MAX:
            raise ValueError(f"names more than {HOSTS_MAX} nodes")
    if not found:
        raise ValueError("names no node")
    return list(found)


def _outside_brackets(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"has brackets that do not match: {quoted(text)}")
        if depth == 0 and char in ", \t":
            parts.append(current)
            current = ""
        else:
            current += char
    if depth:
        raise ValueError(f"has a bracket that is never closed: {quoted(text)}")
    return [part for part in [*parts, current] if part]


def _expanded(part: str, text: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    choices = [[piece] if place % 2 == 0 else _numbers(piece, text) for place, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
        if total > HOSTS_MAX:
            raise ValueError(f"names more than {HOSTS_MAX} nodes")
    return ["".join(each) for each in product(*choices)]


def _numbers(text: str, whole: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise ValueError(f"must be written as n[01-03,7], not {quoted(whole)}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= HOSTS_MAX:
            raise ValueError(f"has a range that goes nowhere, or too far: {quoted(part)}")
        # Zeros in front are part of the name: the first number says how wide all are.
        width = len(match[1]) if match[1].startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return found
