"""What both databases offer the rest of the store: transactions, the counter row, waking, election."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import SQLAlchemyError

from gpuyard.store.backend.leader import Lease, LeaseHolder
from gpuyard.store.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, explain
from gpuyard.store.migrate import migrate
from gpuyard.store.schema import COUNTERS


class FairLock:
    """A lock that is handed on in the order in which threads asked.

    Python's own goes to the thread that grabs it first, usually the one that has just released it: a busy stream of
    submissions would keep the leader waiting.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._holder = 0
        self._gates: deque[threading.Lock] = deque()

    def take(self, timeout_s: float) -> bool:
        """Wait for the turn; false if it did not come in time."""
        if self._holder == threading.get_ident():
            raise RuntimeError("the store was called from inside its own transaction")
        with self._guard:
            gate = None
            if self._taken:
                gate = threading.Lock()
                gate.acquire()
                self._gates.append(gate)
            self._taken = True
        if gate is not None and not gate.acquire(timeout=timeout_s):
            with self._guard:
                # It may have come between the end of the wait and now; then it is ours to use.
                if gate in self._gates:
                    self._gates.remove(gate)
                    return False
        self._holder = threading.get_ident()
        return True

    def give(self) -> None:
        """Hand the turn to the next thread, if one waits."""
        with self._guard:
            self._holder = 0
            if self._gates:
                self._gates.popleft().release()
            else:
                self._taken = False


class Notifier:
    """The highest sequence number heard of, and the threads that wait for a higher one.

    A thread that appends notifies the others of its process. PostgreSQL's notifications do so for events of other
    processes; without them, or when one was lost, the waiting thread polls.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._head = 0
        self._closed = False

    def notify(self, head: int) -> None:
        """There are events up to `head`."""
        with self._changed:
            if head > self._head:
                self._head = head
                self._changed.notify_all()

    def close(self) -> None:
        """Wake every waiting thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self, after_seq: int, timeout_s: float, poll_s: float, look: Callable[[], int]) -> bool:
        """Whether there is an event after `after_seq`, as soon as there is one, at the latest after the timeout."""
        deadline = time.monotonic() + timeout_s
        if self._head <= after_seq:
            # Another process may have written.
            self.notify(look())
        while True:
            with self._changed:
                left_s = deadline - time.monotonic()
                if self._head > after_seq or self._closed or left_s <= 0:
                    return self._head > after_seq
                notified = self._changed.wait(min(poll_s, left_s))
            if not notified:
                self.notify(look())


class Counters(NamedTuple):
    """The one row that orders all writing: the next number of the log, the next job id, the current epoch."""

    next_seq: int
    next_job_id: int
    epoch: int


COUNTER_ROW = select(COUNTERS.c.next_seq, COUNTERS.c.next_job_id, COUNTERS.c.epoch).where(COUNTERS.c.id == 1)
# Statements are built once, so that SQLAlchemy finds the compiled form in its cache.
_LOCK_COUNTERS = COUNTER_ROW.with_for_update()
_SET_COUNTERS = update(COUNTERS).where(COUNTERS.c.id == 1)


