"""The words of a script's #SBATCH lines, split as sbatch does it: almost like a shell.

A backslash takes the next character as it is, also inside quotes; quotes may open in the middle of a word; a `#`
outside of them ends the line, except in `--container-image` of pyxis, where it stands between registry and image.
Directives end at the first line that is neither empty nor a comment. An option and its value may be on two lines:
sbatch joins all words.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.errors import BadInput, quote
from gpuyard.intake.values import Warning, refuse

MAGIC = "#SBATCH"
_IMAGE = "--container-image"
_OTHERS = {"#PBS": "PBS", "#BSUB": "LSF", "#$ -": "Grid Engine", "#COBALT": "Cobalt", "#FLUX": "Flux"}
_HERE_DOCUMENT = re.compile(r"(?<!<)<<(-?)[ \t]*(\\|[\"']?)([A-Za-z_][\w.-]*)")
"""The dash, the quote and the word of `<<EOF`, `<<-'EOF'`."""
_SPACES = " \t\v\f\r"
_NOT_READ = (" #SBATCH", "# SBATCH", "#sbatch ", "#Sbatch ", "# sbatch ", "\t#SBATCH")


class Word(NamedTuple):
    """One argument, and where it was written."""

    text: str
    line: int


def read_directives(text: str, file: str) -> tuple[list[Word], list[Warning]]:
    """All words of the directives in order, and lines that look like directives and are none."""
    words: list[Word] = []
    warnings: list[Warning] = []
    problems: list[tuple[int, str]] = []
    late, inside = 0, frozenset[int]()
    others: set[str] = set()
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.startswith(MAGIC):
            if late:
                if number not in inside:
                    what = f"not read: directives end at the first command, on line {late}"
                    warnings.append(Warning(number, what))
                continue
            try:
                words += [Word(word, number) for word in split(line[len(MAGIC) :])]
            except ValueError as error:
                problems.append((number, str(error)))
        elif late:
            continue
        elif line.strip(_SPACES) and not line.lstrip(_SPACES).startswith("#"):
            late, inside = number, _here_documents(lines, number)
        else:
            warnings += _near_miss(line, number, others)
    if problems:
        raise refuse(problems, file)
    return words, warnings


def _here_documents(lines: Sequence[str], first: int) -> frozenset[int]:
    """Numbers of the lines in here-documents: a script that a script writes."""
    if "sh" not in lines[0]:
        return frozenset()
    found: set[int] = set()
    number = first
    while number <= len(lines):
        line = lines[number - 1]
        number += 1
        for dash, _, word in () if line.lstrip().startswith("#") else _HERE_DOCUMENT.findall(line):
            ends = [
                place
                for place in range(number, len(lines) + 1)
                if (lines[place - 1].lstrip("\t") if dash else lines[place - 1]) == word
            ]
            if ends:
                found |= set(range(number, ends[0]))
                number = ends[0] + 1
    return frozenset(found)


def _near_miss(line: str, number: int, others: set[str]) -> list[Warning]:
    """A comment that may have been meant as a directive. `##SBATCH` is how users switch one off."""
    if line.startswith(_NOT_READ):
        return [Warning(number, "not read: a directive begins with #SBATCH at the start of the line")]
    for mark, system in _OTHERS.items():
        if line.startswith(mark) and system not in others:
            others.add(system)
            return [Warning(number, f"directives of {system} are not read; write them as #SBATCH")]
    return []


def split(line: str) -> list[str]:
    """The words of one line; `ValueError` if a quote is not closed."""
    words: list[str] = []
    place = 0
    while True:
        while place < len(line) and line[place] in _SPACES:
            place += 1
        if place >= len(line) or line[place] == "#":
            return words
        if line[place] == ":" and (place + 1 == len(line) or line[place + 1] in _SPACES):
            raise ValueError("':' separates the parts of a heterogeneous job, which gpuyard does not have")
        named = words[-1:] == [_IMAGE] or line.startswith(f"{_IMAGE}=", place)
        word, place = _word(line, place, comment="" if named else "#")
        words.append(word)


def _word(line: str, place: int, comment: str) -> tuple[str, int]:
    start, mark = place, ""
    taken: list[str] = []
    while place < len(line) and (mark or line[place] not in _SPACES):
        char = line[place]
        if char == "\\" and place + 1 < len(line):
            place += 1
            taken.append(line[place])
        elif mark and char == mark:
            mark = ""
        elif not mark and char in "\"'":
            mark = char
        elif not mark and char == comment:
            break
        elif char != "\\":
            taken.append(char)
        place += 1
    if mark:
        raise ValueError(f"the quote {mark} in {quote(line[start:])} is never closed")
    return "".join(taken), place


def check_script(text: str, file: str) -> None:
    """Refuse what sbatch does not accept as a script, and say how to fix it."""
    if not text.strip():
        raise BadInput(f"{file}: the script is empty", "Begin it with #!/bin/bash and a command.")
    if text.startswith("\ufeff"):
        raise BadInput(
            f"{file}:1: begins with a byte order mark, so that the system does not see its #! line",
            f"Take it out: sed -i '1s/^\\xEF\\xBB\\xBF//' {file}",
        )
    if not text.startswith("#!"):
        raise BadInput(
            f"{file}:1: the first line must begin with #! and say what runs the script",
            "For example: #!/bin/bash",
        )
    end = text.find("\r\n")
    if end >= 0:
        line = text.count("\n", 0, end) + 1
        raise BadInput(
            f"{file}:{line}: ends with a Windows line break, which becomes part of its last word",
            f"Turn the line breaks into those of Unix: sed -i 's/\\r$//' {file}",
        )
