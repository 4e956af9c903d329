"""Answers that are given again for as long as everything that they were worked out from is the same.

Nobody lists what a judgement depends on: it is handed values that write down what is read of them. The answers are the
leaves of a tree whose knots are these reads, in their order. A request follows the branches of its own values, and
where there is none, nothing like it was judged before. A field that the judgement begins to read is a knot by itself.

Of a request and a person fields are read; of the state a few parts, each with a stamp that changes when the part does.
A read of another part raises: it has to be given a stamp first.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from inspect import getattr_static
from types import FunctionType, MethodType
from typing import Any, Generic, TypeVar

from gpuyard.core import State
from gpuyard.model.units import DAY_MS

T = TypeVar("T")

LEAVES_MAX = 20_000
"""Answers that are kept; with one more, all are forgotten."""


Stamp = Callable[[State], Hashable]


def _settings(state: State) -> int:
    return state.configured


def _fleet(state: State) -> int:
    return state.shapes.version


def _room(state: State) -> int:
    return state.change_seq


def _rows(state: State) -> int:
    return len(state.tenants.path)


def _day(state: State) -> int:
    return state.now_ms // DAY_MS


_STATE: Mapping[str, tuple[Stamp, ...]] = {
    "settings": (_settings,),
    "classes": (_settings,),
    "klass_of": (_settings,),
    "models": (_fleet,),
    "weights": (_settings, _fleet),
    "shape_of": (_settings, _fleet),
    "shape_for": (_settings, _fleet),
    "limit_for": (_settings, _fleet),
    "ways_without_walls": (_settings, _fleet),
    "open_pools": (_settings, _fleet),
    "walls": (_settings,),
    "asker_of": (_settings,),
    "node_number": (_fleet,),
    "gpu_price": (_settings, _fleet),
    "micro_least": (_settings, _fleet),
    # Rows are added by jobs; what a row allows is in the settings.
    "tenants": (_settings, _rows),
    "today": (_day,),
    "nodes": (),
}
"""What may be read of a state, with the stamps that say when it has changed."""
_NODES: Mapping[str, tuple[Stamp, ...]] = {
    **dict.fromkeys(
        ("node", "kinds", "kind", "lacks", "by_pool", "observed", "marks", "beside_most"), (_settings, _fleet)
    ),
    **dict.fromkeys(("pins", "free_mask", "cpu_free", "memory_free", "down", "cordoned"), (_fleet, _room)),
}
"""The same of its nodes."""

Read = tuple[int, Any]
"""A place among the values that are handed over, and what was read there: a field's name, or a stamp of the state."""


class _Trail:
    """What was read so far, in order and once."""

    def __init__(self) -> None:
        self.reads: dict[Read, Hashable] = {}

    def note(self, read: Read, value: Hashable) -> None:
        self.reads.setdefault(read, value)


class _WatchedFields:
    """Stands for a frozen value, and writes down which of its fields are read, by its own methods too."""

    def __init__(
        self, value: Any, place: int, trail: _Trail, others: Mapping[str, Any] | None = None
    ) -> None:
        self._value, self._place, self._trail, self._others = value, place, trail, others or {}

    def but(self, **changes: Any) -> "_WatchedFields":
        """The same with other values of some fields: these are the judgement's own."""
        return _WatchedFields(self._value, self._place, self._trail, {**self._others, **changes})

    def __getattr__(self, name: str) -> Any:
        others = self.__dict__["_others"]
        if name in others:
            return others[name]
        value = self.__dict__["_value"]
        found = getattr_static(type(value), name, None)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        if isinstance(found, cached_property):
            return found.func(self)
        if isinstance(found, FunctionType):
            return MethodType(found, self)
        read = getattr(value, name)
        self.__dict__["_trail"].note((self.__dict__["_place"], name), read)
        return read


class _WatchedState:
    """Stands for a state, or for its nodes."""

    def __init__(
        self, state: State, part: Any, place: int, trail: _Trail, known: Mapping[str, tuple[Stamp, ...]]
    ) -> None:
        self._state, self._part, self._place, self._trail, self._known = state, part, place, trail, known

    def __getattr__(self, name: str) -> Any:
        state, place, trail = self._state, self._place, self._trail
        stamps = self._known.get(name)
        if stamps is None:
            raise NotImplementedError(
                f"a judgement reads {name} of the state, which has no stamp in {__name__}"
            )
        for stamp in stamps:
            trail.note((place, stamp), stamp(state))
        if name == "nodes":
            return _WatchedState(state, state.nodes, place, trail, _NODES)
        return getattr(self._part, name)


class _Knot(Generic[T]):
    """A read, and where each value of it leads: to the next read, or to an answer."""

    __slots__ = ("branches", "place", "what")

    def __init__(self, read: Read) -> None:
        self.place, self.what = read
        self.branches: dict[Hashable, _Knot[T] | _Leaf[T]] = {}


class _Leaf(Generic[T]):
    __slots__ = ("answer",)

    def __init__(self, answer: T) -> None:
        self.answer = answer


class Remembered(Generic[T]):
    """The answers of one function of a state and of frozen values."""

    def __init__(self, judge: Callable[..., T], leaves_max: int = LEAVES_MAX) -> None:
        """`judge` takes the state first. What it says depends on nothing but its arguments."""
        self._judge, self._leaves_max = judge, leaves_max
        self._state: State | None = None
        self._root: _Knot[T] | _Leaf[T] | None = None
        self.leaves = 0
        self.hits = 0

    def known(self, state: State, *values: Any) -> "_Leaf[T] | None":
        """The answer to this, if it was given before and still holds."""
        if state is not self._state:
            return None
        at = self._root
        while type(at) is _Knot:
            place, what = at.place, at.what
            at = at.branches.get(getattr(values[place - 1], what) if place else what(state))
        if at is not None:
            self.hits += 1
        return at  # type: ignore[return-value]

    def answer(self, state: State, *values: Any) -> T:
        """The answer, worked out and kept. Called with the replica locked."""
        if state is not self._state or self.leaves >= self._leaves_max:
            self._state, self._root, self.leaves = state, None, 0
        trail = _Trail()
        watched: Any = [_WatchedFields(value, place, trail) for place, value in enumerate(values, 1)]
        of_state: Any = _WatchedState(state, state, 0, trail, _STATE)
        found = self._judge(of_state, *watched)
        self._keep(trail, found)
        return found

    def _keep(self, trail: _Trail, found: T) -> None:
        reads = list(trail.reads.items())
        leaf: _Leaf[T] = _Leaf(found)
        at: _Knot[T] | None = None
        value: Hashable = None
        for read, then in reads:
            there = self._root if at is None else at.branches.get(value)
            if type(there) is not _Knot or (there.place, there.what) != read:
                there = _Knot(read)
                self._put(at, value, there)
            at, value = there, then
        self._put(at, value, leaf)
        self.leaves += 1

    def _put(self, at: "_Knot[T] | None", value: Hashable, what: "_Knot[T] | _Leaf[T]") -> None:
        if at is None:
            self._root = what
            return
        if at.place == 0 and value not in at.branches:
            # What a part of the state was before comes never again.
            at.branches.clear()
        at.branches[value] = what
