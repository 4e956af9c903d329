"""Tries that did not end their job: kept with the event that ended them, read oldest first."""

from typing import Any

import pytest

from gpuyard.store import HISTORY_ROWS, TRY_ROWS, Commit, Store, TryRow, log
from gpuyard.store.tables.tries import TRIES_MAX
from rigs.stores import ended, ticks


def tried(job_id: int, attempt: int, **fields: Any) -> TryRow:
    """A try with everything filled in."""
    plain: dict[str, Any] = {
        "started_ms": attempt * 100,
        "ended_ms": attempt * 100 + 50,
        "outcome": "NODE_FAIL",
        "exit_code": 1,
        "why": "its node failed",
        "nodes": ("n1", "n2"),
        "gpu_indices": ((0, 1), (7,)),
    }
    return TryRow(job_id, attempt, **{**plain, **fields})


def test_rows_come_back_whole_and_in_order(store: Store) -> None:
    rows = [tried(7, 2, nodes=("é\0",)), tried(7, 1), tried(8, 1, nodes=(), gpu_indices=()), tried(7, 3)]
    store.bound.put({TRY_ROWS: rows})
    assert [rows[1], rows[0], rows[3]] == store.tries.of_job(7, 9)
    assert [rows[1], rows[0]] == store.tries.of_job(7, 2)
    assert [rows[0]] == store.tries.of_job(7, 2, limit=1)
    assert [rows[2]] == store.tries.of_job(8, 1)
    assert [] == store.tries.of_job(9, 1)


def test_of_many_the_last_are_read(store: Store) -> None:
    store.bound.put({TRY_ROWS: [tried(1, attempt) for attempt in range(1, 2 * TRIES_MAX)]})
    found = [row.attempt for row in store.tries.of_job(1, 2 * TRIES_MAX, limit=10_000)]
    assert list(range(TRIES_MAX, 2 * TRIES_MAX)) == found


def test_a_row_is_written_with_the_commit_that_ends_the_try(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = store.elect("a")
    assert lease is not None
    store.commit(
        lease.epoch, 0, lambda _new: Commit(ticks(1), {HISTORY_ROWS: [ended(2)], TRY_ROWS: [tried(1, 1)]})
    )
    assert [tried(1, 1)] == store.tries.of_job(1, 1)

    def torn(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(log.WriteBatch, "write", torn)
    with pytest.raises(OSError, match="no space"):
        store.commit(lease.epoch, 1, lambda _new: Commit(ticks(2), {TRY_ROWS: [tried(1, 2)]}))
    # Neither the event nor the row: it is one transaction.
    assert (1, [tried(1, 1)]) == (store.head(), store.tries.of_job(1, 9))
    lease.release()


def test_a_row_may_be_written_again(store: Store) -> None:
    store.bound.put({TRY_ROWS: [tried(1, 1), tried(1, 2)]})
    store.bound.put({TRY_ROWS: [tried(1, 1, why="made anew")]})
    assert ["made anew", "its node failed"] == [row.why for row in store.tries.of_job(1, 2)]


def test_no_text_and_no_number_stops_a_try_from_ending(store: Store) -> None:
    store.bound.put(
        {TRY_ROWS: [tried(1, 1, why="a\0b\ud800" + "x" * 100_000, exit_code=1 << 80, nodes=("\ud800",))]}
    )
    (row,) = store.tries.of_job(1, 1)
    assert ("a\ufffdb?", 600, (1 << 63) - 1) == (row.why[:4], len(row.why), row.exit_code)
