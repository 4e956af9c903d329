"""Options that several commands share, and the light way in which options are declared.

A command says what it takes with `Annotated[int, Option("-g", "--gpus", …)]`: the type says what the text becomes
(`bool` for a flag, `int`, `float`, `str`, `Path`, a `StrEnum` for a choice, a list of them where the option may be
repeated), the default of the parameter is the default of the option. `reading` reads it, `help` shows it, `completing`
completes it. Nothing here may import anything that takes time.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated


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


class Argument:
    """A word without a name."""

    def __init__(
        self,
        *,
        metavar: str,
        help: str = "",
        min: int | float | None = None,
        max: int | float | None = None,
        envvar: str = "",
        unknown: bool = False,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max
        self.envvar = envvar
        """The variable that is taken if it is left out."""
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
        help="Only these columns, in this order: id,state,gpus. A wrong name lists them all.",
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
        help="Show it again whenever something has happened, until Ctrl-C; where the server does not tell, "
        f"every {WATCH_S} seconds, or as often as you say.",
    ),
]

JobArgument = Annotated[str, Argument(metavar="JOB", help="17, or 12_3 for a task of array 12.")]
StateOption = Annotated[
    list[str] | None, Option("--state", metavar="STATE", help="Only jobs in this state; may be repeated.")
]
TenantOption = Annotated[
    str, Option("--tenant", metavar="TENANT", help="Only this tenant and those below it.")
]
MineOption = Annotated[bool, Option("--mine", help="Only your own jobs.")]
ClusterOption = Annotated[str, Option("--cluster", metavar="NAME", help="Only what is in this cluster.")]
UserOption = Annotated[str, Option("-u", "--user", metavar="USER", help="Only this user's jobs.")]

PRESETS = (
    "default", "fifo", "strict-fifo", "class", "fair", "sjf", "srtf", "deadline", "conservative", "fgd",
    "pack",
)  # fmt: skip
"""For the help, which does not wait for the policies to be imported (a test keeps the two equal)."""

SeedOption = Annotated[int, Option("--seed", metavar="N", min=0, help="Same seed, same result.")]

ReportOption = Annotated[
    Path | None,
    Option(
        "--report",
        metavar="FILE",
        help="Write a report with plots here: one HTML file that needs no network.",
    ),
]
