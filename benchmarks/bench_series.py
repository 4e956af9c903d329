"""How much CPU time and space the series of a large fleet take, and what other ways to store them would take.

    python benchmarks/bench_series.py [--nodes 1250] [--gpus 8] [--hours 1]

Each GPU has 15 signals every 10 s, as a fleet of mixed work has them: jobs of random length, noise as on a real GPU.
The figures of `docs/adr/0026-series.md` are from here.
"""

import argparse
import os
import random
import sqlite3
import tempfile
import time

from gpuyard.model.units import HOUR_MS
from gpuyard.telemetry.packed_chunks import pack
from gpuyard.telemetry.samples import check_sample
from gpuyard.telemetry.series import HOURS, MINUTES, RAW, Series

STEP_MS = 10_000
BEGIN_MS = 1_700_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS


class Gpu:
    """A GPU that idles or works, with the noise of a real one."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.until, self.load, self.memory, self.energy, self.heat = 0, 0.0, 0, 0.0, 35.0

    def step(self, at_ms: int) -> tuple[int, ...]:
        """15 signals."""
        draw = self.chance
        if at_ms >= self.until:
            self.until = at_ms + int(draw.expovariate(1 / 7_200_000))
            self.load = draw.choice((0.0, 0.0, 0.3, 0.7, 0.95, 0.99))
            self.memory = int(self.load * draw.randint(20_000, 140_000))
        busy = min(1000, max(0, int(1000 * self.load + draw.gauss(0, 25)))) if self.load else 0
        power = int(70 + 0.6 * busy + draw.gauss(0, 6 if self.load else 0.7))
        self.energy += power * STEP_MS / 1000
        self.heat += (35 + busy / 25 - self.heat) / 12 + draw.gauss(0, 0.3)
        sm = max(0, busy - draw.randint(10, 60)) if busy else 0
        return (
            busy, busy // 3, self.memory, 143_000 - self.memory, power, int(self.energy), int(self.heat),
            int(self.heat) + 8, 1980 if self.load < 0.9 else 1980 - 15 * draw.randint(0, 3), 2619,
            4 if self.load > 0.9 and draw.random() < 0.1 else 0, 0, 0, sm, sm * 9 // 10,
        )  # fmt: skip


NAMES = (
    "busy", "memory_busy", "memory_used", "memory_free", "power", "energy", "temperature", "memory_temperature",
    "sm_clock", "memory_clock", "throttle", "ecc_corrected", "pcie_replays", "sm_active", "tensor_active",
)  # fmt: skip


def main() -> None:
    """Measure, and say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hours", type=float, default=1.2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.hours:
            _ingest(options.nodes, options.gpus, int(options.hours * HOUR_MS), folder)
        _space(options.gpus, folder)


def _ingest(nodes: int, gpus: int, span_ms: int, folder: str) -> None:
    """The fleet's samples for a while: what taking them in costs. Few patterns, so that making them is no work."""
    chance = random.Random(1)
    patterns = 24
    made = [[Gpu(chance) for _ in range(gpus)] for _ in range(patterns)]
    series = Series(os.path.join(folder, "series.db"))
    names = [f"gpu/{gpu}/{name}" for gpu in range(gpus) for name in NAMES]
    used, slowest, points = 0.0, 0.0, 0
    for at_ms in range(BEGIN_MS, BEGIN_MS + span_ms, STEP_MS):
        told = [dict(zip(names, [v for gpu in node for v in gpu.step(at_ms)], strict=True)) for node in made]
        began = time.process_time()
        for node in range(nodes):
            # Nodes do not tell at the same moment.
            moment = at_ms + node % 1000 * 10
            series.add(check_sample(f"n{node}", moment, told[node % patterns], moment), moment)
            points += len(names)
        used += time.process_time() - began
        for _ in range(200):
            began = time.process_time()
            more = series.work(at_ms + STEP_MS, 4)
            spent = time.process_time() - began
            used += spent
            slowest = max(slowest, spent)
            if not more:
                break
    share = 100 * used / (span_ms / 1000)
    print(
        f"{nodes * gpus} GPUs, {points} points: {share:.1f} % of a core; slowest piece {1000 * slowest:.0f} ms"
    )
    began = time.perf_counter()
    curves = series.curves("n7", "gpu/3", BEGIN_MS, BEGIN_MS + span_ms, BEGIN_MS + span_ms)
    print(f"one GPU's {len(curves)} curves: {1000 * (time.perf_counter() - began):.1f} ms")
    series.close()


