"""Words into options as GNU getopt_long reads them for Slurm: `-N2`, `-hl`, `--nodes=2`, `--nodes 2`, `--node=2`.

One reader for Slurm's commands and for the #SBATCH lines of scripts. What is wrong is a `Fault`, which each of them
says in its own words: those of the C library, or those for a line of a script. Light: `squeue` starts with it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Opt(NamedTuple):
    """One option."""

    name: str
    short: str = ""
    value: bool | None = False
    """Whether a value follows; None: only in the same word, after `=` or behind the letter."""
    means: str = ""
    """The option of which this is another name."""
    variable: str = ""
    """The environment variable with the same meaning."""

    @property
    def key(self) -> str:
        """The name under which its value is found."""
        return self.means or self.name


class FoundOption(NamedTuple):
    """An option with its value and its place."""

    option: Opt
    value: str
    """Empty if the option takes no value, or got none."""
    at: int
    """Which of the words it is, or is in."""
    spelled: str
    """By its letter or its whole name, for messages."""


class Fault(ValueError):
    """A word that is no option, or an option that is not written as it has to be."""

    def __init__(self, at: int, spelled: str, *, why: str, close: Sequence[Opt] = ()) -> None:
        super().__init__(f"{spelled}: {why}")
        self.at = at
        self.spelled = spelled
        """The option: `-N`, or `--name` as far as it was written, in full where it is known."""
        self.why = why
        """`unknown`, `ambiguous`, `no value` (it needs one) or `a value` (it takes none)."""
        self.close = close
        """Options whose name begins so."""


def getopt(
    words: Sequence[str], options: Iterable[Opt], *, anywhere: bool = False
) -> tuple[list[FoundOption], list[int]]:
    """Options in their order, and the places of the words that are none; else `Fault`.

    Options end at `--` and, unless they may stand `anywhere`, at the first word that is none.
    """
    known = tuple(options)
    found: list[FoundOption] = []
    rest: list[int] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return found, [*rest, *range(at + 1, len(words))]
        if not word.startswith("-") or word == "-":
            if not anywhere:
                return found, list(range(at, len(words)))
            rest.append(at)
        elif word.startswith("--"):
            each, used = _long(words, at, known)
            found.append(each)
            at += used
        else:
            at += _letters(words, at, known, found)
        at += 1
    return found, rest


def _long(words: Sequence[str], at: int, known: Sequence[Opt]) -> tuple[FoundOption, int]:
    """An option by its name, and how many words after it are its value."""
    name, sign, value = words[at][2:].partition("=")
    close = [option for option in known if name and option.name.startswith(name)]
    exact = [option for option in close if option.name == name]
    if not exact and len({option.key for option in close}) != 1:
        raise Fault(at, f"--{name}", why="ambiguous" if close else "unknown", close=close)
    option = (exact or close)[0]
    spelled = f"--{option.name}"
    if option.value is False and sign:
        raise Fault(at, spelled, why="a value")
    if sign or not option.value:
        return FoundOption(option, value, at, spelled), 0
    return FoundOption(option, _next(words, at, spelled), at, spelled), 1


def _letters(words: Sequence[str], at: int, known: Sequence[Opt], found: list[FoundOption]) -> int:
    """A cluster such as `-HQ` or `-HN2`: the first letter that takes a value takes the rest."""
    rest = words[at][1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        option = next((each for each in known if each.short == letter), None)
        if option is None:
            raise Fault(at, f"-{letter}", why="unknown")
        if option.value is False:
            found.append(FoundOption(option, "", at, f"-{letter}"))
            continue
        follows = not rest and bool(option.value)
        found.append(
            FoundOption(option, _next(words, at, f"-{letter}") if follows else rest, at, f"-{letter}")
        )
        return int(follows)
    return 0


def _next(words: Sequence[str], at: int, spelled: str) -> str:
    if at + 1 == len(words):
        raise Fault(at, spelled, why="no value")
    return words[at + 1]
