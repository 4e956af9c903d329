"""What is wrong with a configuration file, where, and what to do: collected, then raised as one error.

A person wants all faults of a file at once, each on a line that an editor can jump to.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.errors import BadInput, quote

SHOWN_MAX = 50
"""How many are shown: a file of the wrong kind has a fault on every line."""

FOUND_MAX = 200
"""The search ends after this many: each may compare a name with all others, and few are shown."""

Path = tuple[str | int, ...]
"""The keys, and the positions in lists, that lead from the top of the file to a value."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A line and a column, both counted from 1 as editors do. Line 0 is the file as a whole."""

    line: int
    column: int


WHOLE_FILE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    place: Position
    text: str
    """What is wrong and what to do, in one line."""

    def located(self, file: str) -> str:
        """The problem as `file:line:column: text`."""
        if self.place == WHOLE_FILE:
            return f"{file}: {self.text}"
        return f"{file}:{self.place.line}:{self.place.column}: {self.text}"


class ConfigError(BadInput):
    """The configuration cannot be used; the message has one line for each problem."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.place))
        lines = [problem.located(file) for problem in self.problems[:SHOWN_MAX]]
        if len(self.problems) > SHOWN_MAX:
            lines.append(f"{file}: and more problems; mend these first")
        super().__init__("\n".join(lines))


_KINDS = {
    "clusters": "cluster",
    "tenants": "tenant",
    "classes": "class",
    "policies": "policy",
    "gpu_models": "GPU model",
}


def described(path: Path) -> str:
    """How a message names the value at a path: `tenant 'research'`, `'limit' of tenant 'research'`."""
    match path:
        case ():
            return "the file"
        case ("clusters", _, "pools", name):
            return f"pool {quote(str(name))}"
        case (str(section), name) if section in _KINDS:
            return f"{_KINDS[section]} {quote(str(name))}"
        case ("logs", "sinks", int()):
            return "a receiver of logs"
        case (*above, int()):
            return described(tuple(above))
        case (key,):
            return quote(str(key))
    return f"{quote(str(path[-1]))} of {described(path[:-1])}"


def inside(path: Path) -> str:
    """How a message says that something is in the mapping at a path."""
    return f"in {described(path)}" if path else "at the top level"