def _space(gpus: int, folder: str) -> None:
    """Some days of one node, and what the tiers of a fleet of such nodes take after thirty."""
    chance = random.Random(2)
    made = [Gpu(chance) for _ in range(gpus)]
    names = [f"gpu/{gpu}/{name}" for gpu in range(gpus) for name in NAMES]
    days, step_ms = 2, STEP_MS
    series = Series(os.path.join(folder, "space.db"))
    rows: list[tuple[int, int, int]] = []
    end = BEGIN_MS + days * 24 * HOUR_MS
    for at_ms in range(BEGIN_MS, end, step_ms):
        values = [v for gpu in made for v in gpu.step(at_ms)]
        series.add(check_sample("n", at_ms, dict(zip(names, values, strict=True)), at_ms), at_ms)
        series.work(at_ms)
        if at_ms >= end - RAW.kept_ms:
            rows += [(at_ms, place, value) for place, value in enumerate(values)]
    db = series._db
    query = "SELECT tier, AVG(LENGTH(blob)) FROM chunks WHERE from_ms < ? GROUP BY tier"
    mean = dict(db.execute(query, (end - RAW.chunk_ms,)).fetchall())
    while series.work(end + 3 * HOUR_MS - 1, 1000):
        pass
    mean[HOURS.number] = dict(db.execute(query, (end,)).fetchall())[HOURS.number]
    fleet = 10_000 // gpus
    total = 0
    for tier, name, kept_ms in (
        (RAW, "raw", RAW.kept_ms),
        (MINUTES, "minutes", MINUTES.kept_ms),
        (HOURS, "hours", 0),
    ):
        chunks = (kept_ms or 30 * 24 * HOUR_MS) // tier.chunk_ms + 1
        size = mean[tier.number] * chunks * fleet
        total += size
        points = len(names) * (tier.chunk_ms // (tier.step_ms or STEP_MS))
        print(f"{name}: {mean[tier.number] / points:.2f} bytes a point, 10,000 GPUs {size / 2**20:.0f} MiB")
    print(f"after 30 days: {total / 2**30:.2f} GiB")
    series.close()
    _plain(rows, folder)


def _plain(rows: list[tuple[int, int, int]], folder: str) -> None:
    """The same samples as one row each, and as one compressed row for each series."""
    path = os.path.join(folder, "plain.db")
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE points (series INTEGER, at_ms INTEGER, value INTEGER, PRIMARY KEY (series, at_ms)) "
               "WITHOUT ROWID")  # fmt: skip
    began = time.process_time()
    db.executemany(
        "INSERT INTO points VALUES (?, ?, ?)", [(place, at_ms, value) for at_ms, place, value in rows]
    )
    db.commit()
    spent = time.process_time() - began
    db.execute("VACUUM")
    size = os.path.getsize(path)
    print(f"plain rows: {size / len(rows):.1f} bytes a point, {1e6 * spent / len(rows):.1f} µs a point")
    single = 0
    for place in range(120):
        column = [value for _at, which, value in rows if which == place]
        times = [at_ms for at_ms, which, _value in rows if which == place]
        for begin in range(0, len(column), 60):
            single += len(pack(times[begin : begin + 60], {"gpu/0/busy": column[begin : begin + 60]})) + 12
    print(f"one blob for each series and ten minutes: {single / len(rows):.2f} bytes a point")
    db.close()


if __name__ == "__main__":
    main()
