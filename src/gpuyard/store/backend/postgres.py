"""The store on a PostgreSQL server: for several API processes, one of which is elected leader.

Timeouts are set on the server, so that a process that is stopped, or a machine that vanishes, cannot hold up the
others: the server ends an idle transaction after a few seconds, and so it ends an idle session that holds the lease.
Timeouts, the lease and notifications belong to a session, so there must be no pooler that shares one session among
clients.

A round trip to the server means two context switches, which take long on a busy machine, and everybody else waits while
one process holds the counter row. So all writes of a transaction are sent together with its commit, and reads run
outside transactions.
"""

import hashlib
import logging
import select as readiness
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError

from gpuyard.errors import error_text
from gpuyard.store.backend.base import Backend
from gpuyard.store.backend.leader import Lease, LeaseHolder, SessionLease
from gpuyard.store.errors import StoreDamaged, StoreError, translate_errors

_log = logging.getLogger(__name__)

_VERSION_MIN = 14
"""The first release that ends idle sessions (`idle_session_timeout`)."""

_CONNECT = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

_WRITERS = (2, 2)
"""Connections kept open, and how many more may be opened: the threads of a process take turns to write, and one may
write ahead of its turn."""
_READERS = (4, 14)
_SILENT_S = 5.0
"""A connection that has been idle for this long is pinged before it is used."""
_LISTEN_S = 0.25
"""How often the listening thread looks up, to see whether it should end."""
_LISTEN_AGAIN_S = 1.0
"""Pause before a broken listening connection is made again."""


