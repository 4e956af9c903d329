"""Command lines as GNU getopt_long reads them for Slurm: clusters, `-o"%i"`, shortened names, options anywhere.

The messages are those of the C library, because scripts and people know them.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.cli.slurm.stopping import Stop


class Opt(NamedTuple):
    """One option."""

    name: str
    short: str = ""
    value: bool | None = False
    """Whether a value follows; None: only in the same word."""
    means: str = ""
    """The option of which this is another name."""

    @property
    def key(self) -> str:
        """The name under which it is found."""
        return self.means or self.name


_WRITTEN = re.compile(r"([A-Za-z0-9-]+)(?:,(.))?([=?]?)(?::([a-z-]+))?")


def options(text: str) -> tuple[Opt, ...]:
    """A table of options, written as `name,letter=`: `=` takes a value, `?` may take one, `:other` is another name."""
    found = []
    for word in text.split():
        match = _WRITTEN.fullmatch(word)
        assert match, word
        value = {"=": True, "?": None}.get(match[3], False)
        found.append(Opt(match[1], match[2] or "", value, match[4] or ""))
    return tuple(found)


class Grammar(NamedTuple):
    """What one command takes."""

    program: str
    options: tuple[Opt, ...]
    anywhere: bool = True
    """Whether options may follow other words; else the first other word ends them, as for `sbatch`."""
    code: int = 1
    """Exit code after a command line that cannot be read."""
    try_help: bool = True

    def stop(self, text: str) -> Stop:
        """The command line cannot be read."""
        more = [f'Try "{self.program} --help" for more information'] if self.try_help else []
        return Stop(f"{self.program}: {text}", *more, code=self.code)

    def besides(self, own: tuple[Opt, ...], without: frozenset[str]) -> tuple[Opt, ...]:
        """The options for a command that takes these too, except for some; its own letters come first."""
        taken = {option.short for option in own if option.short}
        kept = [option for option in self.options if option.name not in without]
        return (*[each._replace(short="") if each.short in taken else each for each in kept], *own)


class Read(NamedTuple):
    """A command line that was read."""

    given: list[tuple[str, str]]
    """Options by name with their values, in their order."""
    rest: list[str]

    def last(self, name: str, default: str = "") -> str:
        """The value of an option; the last one holds."""
        return next((value for key, value in reversed(self.given) if key == name), default)

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return any(key == name for key, _ in self.given)

    def listed(self, name: str) -> list[str]:
        """The parts of a list with commas; if the option was given twice, the last one counts."""
        return [part for part in self.last(name).split(",") if part]


def read(grammar: Grammar, words: Sequence[str]) -> Read:
    """Options and other words; `Stop` with the C library's message otherwise."""
    found = Read([], [])
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.rest.extend(left)
            break
        if word.startswith("--"):
            found.given.append(_long(grammar, word, left))
        elif word.startswith("-") and word != "-":
            _letters(grammar, word, left, found.given)
        elif grammar.anywhere:
            found.rest.append(word)
        else:
            found.rest.extend([word, *left])
            break
    return found


def _long(grammar: Grammar, word: str, left: list[str]) -> tuple[str, str]:
    name, sign, value = word[2:].partition("=")
    option = _named(grammar, name, word)
    if option.value is False:
        if sign:
            raise grammar.stop(f"option '--{option.name}' doesn't allow an argument")
        return option.key, ""
    if sign or option.value is None:
        return option.key, value
    if not left:
        raise grammar.stop(f"option '--{option.name}' requires an argument")
    return option.key, left.pop(0)


def _named(grammar: Grammar, name: str, word: str) -> Opt:
    close = [option for option in grammar.options if option.name.startswith(name)] if name else []
    exact = [option for option in close if option.name == name]
    if exact or len({option.key for option in close}) == 1:
        return (exact or close)[0]
    if name.startswith(("container-", "no-container-")):
        # Plugins for containers add these to Slurm's commands.
        raise grammar.stop(
            f"option '--{name}' asks for an image, and a yard runs none: start the container in the command, "
            "as in apptainer exec --nv IMAGE COMMAND"
        )
    if close:
        names = " ".join([f"'--{option.name}'" for option in close])
        raise grammar.stop(f"option '{word}' is ambiguous; possibilities: {names}")
    raise grammar.stop(f"unrecognized option '--{name}'")


def _letters(grammar: Grammar, word: str, left: list[str], given: list[tuple[str, str]]) -> None:
    """A cluster such as `-hl` or `-ho%i`: the first letter that takes a value takes the rest."""
    rest = word[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        option = next((each for each in grammar.options if each.short == letter), None)
        if option is None:
            raise grammar.stop(f"invalid option -- '{letter}'")
        if option.value is False:
            given.append((option.key, ""))
            continue
        if not rest and option.value:
            if not left:
                raise grammar.stop(f"option requires an argument -- '{letter}'")
            rest = left.pop(0)
        given.append((option.key, rest))
        return
