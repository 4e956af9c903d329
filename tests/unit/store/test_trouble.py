"""No space, no permission, no turn, no server, no sense: each is said, nothing is half written, reads go on."""

import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from gpuyard.store import (
    Store,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
    open_store,
)
from gpuyard.store.errors import explain
from rigs.components import skip_or_fail
from rigs.postgres import PostgresServer
from rigs.stores import accepted, submission, ticks

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0777", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        skip_or_fail(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the space that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def submit_scripts(store: Store, acknowledged: list[int]) -> None:
    """Until it is refused."""
    for _ in range(200):
        acknowledged.append(accepted(store, submission(script=os.urandom(64 * 1024)))[0].first_id)


def check_full(store: Store, ballast: Path) -> None:
    """Writes are refused and leave no trace, reads go on; with space again so do writes."""
    acknowledged = [store.head()]
    for _ in range(3):
        with pytest.raises(StoreFull, match="no space left") as caught:
            submit_scripts(store, acknowledged)
        assert "Free some space" in caught.value.hint
        assert acknowledged[-1] == store.head() == len(store.read(0))
    ballast.unlink()
    assert acknowledged[-1] + 1 == accepted(store, submission())[0].first_id == store.head()


def test_a_full_disk_under_sqlite(small_disk: Path) -> None:
    with open_store(small_disk / "yard.db") as store:
        accepted(store, submission())
        check_full(store, fill(small_disk))


def test_a_full_disk_under_postgresql(postgres_server: PostgresServer, small_disk: Path) -> None:
    space = small_disk / "space"
    space.mkdir()
    if os.geteuid() == 0:
        subprocess.run(["chown", "postgres", str(space)], check=True)
        for folder in small_disk.parents:
            if folder.stat().st_mode & 0o001 == 0:
                folder.chmod(folder.stat().st_mode | 0o001)
    postgres_server.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
    url = postgres_server.fresh(default_tablespace="small")
    try:
        with open_store(url) as store:
            accepted(store, submission())
            check_full(store, fill(small_disk))
    finally:
        postgres_server.execute(f"DROP SCHEMA {url.split('search_path%3D')[1].split('%20')[0]} CASCADE")
        postgres_server.execute("DROP TABLESPACE small")


def test_a_size_limit_on_the_file_is_a_full_disk(tmp_path: Path) -> None:
    """Where nothing can be mounted this is what shows the same."""
    with open_store(tmp_path / "yard.db") as store:
        accepted(store, submission())
        with store._backend.writer.connect() as conn:
            pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
            conn.exec_driver_sql(f"PRAGMA max_page_count={pages + 4}")
        with pytest.raises(StoreFull):
            accepted(store, submission(script=os.urandom(MIB)))
        assert 1 == len(store.read(0))
        with store._backend.writer.connect() as conn:
            conn.exec_driver_sql("PRAGMA max_page_count=1073741823")
        assert 2 == accepted(store, submission())[0].first_id


def test_an_election_on_a_full_disk_does_not_keep_the_lease(tmp_path: Path) -> None:
    with open_store(tmp_path / "yard.db") as store:
        with store._backend.writer.connect() as conn:
            conn.exec_driver_sql("PRAGMA query_only=ON")
        with pytest.raises(StoreReadOnly):
            store.elect("a")
        lease = store.elect("a")
        assert lease is not None
        assert 1 == lease.epoch
        lease.release()


def test_a_store_that_becomes_read_only_under_sqlite(tmp_path: Path) -> None:
    with open_store(tmp_path / "yard.db") as store:
        accepted(store, submission())
        with store._backend.writer.connect() as conn:
            conn.exec_driver_sql("PRAGMA query_only=ON")

        with pytest.raises(StoreReadOnly, match="no permission to write"):
            accepted(store, submission())
        assert 1 == len(store.read(0))
        assert 2 == accepted(store, submission())[0].first_id


