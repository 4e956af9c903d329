"""A job has options in three places: its script, the environment, the command line. Later ones win, option by option.

Only the three memory options exclude each other: one that is written in the script or on the command line removes those
from the environment, and two written ones are an error.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuyard.errors import quote
from gpuyard.intake.sbatch.getopt import GivenOption, Unreadable, parse_options
from gpuyard.intake.sbatch.options import OPTIONS
from gpuyard.intake.sbatch.words import Word
from gpuyard.intake.values import refuse

MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
_FALSE = ("no", "0", "false", "off")
_ALWAYS = ("SBATCH_REQUEUE", "SBATCH_NO_REQUEUE")
"""Variables with a value that does not matter to sbatch: their presence is enough."""


class Setting(NamedTuple):
    """The final value of one option."""

    name: str
    value: str
    line: int
    """0: not from the script."""
    place: str
    """Its name in messages: `--time`, `--time on the command line`, `SBATCH_TIMELIMIT`."""


def settle(
    script: Sequence[Word], environment: Mapping[str, str], arguments: Sequence[str], file: str
) -> dict[str, Setting]:
    """The setting of every option that was given anywhere."""
    problems: list[tuple[int, str]] = []
    settings: dict[str, Setting] = {}
    for given in _from_script(script, problems):
        _put(settings, Setting(given.option.key, given.value, given.line, given.spelled), given.option.name)
    for setting, name in _from_environment(environment):
        _put(settings, setting, name)
    for given in _from_arguments(arguments, problems):
        place = f"{given.spelled} on the command line"
        _put(settings, Setting(given.option.key, given.value, 0, place), given.option.name)
    _one_memory(settings, problems)
    if problems:
        raise refuse(problems, file)
    return settings


def _put(settings: dict[str, Setting], setting: Setting, name: str) -> None:
    # Two names of one switch: the later one wins.
    opposite = {"requeue": "no-requeue", "no-requeue": "requeue"}.get(name)
    if opposite:
        settings.pop(opposite, None)
    settings[setting.name] = setting


def _from_script(words: Sequence[Word], problems: list[tuple[int, str]]) -> list[GivenOption]:
    try:
        found, rest = parse_options(words)
    except Unreadable as error:
        problems.append((error.line, str(error)))
        return []
    if rest:
        word = rest[0]
        if word.text in ("hetjob", "packjob"):
            text = "a heterogeneous job is not served: submit its parts as jobs of their own"
        else:
            text = f"{quote(word.text)} is not an option; a value with spaces needs quotes, a comment a '#'"
        problems.append((word.line, text))
    return found


def _from_environment(environment: Mapping[str, str]) -> list[tuple[Setting, str]]:
    found = []
    for option in OPTIONS:
        value = environment.get(option.variable) if option.variable else None
        if value is None:
            continue
        if option.value is False and option.variable not in _ALWAYS and value.lower() in _FALSE:
            continue
        kept = "" if option.value is False else value
        found.append((Setting(option.key, kept, 0, f"{option.variable} in the environment"), option.name))
    return found


def _from_arguments(arguments: Sequence[str], problems: list[tuple[int, str]]) -> list[GivenOption]:
    try:
        found, rest = parse_options([Word(text, 0) for text in arguments])
    except Unreadable as error:
        problems.append((0, f"command line: {error}"))
        return []
    if rest:
        problems.append((0, f"command line: {quote(rest[0].text)} is not an option"))
    return found


def _one_memory(settings: dict[str, Setting], problems: list[tuple[int, str]]) -> None:
    given = [settings[name] for name in MEMORY if name in settings]
    written = [each for each in given if not each.place.endswith(" in the environment")]
    for each in given if written else []:
        if each not in written:
            del settings[each.name]
    left = written or given
    if len(left) > 1:
        names = " and ".join(f"--{each.name}" for each in left)
        problems.append((max(each.line for each in left), f"{names} exclude each other; keep one of them"))