class PostgresBackend(Backend):
    """One pool of connections for writing and one for reading, one session for the lease, one to listen."""

    poll_s = 1.0

    def __init__(self, url: URL, busy_s: float, lease_s: float) -> None:
        # Wait for the counter row and then read it as it is: stricter isolation levels would refuse instead.
        writer = _engine(url, busy_s, "READ COMMITTED", _WRITERS)
        # In a transaction of that level each statement has a snapshot of its own, so reads need no transaction.
        reader = _engine(url, busy_s, "AUTOCOMMIT", _READERS)
        self.lease_s = self.idle_s = lease_s
        super().__init__(url.render_as_string(hide_password=True), writer, reader, busy_s)
        self._listening: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = threading.Event()
        for engine in (writer, reader):
            event.listen(engine, "connect", self._on_connect)

    def _on_connect(self, connection: Any, _record: Any) -> None:
        if connection.info.server_version < _VERSION_MIN * 10_000:
            found = connection.info.server_version // 10_000
            raise StoreError(
                f"{self.place} is PostgreSQL {found}; {_VERSION_MIN} or newer is needed", "Update the server."
            )
        settings = {
            "lock_timeout": int(self.busy_s * 1000),
            "idle_in_transaction_session_timeout": int((self.lease_s + 1) * 1000),
            "application_name": "gpuyard",
        }
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
        # Large scripts take a fraction of the time; the server reads either, and not every one has it.
        connection.execute(
            "SELECT set_config(name, 'lz4', false) FROM pg_settings "
            "WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY(enumvals)"
        )
        # An administrator who chose any value but "off" has a reason; "off" would acknowledge what may be lost.
        if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            connection.execute("SET synchronous_commit = on")
        if connection.execute("SHOW fsync").fetchone()[0] == "off":
            _log.info("%s runs with fsync=off: a power failure there loses acknowledged jobs", self.place)
        connection.commit()

    @property
    def channel(self) -> str:
        """Where this yard's events are announced."""
        return f"yard_{self.yard}"

    @property
    def _lock_key(self) -> int:
        return int.from_bytes(hashlib.sha256(self.channel.encode()).digest()[:8], "big", signed=True)

    @contextmanager
    def closing(self, conn: Connection) -> Iterator[None]:
        """Statements executed inside are sent together with the commit, on leaving; none of them may return rows.

        After a statement that fails the server skips the rest, and the commit with it.
        """
        session: Any = conn.connection.dbapi_connection
        try:
            with session.pipeline():
                yield
                session.execute("COMMIT")
        except self.writer.dialect.loaded_dbapi.Error as error:
            raise DBAPIError(None, None, error) from error

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction: on other connections that read, each statement has a snapshot of its own."""
        with self.explained(), self.reader.connect() as conn:
            conn.execution_options(isolation_level="REPEATABLE READ")
            with conn.begin():
                yield conn

    def written(self) -> None:
        """The server looks after its log itself."""

    def keep_room(self) -> None:
        """The disk of a database server is looked after there."""

    def leave_log(self) -> None:
        """Nor is anything of it removed here."""

    def examine(self, wait_s: float) -> None:
        """Its pages are the database server's to look at."""

    def spoil(self, damage: StoreDamaged) -> None:
        """Nothing is remembered: it may be mended while the yard runs."""

    def announce(self, conn: Connection, head: int) -> None:
        """The server delivers it when the transaction is committed."""
        conn.exec_driver_sql(f"NOTIFY \"{self.channel}\", '{head}'")

    def listen(self) -> None:
        """One thread listens, from the first wait on."""
        if self._listening is None:
            with self._starting:
                if self._listening is None:
                    self._listening = threading.Thread(target=self._hear, name="yard-listen", daemon=True)
                    self._listening.start()

    def _hear(self) -> None:
        while not self._closed.is_set():
            try:
                with self._session() as conn:
                    conn.execute(text(f'LISTEN "{self.channel}"'))
                    self.notifier.notify(self.head())
                    self._hear_on(conn.connection.dbapi_connection)
            except Exception as error:  # Whatever broke the connection, waiters still poll.
                _log.warning("listening on %s failed, trying again: %s", self.place, error_text(error))
                self._closed.wait(_LISTEN_AGAIN_S)

    def _hear_on(self, connection: Any) -> None:
        while not self._closed.is_set():
            for notice in connection.notifies(timeout=_LISTEN_S):
                self.notifier.notify(int(notice.payload))
                if self._closed.is_set():
                    return

    def _session(self) -> Connection:
        """A connection of its own, outside the pool, each statement of which is a transaction."""
        conn = self.writer.connect().execution_options(isolation_level="AUTOCOMMIT")
        conn.detach()
        return conn

    def elect(self, holder: str) -> Lease | None:
        """The advisory lock, then the next epoch, both in one session: if it is lost between them, nothing is won."""
        with translate_errors(self.place):
            conn = self._session()
            try:
                lease = self._elect(conn, holder)
            except BaseException:
                conn.close()
                raise
            if lease is None:
                conn.close()
            return lease

    def _elect(self, conn: Connection, holder: str) -> Lease | None:
        if not conn.scalar(select(func.pg_try_advisory_lock(self._lock_key))):
            return None
        # The server cuts names at 63 bytes.
        name = f"gpuyard leader {holder}".encode("ascii", "replace")[:63].decode("ascii")
        for setting, value in (
            ("application_name", name),
            ("idle_session_timeout", str(int(self.lease_s * 1000))),
        ):
            conn.execute(select(func.set_config(setting, value, False)))
        epoch = conn.scalar(text("UPDATE counters SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch"))
        return SessionLease(conn, int(epoch), holder, self.lease_s)

    def who_leads(self) -> LeaseHolder | None:
        """The session that holds the advisory lock."""
        key = self._lock_key & ((1 << 64) - 1)
        query = text(
            "SELECT a.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
            "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
            "AND l.classid::bigint = :high AND l.objid::bigint = :low "
            "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        with self.reading() as conn:
            row = conn.execute(query, {"high": key >> 32, "low": key & 0xFFFFFFFF}).first()
        return LeaseHolder(row[0], row[1].removeprefix("gpuyard leader ")) if row else None

    def close(self) -> None:
        """End the listener first: it uses a connection."""
        self._closed.set()
        if self._listening is not None:
            self._listening.join(timeout=2)
        super().close()


def is_postgresql(url: str) -> bool:
    """Whether the text names a PostgreSQL server."""
    return url.partition("://")[0].partition("+")[0] in {"postgresql", "postgres"}


def _engine(url: URL, busy_s: float, isolation: str, sizes: tuple[int, int]) -> Engine:
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=sizes[0],
        max_overflow=sizes[1],
        pool_timeout=busy_s,
        isolation_level=isolation,
        # What people sent is in no message about a statement that failed.
        hide_parameters=True,
        connect_args={key: value for key, value in _CONNECT.items() if key not in url.query},
    )

    @event.listens_for(engine, "checkout")
    def check_alive(session: Any, record: Any, _proxy: Any) -> None:
        """A restarted server is noticed before a transaction begins, not inside one: the connection is closed."""
        now_s = time.monotonic()
        before_s = record.info.get("used_s", now_s)
        record.info["used_s"] = now_s
        if now_s - before_s < _SILENT_S and not session.closed and not _heard_from(session):
            return
        try:
            engine.dialect.do_ping(session)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError(str(error)) from error

    return engine


def _heard_from(session: Any) -> bool:
    """Whether the server has sent anything unasked, such as that it closes the connection. Takes no round trip."""
    poll = readiness.poll()
    poll.register(session.fileno(), readiness.POLLIN)
    return bool(poll.poll(0))
