"""How fast the store is on this machine. A program, not a test: `python tests/rigs/store_bench.py [EVENTS]`.

Numbers of a durable store mean little without the disk's own, so the time of a bare fdatasync comes first.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuyard.core import State, apply
from gpuyard.core.state.dump import dump, load
from gpuyard.model import ConfigSet, JobCancelled, NodeAdded, Settings
from gpuyard.store import CODEC, Accepted, Commit, Store, open_store
from gpuyard.testing import node
from rigs.postgres import PostgresServer
from rigs.stores import accepted, submission

CLIENTS = 4
SECONDS = 3.0


def fdatasync_ms(folder: Path) -> tuple[float, float]:
    """Median and 99th percentile of writing 4 KiB and synchronising it."""
    path = folder / "probe"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    took = []
    for n in range(500):
        began = time.perf_counter()
        os.pwrite(fd, b"x" * 4096, n * 4096)
        os.fdatasync(fd)
        took.append((time.perf_counter() - began) * 1000)
    os.close(fd)
    path.unlink()
    took.sort()
    return took[250], took[495]


class Committer:
    """What the API will do: whoever waits goes with the next transaction."""

    def __init__(self, store: Store) -> None:
        self._queue: SimpleQueue[SimpleQueue[Accepted | Exception] | None] = SimpleQueue()
        self._store = store
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def submit(self) -> Accepted | Exception:
        answer: SimpleQueue[Accepted | Exception] = SimpleQueue()
        self._queue.put(answer)
        return answer.get()

    def _run(self) -> None:
        while True:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            answers = [each for each in waiting if each is not None]
            results = self._store.submit([submission() for _ in answers], 1)
            for answer, result in zip(answers, results, strict=True):
                answer.put(result)
            if len(answers) < len(waiting):
                return

    def close(self) -> None:
        self._queue.put(None)
        self.thread.join()


def per_second(body: Callable[[], int], clients: int) -> float:
    """So many threads do it over and over; gives what they did in a second together."""
    done = [0] * clients
    end = time.perf_counter() + SECONDS

    def client(number: int) -> None:
        while time.perf_counter() < end:
            done[number] += body()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / SECONDS


def measure_codec() -> None:
    [event] = submission().make(1)
    row = CODEC.encode(event)
    for name, body in (
        ("encode", lambda: CODEC.encode(event)),
        ("decode", lambda: CODEC.decode(1, row.kind, row.version, row.body)),
    ):
        began = time.perf_counter()
        for _ in range(20_000):
            body()
        print(
            f"{name} a submission: {(time.perf_counter() - began) / 20_000 * 1e6:.1f} µs, {len(row.body)} bytes"
        )


def measure_submissions(store: Store) -> None:
    def one() -> int:
        return len(accepted(store, submission()))

    def hundred() -> int:
        return len(accepted(store, *[submission() for _ in range(100)]))

    print(f"1 client, 1 in a transaction: {per_second(one, 1):,.0f} submissions/s")
    print(f"{CLIENTS} clients, 1 in a transaction: {per_second(one, CLIENTS):,.0f} submissions/s")
    committer = Committer(store)
    rate = per_second(lambda: isinstance(committer.submit(), Accepted), CLIENTS)
    print(f"{CLIENTS} clients, group commit: {rate:,.0f} submissions/s")
    rate = per_second(lambda: isinstance(committer.submit(), Accepted), 32)
    print(f"32 clients, group commit: {rate:,.0f} submissions/s")
    committer.close()
    print(f"{CLIENTS} clients, 100 in a transaction: {per_second(hundred, CLIENTS):,.0f} submissions/s")


def measure_start(place: str, events: int) -> None:
    """A log of so many events, of jobs most of which were cancelled; then a start from a snapshot and a short tail."""
    with open_store(place) as store:
        lease = store.elect("bench")
        assert lease is not None
        store.append([ConfigSet(0, Settings()), NodeAdded(0, node("n0"))])
        state, seq = State(), 0
        began = time.perf_counter()
        snapshot_after = events - 2000
        saved = False
        while store.head() < events:
            answers = accepted(store, *[submission() for _ in range(2000)])
            gone = [JobCancelled(2, answer.first_id) for answer in answers[:-40]]
            store.commit(lease.epoch, store.head(), lambda _new, gone=gone: Commit(gone))  # type: ignore[misc]
            for _, event in store.read(seq):
                apply(state, event)
            seq = store.head()
            if not saved and seq >= snapshot_after:
                saved = True
                store.snapshots.save(seq, dump(state), now_ms=1)
                accepted(store, *[submission() for _ in range(1000)])
        print(f"made {store.head():,} events in {time.perf_counter() - began:.0f} s")
        lease.release()
    began = time.perf_counter()
    with open_store(place) as store:
        opened = time.perf_counter()
        found = store.snapshots.latest()
        assert found is not None
        read = time.perf_counter()
        state = load(found.plain)
        loaded = time.perf_counter()
        tail = store.read(found.seq)
        for _, event in tail:
            apply(state, event)
        done = time.perf_counter()
    print(
        f"start: {done - began:.2f} s (open {opened - began:.2f}, snapshot {read - opened:.2f}, "
        f"load {loaded - read:.2f}, tail of {len(tail)} {done - loaded:.2f}; {len(state.jobs)} jobs)"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        median, worst = fdatasync_ms(Path(folder))
        print(f"fdatasync of 4 KiB: median {median:.3f} ms, p99 {worst:.3f} ms")
        measure_codec()
        print("SQLite")
        with open_store(Path(folder) / "yard.db") as store:
            measure_submissions(store)
        server = PostgresServer(fsync=True)
        try:
            print("PostgreSQL")
            with open_store(server.fresh()) as store:
                measure_submissions(store)
        finally:
            server.stop()
        events = int(sys.argv[1]) if len(sys.argv) > 1 else 0
        if events:
            measure_start(str(Path(folder) / "long.db"), events)


if __name__ == "__main__":
    main()