class Backend(ABC):
    """One database, opened."""

    poll_s: float
    """How often a waiting thread polls for events of other processes."""
    idle_s = 0.0
    """How long a transaction may wait for its turn; 0: it locks everything, and begins when its turn has come."""

    def __init__(self, place: str, writer: Engine, reader: Engine, busy_s: float) -> None:
        self.place = place
        """The path, or the URL without its password."""
        self.writer = writer
        self.reader = reader
        self.busy_s = busy_s
        self.notifier = Notifier()
        self.yard = ""
        self._fair_lock = FairLock()
        self.damage: StoreDamaged | None = None
        """Why nothing more is written here; None: nothing is known to be wrong."""

    @abstractmethod
    def examine(self, wait_s: float) -> None:
        """Look whether the contents are what was written, before anything is; raise `StoreDamaged` if not.

        What takes longer than this to look at is looked at beside, and sets `damage`.
        """

    def prepare(self) -> None:
        """Bring the tables up to date and read the yard's name."""
        with self.writing() as conn:
            self.yard = migrate(conn, self.place)

    @contextmanager
    def writing(self, ahead: Callable[[Connection], None] | None = None) -> Iterator[Connection]:
        """A transaction that may write; committed and durable on leaving, undone by any exception.

        At most one per process at a time; the database keeps several processes apart. `ahead` is what the transaction
        does before its turn comes, while others write: only where the database locks rows.
        """
        self.check()
        with ExitStack() as stack:
            if ahead is None:
                stack.enter_context(self.turn(self.busy_s))
            conn = stack.enter_context(self._transaction())
            if ahead is not None:
                ahead(conn)
                stack.enter_context(self.turn(self.idle_s))
            yield conn
        self.written()

    def check(self) -> None:
        """Raise if the contents are known to be damaged: nothing is added to them."""
        if self.damage is not None:
            # A new one each time: an exception that is raised again and again grows.
            raise StoreDamaged(self.damage.message, self.damage.hint)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the database inside come out as ours, and damage is remembered."""
        try:
            yield
        except SQLAlchemyError as error:
            found = explain(error, self.place)
            if isinstance(found, StoreDamaged):
                self.spoil(found)
            raise found from error

    @abstractmethod
    def spoil(self, damage: StoreDamaged) -> None:
        """Write nothing more: what is written to a damaged file may be lost, and damages more."""

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self.explained(), self.writer.begin() as conn:
                yield conn
        except StoreError as error:
            ours = not isinstance(error.__cause__, SQLAlchemyError)
            if not ours and not isinstance(error, StoreBusy | StoreFull):
                # A connection that failed in another way is not trusted again.
                self.writer.dispose()
            raise

    @contextmanager
    def turn(self, most_s: float) -> Iterator[None]:
        """No other thread of this process writes meanwhile."""
        if not self._fair_lock.take(most_s):
            raise StoreBusy(f"another thread holds {self.place} for more than {most_s:g} s", "Try again.")
        try:
            yield
        finally:
            self._fair_lock.give()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading only; writers do not block it."""
        with self.explained(), self.reader.begin() as conn:
            yield conn

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection for reading only on which every statement reads the same moment, that of the first."""
        with self.reading() as conn:
            yield conn

    def lock_counters(self, conn: Connection) -> Counters:
        """The counter row, locked until this transaction ends."""
        # SQLite has no locks on rows and ignores the request: its transaction has locked everything already.
        return Counters(*conn.execute(_LOCK_COUNTERS).one())

    def counters(self, conn: Connection | None = None) -> Counters:
        """The counter row as it is now."""
        if conn is not None:
            return Counters(*conn.execute(COUNTER_ROW).one())
        with self.reading() as own:
            return self.counters(own)

    @contextmanager
    def closing(self, conn: Connection) -> Iterator[None]:
        """Statements inside are the last of their transaction, which may be committed on leaving."""
        yield

    def set_counters(self, conn: Connection, counters: Counters) -> None:
        """Write the counter row, and have waiters woken when the transaction is committed."""
        conn.execute(_SET_COUNTERS, counters._asdict())
        self.announce(conn, counters.next_seq - 1)

    def head(self) -> int:
        """The number of the last event."""
        return self.counters().next_seq - 1

    def is_head(self, seq: int) -> bool:
        """Whether this is known to be the last event, where asking costs less than reading what is after it."""
        return False

    def close(self) -> None:
        """Let waiters go and close every connection."""
        self.notifier.close()
        self.writer.dispose()
        self.reader.dispose()

    @abstractmethod
    def written(self) -> None:
        """A transaction was committed, and others may write now: do what is to be done now and then."""

    @abstractmethod
    def keep_room(self) -> None:
        """Have some room on disk for what is to be written when nothing else can be."""

    @abstractmethod
    def leave_log(self) -> None:
        """Leave what is kept on disk for writes as it is when this is closed."""

    @abstractmethod
    def announce(self, conn: Connection, head: int) -> None:
        """Tell other processes, once the transaction is committed, that there are events up to `head`."""

    @abstractmethod
    def listen(self) -> None:
        """Make events of other processes wake waiting threads. Called before every wait."""

    @abstractmethod
    def elect(self, holder: str) -> Lease | None:
        """The lease with a new epoch, or nothing if another process has it."""

    @abstractmethod
    def who_leads(self) -> LeaseHolder | None:
        """The process that holds the lease."""
