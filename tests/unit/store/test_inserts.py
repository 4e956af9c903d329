"""Rows go into SQLite past SQLAlchemy, and everything about them is as if they had not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, Table, Text, create_engine, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError

from gpuyard.store.backend.inserts import insert_rows
from gpuyard.store.errors import StoreError, translate_errors

# Names that SQL has itself, and columns in another order than the rows.
THINGS = Table(
    "things",
    MetaData(),
    Column("key", Text, primary_key=True),
    Column("order", Integer, nullable=False),
    Column("body", LargeBinary),
)


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[Connection]:
    engine = create_engine(f"sqlite:///{tmp_path / 'things.db'}")
    THINGS.metadata.create_all(engine)
    with engine.begin() as made:
        yield made
    engine.dispose()


def rows(numbers: range) -> list[dict[str, object]]:
    return [{"body": b"\0%d" % number, "order": number, "key": f"k{number}"} for number in numbers]


def found(conn: Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in conn.execute(select(THINGS).order_by(THINGS.c.order))]


@pytest.mark.parametrize("count", [1, 3, 4, 16, 63, 64, 150])
def test_every_row_is_written_once_with_each_value_in_its_column(conn: Connection, count: int) -> None:
    insert_rows(conn, insert(THINGS), rows(range(count)))
    assert [(f"k{number}", number, b"\0%d" % number) for number in range(count)] == found(conn)


def test_columns_that_are_left_out_stay_empty(conn: Connection) -> None:
    insert_rows(conn, insert(THINGS), [{"key": "a", "order": 1}, {"key": "b", "order": 2}])
    assert [("a", 1, None), ("b", 2, None)] == found(conn)


def test_what_is_there_stays_where_the_statement_says_so(conn: Connection) -> None:
    statement = insert(THINGS).on_conflict_do_nothing()
    insert_rows(conn, statement, rows(range(5)))
    insert_rows(conn, statement, [{"body": b"new", "order": 7, "key": "k3"}, *rows(range(5, 7))])
    assert [b"\0%d" % number for number in range(7)] == [row[2] for row in found(conn)]


def test_what_is_there_is_replaced_where_the_statement_says_so(conn: Connection) -> None:
    plain = insert(THINGS)
    statement = plain.on_conflict_do_update(index_elements=["key"], set_={"body": plain.excluded.body})
    insert_rows(conn, statement, rows(range(2)))
    insert_rows(conn, statement, [{"body": b"new", "order": 1, "key": "k1"}])
    assert [("k0", 0, b"\x000"), ("k1", 1, b"new")] == found(conn)


def test_an_error_of_the_driver_comes_out_as_one_of_ours(conn: Connection) -> None:
    insert_rows(conn, insert(THINGS), rows(range(1)))
    with pytest.raises(SQLAlchemyError):
        insert_rows(conn, insert(THINGS), rows(range(1)))
    with pytest.raises(StoreError, match=r"UNIQUE constraint failed: things\.key"), translate_errors("here"):
        insert_rows(conn, insert(THINGS), rows(range(1)))


def test_a_statement_with_a_value_of_its_own_goes_the_long_way(conn: Connection) -> None:
    statement = insert(THINGS).on_conflict_do_update(index_elements=["key"], set_={"order": 9})
    insert_rows(conn, statement, rows(range(2)))
    insert_rows(conn, statement, rows(range(1)))
    assert [1, 9] == [row[1] for row in found(conn)]
