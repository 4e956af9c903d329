"""Names as Slurm has them: nodes folded into brackets (n1, n2 and n3 are `n[1-3]`), numbers by node, partitions, files.

The name of a file may hold `%j` and its like, which stand for what is known only when the job runs: `check_pattern`
finds faults when the job is submitted, `expand` gives the name when the file is opened. A number between `%` and the
letter fills numbers up with zeros (`%4j` is 0128); a backslash anywhere switches all of it off.

Partitions have the names that scripts have for pools (`partitions` in yard.yaml), and the pools' own: one rule for a
job's environment and for every list of Slurm's commands.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})")


def natural(name: str) -> tuple[str, int, str]:
    """A key that puts n2 before n10."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2]), name) if match else (name, -1, name)


def folded(names: Sequence[str]) -> str:
    """Names in their order; neighbours with the same stem share a bracket. Leading zeros are part of a name."""
    if len(names) == 1:
        return names[0]
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], match[2]) if match else (name, "")
        if number and groups and groups[-1][0] == stem and groups[-1][1][0]:
            groups[-1][1].append(number)
        else:
            groups.append((stem, [number]))
    parts = []
    for stem, numbers in groups:
        inside = _ranges(numbers)
        parts.append(stem + (f"[{inside}]" if len(numbers) > 1 else inside))
    return ",".join(parts)


def _ranges(numbers: list[str]) -> str:
    ranges: list[list[str]] = []
    for number in numbers:
        if (ranges and len(number) == len(ranges[-1][1]) and int(number) == int(ranges[-1][1]) + 1) or (
            ranges
            and not ranges[-1][1].startswith("0")
            and not number.startswith("0")
            and (int(number) == int(ranges[-1][1]) + 1)
        ):
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join([first if first == last else f"{first}-{last}" for first, last in ranges])


def counted(numbers: Iterable[int]) -> str:
    """Numbers by node as Slurm writes them: `2(x3),1`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return ",".join([f"{number}(x{times})" if times > 1 else str(number) for number, times in runs])


def indices_folded(indices: Iterable[int]) -> str:
    """Indices of an array: 1-4, or 3,5,7."""
    return _ranges([str(index) for index in sorted(indices)])


Names = Mapping[str, Sequence[str]]
"""Pools by the names that scripts have for them."""


def listed(pools: Iterable[str], names: Names) -> dict[str, tuple[str, ...]]:
    """Partitions that lists show, each with its pools: every name, and every pool that has no name to itself."""
    renamed = {found[0] for found in names.values() if len(found) == 1}
    own = {pool: (pool,) for pool in pools if pool not in renamed}
    return dict(sorted({**own, **{name: tuple(found) for name, found in names.items()}}.items()))


def named(pool: str, asked: str, names: Names) -> str:
    """The partition of a job in a pool: the first that it asked for and that has the pool, else the narrowest."""
    if not names:
        return pool
    for name in asked.split(",") if asked else ():
        if pool in names.get(name, (name,)):
            return name
    having = [(len(found), name) for name, found in listed((pool,), names).items() if pool in found]
    return min(having)[1]


LETTERS: dict[str, str] = {
    "A": "the array's id, or the job's",
    "a": "the task's index in the array",
    "b": "the last digit of that index",
    "J": "the job's id and step",
    "j": "the job's id",
    "N": "the node's name",
    "n": "the node's number in the job",
    "s": "the step",
    "t": "the task's rank",
    "u": "the user",
    "x": "the job's name",
}
_NUMBERS = frozenset("AabjJnst")
_OF_ARRAYS = ("a", "b")
_PATTERN = re.compile(r"%(%|([0-9]{0,3})([A-Za-z]))")
_WIDTH_MAX = 10


def check_pattern(pattern: str, *, array: bool = True) -> list[str]:
    """What is odd about a pattern, as sentences; `array`: whether it is for tasks of an array."""
    if "\\" in pattern:
        return []
    letters = [match[3] for match in _PATTERN.finditer(pattern) if match[3]]
    unknown = sorted({letter for letter in letters if letter not in LETTERS})
    odd = [f"%{letter} stands for nothing and stays as it is" for letter in unknown]
    lonely = sorted({letter for letter in letters if letter in _OF_ARRAYS}) if not array else []
    return odd + [
        f"%{letter} stands for {LETTERS[letter]}, and this is no array: it stays as it is"
        for letter in lonely
    ]


def expand(pattern: str, values: Mapping[str, str | int]) -> str:
    """The file's name, with what is known by letter; a letter that is not known stays."""
    if "\\" in pattern:
        return re.sub(r"\\(.?)", r"\1", pattern)

    def fill(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        letter = match[3]
        if letter not in values:
            return match[0]
        value = str(values[letter])
        padded = letter in _NUMBERS and value[:1].isdecimal()
        return value.zfill(min(int(match[2] or 0), _WIDTH_MAX)) if padded else value

    return _PATTERN.sub(fill, pattern)


def appends(open_mode: str, restarts: int) -> bool:
    """Whether an attempt goes on in the files that are there."""
    return open_mode == "append" or (restarts > 0 and open_mode != "truncate")
