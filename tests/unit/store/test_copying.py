"""A store copied whole: nothing is missing, ids go on, and what is there already is never touched."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from gpuyard.errors import BadInput
from gpuyard.store import (
    CONFIG_ROWS,
    HISTORY_ROWS,
    Commit,
    ConfigVersion,
    Store,
    StoreError,
    TokenRow,
    VersionCause,
    hash_text,
    open_store,
)
from gpuyard.store.copying import copy_store
from gpuyard.store.schema import COUNTERS, METADATA
from rigs.stores import accepted, ended, submission, ticks

NOW_S = 1_790_000_000


def filled(store: Store) -> None:
    """Rows in every table but one or two, more than are copied at once."""
    accepted(store, *[submission(3, key=f"k{n}", script=b"#!/bin/sh\necho %d" % n) for n in range(40)])
    lease = store.elect("test")
    assert lease is not None
    text_ = "version: 1\n"
    version = ConfigVersion(1, 1, "ann", VersionCause.START, hash_text(text_))
    token = TokenRow("abcdefghij", "0" * 64, "ann", "user", "lab", "", "root", "", 1, 2)
    store.commit(
        lease.epoch,
        store.head(),
        lambda _new: Commit(
            ticks(*range(2, 5_000)), {HISTORY_ROWS: [ended(1), ended(2)], CONFIG_ROWS: [(version, text_)]}
        ),
    )
    store.commit(lease.epoch, store.head(), lambda _new: Commit(ticks(5_000), token_rows=[token]))
    lease.release()


def content(store: Store) -> dict[str, list[Any]]:
    with store._backend.reading() as conn:
        return {
            table.name: [
                tuple(row) for row in conn.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in METADATA.sorted_tables
            if table is not COUNTERS
        }


def test_a_copy_holds_every_row_and_ids_go_on(store: Store, place: str, tmp_path: Path) -> None:
    filled(store)
    target = tmp_path / "copy.db"

    done = copy_store(place, target, NOW_S)

    with open_store(target) as copy:
        assert content(store) == content(copy)
        assert store.yard == copy.yard
        assert 121 == done.next_job_id == accepted(copy, submission())[0].first_id
    with open_store(target) as copy:
        # Whoever leads on the copy is believed at once by an engine that knows later epochs of the source.
        assert NOW_S == copy._backend.counters().epoch
        assert store._backend.counters().next_seq + 1 == copy._backend.counters().next_seq
    assert 5_119 == done.rows["events"]
    assert all(done.rows[name] for name in ("blobs", "history", "configs", "tokens", "idempotency"))
    assert done.writer is None


def test_from_a_file_to_postgresql_and_back(tmp_path: Path, postgres_url: str) -> None:
    with open_store(tmp_path / "yard.db") as store:
        filled(store)
        before = content(store)
    copy_store(tmp_path / "yard.db", postgres_url, NOW_S)
    copy_store(postgres_url, tmp_path / "back.db", NOW_S)
    with open_store(postgres_url) as moved, open_store(tmp_path / "back.db") as back:
        assert before == content(moved) == content(back)


def test_a_target_that_holds_a_yard_is_left_alone(store: Store, place: str, tmp_path: Path) -> None:
    filled(store)
    with open_store(tmp_path / "other.db") as other:
        accepted(other, submission())
        before = content(other)
        with pytest.raises(BadInput, match=r"other\.db is not empty: it holds a yard, with events"):
            copy_store(place, tmp_path / "other.db", NOW_S)
        assert before == content(other)
    with pytest.raises(BadInput, match="one store"):
        copy_store(place, place, NOW_S)


def test_a_store_in_use_is_copied_as_it_was_at_one_moment(store: Store, place: str, tmp_path: Path) -> None:
    filled(store)
    lease = store.elect("somebody")
    assert lease is not None

    def go_on(table: str, _rows: int) -> None:
        # Submissions between two tables: the copy must not have half of them.
        accepted(store, submission(key=f"late-{table}", script=table.encode()))

    done = copy_store(place, tmp_path / "copy.db", NOW_S, go_on)

    lease.release()
    assert done.writer is not None
    with open_store(tmp_path / "copy.db") as copy:
        assert 121 == done.next_job_id == accepted(copy, submission())[0].first_id
        assert [] == [row for row in content(copy)["idempotency"] if row[1].startswith("late")]


def test_what_is_no_store_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no store at"):
        copy_store(tmp_path / "none.db", tmp_path / "copy.db", NOW_S)
    (tmp_path / "empty.db").touch()
    with pytest.raises(BadInput, match=r"empty\.db holds no yard"):
        copy_store(tmp_path / "empty.db", tmp_path / "copy.db", NOW_S)
    assert ["empty.db"] == sorted(
        path.name for path in tmp_path.iterdir() if not path.name.startswith("empty.db-")
    )


def test_tables_of_another_release_are_not_copied(tmp_path: Path) -> None:
    with open_store(tmp_path / "yard.db") as store, store._backend.writing() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    with pytest.raises(StoreError, match="tables of version 0001") as caught:
        copy_store(tmp_path / "yard.db", tmp_path / "copy.db", NOW_S)
    assert "Copy it with the release that made it" in caught.value.hint


def test_a_copy_that_fails_leaves_the_target_empty(store: Store, place: str, tmp_path: Path) -> None:
    filled(store)

    def fail(table: str, _rows: int) -> None:
        if table == "events":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(place, tmp_path / "copy.db", NOW_S, fail)
    assert 5_119 == copy_store(place, tmp_path / "copy.db", NOW_S).rows["events"]
