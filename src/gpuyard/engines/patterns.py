"""Names of files with letters in them: `%j` and its like stand for what is known only when the job runs.

`check_pattern` finds faults when the job is submitted, `expand` gives the name when the file is opened. A number
between `%` and the letter fills numbers up with zeros (`%4j` is 0128); a backslash anywhere switches all of it off.
"""

import re
from collections.abc import Mapping

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
        f"%{letter} stands for {LETTERS[letter]}, and this is not an array: it stays as it is"
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
