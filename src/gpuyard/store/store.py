"""The store as the rest of gpuyard sees it: the log, and one part for each subject, whichever database is below."""

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType

from sqlalchemy import bindparam, delete, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from gpuyard.extras import install_text
from gpuyard.model import Event
from gpuyard.store.backend.base import Backend, Counters
from gpuyard.store.backend.leader import Lease, LeaseHolder
from gpuyard.store.backend.postgres import PostgresBackend, is_postgresql
from gpuyard.store.backend.sqlite import SqliteBackend
from gpuyard.store.codec import CODEC, Codec, EncodedLine
from gpuyard.store.errors import StoreDamaged, StoreError
from gpuyard.store.log import READ_MAX, Commit, EventLog, Numbered
from gpuyard.store.removals import Removals
from gpuyard.store.schema import BLOBS, IDEMPOTENCY
from gpuyard.store.snapshots import Snapshots
from gpuyard.store.submissions import Accepted, Submission
from gpuyard.store.tables.bound import BoundTables
from gpuyard.store.tables.configs import Configs
from gpuyard.store.tables.following import Following
from gpuyard.store.tables.history import History
from gpuyard.store.tables.reasons import Reasons
from gpuyard.store.tables.tokens import Tokens
from gpuyard.store.tables.tries import Tries

_log = logging.getLogger(__name__)

_BLOBS = select(BLOBS.c.hash, BLOBS.c.body).where(BLOBS.c.hash.in_(bindparam("names", expanding=True)))
"""Built once, so that SQLAlchemy finds the compiled form in its cache."""

BUSY_S = 10.0
"""How long a write waits for its turn."""
LEASE_S = 3.0
"""How long a PostgreSQL server waits for a sign of life of the leader."""


