"""The series of a yard in bounded space: samples for 2 h, minutes for 3 d, hours for 400 d, and few points of each job.

One file beside the log, which may be removed at any time. A row is a chunk: all series of one node over ten minutes of
samples, an hour of minutes or a day of hours. New samples wait in memory until they are saved; a chunk that late
samples reach is read, merged and written again. Every tier is made from the one below, where a row changed later than
the row above that was made from it; so a yard that dies between two of them leaves nothing undone. Work comes in small
pieces: the control loop runs in the same process.
"""

import logging
import os
import sqlite3
import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gpuyard.quantities import DAY_MS, HOUR_MS, MINUTE_MS
from gpuyard.telemetry import folding
from gpuyard.telemetry.folding import Points
from gpuyard.telemetry.packed_chunks import Column, Damaged, pack, unpack
from gpuyard.telemetry.samples import KernelLine, Sample
from gpuyard.telemetry.signals import Fold, Signal, attempt_subject, signal_of

POINTS_KEPT = 240
"""Points of each signal that are kept with a job that has ended."""
SAVE_MS = 120_000
"""How long new samples may wait in memory. As much is lost by a yard that is killed."""
LINES_KEPT = 500
"""Lines of a node's kernel log: the newest, and for as long as minutes are kept."""
SETTLE_MS = 60_000
"""How long after its end an hour is folded: most late samples are there by then."""

