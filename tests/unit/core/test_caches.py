"""Caches: typed slots, which a copy keeps and `clear` empties."""

import pickle

from gpuyard.core.caches import Caches, CacheSlot

ENDS: CacheSlot[list[int]] = CacheSlot("ends of a test")
NAMES: CacheSlot[dict[int, str]] = CacheSlot("names of a test")


def test_a_slot_has_what_was_put_in_last() -> None:
    caches = Caches()

    assert caches.get(ENDS) is None
    assert [1] == caches.put(ENDS, [1])
    assert [2, 3] == caches.put(ENDS, [2, 3])
    assert [2, 3] == caches.get(ENDS)
    assert caches.get(NAMES) is None


def test_a_copy_finds_what_was_put_in() -> None:
    """A forecast copies the state of a yard by `pickle`."""
    caches = Caches()
    caches.put(NAMES, {1: "a"})

    assert {1: "a"} == pickle.loads(pickle.dumps(caches)).get(NAMES)


def test_cleared_caches_are_empty() -> None:
    caches = Caches()
    caches.put(ENDS, [1])
    caches.clear()

    assert caches.get(ENDS) is None
