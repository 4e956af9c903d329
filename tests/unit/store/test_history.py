"""Listings of ended jobs, page by page."""

import json

import pytest

from gpuyard.store import HISTORY_ROWS, Commit, HistoryQuery, Store
from rigs.stores import ended, ticks

ROWS = [
    ended(1),
    ended(2, tenant="lab", state="FAILED", exit_code=3, why="exit code 3"),
    ended(3, tenant="laboratory", user="bob"),
    ended(4, tenant="lab/vision/deep", name="eval", detail={"nodes": ["n1"], "attempts": [{"n": 1}]}),
    ended(5, array_id=5, array_index=0, state="TIMEOUT", user="bob"),
    ended(6, array_id=5, array_index=1),
    ended(7, tenant="l%b", gpus_milli=1 << 40),
]


@pytest.fixture
def filled(store: Store) -> Store:
    store.bound.put({HISTORY_ROWS: ROWS})
    return store


CASES = [
    (HistoryQuery(), [7, 6, 5, 4, 3, 2, 1]),
    (HistoryQuery(limit=2), [7, 6]),
    (HistoryQuery(limit=2, before_id=6), [5, 4]),
    (HistoryQuery(states=["FAILED", "TIMEOUT"]), [5, 2]),
    (HistoryQuery(tenant="lab"), [6, 5, 4, 2, 1]),
    (HistoryQuery(tenant="lab/vision"), [6, 5, 4, 1]),
    (HistoryQuery(tenant="l%b"), [7]),
    (HistoryQuery(user="bob"), [5, 3]),
    (HistoryQuery(user="bob", states=["TIMEOUT"]), [5]),
    (HistoryQuery(name="eval"), [4]),
    (HistoryQuery(array_id=5), [6, 5]),
    (HistoryQuery(submitted_from_ms=30, submitted_until_ms=50), [4, 3]),
    (HistoryQuery(ended_from_ms=62), [7, 6]),
    (HistoryQuery(ended_until_ms=12), []),
    (HistoryQuery(user="nobody"), []),
    (HistoryQuery(limit=0), [7]),
]


def test_filters(filled: Store) -> None:
    """One store for all of them: nothing is changed."""
    assert CASES == [(query, [row.id for row in filled.history.search(query)]) for query, _ in CASES]


def test_jobs_that_ended_before_they_ran_are_left_out(store: Store) -> None:
    store.bound.put({HISTORY_ROWS: [ended(1), *[ended(n, started_ms=0) for n in (2, 3)]]})

    assert [1] == [row.id for row in store.history.search(HistoryQuery(ran=True, limit=1))]
    assert [3, 2, 1] == [row.id for row in store.history.search(HistoryQuery())]


def test_what_ran_between_two_moments_comes_as_plain_values(filled: Store) -> None:
    found = filled.history.ran_between(41, 60)
    assert [(4, "lab/vision/deep", "ann", 1000, 40, 41, 42), (5, "lab/vision", "bob", 1000, 50, 51, 52)] == [
        row[:-1] for row in found
    ]
    assert [ROWS[3].detail, ROWS[4].detail] == [json.loads(row[-1]) for row in found]


def test_rows_come_back_whole(filled: Store) -> None:
    assert list(reversed(ROWS)) == filled.history.search(HistoryQuery())
    assert ROWS[3] == filled.history.find(4)
    assert filled.history.find(99) is None


def test_tasks_of_an_array_by_index(filled: Store) -> None:
    assert [5, 6] == [row.id for row in filled.history.of_array(5)]
    assert [6] == [row.id for row in filled.history.of_array(5, after_index=0)]


def test_a_row_is_written_with_the_commit_that_ends_the_job(store: Store) -> None:
    lease = store.elect("a")
    assert lease is not None
    store.commit(lease.epoch, 0, lambda _new: Commit(ticks(1), {HISTORY_ROWS: [ended(1), ended(2)]}))
    store.commit(lease.epoch, 1, lambda _new: Commit([], {HISTORY_ROWS: [ended(2, why="again")]}))

    assert [ended(2, why="again"), ended(1)] == store.history.search(HistoryQuery())
    assert 1 == store.head()
    lease.release()


def test_no_text_stops_a_job_from_ending(store: Store) -> None:
    store.bound.put({HISTORY_ROWS: [ended(1, why="a\0b\ud800", name="é")]})

    row = store.history.find(1)
    assert row is not None
    assert ("a\ufffdb?", "é") == (row.why, row.name)
    store.bound.put(
        {HISTORY_ROWS: [ended(2, tenant="t" * 100_000, user="\U0001f600" * 5000, gpus_milli=1 << 80)]}
    )
    assert store.history.find(2) is not None