_log = logging.getLogger(__name__)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS chunks (
    tier INTEGER NOT NULL, node TEXT NOT NULL, from_ms INTEGER NOT NULL, changed INTEGER NOT NULL, blob BLOB NOT NULL,
    PRIMARY KEY (tier, node, from_ms)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owed (
    attempt TEXT PRIMARY KEY, job_id INTEGER NOT NULL, number INTEGER NOT NULL, started_ms INTEGER NOT NULL,
    holds TEXT NOT NULL, over_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (
    attempt TEXT PRIMARY KEY, ended_ms INTEGER NOT NULL, blob BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kernel (
    node TEXT NOT NULL, at_ms INTEGER NOT NULL, text TEXT NOT NULL, attempts TEXT NOT NULL,
    PRIMARY KEY (node, at_ms, text)
) WITHOUT ROWID;
"""
_FORM = 1
"""The version of the file; since 1 it names nodes with their cluster."""

Chunk = tuple[list[int], dict[str, list[int | None]]]
Wanted = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Tier:
    """One resolution: how far apart its points are, how long a chunk is, how long it is kept."""

    number: int
    step_ms: int
    chunk_ms: int
    kept_ms: int


RAW = Tier(0, 0, 10 * MINUTE_MS, 2 * HOUR_MS)
MINUTES = Tier(1, MINUTE_MS, HOUR_MS, 3 * DAY_MS)
HOURS = Tier(2, HOUR_MS, DAY_MS, 400 * DAY_MS)
TIERS = (RAW, MINUTES, HOURS)
_FOLDED_AFTER_MS = {MINUTES: SETTLE_MS, HOURS: 2 * HOUR_MS}
"""How long after the end of a chunk it is made from those below: of hours, when no hour takes late samples any more."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One signal over time. Of a counter, values are what it rose since the point before."""

    signal: Signal
    times_ms: list[int]
    values: list[int | None]


class Owed(NamedTuple):
    """An attempt that was seen and is owed its end: curves to be kept, and the last event about its use."""

    attempt: str
    """The engine's name of it."""
    job_id: int
    number: int
    started_ms: int
    holds: str
    """What it has of which nodes, as JSON of those who tell of its use."""
    over_ms: int = 0
    """When it ended; 0: it runs."""


class _Waiting:
    """Samples of a node that are not saved yet. Nodes tell the same series every time, so their names are kept once."""

    __slots__ = ("names", "samples", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.names: tuple[str, ...] = ()
        self.samples: list[tuple[int, tuple[str, ...], array[int]]] = []

    def add(self, sample: Sample) -> None:
        names = tuple(sample.values)
        if names != self.names:
            self.names = names
        self.samples.append((sample.at_ms, self.names, array("q", sample.values.values())))

    def between(self, from_ms: int, to_ms: int, wanted: Wanted | None) -> list[tuple[int, dict[str, int]]]:
        return [
            (at_ms, {n: v for n, v in zip(names, values, strict=True) if wanted is None or wanted(n)})
            for at_ms, names, values in self.samples
            if from_ms <= at_ms < to_ms
        ]


class Series:
    """The file, and what is not in it yet."""

    def __init__(self, path: str, cluster_of: Callable[[str], str] = lambda _node: "") -> None:
        """Nodes are named `CLUSTER:NODE`. `cluster_of` a node's name alone, by which an older release kept them."""
        self._path = path
        self._lock = threading.RLock()
        self._waiting: dict[str, _Waiting] = {}
        self._latest: dict[str, Sample] = {}
        self.faults: Counter[tuple[str, str]] = Counter()
        """Values that were left out, by node and cause."""
        self.note = ""
        """What people should know; empty: nothing."""
        self._db = self._opened()
        self._name_clusters(cluster_of)
        row = self._db.execute("SELECT MAX(changed) FROM chunks").fetchone()
        self._changed = row[0] or 0
        self.owed = {row[0]: Owed(*row) for row in self._db.execute("SELECT * FROM owed ORDER BY attempt")}
        """Attempts that were seen, until all is told of them. Changed by `owe` and `settle` alone."""
        self._late: dict[str, set[int]] = {}

    def _opened(self) -> sqlite3.Connection:
        try:
            return _connected(self._path)
        except sqlite3.DatabaseError as error:
            aside = f"{self._path}.damaged"
            os.replace(self._path, aside)
            for end in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(self._path + end)
            self.note = f"the series were damaged ({error}) and begin anew; {aside} has the old ones"
            _log.warning("%s", self.note)
            return _connected(self._path)

    def _name_clusters(self, cluster_of: Callable[[str], str]) -> None:
        """Series that were kept by the name of their node alone get its cluster; of several clusters, none can."""
        if self._db.execute("PRAGMA user_version").fetchone()[0] >= _FORM:
            return
        left_out = []
        for (node,) in self._db.execute("SELECT DISTINCT node FROM chunks").fetchall():
            if cluster := cluster_of(node):
                self._db.execute("UPDATE chunks SET node = ? WHERE node = ?", (f"{cluster}:{node}", node))
            else:
                self._db.execute("DELETE FROM chunks WHERE node = ?", (node,))
                left_out.append(node)
        self._db.execute(f"PRAGMA user_version = {_FORM}")
        self._db.commit()
        if left_out:
            self.note = (
                f"the series of {len(left_out)} nodes begin anew: an older release kept no cluster with them"
            )
            _log.warning("%s", self.note)

    def close(self) -> None:
        """Save what waits."""
        with self._lock:
            for node in list(self._waiting):
                self._save(node)
            self._db.commit()
            self._db.close()

    # ---- in

    def add(self, sample: Sample, now_ms: int) -> None:
        """Take a sample in."""
        with self._lock:
            for cause, count in sample.faults.items():
                self.faults[sample.node, cause] += count
            if not sample.values:
                return
            self._waiting.setdefault(sample.node, _Waiting(now_ms)).add(sample)
            if sample.at_ms < now_ms // HOUR_MS * HOUR_MS:
                self._late.setdefault(sample.node, set()).add(sample.at_ms // HOUR_MS * HOUR_MS)
            last = self._latest.get(sample.node)
            if last is None or sample.at_ms >= last.at_ms:
                self._latest[sample.node] = sample

    def add_lines(self, node: str, lines: Sequence[KernelLine]) -> None:
        """Keep what a node's kernel wrote. A line that was told before counts once."""
        with self._lock:
            rows = [(node, at_ms, text, " ".join(attempts)) for at_ms, text, attempts in lines]
            self._db.executemany("INSERT OR IGNORE INTO kernel VALUES (?, ?, ?, ?)", rows)
            self._db.execute(
                "DELETE FROM kernel WHERE node = :node AND at_ms < (SELECT at_ms FROM kernel WHERE node = :node "
                "ORDER BY at_ms DESC LIMIT 1 OFFSET :kept)",
                {"node": node, "kept": LINES_KEPT - 1},
            )
            self._db.commit()

    def lines(self, attempt: str, node: str, from_ms: int, to_ms: int) -> list[KernelLine]:
        """What a node's kernel wrote about an attempt, or about the machine, in that time."""
        with self._lock:
            rows = self._db.execute(
                "SELECT at_ms, text, attempts FROM kernel WHERE node = ? AND at_ms BETWEEN ? AND ? "
                "ORDER BY at_ms, text",
                (node, from_ms, to_ms),
            ).fetchall()
        each = [KernelLine(at_ms, text, tuple(attempts.split())) for at_ms, text, attempts in rows]
        return [line for line in each if not line.attempts or attempt in line.attempts]

    def take_late(self) -> dict[str, set[int]]:
        """Hours that were over when samples of them came, by node, since the last question."""
        with self._lock:
            late, self._late = self._late, {}
            return late

    def owe(self, owed: Owed) -> None:
        """Note an attempt, or that it has ended."""
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO owed VALUES (?, ?, ?, ?, ?, ?)", owed)
            self._db.commit()
            self.owed[owed.attempt] = owed

    def settle(self, attempt: str) -> None:
        """Nothing more is owed to an attempt."""
        with self._lock:
            self._db.execute("DELETE FROM owed WHERE attempt = ?", (attempt,))
            self._db.commit()
            self.owed.pop(attempt, None)

    def save(self, nodes: Iterable[str]) -> None:
        """Save what waits of these nodes."""
        with self._lock:
            for node in nodes:
                if node in self._waiting:
                    self._save(node)
            self._db.commit()

    def shed(self) -> None:
        """Drop what waits to be saved: there is no room on the disk, and none in memory for all of it."""
        with self._lock:
            self._waiting.clear()

    def latest(self, since_ms: int = 0) -> list[Sample]:
        """The newest sample of each node that has one since then."""
        # Without the lock, which saving may hold for long: a list of a dict is made at one go.
        found = [each for each in list(self._latest.values()) if each.at_ms >= since_ms]
        return sorted(found, key=lambda each: each.node)

    def work(self, now_ms: int, pieces: int = 16) -> bool:
        """Save, fold and remove what is due, at most so many chunks; whether more is due."""
        with self._lock:
            due = [node for node, each in self._waiting.items() if each.since_ms <= now_ms - SAVE_MS]
            for node in due[:pieces]:
                self._save(node)
            rest = pieces - len(due[:pieces])
            for lower, upper in ((RAW, MINUTES), (MINUTES, HOURS)):
                for node, from_ms in self._stale(lower, upper, now_ms, rest + 1)[:rest]:
                    self._fold(lower, upper, node, from_ms)
                    rest -= 1
            if rest:
                self._remove(now_ms)
            self._db.commit()
            return rest == 0

    def _save(self, node: str) -> None:
        waiting = self._waiting.pop(node)
        chunks = {at_ms // RAW.chunk_ms * RAW.chunk_ms for at_ms, _names, _values in waiting.samples}
        for from_ms in sorted(chunks):
            old = self._chunk(RAW, node, from_ms)
            news = waiting.between(from_ms, from_ms + RAW.chunk_ms, None)
            self._write(RAW, node, from_ms, folding.merge_chunk(old, news))

    def _stale(self, lower: Tier, upper: Tier, now_ms: int, most: int) -> list[tuple[str, int]]:
        """Chunks to be made: those below them have changed since, and their time is over."""
        return self._db.execute(
            "SELECT below.node, below.from_ms / :size * :size AS start FROM chunks AS below "
            "LEFT JOIN chunks AS above "
            "ON above.tier = :upper AND above.node = below.node AND above.from_ms = below.from_ms / :size * :size "
            "WHERE below.tier = :lower AND below.from_ms < :until AND below.changed > COALESCE(above.changed, -1) "
            "GROUP BY 1, 2 LIMIT :most",
            {
                "size": upper.chunk_ms,
                "lower": lower.number,
                "upper": upper.number,
                "until": (now_ms - _FOLDED_AFTER_MS[upper]) // upper.chunk_ms * upper.chunk_ms,
                "most": most,
            },
        ).fetchall()

    def _fold(self, lower: Tier, upper: Tier, node: str, from_ms: int) -> None:
        points = self._points(lower, node, from_ms, from_ms + upper.chunk_ms, None, upper.step_ms)
        times = sorted({at_ms for _signal, (at, _values) in points.values() for at_ms in at})
        columns = {}
        for name, (_signal, (at, values)) in points.items():
            found = dict(zip(at, values, strict=True))
            columns[name] = [found.get(at_ms) for at_ms in times]
        self._write(upper, node, from_ms, (times, columns))

    def _remove(self, now_ms: int) -> None:
        for lower, upper in ((RAW, MINUTES), (MINUTES, HOURS)):
            # A yard that was down for a while has chunks that are old and not folded yet.
            self._db.execute(
                "DELETE FROM chunks WHERE tier = :lower AND from_ms < :before AND changed <= ("
                "SELECT above.changed FROM chunks AS above WHERE above.tier = :upper AND above.node = chunks.node "
                "AND above.from_ms = chunks.from_ms / :size * :size)",
                {
                    "lower": lower.number,
                    "upper": upper.number,
                    "before": now_ms - lower.kept_ms - lower.chunk_ms,
                    "size": upper.chunk_ms,
                },
            )
        self._db.execute("DELETE FROM kernel WHERE at_ms < ?", (now_ms - MINUTES.kept_ms,))
        oldest = now_ms - HOURS.kept_ms
        self._db.execute(
            "DELETE FROM chunks WHERE tier = ? AND from_ms < ?", (HOURS.number, oldest - HOURS.chunk_ms)
        )
        self._db.execute("DELETE FROM kept WHERE ended_ms < ?", (oldest,))
        for node in [node for node, last in self._latest.items() if last.at_ms < now_ms - RAW.kept_ms]:
            del self._latest[node]

    # ---- chunks

    def _chunk(self, tier: Tier, node: str, from_ms: int, wanted: Wanted | None = None) -> Chunk:
        row = self._db.execute(
            "SELECT blob FROM chunks WHERE tier = ? AND node = ? AND from_ms = ?",
            (tier.number, node, from_ms),
        ).fetchone()
        return self._read(row[0], node, wanted) if row else ([], {})

    def _read(self, blob: bytes, node: str, wanted: Wanted | None) -> Chunk:
        try:
            return unpack(blob, wanted)
        except Damaged as error:
            # A hole in the curves; the rest of the file may well be whole.
            self.faults[node, "damaged on disk"] += 1
            _log.warning("%s: %s", node, error)
            return [], {}

    def _write(self, tier: Tier, node: str, from_ms: int, chunk: Chunk) -> None:
        self._changed += 1
        self._db.execute(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?)",
            (tier.number, node, from_ms, self._changed, pack(*chunk)),
        )

    def _points(
        self, tier: Tier, node: str, from_ms: int, to_ms: int, wanted: Wanted | None, step_ms: int
    ) -> dict[str, tuple[Signal, Points]]:
        """What a tier has of a node, folded to steps; 0: as it is. Counters of samples come out as rises."""
        times, columns = self._columns(tier, node, from_ms, to_ms, wanted)
        signals = {name: signal for name in columns if (signal := signal_of(name)) is not None}
        counters = {name for name, signal in signals.items() if signal.counts} if tier is RAW else set()
        begin = bisect_left(times, from_ms)
        before = self._before(
            node, counters, times[:begin], columns, from_ms // tier.chunk_ms * tier.chunk_ms
        )
        found = {}
        # A signal of a later release is not shown.
        for name, signal in signals.items():
            column: list[int | None] = columns[name][begin:]
            if name in counters:
                column = folding.find_rises(column, before.get(name), signal.fold)
            if step_ms:
                found[name] = (signal, folding.fold_column(times[begin:], column, step_ms, signal.fold))
            else:
                found[name] = (signal, (times[begin:], column))
        return found

    def _columns(self, tier: Tier, node: str, from_ms: int, to_ms: int, wanted: Wanted | None) -> Chunk:
        """The columns of a tier, from the beginning of the first chunk that reaches into that time."""
        first = from_ms // tier.chunk_ms * tier.chunk_ms
        rows = self._db.execute(
            "SELECT blob FROM chunks WHERE tier = ? AND node = ? AND from_ms >= ? AND from_ms < ? ORDER BY from_ms",
            (tier.number, node, first, to_ms),
        ).fetchall()
        chunks = [self._read(row[0], node, wanted) for row in rows]
        waiting = self._waiting.get(node) if tier is RAW else None
        if waiting is not None:
            chunks.append(folding.merge_chunk(([], {}), waiting.between(first, to_ms, wanted)))
        return _joined(chunks, to_ms)

    def _before(
        self,
        node: str,
        counters: set[str],
        times: Sequence[int],
        columns: Mapping[str, Column],
        first_ms: int,
    ) -> dict[str, int]:
        """The last values of counters ahead of a part, in its own first chunk or in one further back."""
        found = _last_of(counters, times, columns)
        if counters <= found.keys():
            return {name: value for name, (_at_ms, value) in found.items()}
        back = self._db.execute(
            "SELECT from_ms FROM chunks WHERE tier = ? AND node = ? AND from_ms < ? ORDER BY from_ms DESC",
            (RAW.number, node, first_ms),
        ).fetchall()
        for (from_ms,) in back:
            if not (lacking := counters - found.keys()):
                break
            found |= _last_of(lacking, *self._chunk(RAW, node, from_ms, lacking.__contains__))
        if (waiting := self._waiting.get(node)) is not None:
            unsaved = folding.merge_chunk(([], {}), waiting.between(0, first_ms, counters.__contains__))
            for name, last in _last_of(counters, *unsaved).items():
                found[name] = max(last, found.get(name, last))
        return {name: value for name, (_at_ms, value) in found.items()}

    # ---- out

    def curves(
        self, node: str, subject: str, from_ms: int, to_ms: int, now_ms: int, points: int = POINTS_KEPT
    ) -> dict[str, Curve]:
        """The curves of one subject of a node, by signal, each with at most so many points.

        They come from the finest tier that reaches back far enough; its newest part, from those below.
        """
        prefix = f"{subject}/"

        def wanted(name: str) -> bool:
            return name.startswith(prefix) and "/" not in name[len(prefix) :]

        place = next((i for i, each in enumerate(TIERS) if from_ms >= now_ms - each.kept_ms), len(TIERS) - 1)
        step_ms = TIERS[place].step_ms
        joined: dict[str, tuple[Signal, list[int], list[int | None]]] = {}
        with self._lock:
            until = from_ms
            for tier in reversed(TIERS[: place + 1]):
                over = to_ms if tier is RAW else self._folded_until(tier, node, until, to_ms)
                # A counter needs its value ahead of the part, which `_columns` finds by itself.
                for name, (signal, (at, values)) in self._points(
                    tier, node, until, over, wanted, step_ms
                ).items():
                    _signal, times, column = joined.setdefault(name, (signal, [], []))
                    times += at
                    column += values
                until = over
        found = {}
        for signal, times, column in joined.values():
            (at, values), _step = folding.thin_points(_without_holes(times, column), signal.fold, points)
            found[signal.name] = Curve(signal, at, values)
        return found

    def _folded_until(self, tier: Tier, node: str, from_ms: int, to_ms: int) -> int:
        """Up to when this tier has what is below it."""
        row = self._db.execute(
            "SELECT MAX(from_ms) FROM chunks WHERE tier = ? AND node = ? AND from_ms < ?",
            (tier.number, node, to_ms),
        ).fetchone()
        return max(from_ms, min(to_ms, row[0] + tier.chunk_ms)) if row[0] is not None else from_ms

    def keep(self, attempt: str, nodes: Iterable[str], from_ms: int, to_ms: int, now_ms: int) -> None:
        """Keep the curves of an attempt that has ended, whatever becomes of the samples."""
        with self._lock:
            found = self.of_attempt(attempt, nodes, from_ms, to_ms, now_ms)
            if not found:
                return
            times = sorted({at_ms for each in found.values() for at_ms in each.times_ms})
            columns = {}
            for name, each in found.items():
                values = dict(zip(each.times_ms, each.values, strict=True))
                columns[f"{attempt_subject(attempt)}/{name}"] = [values.get(at_ms) for at_ms in times]
            self._db.execute(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (attempt, to_ms, pack(times, columns))
            )
            self._db.commit()

    def kept(self, attempt: str) -> dict[str, Curve]:
        """The curves that were kept of an attempt, by signal; none: there are none."""
        with self._lock:
            row = self._db.execute("SELECT blob FROM kept WHERE attempt = ?", (attempt,)).fetchone()
        found = {}
        times, columns = self._read(row[0], "", None) if row else ([], {})
        for name, column in columns.items():
            if (signal := signal_of(name)) is not None:
                at, values = _without_holes(times, column)
                found[signal.name] = Curve(signal, at, values)
        return found

    def of_attempt(
        self, attempt: str, nodes: Iterable[str], from_ms: int, to_ms: int, now_ms: int
    ) -> dict[str, Curve]:
        """The curves of an attempt over all its nodes, by signal."""
        subject = attempt_subject(attempt)
        each = [self.curves(node, subject, from_ms, to_ms, now_ms) for node in nodes]
        if len(each) == 1:
            return each[0]
        step_ms = max(MINUTE_MS, -(-(to_ms - from_ms) // POINTS_KEPT))
        found = {}
        for signal in {
            curve.signal.name: curve.signal for curves in each for curve in curves.values()
        }.values():
            parts = []
            for curves in each:
                if (curve := curves.get(signal.name)) is not None:
                    parts.append(folding.fold_column(curve.times_ms, curve.values, step_ms, signal.fold))
            times, values = folding.join_curves(parts, step_ms, signal.across)
            # A point stands for the time before it: that of a step is its end, and the last step is not over.
            found[signal.name] = Curve(signal, [min(at_ms + step_ms, to_ms - 1) for at_ms in times], values)
        return found

    def oldest_ms(self, node: str = "") -> int | None:
        """Since when there are samples on disk, of a node or of all; None: there are none."""
        with self._lock:
            where, values = (" AND node = ?", [node]) if node else ("", [])
            row = self._db.execute(
                f"SELECT MIN(from_ms) FROM chunks WHERE tier = {RAW.number}{where}", values
            )
            oldest: int | None = row.fetchone()[0]
        return oldest

    def of_attempts(
        self, node: str, started: Mapping[str, int], signals: Collection[str], from_ms: int, to_ms: int
    ) -> dict[str, dict[str, Points]]:
        """Samples of attempts on a node, by attempt and signal; counters as rises. `started`: when each began."""
        subjects = {attempt_subject(key): key for key in started}
        found: dict[str, dict[str, Points]] = {}
        with self._lock:
            oldest_ms = self.oldest_ms(node)

            def wanted(name: str) -> bool:
                subject, _, signal = name.rpartition("/")
                return signal in signals and subject in subjects

            points = self._points(RAW, node, from_ms, to_ms, wanted, 0)
            # Where nobody saw an attempt begin, the first value of its counters may have been told before.
            unseen = {
                name
                for name, (signal, _points) in points.items()
                if signal.fold is Fold.LIFE
                and (oldest_ms is None or started[subjects[name.rpartition("/")[0]]] < oldest_ms)
            }
            known = self._before(node, unseen, [], {}, from_ms // RAW.chunk_ms * RAW.chunk_ms)
        for name, (signal, (times, column)) in points.items():
            at, values = _without_holes(times, column)
            if name in unseen and name not in known and values:
                values[0] = 0
            found.setdefault(subjects[name.rpartition("/")[0]], {})[signal.name] = (at, values)
        return found

    def forget(self, attempts: Sequence[str]) -> None:
        """Remove the curves of attempts that the history no longer has."""
        with self._lock:
            self._db.executemany("DELETE FROM kept WHERE attempt = ?", [(each,) for each in attempts])
            self._db.commit()

    def bytes(self) -> Mapping[str, int]:
        """How much the tiers take, by name."""
        with self._lock:
            rows = dict(
                self._db.execute("SELECT tier, SUM(LENGTH(blob)) FROM chunks GROUP BY tier").fetchall()
            )
        return {
            name: rows.get(tier.number, 0)
            for name, tier in zip(("raw", "minutes", "hours"), TIERS, strict=True)
        }


def _connected(path: str) -> sqlite3.Connection:
    # SQLite gives the files beside it the same rights, so the file has them before it has any others.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    os.close(fd)
    db = sqlite3.connect(path, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        # A power cut may take the last samples, and the file stays whole.
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _joined(chunks: Sequence[Chunk], to_ms: int) -> Chunk:
    """Chunks one after the other as one; where two have a time, what the first says stands."""
    if any([first[0][-1] >= after[0][0] for first, after in pairwise(chunks) if first[0] and after[0]]):
        whole: Chunk = ([], {})
        for times, columns in chunks:
            rows = [
                (
                    at_ms,
                    {name: value for name, column in columns.items() if (value := column[place]) is not None},
                )
                for place, at_ms in enumerate(times)
            ]
            whole = folding.merge_chunk(whole, rows)
        times, columns = whole
    else:
        times, columns = [], {}
        for at, found in chunks:
            for name in found:
                if name not in columns:
                    columns[name] = [None] * len(times)
            for name, column in columns.items():
                column.extend(found.get(name) or [None] * len(at))
            times += at
    end = bisect_left(times, to_ms)
    return times[:end], {name: column[:end] for name, column in columns.items()}


def _without_holes(times: Sequence[int], column: Sequence[int | None]) -> Points:
    pairs = [(at_ms, value) for at_ms, value in zip(times, column, strict=True) if value is not None]
    return [at_ms for at_ms, _value in pairs], [value for _at_ms, value in pairs]


def _last_of(
    names: set[str], times: Sequence[int], columns: Mapping[str, Column]
) -> dict[str, tuple[int, int]]:
    """The last value of each of these series that has any, with its time."""
    found = {}
    for name in names & columns.keys():
        known = [
            (at_ms, value) for at_ms, value in zip(times, columns[name], strict=False) if value is not None
        ]
        if known:
            found[name] = known[-1]
    return found
