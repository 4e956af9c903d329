"""What is remembered from one question to the next. It is derived: never dumped, and no plan may depend on it.

A cache has a `CacheSlot`, which says of what type it is. The file that declares the slot is the one that fills it; what
keeps the caches (the state, the expected demand) need not know what is in them, and may drop them all at once.
"""

from typing import Generic, TypeVar, cast

T = TypeVar("T")


class CacheSlot(Generic[T]):
    """The place of one cache of this type, wherever caches are kept."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        """No other slot has it. Caches go by it, and not by the object, so that a copy of the caches finds them."""


class Caches:
    """At most one value for each slot."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, object] = {}

    def get(self, slot: CacheSlot[T]) -> T | None:
        """What is in a slot; None: nothing yet."""
        return cast("T | None", self._kept.get(slot.name))

    def put(self, slot: CacheSlot[T], value: T) -> T:
        """Fill a slot: only in the file that declares it. Gives the value."""
        self._kept[slot.name] = value
        return value

    def clear(self) -> None:
        """Empty all slots."""
        self._kept.clear()
