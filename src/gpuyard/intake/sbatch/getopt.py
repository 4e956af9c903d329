"""Options of sbatch in a script's words, each with its line; what cannot be read is told in words for that line."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.errors import names_text, quote, suggest
from gpuyard.getopt import Fault, Opt, getopt
from gpuyard.intake.sbatch.options import GONE, OPTIONS
from gpuyard.intake.sbatch.words import Word


class GivenOption(NamedTuple):
    """An option with its value and its place."""

    option: Opt
    value: str
    """Empty if the option takes no value, or got none."""
    line: int
    """0: the command line."""
    spelled: str
    """As it was written, for messages."""


class Unreadable(ValueError):
    """A word that is no option of sbatch."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def parse_options(words: Sequence[Word]) -> tuple[list[GivenOption], list[Word]]:
    """Options up to the first word that is none, then that word and all after it; else `Unreadable`."""
    try:
        found, rest = getopt([word.text for word in words], OPTIONS)
    except Fault as fault:
        word = words[fault.at]
        raise Unreadable(word.line, _message(fault, word.text)) from None
    given = []
    for option, value, at, spelled in found:
        word = words[at]
        if option.value and value.startswith("=") and not spelled.startswith("--"):
            text = f"write {spelled} {value[1:]} or --{option.name}{value}, not {word.text}"
            raise Unreadable(word.line, text)
        given.append(GivenOption(option, value, word.line, spelled))
    return given, [words[at] for at in rest]


def _message(fault: Fault, word: str) -> str:
    spelled = fault.spelled
    if fault.why == "a value":
        return f"{spelled} takes no value"
    if fault.why == "no value":
        return f"{spelled} needs a value"
    if fault.close:
        names = names_text(f"--{option.name}" for option in fault.close)
        return f"{quote(spelled)} may be {names}; write the whole name"
    if not spelled.startswith("--"):
        return f"unknown option {quote(spelled)} in {quote(word)}"
    if spelled[2:] in GONE:
        instead = f"; it is --{GONE[spelled[2:]]} now" if GONE[spelled[2:]] else ""
        return f"sbatch has no option {spelled} any more{instead}"
    choice = suggest(spelled, [f"--{option.name}" for option in OPTIONS], "options")
    return f"unknown option {quote(spelled)}; {choice}"
