"""Faults that a YAML parser finds, in words for people without knowledge of YAML's grammar.

PyYAML and libyaml word the same fault differently and mark different ends of it; here both say the same.
"""

import re

import yaml

from gpuyard.errors import quote
from gpuyard.keys.problems import WHOLE_FILE, Position, Problem

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


def place_in(text: str, index: int) -> Position:
    """The place of the character at an index."""
    before = _LINE_BREAK.split(text[:index])
    return Position(len(before), len(before[-1]) + 1)


_FITS_NOT = "this does not fit the lines above it; check its indentation and the quotes before it"

_SYNTAX = (
    (
        r"mapping values are not allowed",
        "no key can stand here; check the indentation of this line and the one above, or quote the text",
    ),
    (r"quoted scalar.*(end of stream|document separator)", "the quote that opens here is never closed"),
    (r"flow node", "a value is missing here, or a '[' or '{' before it is never closed"),
    (r"node content", "a value is missing here; check the brackets and commas around it"),
    (r"flow sequence", "the '[' here is never closed, or a ',' is missing after one of its items"),
    (r"flow mapping", "the '{' here is never closed, or a ',' is missing after one of its entries"),
    (
        r"unknown escape",
        "an unknown escape in double quotes; write '\\\\' for a backslash, or use single quotes",
    ),
    (r"block end|expected key|'-' indicator", _FITS_NOT),
    (r"could not find expected ':'", "a key without a ':'; write 'key: value'"),
    (r"undefined tag handle|while (scanning|parsing) a tag", "tags are not allowed; remove it"),
)
_AT_OPENING = ("quoted scalar", "flow sequence", "flow mapping", "simple key")


def syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """A parser's complaint in plain words, at the place that has to be mended."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(WHOLE_FILE, f"not valid YAML: {' '.join(str(error).split())}")
    said = f"{error.context or ''}: {error.problem or ''}"
    at_opening = error.context_mark is not None and any(part in said for part in _AT_OPENING)
    mark = error.context_mark if error.context_mark is not None and at_opening else error.problem_mark
    lines = _LINE_BREAK.split(text)
    if mark.line >= len(lines):
        # libyaml puts what is missing at the end on a line after the last one.
        place = Position(len(lines), len(lines[-1]) + 1)
    else:
        place = Position(mark.line + 1, mark.column + 1)
    line = lines[place.line - 1]
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        return Problem(
            Position(place.line, indentation.index("\t") + 1), "a tab in the indentation; use spaces"
        )
    if "cannot start any token" in said and place.column <= len(line):
        begin = quote(line[place.column - 1])
        return Problem(place, f"a value cannot begin with {begin}; put it in quotes")
    for pattern, words in _SYNTAX:
        if re.search(pattern, said):
            return Problem(place, words)
    return Problem(place, f"not valid YAML: {' '.join((error.problem or said).split())}")
