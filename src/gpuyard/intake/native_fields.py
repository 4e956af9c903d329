"""How the fields of a job are read from native YAML: by their kinds and bounds in the one table of them.

A file deserves messages with line numbers, which the model of a submission does not have.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuyard import quantities
from gpuyard.errors import quote, suggest, suggest_end
from gpuyard.intake.documents import Mapping, Node, Scalar, Sequence
from gpuyard.keys import values
from gpuyard.keys.problems import Position
from gpuyard.wire.job_fields import (
    DELAY_S_MAX,
    DEPENDENCY_KINDS,
    JOB_FIELDS,
    LEVELS,
    LIMIT_S_MAX,
    Form,
    JobField,
)


class Wrong(Exception):
    """A value that does not fit its field."""

    def __init__(self, place: Position, text: str) -> None:
        super().__init__(text)
        self.place = place


Read = Callable[[Node], Any]


class Field(NamedTuple):
    """How a field is read, and its bounds."""

    read: Read
    least: int | None = None
    most: int | None = None


def _scalar(node: Node, what: str) -> str:
    if not isinstance(node, Scalar):
        kind = "a list" if isinstance(node, Sequence) else "a mapping"
        raise Wrong(node.place, f"must be {what}, not {kind}")
    if node.null:
        raise Wrong(node.place, f"must be {what}; it has no value")
    return node.text


def _text(node: Node) -> str:
    return _scalar(node, "a text")


def _whole(least: int, most: int) -> Field:
    def read(node: Node) -> int:
        text = _scalar(node, "a whole number")
        try:
            return quantities.parse_whole(text, least=least, most=most)
        except ValueError as error:
            raise Wrong(node.place, str(error)) from None

    return Field(read, least, most)


def _number(node: Node) -> float:
    text = _scalar(node, "a number")
    try:
        milli = 0 if text in ("0", "0.0") else quantities.parse_cpu_milli(text)
    except ValueError as error:
        raise Wrong(node.place, str(error)) from None
    return milli / 1000 if milli % 1000 else milli // 1000


def _boolean(node: Node) -> bool:
    try:
        return values.boolean(_scalar(node, "true or false"))
    except ValueError as error:
        raise Wrong(node.place, str(error)) from None


def _texts(node: Node) -> list[str]:
    if not isinstance(node, Sequence):
        raise Wrong(node.place, "must be a list, one item to a line after '- ', or as [a, b]")
    return [_text(item) for item in node.items]


def _named(read: Read) -> Read:
    def read_all(node: Node) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            raise Wrong(node.place, "must be a mapping: names with their values")
        return {key: read(value) for key, (_, value) in node.entries.items()}

    return read_all


def _choice(choices: tuple[str, ...]) -> Read:
    def read(node: Node) -> str:
        text = _text(node)
        if text not in choices:
            raise Wrong(
                node.place, f"must be {' or '.join(choices)}, not {quote(text)}{suggest_end(text, choices)}"
            )
        return text

    return read


def _value(node: Node) -> str:
    # A variable may be empty.
    return "" if isinstance(node, Scalar) and node.null else _text(node)


def _dependencies(node: Node) -> list[dict[str, Any]]:
    if not isinstance(node, Sequence):
        raise Wrong(node.place, "must be a list such as [{kind: afterok, job: 12}]")
    return [_dependency(item) for item in node.items]


def _job(node: Node) -> int | str:
    text = _scalar(node, "a job's id such as 17 or 12_3")
    if not re.fullmatch(r"[1-9][0-9]{0,17}(_[0-9]{1,9})?", text):
        raise Wrong(node.place, f"must be a job's id such as 17 or 12_3, not {quote(text)}")
    return text if "_" in text else int(text)


_PARTS = {
    "kind": Field(_text),
    "job": Field(_job),
    "delay_s": _whole(0, DELAY_S_MAX),
}


def _dependency(node: Node) -> dict[str, Any]:
    found = read_mapping(node, _PARTS, "dependency")
    kind = found.get("kind", "")
    if kind not in DEPENDENCY_KINDS:
        raise Wrong(
            node.place, f"has an unknown kind {quote(kind)}; {suggest(kind, DEPENDENCY_KINDS, 'kinds')}"
        )
    if ("job" in found) != (kind != "singleton"):
        raise Wrong(node.place, f"of kind {kind} {'has no' if kind == 'singleton' else 'needs a'} 'job'")
    return found


_TOPOLOGY = {
    "level": Field(_choice(LEVELS)),
    "required": Field(_boolean),
    "for_s": _whole(0, LIMIT_S_MAX),
}


def _topology(node: Node) -> dict[str, Any]:
    found = read_mapping(node, _TOPOLOGY, "topology such as {level: switch}")
    if "level" not in found:
        raise Wrong(node.place, f"needs a 'level': {' or '.join(LEVELS)}")
    if found.get("for_s") and not found.get("required", True):
        raise Wrong(node.place, "of which nothing is required needs no 'for_s'")
    return found


_CONTAINER = {
    "name": Field(_text),
    "image": Field(_text),
    "init": Field(_boolean),
    "entrypoint": Field(_texts),
    "command": Field(_texts),
    "workdir": Field(_text),
    "env": Field(_named(_value)),
    "volumes": Field(_texts),
}


def _containers(node: Node) -> list[dict[str, Any]]:
    if not isinstance(node, Sequence):
        raise Wrong(node.place, "must be a list such as [{image: busybox, command: [true], init: true}]")
    found = []
    for item in node.items:
        found.append(read_mapping(item, _CONTAINER, "container"))
        if not found[-1].get("image"):
            raise Wrong(item.place, "has a container without an 'image'")
    return found


def read_mapping(node: Node, fields: dict[str, Field], what: str) -> dict[str, Any]:
    """The fields of a mapping by name; raises for the first wrong one."""
    if not isinstance(node, Mapping):
        raise Wrong(node.place, f"must be a mapping: a {what}")
    found = {}
    for key, (place, value) in node.entries.items():
        if key not in fields:
            raise Wrong(place, f"has an unknown key {quote(key)}; {suggest(key, fields, 'keys')}")
        found[key] = fields[key].read(value)
    return found


def _field(says: JobField) -> Field:
    """How a field is read."""
    least, most = says.least or 0, says.most or 0
    match says.kind:
        case Form.WHOLE:
            return _whole(least, most)
        case Form.CHOICE:
            return Field(_choice(says.choices))
        case Form.NAMED_NUMBERS:
            return Field(_named(_whole(least, most).read))
    return Field(_READERS[says.kind], says.least, says.most)


_READERS: dict[str, Read] = {
    Form.TEXT: _text,
    Form.TEXTS: _texts,
    Form.NUMBER: _number,
    Form.BOOLEAN: _boolean,
    Form.NAMED_TEXTS: _named(_value),
    Form.DEPENDENCIES: _dependencies,
    Form.CONTAINERS: _containers,
    Form.TOPOLOGY: _topology,
}
FIELDS = {name: _field(says) for name, says in JOB_FIELDS.items() if says.native}
"""Every field, in the order in which they are written."""