class Store:
    """The log, blobs and election of one yard, and what is derived from its log: one part for each subject.

    Any thread may use it.
    """

    def __init__(self, backend: Backend, codec: Codec = CODEC) -> None:
        self._backend = backend
        self.log = EventLog(backend, codec)
        self.snapshots = Snapshots(backend)
        self.projections = Following(backend)
        self.bound = BoundTables(backend)
        self.history = History(backend)
        self.tries = Tries(backend)
        self.configs = Configs(backend)
        self.tokens = Tokens(backend)
        self.reasons = Reasons(backend)
        self.removals = Removals(backend, self.log)

    # -- the log -------------------------------------------------------------------------------------------------

    def submit(self, batch: Sequence[Submission], now_ms: int) -> list[Accepted | Exception]:
        """Accept many submissions with one transaction; durable when this returns (`EventLog.submit`)."""
        return self.log.submit(batch, now_ms)

    def append(self, events: Sequence[Event]) -> list[int]:
        """Log requests of people or reports of the world; any process may. Gives their numbers."""
        return self.log.append(events)

    def commit(
        self, epoch: int | None, after_seq: int, make: Callable[[list[Numbered]], Commit | None]
    ) -> list[int]:
        """Read what is new and write what still holds, with no write in between (`EventLog.commit`)."""
        return self.log.commit(epoch, after_seq, make)

    def recent(self, after_seq: int, limit: int) -> list[Numbered]:
        """At most `limit` events right after this one, if this process has just written them; else none."""
        return self.log.recent(after_seq, limit)

    def head(self) -> int:
        """The number of the last event; 0 before the first."""
        return self.log.head()

    def first_seq(self) -> int:
        """The number of the first event that the log still has; if it has none, of the next one."""
        return self.log.first_seq()

    def counters(self) -> Counters:
        """The next number, the next job id and the current epoch."""
        return self.log.counters()

    def read(self, after_seq: int, limit: int = READ_MAX, until_seq: int | None = None) -> list[Numbered]:
        """At most `limit` events after this one, in order, none after `until_seq` (`EventLog.read`)."""
        return self.log.read(after_seq, limit, until_seq)

    def read_lines(
        self, after_seq: int, limit: int = READ_MAX, until_seq: int | None = None
    ) -> list[EncodedLine]:
        """The same as the database has them."""
        return self.log.read_lines(after_seq, limit, until_seq)

    def read_back(
        self, kinds: Sequence[str], before_seq: int | None, limit: int, after_seq: int = 0
    ) -> list[Numbered]:
        """Events of some kinds before the one and after the other, the newest first."""
        return self.log.read_back(kinds, before_seq, limit, after_seq)

    def seq_at(self, at_ms: int) -> int:
        """How far to fold the log to see the world as it was at that time; 0: not at all (`EventLog.seq_at`)."""
        return self.log.seq_at(at_ms)

    def wait(self, after_seq: int, timeout_s: float) -> bool:
        """Whether there is an event after this one: as soon as there is, at the latest after the timeout."""
        return self.log.wait(after_seq, timeout_s)

    def forget_log(self, before_ms: int, following: Collection[str] = ()) -> int:
        """Cut the log at the newest whole snapshot that was made by then; gives how many events were deleted.

        Without such a snapshot nothing is cut. Nor is anything that a projection needs: a checkpoint of each
        projection that is named, and of any other that was filled here since then, must cover what goes.
        """
        wanted = self.snapshots.place_to_cut(before_ms)
        if wanted is None:
            return 0
        covered_seq, name = self.projections.covered_seq(following, before_ms)
        if covered_seq is not None and covered_seq < wanted:
            _log.warning(
                "the log is kept longer than it should be, from event %d on: projection %s has no later checkpoint",
                covered_seq,
                name,
            )
            wanted = self.snapshots.place_to_cut(before_ms, covered_seq)
        if wanted is None:
            return 0
        self.log.forget_recent(wanted + 1)
        return self.snapshots.cut_log(wanted)

    # -- the database, and who leads ------------------------------------------------------------------------------

    @property
    def yard(self) -> str:
        """The yard's own name: eight letters and digits, made once, so that keys of two yards never meet."""
        return self._backend.yard

    @property
    def place(self) -> str:
        """Where it is: a path, or a URL without its password."""
        return self._backend.place

    def elect(self, holder: str) -> Lease | None:
        """Try to become the leader, without waiting; None if another process leads (see `who_leads`)."""
        return self._backend.elect(holder)

    def keep_room(self) -> None:
        """Have some room on disk for what is to be written when nothing else can be."""
        self._backend.keep_room()

    @property
    def damage(self) -> StoreDamaged | None:
        """Why nothing more is written to it; None: nothing is known to be wrong with its contents."""
        return self._backend.damage

    def leave_log(self) -> None:
        """Leave what is kept on disk for writes as it is when the store is closed: no other could be had now."""
        self._backend.leave_log()

    def who_leads(self) -> LeaseHolder | None:
        """The present leader, for a message to people."""
        return self._backend.who_leads()

    def blob(self, name: str) -> bytes | None:
        """The blob with this hash, unless it was removed."""
        return self.blobs([name]).get(name)

    def blobs(self, names: Collection[str]) -> dict[str, bytes]:
        """The blobs with these hashes, by hash; blobs that were removed are left out."""
        with self._backend.reading() as conn:
            return dict(conn.execute(_BLOBS, {"names": list(names)}).all())

    def skip(self, next_job_id: int, epoch: int) -> None:
        """Never give out an id below this or an epoch up to this again: the world has seen them."""
        with self._backend.writing() as conn:
            found = self._backend.lock_counters(conn)
            job_id = max(found.next_job_id, next_job_id)
            self._backend.set_counters(
                conn, found._replace(next_job_id=job_id, epoch=max(found.epoch, epoch))
            )

    def forget_keys(self, before_ms: int) -> int:
        """Drop idempotency keys older than this; gives how many."""
        with self._backend.writing() as conn:
            return conn.execute(delete(IDEMPOTENCY).where(IDEMPOTENCY.c.at_ms < before_ms)).rowcount

    def close(self) -> None:
        """Close every connection. A lease is released by its holder."""
        self._backend.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(
    url_or_path: str | Path,
    *,
    busy_s: float = BUSY_S,
    lease_s: float = LEASE_S,
    durable: bool = True,
    codec: Codec = CODEC,
    examine_s: float | None = None,
) -> Store:
    """Open a store and bring its tables up to date.

    A path is a SQLite file, made if it is not there; `postgresql://…` is a server. `durable=False` (SQLite) leaves
    writing to the disk to the operating system: for simulations, which do not need the store after a crash of the
    machine. `examine_s`: look first whether its contents are what was written, for so long at most, and beside the
    work that comes after it; for a process that has the store alone.
    """
    backend = choose_backend(url_or_path, busy_s, lease_s, durable)
    try:
        if examine_s is not None:
            backend.examine(examine_s)
        backend.prepare()
    except BaseException:
        backend.close()
        raise
    return Store(backend, codec)


def choose_backend(url_or_path: str | Path, busy_s: float, lease_s: float, durable: bool = True) -> Backend:
    """The database that a text names, not yet looked into."""
    text = str(url_or_path)
    if "://" not in text:
        return SqliteBackend(Path(url_or_path), busy_s, durable)
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError(f"{error}", "Give a path, or postgresql://user@host/database.") from error
    if is_postgresql(text):
        try:
            return PostgresBackend(url, busy_s, lease_s)
        except ModuleNotFoundError as error:
            raise StoreError(
                f"a store on PostgreSQL needs the Python package {error.name}",
                f"Install it with: {install_text('postgresql')}",
            ) from error
    if url.get_backend_name() == "sqlite" and url.database:
        return SqliteBackend(Path(url.database), busy_s, durable)
    raise StoreError(
        f"no store can be kept at {url.render_as_string(hide_password=True)}",
        "Give a path, or postgresql://user@host/database.",
    )
