"""Snapshots: saved, kept, damaged, and what may be pruned."""

import logging

import pytest
from sqlalchemy import update

from gpuyard.core import State, apply
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.store import Store, StoreDamaged, StoreError
from gpuyard.store.schema import SNAPSHOTS
from gpuyard.store.snapshots import ANCHOR_MS
from gpuyard.testing import nodes
from harness.yard import Yard
from rigs.stores import accepted, submission, ticks


def damage(store: Store, seq: int, **values: object) -> None:
    """Change a snapshot behind the store's back."""
    with store._backend.writing() as conn:
        conn.execute(update(SNAPSHOTS).where(SNAPSHOTS.c.seq == seq).values(**values))


def test_there_is_none_at_first(store: Store) -> None:
    assert store.snapshots.latest() is None


def test_the_newest_ones_are_kept_and_the_first_of_every_week(store: Store) -> None:
    store.append(ticks(*range(9)))
    for seq in (1, 2, 4, 6, 8):
        store.snapshots.save(seq, {"at": seq}, now_ms=seq if seq < 4 else ANCHOR_MS + seq, keep=2)

    assert [8, 6, 4, 1] == [seq for seq, _ in store.snapshots.newest_first()]
    assert (8, {"at": 8}) == store.snapshots.latest()
    assert (6, {"at": 6}) == store.snapshots.latest(until_seq=7)
    assert (1, {"at": 1}) == store.snapshots.latest(until_seq=3)


def test_an_old_log_is_cut_where_it_can_still_be_folded(store: Store) -> None:
    store.append(ticks(*range(10)))
    assert 0 == store.forget_log(10**15)
    for week, seq in enumerate((3, 5, 8)):
        store.snapshots.save(seq, {"at": seq}, now_ms=week * ANCHOR_MS, keep=1)

    assert 0 == store.forget_log(-1)
    assert 5 == store.forget_log(2 * ANCHOR_MS - 1)
    assert [8, 5] == [seq for seq, _ in store.snapshots.newest_first()]
    assert [6, 7, 8, 9, 10] == [seq for seq, _ in store.read(5)]
    assert 0 == store.forget_log(2 * ANCHOR_MS - 1)


def test_a_log_is_not_cut_at_a_damaged_snapshot(store: Store) -> None:
    store.append(ticks(*range(10)))
    store.snapshots.save(3, {}, now_ms=0)
    store.snapshots.save(6, {}, now_ms=1)
    damage(store, 6, checksum="0")

    assert 3 == store.forget_log(1)
    assert [4, 5, 6, 7, 8, 9, 10] == [seq for seq, _ in store.read(3)]


def test_saving_again_replaces(store: Store) -> None:
    store.append(ticks(1))
    store.snapshots.save(1, "old", now_ms=1)
    store.snapshots.save(1, "new", now_ms=2)

    assert [(1, "new")] == list(store.snapshots.newest_first())


def test_a_snapshot_of_the_future_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="a log that ends at 0"):
        store.snapshots.save(1, {}, now_ms=1)


@pytest.mark.parametrize("values", [{"body": b"garbage"}, {"checksum": "0"}])
def test_a_damaged_one_is_passed_over_and_said_so(
    store: Store, caplog: pytest.LogCaptureFixture, values: dict[str, object]
) -> None:
    store.append(ticks(1, 2, 3))
    store.snapshots.save(1, "first", now_ms=1)
    store.snapshots.save(2, "second", now_ms=2)
    damage(store, 2, **values)

    with caplog.at_level(logging.WARNING):
        assert (1, "first") == store.snapshots.latest()
    assert "snapshot at event 2" in caplog.text
    damage(store, 1, **values)
    assert store.snapshots.latest() is None


def test_pruning_needs_a_whole_snapshot(store: Store) -> None:
    store.append(ticks(*range(10)))
    with pytest.raises(StoreError, match="the oldest snapshot is missing"):
        store.snapshots.prune(2)
    store.snapshots.save(5, {}, now_ms=1)
    store.snapshots.save(8, {}, now_ms=1)
    with pytest.raises(StoreError, match="the oldest snapshot is at event 5"):
        store.snapshots.prune(7)

    assert 5 == store.snapshots.prune(6)
    assert 0 == store.snapshots.prune(6)
    assert [6, 7, 8, 9, 10] == [seq for seq, _ in store.read(5)]
    assert [11] == store.append(ticks(11))


def test_a_pruned_log_without_its_snapshot_is_damaged(store: Store) -> None:
    store.append(ticks(*range(10)))
    store.snapshots.save(5, {}, now_ms=1)
    store.snapshots.prune(6)
    damage(store, 5, checksum="0")

    with pytest.raises(StoreDamaged, match="its log begins at 6"):
        store.snapshots.latest()
    with pytest.raises(StoreDamaged, match="nothing was pruned"):
        store.snapshots.prune(6)


def test_snapshot_and_tail_amount_to_the_whole_log(store: Store) -> None:
    store.append(Yard(fleet=nodes(2)).log)
    accepted(store, submission(3))
    state = State()
    for _, event in store.read(0):
        apply(state, event)
    store.snapshots.save(store.head(), dump(state), now_ms=1)
    accepted(store, submission(2, at_ms=5))

    found = store.snapshots.latest()
    assert found is not None
    resumed = load(found.plain)
    whole = State()
    for _, event in store.read(found.seq):
        apply(resumed, event)
    for _, event in store.read(0):
        apply(whole, event)
    assert canonical(whole) == canonical(resumed)
