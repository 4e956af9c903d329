"""Tables: made by steps, equal to what the code expects, and never taken back to an older release."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from importlib.resources import files
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, select, text

from gpuyard.store import StoreError, open_store
from gpuyard.store.backend.sqlite import switch_to_wal
from gpuyard.store.migrate import steps, update
from gpuyard.store.schema import METADATA
from rigs.stores import ticks


def test_a_store_by_steps_and_one_made_at_once_are_what_the_code_expects(place: str) -> None:
    def seen(conn: Connection) -> list[object]:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert [] == compare_metadata(context, METADATA)
        found = MetaData()
        found.reflect(conn)
        columns = [
            (str(each), str(each.type), each.nullable, each.primary_key, each.server_default is None)
            for table in found.sorted_tables
            for each in table.columns
        ]
        keys = sorted(
            (str(index.name), *index.columns.keys())
            for table in found.sorted_tables
            for index in table.indexes
        )
        rows = [conn.execute(select(found.tables[name])).all() for name in ("counters", "alembic_version")]
        return [sorted(columns), keys, rows]

    with open_store(place) as store:
        with store._backend.reading() as conn:
            at_once = seen(conn)
        with store._backend.writing() as conn:
            found = MetaData()
            found.reflect(conn)
            found.drop_all(conn)
            update(conn)
        with store._backend.reading() as conn:
            assert at_once == seen(conn)
    assert ScriptDirectory(str(files("gpuyard.store") / "migrations")).get_heads() == [steps()[-1]]


def test_a_store_that_is_up_to_date_is_opened_without_alembic(tmp_path: Path) -> None:
    program = (
        "import sys; from gpuyard.store import open_store; "
        "open_store(sys.argv[1]).close(); print('alembic' in sys.modules)"
    )
    for _ in ("new", "old"):
        said = subprocess.check_output([sys.executable, "-c", program, tmp_path / "yard.db"], text=True)
        assert "False\n" == said


def test_newer_tables_are_left_alone(place: str) -> None:
    with open_store(place) as store, store._backend.writing() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        conn.execute(text("UPDATE meta SET value = '7.0.0' WHERE name = 'code_version'"))

    with pytest.raises(StoreError, match=r"tables of version 9999, made by gpuyard 7\.0\.0") as caught:
        open_store(place)
    assert "newer release" in caught.value.hint


@pytest.mark.parametrize(
    ("busy", "code", "passes"), [(2, sqlite3.SQLITE_BUSY, True), (1, sqlite3.SQLITE_IOERR, False)]
)
def test_where_sqlite_does_not_wait_for_its_turn_we_do(busy: int, code: int, passes: bool) -> None:
    raw = sqlite3.connect(":memory:")

    class Connection:
        left = busy

        def execute(self, _words: str) -> sqlite3.Cursor:
            self.left -= 1
            if self.left >= 0:
                error = sqlite3.OperationalError("not now")
                error.sqlite_errorcode = code
                raise error
            return raw.cursor()

    with closing(raw), nullcontext() if passes else pytest.raises(sqlite3.OperationalError):
        switch_to_wal(Connection(), 5)  # type: ignore[arg-type]
    with pytest.raises(sqlite3.OperationalError):
        # Not for ever.
        switch_to_wal(Connection(), -1)  # type: ignore[arg-type]


def test_two_processes_may_open_a_new_store_at_once(place: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(place), range(4)))

    assert 1 == len({store.yard for store in stores})
    assert [1, 2, 3, 4] == [store.append(ticks(1))[0] for store in stores]
    for store in stores:
        store.close()


def test_two_yards_have_two_names(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as one, open_store(f"sqlite:///{tmp_path}/b%20.db") as two:
        assert one.yard != two.yard


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    """It holds scripts and environments."""
    with open_store(tmp_path / "yard.db") as store:
        store.append(ticks(1))
        assert {0o600} == {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}


@pytest.mark.parametrize("place", ["mysql://root@db/yard", "sqlite://", "://"])
def test_other_places_are_refused(place: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(place)
    assert "postgresql://" in caught.value.hint
