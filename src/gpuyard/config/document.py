"""Reads a YAML file into a tree that knows the line and column of every key and value.

PyYAML's own loading forgets places, lets the last of two equal keys win, guesses types (`no` is false, `1:30`
is 90) and expands aliases without end. Here its events are read one by one into a small tree: scalars stay
text until the schema says what they are, and depth and expansion have limits.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

import yaml

from gpuyard.config.syntax import place_in, syntax_problem
from gpuyard.errors import quote
from gpuyard.keys.problems import FOUND_MAX, WHOLE_FILE, ConfigError, Path, Position, Problem, inside
from gpuyard.keys.tree import Document, Mapping, Node, Scalar, Sequence

BYTES_MAX = 8 * 1024 * 1024
DEPTH_MAX = 32
ALIAS_NODES_MAX = 100_000
"""How many values aliases may stand for, all together."""
ALIAS_NODES_FREE, ALIAS_NODES_EACH = 2_000, 50
"""The same for a short text: so many, and so many more for each value, key and alias that is written in it.

A list that is named twice in the next one, which is named twice in the next one, multiplies; an environment that every
entry takes over does not.
"""

# libyaml is some fifteen times faster; wheels of PyYAML bring it, other builds may not.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# YAML's non-printable characters, and the line breaks that editors do not count as such.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


_TOO_LARGE = f"the file is larger than {BYTES_MAX // 1024**2} MiB, the limit; is it the right one?"
TOO_DEEP = f"nested deeper than {DEPTH_MAX} levels, which no key of this file needs"


def parse(text: str, name: str, above: int = 0) -> Document:
    """Read the text of a file, or raise `ConfigError`; `above`: how many lines of the file come before the text."""
    if len(text) > BYTES_MAX:
        _fail(name, WHOLE_FILE, _TOO_LARGE)
    text = text.removeprefix("\ufeff")
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        code = f"U+{ord(forbidden.group()):04X}"
        place = _below(place_in(text, forbidden.start()), above)
        _fail(name, place, f"the character {code} is not allowed here; remove it")
    reader = _Reader(name, above)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.YAMLError as error:
        problem = syntax_problem(error, text)
        problem = Problem(_below(problem.place, above), problem.text)
        raise ConfigError(name, [*reader.problems, problem]) from None
    root = reader.root
    if root is None or (isinstance(root, Scalar) and root.null):
        _fail(name, WHOLE_FILE, "the file is empty; begin it with 'version: 1'")
    if not isinstance(root, Mapping):
        kind = "a list" if isinstance(root, Sequence) else f"the text {quote(root.text)}"
        _fail(name, root.place, f"the file must be a mapping that begins with 'version: 1', not {kind}")
    return Document(name, root, tuple(reader.problems))


def decode(content: bytes, name: str) -> str:
    """The text of a file's bytes, or `ConfigError` with the first byte that is not UTF-8."""
    if len(content) > BYTES_MAX:
        _fail(name, WHOLE_FILE, _TOO_LARGE)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        place = place_in(content[: error.start].decode("utf-8-sig"), error.start)
        what = f"byte {error.start + 1} of the file, 0x{content[error.start]:02x}, is not UTF-8"
        _fail(name, place, f"{what}; save the file as UTF-8")


def _below(place: Position, above: int) -> Position:
    """A place of a text that begins so many lines below the beginning of its file."""
    return place if place == WHOLE_FILE else Position(place.line + above, place.column)


def _fail(name: str, place: Position, text: str) -> NoReturn:
    raise ConfigError(name, [Problem(place, text)])


