"""Versions of the configuration on both databases, and the history as previews read it."""

from dataclasses import replace

import pytest

from gpuyard.model import ConfigSet, Settings
from gpuyard.store import (
    CONFIG_ROWS,
    HISTORY_ROWS,
    Commit,
    ConfigVersion,
    HistoryRow,
    Store,
    VersionCause,
    hash_text,
)

ODD = "version: 1\n# \u00e9\u4e16 — text of any kind\n"


def put(store: Store, version: int, text: str, how: VersionCause = VersionCause.APPLY) -> ConfigVersion:
    made = ConfigVersion(version, 1000 * version, "ana", how, hash_text(text))
    event = ConfigSet(1000 * version, Settings(), "ana", version, made.hash)
    store.commit(None, store.head(), lambda _new: Commit([event], {CONFIG_ROWS: [(made, text)]}))
    return made


def test_a_new_store_has_no_version(store: Store) -> None:
    assert (None, []) == (store.configs.version(), store.configs.versions())


def test_the_highest_number_is_in_force_and_all_are_kept(store: Store) -> None:
    first, second = put(store, 1, ODD, VersionCause.START), put(store, 2, "version: 1\n")
    third = put(store, 3, ODD)

    assert third == store.configs.version()
    assert [third, second, first] == store.configs.versions()
    assert [third] == store.configs.versions(limit=1)
    assert (second, None) == (store.configs.version(2), store.configs.version(9))
    assert ODD.encode() == store.blob(first.hash) == store.blob(third.hash)


def test_a_number_is_given_once(store: Store) -> None:
    put(store, 1, ODD)
    head = store.head()
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        put(store, 1, "version: 1\n")

    assert head == store.head()
    assert store.blob(hash_text("version: 1\n")) is None


ROW = HistoryRow(1, "n", "t/u", "u", "batch", "COMPLETED", 1000, 5, 10, 20, detail={"limit_ms": 7})


def test_ended_jobs_come_page_by_page_the_last_to_end_first(store: Store) -> None:
    ends = {1: 50, 2: 20, 3: 30, 4: 30, 5: 30, 6: 9}
    store.bound.put(
        {HISTORY_ROWS: [replace(ROW, id=job_id, ended_ms=ended_ms) for job_id, ended_ms in ends.items()]}
    )
    found: list[int] = []
    before: tuple[int, int] | None = None
    while rows := store.history.ended_since(10, before, 2):
        found += [row[0] for row in rows]
        before = (rows[-1][4], rows[-1][0])

    assert [1, 5, 4, 3, 2] == found
    assert (1, "t/u", 5, 10, 50, 0, '{"limit_ms":7}') == store.history.ended_since(10, None, 1)[0]
