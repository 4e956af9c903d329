"""Words into options, as GNU getopt_long does for sbatch: `-N2`, `-N 2`, `--nodes=2`, `--nodes 2`, `--node=2`."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.errors import listed, quoted, remedy
from gpuyard.intake.sbatch.options import BY_LETTER, BY_NAME, GONE, OPTIONS, Option, Takes
from gpuyard.intake.sbatch.words import Word

_CONTAINERS = ("container-", "no-container-")
"""Options that the plugins for containers add to sbatch and srun."""


class Given(NamedTuple):
    """An option with its value and its place."""

    option: Option
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


def options_of(words: Sequence[Word]) -> tuple[list[Given], list[Word]]:
    """Options up to the first word that is none, then that word and all after it; else `Unreadable`."""
    found: list[Given] = []
    left = list(words)
    while left:
        word = left[0]
        if word.text == "--":
            return found, left[1:]
        if not word.text.startswith("-") or word.text == "-":
            return found, left
        left.pop(0)
        if word.text.startswith("--"):
            found.append(_long(word, left))
        else:
            found += _letters(word, left)
    return found, []


def _long(word: Word, left: list[Word]) -> Given:
    name, sign, value = word.text[2:].partition("=")
    option = _named(name, word)
    spelled = f"--{option.name}"
    if option.takes is Takes.NOTHING:
        if sign:
            raise Unreadable(word.line, f"{spelled} takes no value")
        return Given(option, "", word.line, spelled)
    if option.takes is Takes.MAYBE or sign:
        return Given(option, value, word.line, spelled)
    return Given(option, _next(spelled, word, left), word.line, spelled)


def _letters(word: Word, left: list[Word]) -> list[Given]:
    """A cluster such as `-HQ` or `-HN2`: the first letter that takes a value takes the rest."""
    found = []
    rest = word.text[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        option = BY_LETTER.get(letter)
        if option is None:
            raise Unreadable(word.line, f"unknown option {quoted('-' + letter)} in {quoted(word.text)}")
        spelled = f"-{letter}"
        if option.takes is Takes.NOTHING:
            found.append(Given(option, "", word.line, spelled))
            continue
        value = rest
        if not rest and option.takes is Takes.VALUE:
            value = _next(spelled, word, left)
        if value.startswith("=") and option.takes is Takes.VALUE:
            raise Unreadable(
                word.line, f"write {spelled} {value[1:]} or --{option.name}{value}, not {word.text}"
            )
        found.append(Given(option, value, word.line, spelled))
        rest = ""
    return found


def _next(spelled: str, word: Word, left: list[Word]) -> str:
    if not left:
        raise Unreadable(word.line, f"{spelled} needs a value")
    return left.pop(0).text


def _named(name: str, word: Word) -> Option:
    if name in BY_NAME:
        return BY_NAME[name]
    close = [option for option in OPTIONS if name and option.name.startswith(name)]
    if close and len({option.key for option in close}) == 1:
        return close[0]
    if close:
        names = listed(f"--{option.name}" for option in close)
        raise Unreadable(word.line, f"{quoted('--' + name)} may be {names}; write the whole name")
    if name.startswith(_CONTAINERS):
        raise Unreadable(
            word.line,
            f"--{name} asks for an image, and a yard runs none; start the container in the script instead, "
            "as in: apptainer exec --nv IMAGE COMMAND",
        )
    if name in GONE:
        instead = f"; it is --{GONE[name]} now" if GONE[name] else ""
        raise Unreadable(word.line, f"sbatch has no option --{name} any more{instead}")
    choice = remedy(f"--{name}", [f"--{option.name}" for option in OPTIONS], "options")
    raise Unreadable(word.line, f"unknown option {quoted('--' + name)}; {choice}")