class _Reader:
    """Builds the tree from events, with a stack of what is open instead of recursion."""

    def __init__(self, name: str, above: int) -> None:
        self.name = name
        self._first_line = above + 1
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0
        self._alias_nodes = 0
        self._written = 0

    def take(self, event: yaml.Event) -> None:
        assert event.start_mark is not None
        self._written += 1
        place = Position(event.start_mark.line + self._first_line, event.start_mark.column + 1)
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    _fail(self.name, place, "a second document begins here; keep one in the file")
            case yaml.AliasEvent():
                self._add(self._alias(event, place), place)
            case yaml.ScalarEvent():
                self._tag(event.tag, place)
                null = not event.style and event.value in _NULLS
                self._keep(event.anchor, Scalar(place, event.value, null))
            case yaml.SequenceStartEvent():
                self._begin(event, Sequence(place, []), place)
            case yaml.MappingStartEvent():
                self._begin(event, Mapping(place, {}), place)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()

    def _note(self, place: Position, text: str) -> None:
        self.problems.append(Problem(place, text))
        if len(self.problems) >= FOUND_MAX:
            raise ConfigError(self.name, self.problems)

    def _tag(self, tag: str | None, place: Position) -> None:
        if tag is not None:
            self._note(place, f"the tag {quote(tag)} is not allowed; remove it")

    def _keep(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        self._add(node, node.place)

    def _begin(
        self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent, node: Node, place: Position
    ) -> None:
        self._tag(event.tag, place)
        # The stack holds this level too, once the node is on it.
        if len(self._open) >= DEPTH_MAX:
            _fail(self.name, place, TOO_DEEP)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(node, event.anchor))

    def _end(self) -> None:
        closed = self._open.pop()
        node = closed.node
        if isinstance(node, Mapping):
            self._merge(node)
            children = [value for _, value in node.entries.values()]
        else:
            assert isinstance(node, Sequence)
            children = node.items
        node.size = 1 + sum(child.size for child in children)
        node.height = 1 + max((child.height for child in children), default=0)
        self._keep(closed.anchor, node)

    def _alias(self, event: yaml.AliasEvent, place: Position) -> Node:
        anchor = str(event.anchor)
        if anchor not in self._anchors:
            text = f"alias {quote('*' + anchor)} has no anchor {quote('&' + anchor)} above it"
            _fail(self.name, place, text)
        node = self._anchors[anchor]
        if node is None:
            _fail(self.name, place, f"alias {quote('*' + anchor)} stands inside of what it refers to")
        self._alias_nodes += node.size
        if self._alias_nodes > ALIAS_NODES_MAX:
            _fail(self.name, place, f"aliases expand to more than {ALIAS_NODES_MAX} values; write them out")
        if self._alias_nodes > ALIAS_NODES_FREE + ALIAS_NODES_EACH * self._written:
            _fail(self.name, place, f"aliases multiply to {self._alias_nodes} values; write them out")
        if len(self._open) + node.height > DEPTH_MAX:
            _fail(self.name, place, TOO_DEEP)
        return node

    def _add(self, node: Node, place: Position) -> None:
        if not self._open:
            self.root = node
            return
        above = self._open[-1]
        if isinstance(above.node, Sequence):
            above.node.items.append(node)
            return
        assert isinstance(above.node, Mapping)
        if above.key is None:
            if not isinstance(node, Scalar):
                self._note(place, "a key must be a single word, not a list or a mapping")
                node = Scalar(place, "", null=False)
                above.dropped = True
            above.key = (place, node.text)
            return
        key_place, key = above.key
        if above.dropped:
            pass
        elif key in above.node.entries:
            first = above.node.entries[key][0].line
            text = f"duplicate key {quote(key)} {inside(self._path())}; it is already on line {first}"
            self._note(key_place, f"{text}, remove one of them")
        else:
            above.node.entries[key] = (key_place, node)
        above.key, above.dropped = None, False

    def _path(self) -> Path:
        """The path of the innermost open mapping."""
        return tuple(
            each.key[1]
            if each.key is not None
            else len(each.node.items)
            if isinstance(each.node, Sequence)
            else ""
            for each in self._open[:-1]
        )

    def _merge(self, node: Mapping) -> None:
        """Take over what `<<` refers to, as YAML 1.1 has it; the mapping's own keys win."""
        if "<<" not in node.entries:
            return
        place, merged = node.entries.pop("<<")
        for source in merged.items if isinstance(merged, Sequence) else [merged]:
            if not isinstance(source, Mapping):
                text = "'<<' must refer to a mapping, as in '<<: *name'"
                self._note(place, text)
                continue
            for key, entry in source.entries.items():
                node.entries.setdefault(key, entry)


@dataclass(slots=True)
class _Open:
    """A list or mapping that has not ended yet."""

    node: Node
    anchor: str | None
    key: tuple[Position, str] | None = None
    """The key that waits for its value, in a mapping."""
    dropped: bool = False
    """The key cannot be one; its value goes nowhere."""
