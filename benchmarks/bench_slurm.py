"""Slurm's own scheduler against a yard that drives the same daemons: one stream of jobs, one machine, one run.

    python benchmarks/bench_slurm.py [--jobs 500] [--load 1.25] [--seed 1] [--write]
    python benchmarks/bench_slurm.py --simulated [--write]     the same jobs in the simulator, without a cluster

Real slurmctld, slurmdbd, slurmrestd and eight slurmd with eight fake GPUs each, from Debian's packages
(tests/rigs/slurm installs them and needs root), on a fresh cluster for every side. The jobs sleep, so two cores are
enough; every figure is computed from the lines that the jobs wrote themselves. Both sides are told the same: tenant,
GPUs, nodes, and a time limit in whole minutes.

First the same order on both sides: fair share by the same weights and half-life, then backfill. Apart from them stands
an order that uses time limits as estimates, which Slurm does not offer.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import slurm_simulated
from figures import Row, publish, table
from slurm_drive import EXTRA, HALF_LIFE_MIN, SCHEDULER, Driven, OwnScheduler, Side
from slurm_trace import WEIGHTS, Sent, figures_of, jobs, read

from rigs.components import Missing

ALONE = 20
"""Jobs sent one after the other into an empty cluster, to see what starting one costs."""
_OVER_S = 900.0
TURN_MS = 200
"""From the end of a job to the start of the next on its GPUs, about, for the simulator."""


def alone(side: Side, folder: Path) -> float:
    """From the submission of a job to its first line, in an empty cluster; the median, in seconds."""
    took = []
    for number in range(1, ALONE + 1):
        own = folder / f"alone{number}"
        own.mkdir(mode=0o777)
        (own / "lines").touch()
        sent = Sent(number, 0, next(iter(WEIGHTS)), 1, 100, 1)
        began_ms = time.time_ns() // 1_000_000
        side.send(sent, own)
        _until_lines(own, 2)
        ran, _ = read(own, [sent], {number: began_ms})
        took.append(ran[0].wait_ms / 1000)
    return median(took)


def run(side: Side, sent: Sequence[Sent], folder: Path) -> Row:
    """Send every job at its time and wait for the last line."""
    alone_s = alone(side, folder)
    lines = folder / "lines"
    lines.touch()
    submitted_ms: dict[int, int] = {}
    cpu_s, began_s = side.cpu_s(), time.monotonic()
    for each in sent:
        time.sleep(max(0.0, began_s + each.at_ms / 1000 - time.monotonic()))
        # Before the call: how long an acknowledgement takes is part of the wait.
        submitted_ms[each.number] = time.time_ns() // 1_000_000
        side.send(each, folder)
        if not each.number % 50:
            _say(f"{each.number} of {len(sent)} sent, {side.waiting()} not over")
    _until_lines(folder, 2 * len(sent), lambda: _say(f"{side.waiting()} not over"))
    cpu_s = side.cpu_s() - cpu_s
    ran, odd = read(folder, sent, submitted_ms)
    return {**figures_of(ran), **odd, "alone_s": alone_s, "cpu_ms_each": 1000 * cpu_s / len(sent)}


def _until_lines(folder: Path, count: int, say: Callable[[], None] = lambda: None) -> None:
    began_s = said_s = time.monotonic()
    while (folder / "lines").read_bytes().count(b"\n") < count:
        now_s = time.monotonic()
        if now_s - began_s > _OVER_S:
            print(f"not all jobs were over {_OVER_S:.0f} s after the last was sent", file=sys.stderr)
            return
        if now_s - said_s > 20:
            said_s = now_s
            say()
        time.sleep(0.05)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f} {text}", file=sys.stderr)


def text_of(rows: Sequence[Row], sent: Sequence[Sent]) -> str:
    """The table and what it stands for."""
    work_s = sum(each.gpus * each.run_ms for each in sent) / 1000
    keys = {
        "makespan s": "makespan_s",
        "wait mean s": "wait_mean_s",
        "p50": "wait_p50_s",
        "p95": "wait_p95_s",
        "gangs of 16 and more, mean s": "big_wait_mean_s",
        "utilisation %": "utilisation_pct",
        "unfairness %": "unfairness_pct",
        "alone s": "alone_s",
        "CPU ms a job": "cpu_ms_each",
    }
    odd = ["never", "unfinished", "twice", "short"]
    lines = [[row["side"], *[row[key] for key in keys.values()], *[row[key] for key in odd]] for row in rows]
    own, driven = rows[0], rows[1]
    return "\n\n".join(
        [
            f"{len(sent)} jobs, {work_s:,.0f} GPU-seconds, sent within {sent[-1].at_ms / 1000:.0f} s; "
            f"{sum(each.gpus >= 16 for each in sent)} of them gangs over 2 or 4 whole nodes. "
            f"Shares {', '.join(f'{tenant} {weight}' for tenant, weight in WEIGHTS.items())}, "
            f"half-life {HALF_LIFE_MIN} min.",
            table(["decided by", *keys, *odd], lines),
            f"With the same order the mean wait under gpuyard is {driven['wait_mean_s'] / own['wait_mean_s']:.2f} x "
            f"Slurm's and the makespan {driven['makespan_s'] / own['makespan_s']:.3f} x. "
            f"**Alone**: from submission to the job's first line in an empty cluster, median of {ALONE}. "
            f"**Unfairness**: GPUs in use that are with the wrong tenants, mean over the time in which somebody waits.",
            f"Slurm: `SchedulerParameters={SCHEDULER}`, `{'`, `'.join(EXTRA)}`, multifactor priority of fair share "
            f"(10,000) before age (1,000).",
        ]
    )


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--load", type=float, default=1.25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sides", nargs="+", default=["slurm", "fair", "sjf"], choices=["slurm", "fair", "sjf"]
    )
    parser.add_argument("--simulated", action="store_true", help="simulate them and stop")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    sent = jobs(options.jobs, options.seed, options.load)
    if options.simulated:
        found = slurm_simulated.rows_of(sent, TURN_MS)
        publish("slurm-simulated", slurm_simulated.text_of(found, TURN_MS), found, write=options.write)
        return 0
    makers: dict[str, Callable[[Path], Side]] = {
        "slurm": OwnScheduler,
        "fair": lambda folder: Driven(folder, ["class", "fair"]),
        "sjf": lambda folder: Driven(folder, ["class", "sjf"]),
    }
    rows = []
    for name in options.sides:
        with tempfile.TemporaryDirectory(prefix="gpuyard-slurm-") as place:
            folder = Path(place)
            folder.chmod(0o755)
            _say(f"a cluster for {name}")
            try:
                side = makers[name](folder)
            except Missing as refusal:
                print(f"not measured: {refusal}", file=sys.stderr)
                return 1
            try:
                row = {"side": getattr(side, "name", name), **run(side, sent, folder)}
            finally:
                side.stop()
        print(row, file=sys.stderr)
        rows.append(row)
    if len(rows) > 1:
        publish("slurm", text_of(rows, sent), rows, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
