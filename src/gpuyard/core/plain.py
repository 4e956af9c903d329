"""Values of the model as plain JSON values, and back.

A dump travels: into a snapshot file, over a socket, into a bug report. So it holds only what JSON has, every
field is written with its name, and what is read back is equal to what was written. Members of a closed sum
(what a task asks of GPUs, what a job runs) carry their kind.
"""

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gpuyard.model import Command, Image, Memory, Mig, Milli, Whole

T = TypeVar("T")

Plain = Any
"""None, bool, int, str, a list of plain values, or a dict of them by str."""

_KINDS: dict[str, type] = {
    kind.__name__.lower(): kind for kind in (Whole, Milli, Mig, Memory, Command, Image)
}
_KIND_OF = {kind: name for name, kind in _KINDS.items()}


def to_plain(value: object) -> Plain:
    """A value of the model in JSON's own types."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: to_plain(value[key]) for key in sorted(value)}
    kind: Any = type(value)
    names = _field_names(kind)
    if names:
        plain = {name: to_plain(getattr(value, name)) for name in names}
        return {"kind": _KIND_OF[kind], **plain} if kind in _KIND_OF else plain
    if isinstance(value, tuple | list):
        return [to_plain(part) for part in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(kind: type[T], plain: Plain) -> T:
    """The value of this type that `to_plain` wrote."""
    value: T = _read(kind, plain)
    return value


def _read(kind: Any, plain: Plain) -> Any:
    origin = get_origin(kind)
    if origin is UnionType:
        return _read_union(get_args(kind), plain)
    if origin is tuple:
        return _read_tuple(get_args(kind), plain)
    if origin is dict:
        _key, part = get_args(kind)
        return {name: _read(part, value) for name, value in plain.items()}
    if _field_names(kind):
        hints = _hints(kind)
        return kind(**{name: _read(hints[name], plain[name]) for name in hints if name in plain})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(plain)
    return plain


def _read_union(kinds: tuple[Any, ...], plain: Plain) -> Any:
    if plain is None and NoneType in kinds:
        return None
    if isinstance(plain, dict) and "kind" in plain:
        return _read(_KINDS[plain["kind"]], plain)
    (only,) = [kind for kind in kinds if kind is not NoneType]
    return _read(only, plain)


def _read_tuple(parts: tuple[Any, ...], plain: Plain) -> tuple[Any, ...]:
    if parts[-1] is Ellipsis:
        return tuple([_read(parts[0], value) for value in plain])
    return tuple([_read(part, value) for part, value in zip(parts, plain, strict=True)])


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass or a named tuple; none for anything else."""
    if is_dataclass(kind):
        return tuple([field.name for field in fields(kind)])
    names: tuple[str, ...] = getattr(kind, "_fields", ())
    return names


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in _field_names(kind)}
