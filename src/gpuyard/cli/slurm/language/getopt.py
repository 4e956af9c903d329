"""The command lines of Slurm's commands: what each takes, and the messages of the C library, which people know."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.cli.slurm.language.stopping import Stop
from gpuyard.errors import did_you_mean
from gpuyard.getopt import Fault, Opt, getopt

_OF_PLUGINS = ("--container-", "--no-container-")
"""Options that plugins for containers add to Slurm's commands begin so."""
_WRITTEN = re.compile(r"([A-Za-z0-9_-]+)(?:,(.))?([=?]?)(?::([a-z-]+))?")


def parse_option_table(text: str) -> tuple[Opt, ...]:
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

    def stop(self, text: str, meant: str = "") -> Stop:
        """The command line cannot be read. `meant`: the question for what it was probably meant to be."""
        more = [f"{self.program}: {meant}"] if meant else []
        if self.try_help:
            more.append(f'Try "{self.program} --help" for more information')
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
    try:
        found, rest = getopt(words, grammar.options, anywhere=grammar.anywhere)
    except Fault as fault:
        raise grammar.stop(_message(fault, words[fault.at]), _meant(fault, grammar)) from None
    return Read([(each.option.key, each.value) for each in found], [words[at] for at in rest])


def _meant(fault: Fault, grammar: Grammar) -> str:
    if fault.why != "unknown" or not fault.spelled.startswith("--") or fault.spelled.startswith(_OF_PLUGINS):
        return ""
    return did_you_mean(fault.spelled, [f"--{option.name}" for option in grammar.options])


def _message(fault: Fault, word: str) -> str:
    letter = fault.spelled[1:] if not fault.spelled.startswith("--") else ""
    if fault.why == "no value":
        return (
            f"option requires an argument -- '{letter}'"
            if letter
            else f"option '{fault.spelled}' requires an argument"
        )
    if fault.why == "a value":
        return f"option '{fault.spelled}' doesn't allow an argument"
    if letter:
        return f"invalid option -- '{letter}'"
    if fault.spelled.startswith(_OF_PLUGINS):
        return (
            f"option '{fault.spelled}' asks for an image, which a step cannot have: give it to sbatch, "
            "or run yard run --image IMAGE -- COMMAND"
        )
    if fault.close:
        names = " ".join([f"'--{option.name}'" for option in fault.close])
        return f"option '{word}' is ambiguous; possibilities: {names}"
    return f"unrecognized option '{fault.spelled}'"
