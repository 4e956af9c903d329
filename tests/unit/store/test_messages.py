"""How many round trips to PostgreSQL each operation takes: others wait meanwhile for the counter row."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.model import JobCancelled
from gpuyard.store import Commit, Store, open_store
from rigs.stores import accepted, submission

_NAME = ".s.PGSQL.5432"


class Relay:
    """Stands between a store and its server, and counts how often the store sends something and waits for an answer."""

    def __init__(self, server: Path, folder: Path) -> None:
        self.trips = 0
        self._server = server
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / _NAME))
        self._door.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections; each open one ends when one of its two sides closes it."""
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX)
        far.connect(str(self._server / _NAME))
        answered = True
        with near, far:
            while True:
                for source in select.select([near, far], [], [])[0]:
                    piece = source.recv(1 << 16)
                    if not piece:
                        return
                    if source is near and answered:
                        self.trips += 1
                    answered = source is far
                    (far if source is near else near).sendall(piece)


@pytest.fixture
def relayed(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Store, Relay]]:
    """A store whose round trips to its server are counted."""
    before, _, rest = postgres_url.partition("host=")
    folder, mark, rest = rest.partition("&")
    relay = Relay(Path(folder), tmp_path)
    with open_store(f"{before}host={tmp_path}{mark}{rest}", busy_s=5, lease_s=60) as store:
        yield store, relay
    relay.close()


def test_each_operation_takes_few_round_trips(relayed: tuple[Store, Relay]) -> None:
    """A write takes one to begin, one to lock the row, one to read what is new, one to write and commit; a read one."""
    store, relay = relayed

    def asked(work: Callable[[], object]) -> int:
        # The first calls open connections and prepare statements.
        for _ in range(8):
            work()
        before = relay.trips
        work()
        return relay.trips - before

    def commit() -> None:
        store.commit(None, seq, lambda _new: Commit([JobCancelled(1, 1)]))

    accepted(store, submission())
    seq = store.head()
    found = {
        "submit": asked(lambda: accepted(store, submission())),
        "read news": asked(lambda: store.read(seq)),
        "read nothing new": asked(lambda: store.read(store.head())) - 1,
        "blobs": asked(lambda: store.blobs(["a", "b"])),
        "commit": asked(commit),
    }
    # A store that sends several statements at once may have part of its answer before it has sent them all, which
    # counts as one trip more: that depends on which thread runs first. The figures are the most that each takes.
    most = {"submit": 3, "read news": 1, "read nothing new": 2, "blobs": 1, "commit": 4}
    assert {name: trips for name, trips in found.items() if not 0 < trips <= most[name]} == {}
