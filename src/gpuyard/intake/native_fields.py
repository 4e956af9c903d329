"""The fields of a job in native YAML: those of `JobRequest`, and those proposed for it, with their kinds and bounds.

A test compares this table with `JobRequest`. It is repeated here because the wire format is above this package, and
because a file deserves messages with line numbers, which a model of the wire format does not have.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuyard.config import quantities
from gpuyard.config.problems import Place
from gpuyard.errors import quoted, remedy
from gpuyard.intake.documents import Mapping, Node, Scalar, Sequence
from gpuyard.intake.sbatch.dependencies import KINDS

OPEN_MODES = ("append", "truncate")
_DAY_S = 86_400
_TIME_MS_MAX = 253_402_300_799_999
_YEARS_S = 3650 * _DAY_S


class Wrong(Exception):
    """A value that does not fit its field."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(text)
        self.place = place


Read = Callable[[Node], Any]


class Field(NamedTuple):
    """How a field is read, and the bounds that a test compares."""

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
            return quantities.whole(text, least=least, most=most)
        except ValueError as error:
            raise Wrong(node.place, str(error)) from None

    return Field(read, least, most)


def _number(node: Node) -> float:
    text = _scalar(node, "a number")
    try:
        milli = 0 if text in ("0", "0.0") else quantities.cpu_milli(text)
    except ValueError as error:
        raise Wrong(node.place, str(error)) from None
    return milli / 1000 if milli % 1000 else milli // 1000


def _boolean(node: Node) -> bool:
    try:
        return quantities.boolean(_scalar(node, "true or false"))
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


def _open_mode(node: Node) -> str:
    text = _text(node)
    if text not in OPEN_MODES:
        raise Wrong(node.place, f"must be {' or '.join(OPEN_MODES)}, not {quoted(text)}")
    return text


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
        raise Wrong(node.place, f"must be a job's id such as 17 or 12_3, not {quoted(text)}")
    return text if "_" in text else int(text)


_PARTS = {
    "kind": Field(_text),
    "job": Field(_job),
    "delay_s": _whole(0, _YEARS_S),
}


def _dependency(node: Node) -> dict[str, Any]:
    found = read_mapping(node, _PARTS, "dependency")
    kind = found.get("kind", "")
    if kind not in KINDS:
        raise Wrong(node.place, f"has an unknown kind {quoted(kind)}; {remedy(kind, KINDS, 'kinds')}")
    if ("job" in found) != (kind != "singleton"):
        raise Wrong(node.place, f"of kind {kind} {'has no' if kind == 'singleton' else 'needs a'} 'job'")
    return found


def read_mapping(node: Node, fields: dict[str, Field], what: str) -> dict[str, Any]:
    """The fields of a mapping by name; raises for the first wrong one."""
    if not isinstance(node, Mapping):
        raise Wrong(node.place, f"must be a mapping: a {what}")
    found = {}
    for key, (place, value) in node.entries.items():
        if key not in fields:
            raise Wrong(place, f"has an unknown key {quoted(key)}; {remedy(key, fields, 'keys')}")
        found[key] = fields[key].read(value)
    return found


FIELDS: dict[str, Field] = {
    "name": Field(_text),
    "tenant": Field(_text),
    "class": Field(_text),
    "command": Field(_texts),
    "script": Field(_text),
    "gpus": _whole(0, 100_000),
    "gpu_models": Field(_texts),
    "gpu_milli": _whole(0, 999),
    "mig": Field(_text),
    "gpu_memory_mib": _whole(0, 1 << 24),
    "isolation": Field(_text),
    "tasks": _whole(1, 10_000),
    "nodes_min": _whole(0, 100_000),
    "nodes_max": _whole(0, 100_000),
    "ranks": _whole(0, 1_000_000),
    "batch": Field(_boolean),
    "cpus": Field(_number, 0, 100_000),
    "memory_mib": _whole(0, 1 << 30),
    "exclusive": Field(_boolean),
    "pools": Field(_texts),
    "constraint": Field(_text),
    "on_nodes": Field(_texts),
    "not_nodes": Field(_texts),
    "licenses": Field(_named(_whole(1, 1_000_000).read)),
    "time_limit_s": _whole(1, _YEARS_S),
    "begin_ms": _whole(0, _TIME_MS_MAX),
    "deadline_ms": _whole(0, _TIME_MS_MAX),
    "array": Field(_text),
    "array_limit": _whole(0, 1_000_000),
    "dependencies": Field(_dependencies),
    "dependencies_any": Field(_boolean),
    "env": Field(_named(_value)),
    "cwd": Field(_text),
    "stdout": Field(_text),
    "stderr": Field(_text),
    "open_mode": Field(_open_mode),
    "warn_signal": _whole(0, 64),
    "warn_s": _whole(0, _DAY_S),
    "warn_shell": Field(_boolean),
    "slurm_commands": Field(_boolean),
    "checkpoint_s": _whole(0, 30 * _DAY_S),
    "retries": _whole(0, 100),
    "requeue": Field(_boolean),
    "hold": Field(_boolean),
}
"""Every field, in the order in which they are written."""
