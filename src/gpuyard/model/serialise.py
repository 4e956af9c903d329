"""Values of the model as plain JSON values, and back.

A dump travels: into a snapshot file, over a socket, into a bug report. So it holds only JSON types, every field is
written with its name, and what is read back equals what was written. Members of a closed sum (what a task asks of
GPUs, what a job runs) carry their kind.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter, itemgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gpuyard.model import Command, Image, Memory, Mig, Milli, Whole

T = TypeVar("T")

Plain = Any
"""None, bool, int, str, a list of plain values, or a dict of them by str."""

_ATOMS = frozenset({NoneType, bool, int, str})
_KINDS: dict[str, Any] = {kind.__name__.lower(): kind for kind in (Whole, Milli, Mig, Memory, Command, Image)}
_KIND_OF = {kind: name for name, kind in _KINDS.items()}


def to_plain(value: object) -> Plain:
    """A value of the model in JSON's own types."""
    kind: Any = type(value)
    return value if kind in _ATOMS else _writer(kind)(value)


def from_plain(kind: type[T], plain: Plain) -> T:
    """The value of this type that `to_plain` wrote."""
    declared: Any = kind
    value: T = make_reader(declared)(plain)
    return value


@cache
def _writer(kind: Any) -> Callable[[Any], Plain]:
    """How values of a type are written. Made once per type: a dump has thousands of values."""
    if issubclass(kind, Enum):
        return lambda value: value.value
    if kind is dict:
        return lambda value: {key: to_plain(value[key]) for key in sorted(value)}
    names = _field_names(kind)
    if names and kind in _KIND_OF:
        tag, write = _KIND_OF[kind], _field_writer(kind, names)
        return lambda value: {"kind": tag, **write(value)}
    if names:
        return _field_writer(kind, names)
    if kind is tuple or kind is list:
        return lambda value: [to_plain(part) for part in value]
    raise TypeError(f"{kind.__name__} has no plain form")


def _field_writer(kind: Any, names: tuple[str, ...]) -> Callable[[Any], Plain]:
    # Most fields are written as they are: checking each of them would be most of the work.
    hints = get_type_hints(kind)
    made = [name for name in names if hints[name] not in _ATOMS]
    if len(names) == 1:
        only = names[0]
        return lambda value: {only: to_plain(getattr(value, only))}
    every = attrgetter(*names)

    def write(value: Any) -> Plain:
        plain = dict(zip(names, every(value), strict=True))
        for name in made:
            part = plain[name]
            plain[name] = to_plain(part) if part != () else []
        return plain

    return write


@cache
def make_reader(kind: Any) -> Callable[[Plain], Any]:
    """How values of a declared type are read."""
    origin = get_origin(kind)
    if origin is UnionType:
        return _union_reader(get_args(kind))
    if origin is tuple:
        return _tuple_reader(get_args(kind))
    if origin is dict:
        part = make_reader(get_args(kind)[1])
        return lambda plain: {name: part(value) for name, value in plain.items()}
    if _field_names(kind):
        hints = get_type_hints(kind)
        every = _field_names(kind)
        readers = {name: make_reader(hints[name]) for name in every if hints[name] not in _ATOMS}
        placed = [(place, readers[name]) for place, name in enumerate(every) if name in readers]
        names = frozenset(every)
        # A named tuple is made of its values without a call in Python.
        whole: Any = partial(tuple.__new__, kind) if issubclass(kind, tuple) else lambda values: kind(*values)
        make: Callable[[Any], Any] = whole
        pick: Callable[[Plain], Any] = (
            itemgetter(*every) if len(every) > 1 else lambda plain: (plain[every[0]],)
        )

        def read(plain: Plain) -> Any:
            try:
                values = pick(plain)
            except KeyError:
                # Written before it had all its fields.
                parts = {name: part for name, part in plain.items() if name in names}
                for name, part in readers.items():
                    if name in parts:
                        parts[name] = part(parts[name])
                return kind(**parts)
            if placed:
                values = [*values]
                for place, part in placed:
                    values[place] = part(values[place])
            return make(values)

        return read
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = {member.value: member for member in kind}
        return lambda plain: members[plain] if plain in members else kind(plain)
    return lambda plain: plain


def _union_reader(kinds: tuple[Any, ...]) -> Callable[[Plain], Any]:
    only = make_reader(kinds[0])

    def read(plain: Plain) -> Any:
        if plain is None and NoneType in kinds:
            return None
        if isinstance(plain, dict) and "kind" in plain:
            return make_reader(_KINDS[plain["kind"]])(plain)
        return only(plain)

    return read


def _tuple_reader(parts: tuple[Any, ...]) -> Callable[[Plain], Any]:
    readers = [make_reader(part) for part in parts if part is not Ellipsis]
    if parts[-1] is Ellipsis:
        one = readers[0]
        return lambda plain: () if plain == [] else tuple([one(value) for value in plain])
    return lambda plain: tuple([read(value) for read, value in zip(readers, plain, strict=True)])


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass or a named tuple; none for anything else."""
    if is_dataclass(kind):
        return tuple([field.name for field in fields(kind)])
    names: tuple[str, ...] = getattr(kind, "_fields", ())
    return names
