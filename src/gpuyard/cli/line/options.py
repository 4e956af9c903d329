"""What commands take: how options are declared, those that several commands share, and the one reader of command lines.

A command is a function. It says what it takes with `Annotated[int, Option("-g", "--gpus", …)]`: the type says what the
text becomes (`bool` for a flag, `int`, `float`, `str`, `Path`, a `StrEnum` for a choice, a list of them where the
option may be repeated), the default of the parameter is that of the option; `with_options` adds options of a table.
`read` reads a command line, `help` shows what there is, `completing` completes it.

Options may follow operands, a name may not be shortened, `--` ends the options, and what follows it is left as it is. A
command line that cannot be read is a `Misuse`: exit code 2, with what was probably meant. Nothing here may import
anything that takes time: a command is read before another parser would be imported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from gpuyard.cli.line.commands import HELP, CommandEntry
from gpuyard.errors import Misuse, quote, suggest_end


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    """For people."""
    WIDE = "wide"
    """For people, in full."""
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    """One line a row, names joined with underscores."""


class PageOutput(StrEnum):
    """How a report is printed that is a page too."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    PARQUET = "parquet"
    """Columns for programs that analyse data; needs pyarrow."""
    HTML = "html"
    """One page with plots, to read, mail or print."""


class Option:
    """An option of a command, as in `-g, --gpus N`."""

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str = "",
        min: int | float | None = None,
        max: int | float | None = None,
        bare: str = "",
        section: str = "",
        unset: bool = False,
    ) -> None:
        self.names = names
        """`--export/--no-export` is a flag with its opposite."""
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max
        self.bare = bare
        """The value when no number follows; empty: one has to follow."""
        self.section = section
        """The heading under which the help has it; empty: with the others."""
        self.unset = unset
        """Whether an empty value is one that was not given, as of a variable of a script."""