def test_a_read_only_disk_under_sqlite(small_disk: Path) -> None:
    with open_store(small_disk / "yard.db") as store:
        accepted(store, submission())
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    for path in (small_disk / "yard.db", small_disk / "new.db"):
        with pytest.raises(StoreReadOnly, match=str(path)):
            open_store(path)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with open_store(small_disk / "yard.db") as store:
        assert 1 == store.head()


def test_a_store_that_becomes_read_only_under_postgresql(postgres_server: PostgresServer) -> None:
    with open_store(postgres_server.fresh()) as store:
        accepted(store, submission())
        postgres_server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        postgres_server.execute("SELECT pg_reload_conf()")
        try:
            with pytest.raises(StoreReadOnly, match="no permission to write"):
                accepted_until_refused(store)
            assert store.head() == len(store.read(0))
        finally:
            with_write = postgres_server.url(default_transaction_read_only="off")
            postgres_server.execute("ALTER SYSTEM RESET default_transaction_read_only", with_write)
            postgres_server.execute("SELECT pg_reload_conf()")
        until_accepted(store)


def accepted_until_refused(store: Store) -> None:
    """Sessions hear of new settings a moment later."""
    for _ in range(200):
        accepted(store, submission())


def until_accepted(store: Store) -> None:
    for _ in range(200):
        try:
            accepted(store, submission())
            return
        except StoreReadOnly:
            continue
    raise AssertionError("still read-only")


def test_a_writer_waits_its_turn_and_then_gives_up(place: str) -> None:
    with open_store(place) as holder, open_store(place, busy_s=0.2) as store:
        with holder._backend.writing() as conn:
            holder._backend.lock_counters(conn)
            with pytest.raises(StoreBusy):
                store.append(ticks(1))
            assert 0 == store.head()
        assert [1] == store.append(ticks(1))


def test_a_thread_waits_its_turn_and_then_gives_up(place: str) -> None:
    with open_store(place, busy_s=0.2) as store:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with store._backend.writing():
                inside.set()
                leave.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait()
        with pytest.raises(StoreBusy, match="another thread"):
            store.append(ticks(1))
        leave.set()
        holder.join()
        assert [1] == store.append(ticks(1))


def test_lost_connections_are_made_again(postgres_server: PostgresServer) -> None:
    with open_store(postgres_server.fresh()) as store:
        store.append(ticks(1))
        postgres_server.execute(
            # With a time the server answers only once they are gone.
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'gpuyard'"
        )
        assert [2] == store.append(ticks(2))


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match=r"cannot reach postgresql://yard:\*\*\*@") as caught:
        open_store(f"postgresql://yard:secret@/yard?host={tmp_path}")
    assert "secret" not in str(caught.value)
    # libpq ends its sentence with a new line and a tab, and what is printed of a message shows these as they are.
    assert "Is the server running" in str(caught.value)
    assert not {"\n", "\t"} & set(str(caught.value))


def test_a_database_that_is_not_there(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreUnreachable, match="does not exist"):
        open_store(postgres_server.url("nowhere"))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("milk, bread, GPUs\n" * 100)

    with pytest.raises(StoreDamaged, match="notes"):
        open_store(tmp_path / "notes")
    assert "milk" in (tmp_path / "notes").read_text()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        open_store(tmp_path / "missing" / "yard.db")
    with pytest.raises(StoreError, match="is not a file"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (SimpleNamespace(sqlstate="53100"), StoreFull),
        (SimpleNamespace(sqlstate="25006"), StoreReadOnly),
        (SimpleNamespace(sqlstate="55P03"), StoreBusy),
        (SimpleNamespace(sqlstate="57P01"), StoreUnreachable),
        (SimpleNamespace(sqlstate="08006"), StoreUnreachable),
        (SimpleNamespace(sqlstate="XX001"), StoreDamaged),
        (SimpleNamespace(sqlstate="22003"), StoreError),
        (sqlite3.OperationalError("something"), StoreError),
    ],
)
def test_codes(cause: object, expected: type[StoreError]) -> None:
    assert expected is type(explain(OperationalError("", {}, cause), "here"))  # type: ignore[arg-type]
