"""Values that are made of rows, remembered from batch to batch."""

from itertools import islice
from typing import Generic, TypeVar

SHELF_MAX = 50_000
"""How many values of a kind are remembered, with their rows on disk."""
K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """Values made of rows: those that may have changed since the rows were written, and others."""

    __slots__ = ("_same", "touched")

    def __init__(self) -> None:
        self.touched: dict[K, V] = {}
        """Those that may have changed."""
        self._same: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """A value, to be changed."""
        found = self.touched.get(key)
        if found is None and self._same:
            found = self._same.pop(key, None)
            if found is not None:
                self.touched[key] = found
        return found

    def drop(self, key: K) -> V | None:
        """Forget a value; what it was."""
        same = self._same.pop(key, None)
        return self.touched.pop(key, same)

    def keep(self, key: K, value: V) -> None:
        """Remember a value that the rows have as it is."""
        self._same[key] = value

    def take(self) -> dict[K, V]:
        """What may have changed since this was asked last."""
        touched = self.touched
        self._same |= touched
        self.touched = {}
        return touched

    def forget(self) -> bool:
        """Forget the older half if there are too many; whether there were."""
        full = len(self._same) > SHELF_MAX
        if full:
            self._same = dict(islice(self._same.items(), len(self._same) // 2, None))
        return full