class Argument:
    """A word without a name."""

    def __init__(
        self,
        *,
        metavar: str,
        help: str = "",
        min: int | float | None = None,
        max: int | float | None = None,
        unknown: bool = False,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max
        self.unknown = unknown
        """Whether options that the command does not know are words too: they are for another command."""


class Called:
    """How a command was called, for commands that need it: a parameter of this type gets it."""

    def __init__(
        self, dashes: bool = False, given: frozenset[str] = frozenset(), options: tuple[str, ...] = ()
    ) -> None:
        self.dashes = dashes
        """Whether `--` stood before the words that are not its own."""
        self.given = given
        """Parameters that were given a value, rather than left at their default."""
        self.options = options
        """Its options as typed, without the `--` after them; for a command that carries another one."""


OutputOption = Annotated[
    Output, Option("-o", "--output", metavar="FORM", help="table, wide, json, yaml or csv.")
]

ColumnsOption = Annotated[
    str,
    Option(
        "--columns",
        metavar="NAMES",
        help="Show only these columns, in this order: NAME,NAME. A wrong name lists all.",
    ),
]

WATCH_S = 2
WatchOption = Annotated[
    int | None,
    Option(
        "-w",
        "--watch",
        metavar="[SECONDS]",
        min=1,
        max=86_400,
        bare=str(WATCH_S),
        help="Show it again after each change, until Ctrl-C. If the server reports no changes: every "
        f"SECONDS, or {WATCH_S}.",
    ),
]

JobArgument = Annotated[str, Argument(metavar="JOB", help="17, or 12_3 for a task of array 12.")]
StateOption = Annotated[
    list[str] | None,
    Option("--state", metavar="STATE", help="Show only jobs in this state; may be repeated."),
]
TenantOption = Annotated[
    str, Option("--tenant", metavar="TENANT", help="Show only this tenant and those below it.")
]
MineOption = Annotated[bool, Option("--mine", help="Show only your own jobs.")]
ClusterOption = Annotated[str, Option("--cluster", metavar="NAME", help="Show only this cluster.")]
UserOption = Annotated[str, Option("-u", "--user", metavar="USER", help="Show only this user's jobs.")]

PRESETS = (
    "default", "fifo", "strict-fifo", "class", "fair", "sjf", "srtf", "deadline", "conservative", "fgd",
    "pack",
)  # fmt: skip
"""For the help, which does not wait for the policies to be imported (a test keeps the two equal)."""

SeedOption = Annotated[int, Option("--seed", metavar="N", min=0, help="The same seed gives the same result.")]

SizesOption = Annotated[
    str,
    Option(
        "--sizes",
        metavar="GPUS",
        help="Where jobs are parted by size, a gang with all its GPUs: the most GPUs of each range but the last.",
    ),
]

ReportOption = Annotated[
    Path | None,
    Option(
        "--report",
        metavar="FILE",
        help="Write a report with plots: one HTML file that needs no network.",
    ),
]


Command = TypeVar("Command", bound=Callable[..., Any])
_DIGITS_MAX = 18
_NO_SIGN = dict.fromkeys(map(ord, "+-"))
_NO_DIGITS = dict.fromkeys(map(ord, "+-.e"))
_NOUNS = {"JOB": "job", "NODE": "node", "FILE": "file", "TENANT": "tenant", "TOKEN": "token", "VERSION": "version",
          "URL": "yard", "COMMAND": "command", "USER": "user"}  # fmt: skip
"""What a missing operand is asked for by."""


class HelpWanted(Exception):
    """`--help` stands among the options."""


class Parameter:
    """One parameter of a command."""

    def __init__(
        self, name: str, kind: type, many: bool, says: Option | Argument, default: Any, required: bool
    ) -> None:
        self.name = name
        self.kind = kind
        """bool, int, float, str, Path, or an enumeration of texts."""
        self.many, self.says, self.default, self.required = many, says, default, required

    @property
    def on_off(self) -> tuple[list[str], list[str]]:
        """Names of an option; for a flag, with the names that turn it off."""
        names = self.says.names if isinstance(self.says, Option) else ()
        pairs = [name.partition("/") for name in names]
        return [on for on, _, _ in pairs], [off for _, _, off in pairs if off]

    @property
    def metavar(self) -> str:
        """What stands for the value in the help; empty for a flag."""
        if self.kind is bool:
            return ""
        choices = "|".join(self.choices)
        return self.says.metavar or choices or ("N" if self.kind in (int, float) else self.name.upper())

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values that it may have."""
        return tuple([each.value for each in self.kind]) if issubclass(self.kind, StrEnum) else ()

    @property
    def may_be_empty(self) -> bool:
        """Words of a command may be, and options that say so."""
        return self.says.unset if isinstance(self.says, Option) else self.many

    @property
    def usage(self) -> str:
        """An operand as it appears in the usage line: `JOB`, `[FILE]`, `JOB...`, `[JOB...]`."""
        if " " in self.metavar:
            return self.metavar
        bare = self.metavar.strip("[]") if self.metavar.startswith("[") else self.metavar
        bare = f"{bare.removesuffix('...')}..." if self.many else bare
        return bare if self.required else f"[{bare}]"


def list_parameters(command: Callable[..., Any]) -> Iterator[Parameter | str]:
    """The parameters of a command; for the one that takes how it was called, its name alone."""
    code, hints = command.__code__, command.__annotations__
    placed = code.co_argcount
    defaults = dict(
        zip(code.co_varnames[:placed][::-1], (command.__defaults__ or ())[::-1], strict=False)
    ) | (command.__kwdefaults__ or {})
    for place, name in enumerate(code.co_varnames[: placed + code.co_kwonlyargcount]):
        if place == placed:
            yield from command.__dict__.get("declared", ())
        hint = hints[name]
        if hint is Called:
            yield name
            continue
        (says,) = hint.__metadata__
        kind, many = _kind(hint.__origin__)
        yield Parameter(name, kind, many, says, defaults.get(name), name not in defaults)


def with_options(declared: Iterable[Parameter]) -> Callable[[Command], Command]:
    """Have a command take options of a table too: its `**` gets them. They stand before its keyword-only ones."""

    def take(command: Command) -> Command:
        command.__dict__["declared"] = list(declared)
        return command

    return take


def _kind(hint: Any) -> tuple[type, bool]:
    if isinstance(hint, UnionType):
        (hint,) = [each for each in get_args(hint) if each is not NoneType]
    many = get_origin(hint) is list
    if many:
        (hint,) = get_args(hint)
    return hint, many


def read(
    command: Callable[..., Any], words: Sequence[str], path: str = "yard", *, carries: bool = False
) -> dict[str, Any]:
    """The arguments for a call of the command, `Misuse` or `HelpWanted`.

    `path` is the command as it was typed. With `carries`, all words from the first operand on are the operands, as in
    `yard run train.sh --lr 0.1`.
    """
    line = _Line(command, path)
    line.sort_out(list(words), carries)
    line.check_options()
    line.place_operands()
    if line.asks:
        own = list(words[: len(words) - len(line.loose)]) if carries else []
        dashes = own[-1:] == ["--"] if carries else line.dashes
        given = frozenset(line.given)
        line.values[line.asks] = Called(dashes, given, tuple(own[:-1] if dashes else own))
    return line.values


class _Line:
    """A command line that is being read."""

    def __init__(self, command: Callable[..., Any], path: str) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.given: set[str] = set()
        self.loose: list[str] = []
        self.dashes = False
        self.asks = ""
        """The parameter that takes how the command was called."""
        self.options: dict[str, tuple[Parameter, bool]] = {}
        self.operands: list[Parameter] = []
        self.required: list[Parameter] = []
        for parameter in list_parameters(command):
            if isinstance(parameter, str):
                self.asks = parameter
                continue
            self.values[parameter.name] = parameter.default
            if isinstance(parameter.says, Argument):
                self.operands.append(parameter)
                continue
            if parameter.required:
                self.required.append(parameter)
            for off, names in enumerate(parameter.on_off):
                self.options |= dict.fromkeys(names, (parameter, not off))

    def misuse(self, text: str) -> Misuse:
        return Misuse(self.path, text)

    def sort_out(self, left: list[str], carries: bool) -> None:
        """Give options their values, and keep the words that are none."""
        any_word = any(map(_is_for_another, self.operands))
        while left:
            word = left.pop(0)
            if word == "--":
                if any_word and not self.loose and not _is_for_another(self.operands[0]):
                    # What follows is for another command: none of it is a word of ours.
                    raise self.missing(self.operands[0])
                self.dashes = True
                self.loose += left
                return
            if word[:1] != "-" or word == "-":
                self.loose.append(word)
                if carries:
                    self.loose += left
                    return
            elif word in HELP:
                raise HelpWanted
            elif word[:2] == "--":
                name, sign, text = word.partition("=")
                if any_word and name not in self.options:
                    self.loose.append(word)
                else:
                    self.take(name, text if sign else None, left)
            else:
                self.take_letters(word, left)

    def take_letters(self, word: str, left: list[str]) -> None:
        """`-g 2`, `-g2`, or letters of flags in one word; the first letter that takes a value takes the rest."""
        rest = word[1:]
        if word in ("-it", "-ti") and "-i" in self.options and self.option("-t")[0].kind is not bool:
            other = self.option("-t")[0]
            raise self.misuse(
                f"-t is {other.on_off[0][-1]} here and takes a value, as in -t 2h; -i alone gives a terminal"
            )
        while rest:
            name, rest = f"-{rest[0]}", rest[1:]
            if name == "-h" and name not in self.options:
                raise HelpWanted
            parameter, on = self.option(name)
            if parameter.kind is bool:
                self.set(parameter, on)
                continue
            self.take(name, rest or None, left)
            return

    def take(self, name: str, text: str | None, left: list[str]) -> None:
        """An option with the value that stands in its word, or else in the next one."""
        parameter, on = self.option(name)
        if parameter.kind is bool:
            if text is not None:
                raise self.misuse(f"{name} takes no value: write {name} alone")
            self.set(parameter, on)
            return
        self.set(
            parameter, self.value(parameter, name, self.next(parameter, name, left) if text is None else text)
        )

    def set(self, parameter: Parameter, value: Any) -> None:
        before = self.values[parameter.name] if parameter.name in self.given else None
        self.values[parameter.name] = [*(before or ()), value] if parameter.many else value
        self.given.add(parameter.name)

    def option(self, name: str) -> tuple[Parameter, bool]:
        found = self.options.get(name)
        if found is None:
            raise unknown_option(self.path, name, self.options)
        return found

    def next(self, parameter: Parameter, name: str, left: list[str]) -> str:
        bare = parameter.says.bare if isinstance(parameter.says, Option) else ""
        if bare and not (left and left[0].isdecimal()):
            return bare
        # A known option in the place of a value means that the value was forgotten.
        if not left or left[0] == "--" or left[0].partition("=")[0] in (*self.options, *HELP):
            instead = f"; {left[0]} is not a value, unless it is written {name}={left[0]}" if left else ""
            raise self.misuse(f"{name} needs a value: {name} {parameter.metavar}{instead}")
        return left.pop(0)

    def value(self, parameter: Parameter, name: str, text: str) -> Any:
        """The text as a value of the parameter's type, within its bounds."""
        kind = parameter.kind
        if kind is str:
            if text or parameter.may_be_empty:
                return text
            if isinstance(parameter.says, Argument):
                raise self.missing(parameter)
            raise self.misuse(f"{name} is empty: write {name} {parameter.metavar}, or leave it out")
        if kind is Path:
            if not text:
                # As a path it would be the folder that the person happens to be in.
                raise self.misuse(f"{name} takes a path, not {quote(text)}")
            return Path(text)
        if parameter.choices:
            if text in parameter.choices:
                return kind(text)
            *first, last = parameter.choices
            meant = suggest_end(text, parameter.choices)
            verb = f"{name} takes" if parameter.on_off[0] else "write"
            raise self.misuse(f"{verb} {', '.join(first)} or {last}, not {quote(text)}{meant}")
        number = _number(kind, text)
        if number is None:
            what = "a whole number" if kind is int else "a number"
            raise self.misuse(f"{name} takes {what}, not {quote(text)}")
        least, most = parameter.says.min, parameter.says.max
        if (least is not None and number < least) or (most is not None and number > most):
            bounds = f"{least} to {most}" if least is not None and most is not None else f"{least} or more"
            raise self.misuse(
                f"{name} takes {bounds if least is not None else f'{most} or less'}, not {text}"
            )
        return number

    def check_options(self) -> None:
        """Options without which the command cannot be."""
        for parameter in self.required:
            if parameter.name not in self.given:
                raise self.missing(parameter)

    def place_operands(self) -> None:
        """Words that are no options, one after the other; the last operand may take several."""
        left = list(self.loose)
        for parameter in self.operands:
            name = parameter.metavar
            if left and parameter.many:
                self.values[parameter.name] = [self.value(parameter, name, each) for each in left]
                left = []
            elif left:
                self.values[parameter.name] = self.value(parameter, name, left.pop(0))
            elif parameter.required:
                raise self.missing(parameter)
            else:
                continue
            self.given.add(parameter.name)
        if left:
            if not self.operands:
                raise self.misuse(f"it takes no word such as {quote(left[0])}")
            usage = " ".join([self.path, *[each.usage for each in self.operands]])
            raise self.misuse(f"{quote(left[0])} is one word too many: {usage}")

    def missing(self, parameter: Parameter) -> Misuse:
        """What is missing, as a question, and the line to type."""
        on, _off = parameter.on_off
        line = f"{on[0]} {parameter.metavar}" if on else " ".join([each.usage for each in self.operands])
        noun = _NOUNS.get(parameter.metavar.strip("[].").removesuffix("...").rpartition("|")[2])
        what = f"which {noun}?" if noun else f"{line if on else parameter.usage} is missing"
        return Misuse(self.path, what, f"{self.path} {line}; '{self.path} --help' lists what it takes.")


def _is_for_another(operand: Parameter) -> bool:
    """Whether an operand takes words for another command, options too."""
    return isinstance(operand.says, Argument) and operand.says.unknown


def _number(kind: type, text: str) -> Any:
    """A number of that type; None: the text is none. Neither `nan` nor `inf` is one, nor what has too many digits."""
    figures = text.lower().translate(_NO_DIGITS if kind is float else _NO_SIGN)
    if not (figures.isascii() and figures.isdecimal() and len(figures) <= _DIGITS_MAX):
        return None
    try:
        return kind(text)
    except ValueError:
        return None


def unknown_option(path: str, name: str, known: Iterable[str]) -> Misuse:
    """A word that looks like an option and is none of the command's."""
    meant = suggest_end(name, [*known, *HELP]) if name.startswith("--") else ""
    return Misuse(path, f"there is no option {name or quote(name)}{meant}")


# -- calling ---------------------------------------------------------------------------------------------------------


def call_command(path: str, name: str, entry: CommandEntry, words: list[str]) -> int:
    """Run a command, or one of a group, with the words that follow its name; its exit code."""
    first = words[0] if words else ""
    if first in entry.below:
        return call_command(f"{path} {first}", first, entry.below[first], words[1:])
    if entry.below and words and not first.startswith("-"):
        raise unknown_command(path, first, entry.below)
    command = None if entry.about else entry.function(name)
    if not words and entry.needs[0]:
        what, example = entry.needs
        raise Misuse(path, what, f"As in: {example}; '{path} --help' lists what it takes.")
    if not words and command is None:
        return _helped(path, entry, command, asked=False)
    if command is None:
        if first in HELP:
            return _helped(path, entry, command, asked=True)
        raise unknown_option(path, first.partition("=")[0], ())
    try:
        values = read(command, words, path, carries=entry.words)
    except HelpWanted:
        return _helped(path, entry, command, asked=True)
    from gpuyard.api.connecting.calling import telling_older_servers

    with telling_older_servers():
        code = command(**values)
    return code if isinstance(code, int) else 0


def _helped(path: str, entry: CommandEntry, command: Callable[..., Any] | None, *, asked: bool) -> int:
    from gpuyard.cli.line.help import command_page, print_page

    declared = [each for each in list_parameters(command) if isinstance(each, Parameter)] if command else []
    about = command.__doc__ if command else None
    return print_page(command_page(path, entry, about or "", declared), asked=asked)


def unknown_command(path: str, name: str, known: Iterable[str]) -> Misuse:
    """A word where a command is named, and there is none of that name."""
    return Misuse(path, f"there is no command {quote(name)}{suggest_end(name, known)}")
