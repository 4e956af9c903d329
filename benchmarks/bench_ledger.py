"""The books over a long log: how fast they are filled again, how fast a month is summed up, what a commit costs.

    python benchmarks/bench_ledger.py [--attempts 1000000] [--rounds 7] [--log FILE] [--only rebuild|commits] [--write]

The log is made here: jobs of 40 tenants and 200 users in three classes on 250 nodes, 30,000 of them a day, each with a
submission, a start, a confirmation and an end. The books are filled as a leader fills them, from the first event on:
once by one process alone, and once with the process that reads the log ahead. `--only rebuild` ends there, and
`--only commits` begins after the month.
Then one month is summed up by each pair of dimensions. At last commits of two jobs each are written to a yard with the
books and to one without, turn by turn, and the CPU time of the process and that of the writing thread alone are
compared. Last of all, 100 jobs a second are written for half a minute, how far the books are behind is looked at ten
times a second, and every second a report is asked for: the month by two dimensions up to now, for which what the books
lack of the log is folded. The collector of garbage is set as in a server.
"""

import argparse
import itertools
import resource
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from figures import publish, table

from gpuyard.api.server.serving import tidy
from gpuyard.control.duties.duty import Duties
from gpuyard.control.duties.projections import PAUSE_S, Filler, duties
from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.views.accounts import read_accounts
from gpuyard.ledger.accounts import DIMENSIONS
from gpuyard.ledger.units import month_days, month_of
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    Node,
    NodeAdded,
    Outcome,
    Settings,
    Whole,
)
from gpuyard.model.units import DAY_MS
from gpuyard.store import Store, Submission, open_store

NODES, GPUS, TENANTS, USERS = 250, 8, 40, 200
CLASSES = ("batch", "interactive", "urgent")
BEGIN_MS = 20_758 * DAY_MS
"""The first of November 2026."""
STEP_MS = 2_880
"""One job after the other: 30,000 a day."""
RUNNING = 1_000
POLL_S = 0.05
WRITTEN = 2_000
"""Events in one transaction while the log is made."""


def fleet() -> list[Event]:
    """The configuration and the nodes."""
    nodes = [
        Node(
            f"n{i:03}", "east", ("a", "b", "c")[i % 3], "H100" if i % 3 else "A100-80GB", GPUS, 96_000, 2**20
        )
        for i in range(NODES)
    ]
    return [ConfigSet(BEGIN_MS, Settings()), *[NodeAdded(BEGIN_MS, node) for node in nodes]]


def spec_of(number: int) -> JobSpec:
    """What a job asks for, and whose it is."""
    tenant, user = f"org/team{number % TENANTS}", f"user{number * 7 % USERS}"
    return JobSpec(tenant, Ask(Whole(1)), CLASSES[number % 3], user=user)


