"""A file as a tree of keys and values, each with its line and column, in which a check finds the place of a mistake.

`config.document` makes it from YAML.
"""

from dataclasses import dataclass
from enum import Enum

from gpuyard.keys.problems import Path, Position, Problem


class Nothing(Enum):
    """Stands where a key has no value.

    Not `None`, which in the schema means that the key is absent: an absent `weight` has a default, but a
    `weight:` that someone forgot to fill in is a fault.
    """

    NOTHING = "nothing"


@dataclass(slots=True)
class Scalar:
    """A single value, still as text."""

    place: Position
    text: str
    null: bool
    """It is empty, `~` or `null`, and not in quotes."""
    size: int = 1
    height: int = 0


@dataclass(slots=True)
class Sequence:
    """A list."""

    place: Position
    items: "list[Node]"
    size: int = 1
    """How many values it stands for, itself included, with aliases expanded."""
    height: int = 0
    """How many levels are below it, with aliases expanded."""


@dataclass(slots=True)
class Mapping:
    """Keys with their values; each key has a place of its own."""

    place: Position
    entries: "dict[str, tuple[Position, Node]]"
    size: int = 1
    height: int = 0


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Document:
    """One file."""

    name: str
    root: Mapping
    problems: tuple[Problem, ...]
    """Faults that do not keep the rest from being checked, such as a repeated key."""

    def plain(self) -> dict[str, object]:
        """The content as mappings, lists, texts and `Nothing`, for the schema."""
        content = plain_of(self.root)
        assert isinstance(content, dict)
        return content

    def place(self, path: Path, *, key: bool = False) -> Position:
        """Where the value at a path (with `key`: its key) begins, or the nearest thing above it."""
        node: Node = self.root
        found = Position(1, 1)
        for step in path:
            if isinstance(node, Mapping) and step in node.entries:
                key_place, node = node.entries[str(step)]
                # A missing value has no place where a reader would look.
                absent = isinstance(node, Scalar) and node.null and not node.text
                found = key_place if key or absent else node.place
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                found = node.place
            else:
                break
        return found

    def has(self, path: Path) -> bool:
        """Whether the file has something at this path."""
        node: Node = self.root
        for step in path:
            if isinstance(node, Mapping) and step in node.entries:
                node = node.entries[str(step)][1]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
            else:
                return False
        return True


def plain_of(node: Node) -> object:
    """A part of a file as mappings, lists, texts and `Nothing`."""
    match node:
        case Scalar():
            return Nothing.NOTHING if node.null else node.text
        case Sequence():
            return [plain_of(item) for item in node.items]
        case Mapping():
            return {key: plain_of(value) for key, (_, value) in node.entries.items()}
