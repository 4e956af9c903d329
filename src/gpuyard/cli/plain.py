"""Command lines in plain words, read from the declarations of a command without Typer.

`yard queue` asks the server and prints ten thousand lines in less time than Typer and its dependencies take to import.
So plain command lines are read here. Others (help, an unknown option, a wrong value, options run together) give None
and are left to Typer, which has the messages. Both read the same declarations, and a test checks that they read them
alike.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from gpuyard.cli.options import Argument, Called, Option


class NotPlain(Exception):
    """Typer has to read this."""


class Parameter(NamedTuple):
    """One parameter of a command."""

    name: str
    kind: type
    """bool, int, float, str, Path, or an enumeration of texts."""
    many: bool
    says: Option | Argument
    default: Any
    required: bool

    @property
    def on_off(self) -> tuple[list[str], list[str]]:
        """Names of an option; for a flag, with the names that turn it off."""
        names = self.says.names if isinstance(self.says, Option) else ()
        pairs = [name.partition("/") for name in names]
        return [on for on, _, _ in pairs], [off for _, _, off in pairs if off]


def parameters(command: Callable[..., Any]) -> Iterator[Parameter | str]:
    """The parameters of a command; for the one that takes how it was called, its name alone."""
    code, hints = command.__code__, command.__annotations__
    names = code.co_varnames[: code.co_argcount]
    defaults = command.__defaults__ or ()
    first = len(names) - len(defaults)
    for place, name in enumerate(names):
        hint = hints[name]
        if hint is Called:
            yield name
            continue
        says = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option | Argument)]
        if not says:
            raise NotPlain(name)
        kind, many = _kind(hint.__origin__)
        default = defaults[place - first] if place >= first else None
        yield Parameter(name, kind, many, says[0], default, place < first)


def _kind(hint: Any) -> tuple[type, bool]:
    if isinstance(hint, UnionType):
        (hint,) = [each for each in get_args(hint) if each is not NoneType]
    many = get_origin(hint) is list
    if many:
        (hint,) = get_args(hint)
    if not isinstance(hint, type):
        raise NotPlain(str(hint))
    return hint, many


def read(command: Callable[..., Any], words: Sequence[str], *, carries: bool = False) -> dict[str, Any]:
    """The arguments for a call of the command. `carries`: all words after the first one without a name are its own."""
    values: dict[str, Any] = {}
    options: dict[str, tuple[Parameter, bool]] = {}
    place: Parameter | None = None
    asks = ""
    for parameter in parameters(command):
        if isinstance(parameter, str):
            asks = parameter
            continue
        values[parameter.name] = parameter.default
        if isinstance(parameter.says, Argument):
            if place is not None:
                raise NotPlain("two arguments")
            place = parameter
        for off, names in enumerate(parameter.on_off):
            options |= dict.fromkeys(names, (parameter, not off))
    given, loose = _sorted_out(options, list(words), carries)
    for name, texts in given.items():
        values[name] = texts
    if place is not None:
        if loose and not place.many:
            values[place.name] = _value(place, loose[0] if len(loose) == 1 else _not_plain("more than one"))
        elif loose:
            values[place.name] = loose
        elif place.required:
            raise NotPlain(place.name)
        elif isinstance(place.says, Argument) and os.environ.get(place.says.envvar):
            values[place.name] = _value(place, os.environ[place.says.envvar])
    elif loose:
        raise NotPlain(loose[0])
    if asks:
        more = {place.name} if place is not None and loose else set()
        own = list(words[: len(words) - len(loose)]) if carries else []
        dashes = own[-1:] == ["--"] if carries else "--" in words
        values[asks] = Called(dashes, frozenset(given) | more, tuple(own[:-1] if dashes else own))
    return values


def _sorted_out(
    options: dict[str, tuple[Parameter, bool]], left: list[str], carries: bool
) -> tuple[dict[str, Any], list[str]]:
    """Options by parameter, and the words that are none."""
    given: dict[str, Any] = {}
    loose: list[str] = []
    while left:
        word = left.pop(0)
        if word == "--":
            return given, loose + left
        if not word.startswith("-") or word == "-":
            loose.append(word)
            if carries:
                return given, loose + left
            continue
        name, sign, text = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter, on = options.get(name) or _not_plain(word)
        if parameter.kind is bool:
            given[parameter.name] = on if not sign else _not_plain(word)
            continue
        if not sign:
            text = _next(parameter, left)
        value = _value(parameter, text)
        given[parameter.name] = [*given.get(parameter.name, ()), value] if parameter.many else value
    return given, loose


def _next(parameter: Parameter, left: list[str]) -> str:
    bare = parameter.says.bare if isinstance(parameter.says, Option) else ""
    if bare and not (left and left[0].isdecimal()):
        return bare
    # A value that looks like an option usually means that the value was forgotten: let Typer report it.
    return (
        left.pop(0) if left and not (left[0].startswith("-") and left[0] != "-") else _not_plain("no value")
    )


def _value(parameter: Parameter, text: str) -> Any:
    kind, says = parameter.kind, parameter.says
    if kind is str:
        return text
    if kind is Path:
        return Path(text)
    if issubclass(kind, StrEnum):
        return kind(text) if text in [each.value for each in kind] else _not_plain(text)
    figures = text.replace(".", "", 1) if kind is float else text
    if kind not in (int, float) or not (figures.isascii() and figures.isdecimal() and len(figures) <= 15):
        raise NotPlain(text)
    number = kind(text)
    least, most = (says.min, says.max) if isinstance(says, Option) else (None, None)
    inside = (least is None or number >= least) and (most is None or number <= most)
    return number if inside else _not_plain(text)


def _not_plain(what: str) -> Any:
    raise NotPlain(what)