def jobs(attempts: int, first: int, running: deque[int]) -> Iterator[tuple[int, list[Event]]]:
    """Each new job's number, and what happens until the next one is submitted."""
    for number in range(first, first + attempts):
        at_ms = BEGIN_MS + number * STEP_MS
        slot = number % (NODES * GPUS)
        grant = Grant(slot // GPUS, 1 << slot % GPUS, 1000, 4_000, 16_384, 1)
        events: list[Event] = [
            AttemptStarted(at_ms + 20, number + 1, 1, (grant,)),
            AttemptConfirmed(at_ms + 900, number + 1, 1),
        ]
        running.append(number + 1)
        if len(running) > RUNNING:
            gone = running.popleft()
            events.append(AttemptEnded(at_ms + 1_000, gone, 1, Outcome.COMPLETED, ended_ms=at_ms + 950))
        yield number, events


def write_log(
    store: Store, attempts: int, first: int = 0, written: int = WRITTEN, running: deque[int] | None = None
) -> None:
    """Submissions and what became of them, in the order of a real log. `running`: what runs, from call to call."""
    if not first:
        store.append(fleet())
    coming = jobs(attempts, first, deque() if running is None else running)
    while some := list(itertools.islice(coming, written // 4)):
        numbers = [number for number, _events in some]

        def make(first_id: int, numbers: list[int] = numbers) -> list[Event]:
            return [
                JobSubmitted(at_ms, Job(first_id + i, spec_of(number), at_ms))
                for i, number in enumerate(numbers)
                for at_ms in [BEGIN_MS + number * STEP_MS]
            ]

        store.submit([Submission(make, len(numbers))], BEGIN_MS)
        store.append([event for _number, events in some for event in events])


class Rebuild(NamedTuple):
    """What it took to fill the books from the first event on."""

    wall_s: float
    cpu_s: float
    """Of this process."""
    ahead_s: float
    """CPU time of the process that read the log ahead."""


def fill(store: Store, epoch: int, ahead: str = "") -> Rebuild:
    """Fill the books from the first event on."""
    filler = Filler(store, [Ledger()], lambda: 1, ahead=ahead)
    filler.rebuild(Ledger.name)
    # What is there from before is removed; no yard has that to do but once.
    while (cursor := store.projections.cursors()[Ledger.name]).seq < 0:
        filler.step(epoch)
    began_s, cpu_s, before_s = time.perf_counter(), time.process_time(), _children_s()
    while filler.step(epoch):
        time.sleep(PAUSE_S)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    filler.close()
    if filler.errors or store.projections.cursors()[Ledger.name].seq != store.head() or cursor.seq:
        sys.exit(f"bench_ledger: {filler.errors}")
    return Rebuild(took_s, cpu_s, _children_s() - before_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sums(store: Store) -> dict[tuple[str, str], float]:
    """Seconds to sum up the first month by each pair of dimensions, reading it from the store."""
    first, after = month_days(month_of(BEGIN_MS // DAY_MS))
    found = {}
    for pair in itertools.combinations(DIMENSIONS, 2):
        began_s = time.perf_counter()
        read_accounts(store, first, after).lines(pair)
        found[pair] = time.perf_counter() - began_s
    return found


class Written:
    """A store that jobs are written to, with the books behind it or without."""

    def __init__(self, folder: Path, books: bool) -> None:
        self.store = open_store(folder / f"{books}.db")
        lease = self.store.elect("bench")
        if lease is None:
            sys.exit("bench_ledger: another process leads in a store of our own")
        self.epoch, self.first = lease.epoch, 0
        self.running: deque[int] = deque()
        self.costs_ms, self.own_ms = list[float](), list[float]()
        self.filler = Filler(self.store, [Ledger()] if books else [], lambda: 1)
        self.write(2_000)
        self.filling = Duties(duties(self.filler), lambda: self.epoch)
        self.filling.start()

    def write(self, count: int) -> None:
        """Jobs, two in a transaction; what they cost the process until the books have them, by their own thread."""
        began_s, own_s = time.process_time(), time.thread_time()
        write_log(self.store, count, self.first, 8, self.running)
        self.own_ms.append((time.thread_time() - own_s) * 1000 / count)
        self.first += count
        if self.costs_ms:
            # Two that fill the same books would throw away each other's batches.
            self._wait()
        else:
            while self.filler.step(self.epoch):
                pass
        self.costs_ms.append((time.process_time() - began_s) * 1000 / count)

    def _wait(self) -> None:
        head = self.store.head()
        while any([seq < head for seq in self.filler._seqs.values()]):
            time.sleep(POLL_S)

    def lag(self, seconds: int) -> tuple[float, list[float]]:
        """While 100 jobs a second are written: the most that the books are behind, and what reports take."""
        due: deque[tuple[int, float]] = deque()
        asked_s = list[float]()
        first, after = month_days(month_of(BEGIN_MS // DAY_MS))
        worst_s, began_s = 0.0, time.monotonic()
        for tick in range(seconds * 10):
            write_log(self.store, 10, self.first, 40, self.running)
            self.first += 10
            due.append((self.store.head(), time.monotonic()))
            seq = self.store.projections.cursors()[Ledger.name].seq
            while due and due[0][0] <= seq:
                due.popleft()
            if due:
                worst_s = max(worst_s, time.monotonic() - due[0][1])
            if tick % 10 == 9:
                report_s = time.monotonic()
                read_accounts(self.store, first, after, BEGIN_MS + self.first * STEP_MS).lines(
                    ("tenant", "pool")
                )
                asked_s.append(time.monotonic() - report_s)
            time.sleep(max(0.0, began_s + (tick + 1) / 10 - time.monotonic()))
        return worst_s, asked_s


Figures = list[tuple[str, float]]


def rebuilds(log: Path, attempts: int) -> Figures:
    """Fill the books from the first event on, in both ways."""
    with open_store(log) as store:
        lease = store.elect("bench")
        if lease is None:
            sys.exit("bench_ledger: another process leads in a store of our own")
        if not store.head():
            write_log(store, attempts)
        alone = fill(store, lease.epoch)
        ahead = fill(store, lease.epoch, str(log))
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return [
        (f"books filled again over {attempts:,} attempts, wall s", ahead.wall_s),
        ("the same, CPU s of the server", ahead.cpu_s),
        ("the same, CPU s of the process that reads ahead", ahead.ahead_s),
        ("the same without that process, wall s", alone.wall_s),
        ("the same without that process, CPU s", alone.cpu_s),
        ("memory of the server at its peak, MiB", peak_mib),
    ]


def summed(log: Path) -> tuple[str, float]:
    """The pair of dimensions by which a month takes longest to sum up."""
    with open_store(log) as store:
        slowest, sum_s = max(sums(store).items(), key=lambda each: each[1])
    return f"one month by two dimensions ({' and '.join(slowest)}, the slowest pair), s", sum_s


def _more(before: list[float], after: list[float]) -> float:
    """How much more the second of a pair is, in percent: the median of all pairs."""
    return statistics.median([b / a - 1 for a, b in zip(before, after, strict=True)]) * 100


def followed(folder: Path, rounds: int) -> Figures:
    """What the books cost while jobs are written."""
    sides = [Written(folder, books) for books in (False, True)]
    for number in range(rounds):
        for side in sides[:: -1 if number % 2 else 1]:
            side.write(1_000)
    behind_s, asked_s = sides[1].lag(30)
    for side in sides:
        side.filling.close()
        side.store.close()
    # The first is that of the jobs that were there before.
    whole = [side.costs_ms[1:] for side in sides]
    own = [side.own_ms[1:] for side in sides]
    without, with_books = [statistics.median(each) for each in whole]
    return [
        ("commits of one job without the books, CPU ms", without),
        ("the same with the books", with_books),
        ("how much more, median of all pairs, %", _more(*whole)),
        ("how much more in the thread that commits, median of all pairs, %", _more(*own)),
        ("most that the books are behind at 100 jobs a second, s", behind_s),
        ("a report at 100 jobs a second, median s", statistics.median(asked_s)),
        ("the same, the slowest of 30, s", max(asked_s)),
    ]


def main() -> None:
    """Measure, and say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="keep the log there, or take the one that is there"
    )
    parser.add_argument("--only", choices=["rebuild", "commits"], help="measure this alone")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tidy()
    with tempfile.TemporaryDirectory(prefix="yard-ledger-") as folder:
        log = options.log or Path(folder) / "l.db"
        rows = rebuilds(log, options.attempts) if options.only != "commits" else []
        if options.only is None:
            rows.append(summed(log))
        if options.only != "rebuild":
            rows += followed(Path(folder), options.rounds)
    publish("ledger", table(("books over a long log", "figure"), rows), dict(rows), write=options.write)


if __name__ == "__main__":
    main()
