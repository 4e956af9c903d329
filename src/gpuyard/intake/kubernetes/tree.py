"""A manifest while it is read: every key is either asked for or reported as not served. None is ignored."""

from collections.abc import Callable
from collections.abc import Mapping as MappingType
from typing import TypeVar

from gpuyard.errors import quote
from gpuyard.intake.documents import Mapping, Node, Scalar, Sequence
from gpuyard.intake.values import Warning
from gpuyard.keys.problems import ConfigError, Position, Problem

T = TypeVar("T")


class Findings:
    """What is wrong with a manifest, and what is not served."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.warnings: list[Warning] = []

    def problem(self, place: Position, text: str) -> None:
        """Note something that cannot be served."""
        self.problems.append(Problem(place, text))

    def warn(self, place: Position, text: str) -> None:
        """Note something that will not be as expected."""
        self.warnings.append(Warning(place.line, text))

    def raise_if_any(self) -> None:
        """Raise everything that is wrong as one error."""
        if self.problems:
            raise ConfigError(self.file, self.problems)


class Part:
    """A mapping of the manifest. Leaving it (`with`) reports every key that was not asked for."""

    def __init__(self, node: Mapping, path: str, findings: Findings) -> None:
        self.node = node
        self.path = path
        self.findings = findings
        self._asked: set[str] = set()

    def __enter__(self) -> "Part":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for key, (place, _node) in self.node.entries.items():
                if key not in self._asked:
                    self.findings.warn(place, f"{self.named(key)} is not served and left out")

    def named(self, key: str) -> str:
        """The name of a key in messages."""
        return f"{self.path}.{key}" if self.path else key

    def place(self, key: str) -> Position:
        """The place of a key, or of the mapping if the key is missing."""
        return self.node.entries[key][0] if key in self.node.entries else self.node.place

    def problem(self, key: str, text: str) -> None:
        """Note something about a key that cannot be served."""
        self.findings.problem(self.place(key), f"{self.named(key)} {text}")

    def warn(self, key: str, text: str) -> None:
        """Note something about a key that is not as expected."""
        self.findings.warn(self.place(key), f"{self.named(key)} {text}")

    def has(self, key: str) -> bool:
        """Whether a key has a value; it counts as asked for."""
        return self._node(key) is not None

    def _node(self, key: str) -> Node | None:
        self._asked.add(key)
        node = self.node.entries.get(key, (None, None))[1]
        return None if isinstance(node, Scalar) and node.null else node

    def text(self, key: str, default: str = "") -> str:
        """A single value."""
        node = self._node(key)
        if node is None:
            return default
        if not isinstance(node, Scalar):
            self.problem(key, "must be a single value")
            return default
        return node.text

    def get(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """A single value, understood by `parse`."""
        if not self.has(key):
            return default
        try:
            return parse(self.text(key))
        except ValueError as error:
            self.problem(key, str(error))
            return default

    def part(self, key: str) -> "Part":
        """A mapping below; empty if it is missing."""
        node = self._node(key)
        if node is not None and not isinstance(node, Mapping):
            self.problem(key, "must be a mapping")
            node = None
        return Part(node or Mapping(self.place(key), {}), self.named(key), self.findings)

    def parts(self, key: str) -> list["Part"]:
        """The mappings of a list below."""
        found = []
        for number, item in enumerate(self.items(key)):
            if isinstance(item, Mapping):
                found.append(Part(item, f"{self.named(key)}[{number}]", self.findings))
            else:
                self.problem(key, "must be a list of mappings")
        return found

    def items(self, key: str) -> list[Node]:
        """The items of a list below."""
        node = self._node(key)
        if node is None:
            return []
        if not isinstance(node, Sequence):
            self.problem(key, "must be a list")
            return []
        return node.items

    def texts(self, key: str) -> list[str]:
        """The items of a list of single values."""
        found = []
        for item in self.items(key):
            if isinstance(item, Scalar):
                found.append(item.text)
            else:
                self.problem(key, "must be a list of texts")
        return found

    def names(self) -> list[str]:
        """All keys of the mapping."""
        return list(self.node.entries)

    def left_out(self, why: MappingType[str, str]) -> None:
        """Warn about keys that are understood but not served, each with what that means."""
        for key, text in why.items():
            if self.has(key):
                self.warn(key, f"is not served: {text}")

    def refused(self, why: MappingType[str, str]) -> None:
        """Refuse keys without which the job would not be what its author meant."""
        for key, text in why.items():
            if self.has(key):
                self.problem(key, f"cannot be served: {text}")

    def accept(self, *keys: str) -> None:
        """Accept keys that ask for nothing, or for what is true anyway."""
        self._asked.update(keys)


def parse_boolean(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise ValueError(f"must be true or false, not {quote(text)}")
    return text == "true"


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text[:12]) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, not {quote(text)}")
        return int(text)

    return parse
