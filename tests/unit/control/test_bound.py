"""Tables that are bound to the log: declared once, written with the event by any store."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.projections import bound
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State
from gpuyard.model import Ticked
from gpuyard.store import TRY_ROWS, TryRow, open_store
from gpuyard.store.errors import StoreError
from gpuyard.testing import MemoryStore
from harness.sqlite import refusing


def _row(_state: State, event: Ticked, clock_ms: int) -> TryRow | None:
    """A row for each tick that moves the clock: what the state was before is in it, and what it is now decides."""
    return TryRow(1, event.at_ms, clock_ms, event.at_ms, "TICKED") if event.at_ms > clock_ms else None


TICKS = bound.Bound(TRY_ROWS, (Ticked,), lambda state, _event: state.now_ms, _row)


@pytest.mark.parametrize("durable", [True, False])
def test_a_projection_is_declared_once(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bound.BY_KIND, Ticked, (TICKS,))
    store: Any = open_store(tmp_path / "yard.db") if durable else MemoryStore()
    replica = Replica(store)
    for at_ms in (5, 9, 9):
        replica.commit(None, lambda draft, at_ms=at_ms: draft.add(Ticked(at_ms)))  # type: ignore[misc]
    found = store.tries.of_job(1, 99) if durable else [*store.tables["tries"].values()]
    assert [TryRow(1, 5, 0, 5, "TICKED"), TryRow(1, 9, 5, 9, "TICKED")] == found


def test_a_write_that_fails_leaves_neither_event_nor_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bound.BY_KIND, Ticked, (TICKS,))
    with open_store(tmp_path / "yard.db") as store:
        replica = Replica(store)
        with refusing(sqlite3.SQLITE_INSERT, "tries"), pytest.raises(StoreError):
            replica.commit(None, lambda draft: draft.add(Ticked(5)))
        assert (0, []) == (store.head(), store.tries.of_job(1, 99))
        replica.commit(None, lambda draft: draft.add(Ticked(7)))
        assert [(1, Ticked(7))] == store.read(0)
