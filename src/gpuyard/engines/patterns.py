"""File names with `%j` and its like, which stand for what is known only when the job runs.

`check` says what cannot be kept when the job is taken in; `expand` is for whoever opens the file. A number between `%`
and the letter fills numbers up with zeros (`%4j` is 0128); a backslash anywhere switches all of it off.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Commands that only check a pattern start without the engines' contract.
    from gpuyard.engines.contract import Launch

LETTERS: dict[str, str] = {
    "A": "the array's id, or the job's",
    "a": "the task's index in the array",
    "J": "the job's id and step",
    "j": "the job's id",
    "N": "the node's name",
    "n": "the node's number in the job",
    "s": "the step",
    "t": "the task's rank",
    "u": "the user",
    "x": "the job's name",
}
_NUMBERS = frozenset("AajJnst")
_PATTERN = re.compile(r"%(%|([0-9]{0,3})([A-Za-z]))")
_WIDTH_MAX = 10


def check(pattern: str) -> list[str]:
    """What is odd about a pattern, as sentences."""
    if "\\" in pattern:
        return []
    letters = [match[3] for match in _PATTERN.finditer(pattern) if match[3]]
    unknown = sorted({letter for letter in letters if letter not in LETTERS})
    return [f"%{letter} stands for nothing and stays as it is" for letter in unknown]


def expand(pattern: str, values: Mapping[str, str | int]) -> str:
    """The file's name, with what is known by letter; a letter that is not known stays."""
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def fill(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        letter = match[3]
        if letter not in values:
            return match[0]
        value = str(values[letter])
        return value.zfill(min(int(match[2] or 0), _WIDTH_MAX)) if letter in _NUMBERS else value

    return _PATTERN.sub(fill, pattern)


def file_of(pattern: str, launch: "Launch") -> str:
    """The file for what a job writes, now that it is known where it runs."""
    values: dict[str, str | int] = {
        "j": launch.job_id,
        "A": launch.array_id or launch.job_id,
        "x": launch.name,
        "N": launch.parts[0].node,
        "u": launch.recipe.user,
        "n": 0,
        "t": 0,
    }
    return expand(pattern, values | ({"a": launch.array_index} if launch.array_id else {}))
