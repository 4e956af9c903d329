"""gpuyard's control plane against Slurm's, under load: the same jobs on the same machine, turn by turn in one run.

    python benchmarks/bench_load.py [--rounds 3] [--waiting 10000] [--quick] [--write]

Both are the real thing: `yard up` with emulated GPUs, and Slurm's daemons from Debian's packages with fake ones
(tests/rigs/slurm, which installs the packages and needs root). Four clients submit through each HTTP API while
nothing may start; short jobs are then let go and counted by the lines that they wrote themselves; with a long queue the
listing commands are timed as processes; then the queue is let go and the passes of both schedulers are watched. At last
each server is killed while it acknowledges submissions, to see what its acknowledgement was worth.

Everything happens on one disk, whose own fdatasync is timed in the same run. The machine is shared, so the load average
is printed with the figures, and of the rounds each side is given its best, with the worst beside it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from figures import Row, publish, table
from load_clients import Timed, fdatasync_s, percentile, timed
from load_sides import CLIENTS, COMMANDS_S, GPUS, Side, job_script, until_killed
from load_slurm import Missing, SlurmSide
from load_yard import YardSide

REPEATS = 5
CALM_S = 6.0
"""Longer than slurmctld leaves its jobs unsaved."""
_JOBS_S_MAX = 180.0

MEANING = """\
What an acknowledgement is worth differs. gpuyard answers 201 when the job is in the log on disk; one fdatasync serves
all that wait for it. slurmctld answers when the job is in its memory and writes the file with all jobs now and then: in
this run up to {unsaved_s:.1f} s passed between two writes while jobs were being acknowledged."""

CAVEAT = """\
Not the same machine room: Slurm has 8 slurmd with 8 GPUs each and an accounting database, gpuyard one engine with all
GPUs. Slurm reports only the last, the mean and the longest of its cycles; its percentiles are of the last cycle as read
ten times a second, and its mean and maximum are its own. A cycle of Slurm decides and hands launches to other threads;
a step of gpuyard also asks the engine, writes the log and starts the jobs, one after the other."""


@dataclass(slots=True)
class Plan:
    """How much of everything."""

    rounds: int = 3
    burst: int = 1000
    """Submissions in a round, through the API."""
    commands: int = 400
    """At most so many submissions in a round by command; a few seconds end it sooner."""
    short: int = 500
    waiting: int = 10_000
    watch_s: float = 15.0
    repeats: int = REPEATS
    kills: int = 2
    kill_s: float = 2.5
    """How long submissions go on before the server is killed for the first time; the second time twice as long."""


@dataclass(slots=True)
class Found:
    """What was measured, by side."""

    bursts: dict[str, list[Row]] = field(default_factory=dict)
    runs: dict[str, list[Row]] = field(default_factory=dict)
    queues: dict[str, list[Row]] = field(default_factory=dict)
    kills: dict[str, list[Row]] = field(default_factory=dict)
    passes: list[Row] = field(default_factory=list)
    disk_s: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


class Bench:
    """One run over the sides that can be had."""

    def __init__(self, sides: list[Side], folder: Path, plan: Plan) -> None:
        self.found = Found()
        self._sides = sides
        self._folder = folder
        self._plan = plan

    def run(self) -> Found:
        """Everything, in the order that leaves the longest queue for last."""
        for turn, side in self._turns(self._plan.rounds):
            _say(f"short jobs, round {turn}: {side.name}")
            self._probe()
            self._note(self.found.runs, side.name, self._short_jobs(side, turn))
        for side in self._sides:
            side.hold_back()
        for turn, side in self._turns(self._plan.rounds):
            _say(f"submissions, round {turn}: {side.name}")
            self._probe()
            self._grow(side)
        for side in self._sides:
            _say(f"up to {self._plan.waiting:,} waiting jobs: {side.name}")
            self._fill(side)
        for turn, side in self._turns(self._plan.repeats):
            _say(f"listings, {turn} of {self._plan.repeats}: {side.name}")
            self._listings(side)
        for side in self._sides:
            _say(f"passes: {side.name}")
            self._watch(side)
        for turn, side in self._turns(self._plan.kills):
            _say(f"killed, {turn} of {self._plan.kills}: {side.name}")
            self._kill(side, turn)
        return self.found

    def _turns(self, rounds: int) -> Iterator[tuple[int, Side]]:
        """Each side once in a round, first in every other one: what is left of one's work burdens the next."""
        for turn in range(1, rounds + 1):
            for side in self._sides if turn % 2 else self._sides[::-1]:
                yield turn, side

    def _probe(self) -> None:
        self.found.disk_s += fdatasync_s(self._folder, 200)
        self.found.loads.append(os.getloadavg()[0])

    def _note(self, rows: dict[str, list[Row]], name: str, row: Row) -> None:
        rows.setdefault(name, []).append(row)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _short_jobs(self, side: Side, turn: int) -> Row:
        """All are waiting when they are let go; the time ends with the last line."""
        lines = self._folder / f"lines.{side.name}.{turn}"
        lines.touch()
        side.hold_back()
        self._burst(f"{side.api}, none waiting", side, lines, self._plan.short)
        cpu_s, began_s = side.cpu_s(), time.perf_counter()
        side.let_go()
        while (count := _lines(lines)) < self._plan.short:
            if time.perf_counter() - began_s > _JOBS_S_MAX:
                raise RuntimeError(
                    f"{side.name}: {count} of {self._plan.short} jobs ran in {_JOBS_S_MAX:.0f} s"
                )
            time.sleep(0.01)
        wall_s = time.perf_counter() - began_s
        side.settle()
        cpu_s = side.cpu_s() - cpu_s
        # One that ran twice shows only now.
        numbers = lines.read_text(encoding="ascii").split()
        return {
            "per_s": self._plan.short / wall_s,
            "lines": len(numbers),
            "twice": len(numbers) - len(set(numbers)),
            "cpu_ms_each": 1000 * cpu_s / self._plan.short,
        }

    # -- submissions ---------------------------------------------------------------------------------------------

    def _burst(self, name: str, side: Side, lines: Path, count: int, *, by_command: bool = False) -> None:
        submit = side.submit_by_command if by_command else side.submit
        cpu_s = side.cpu_s()
        burst = submit(job_script(lines), count)
        count = len(burst.latencies_s)
        row = {
            "per_s": burst.per_s,
            "p50_ms": 1000 * percentile(burst.latencies_s, 50),
            "p99_ms": 1000 * percentile(burst.latencies_s, 99),
            "cpu_ms_each": 1000 * (side.cpu_s() - cpu_s) / count,
            "count": count,
        }
        self._note(self.found.bursts, name, row)

    def _grow(self, side: Side) -> None:
        """A round of submissions that stay."""
        plan, lines = self._plan, self._queued(side)
        self._burst(f"{side.api}, up to {plan.rounds * plan.burst:,} waiting", side, lines, plan.burst)
        self._burst(side.command, side, lines, plan.commands, by_command=True)

    def _fill(self, side: Side) -> None:
        """The rest of the long queue."""
        more = self._plan.waiting - len(side.waiting())
        if more > 0:
            self._burst(f"{side.api}, on to {self._plan.waiting:,} waiting", side, self._queued(side), more)

    def _queued(self, side: Side) -> Path:
        """Where the jobs of the long queue write."""
        return self._folder / f"lines.{side.name}.queued"

    def _kill(self, side: Side, turn: int) -> None:
        """Kill the server while it acknowledges, and look what of it is there afterwards."""
        script = job_script(self._queued(side))
        # What was submitted a while ago should be safe with anyone: that it is shows that the restart went well.
        side.hold_back()
        side.settle()
        time.sleep(CALM_S)
        before = side.waiting()
        acknowledged = until_killed(side, script, self._plan.kill_s * turn)
        after = side.known()
        submitters = side.submitters(script)
        numbers = {submitter.number(submitter.submit()) for submitter in submitters for _ in range(25)}
        for submitter in submitters:
            submitter.close()
        row = {
            "acknowledged": len(acknowledged),
            "lost": len(set(acknowledged) - after),
            "again": len(numbers & set(acknowledged)),
            "before": len(before),
            "before_lost": len(before - after),
        }
        self._note(self.found.kills, side.name, row)

    # -- a long queue --------------------------------------------------------------------------------------------

    def _listings(self, side: Side) -> None:
        for name, command in side.queue_commands().items():
            cpu_s = side.cpu_s()
            took: Timed = timed(command, side.environment)
            self._note(
                self.found.queues,
                name,
                {
                    "wall_s": took.wall_s,
                    "cpu_s": took.cpu_s,
                    "server_cpu_s": side.cpu_s() - cpu_s,
                    "kib": len(took.output) // 1024,
                },
            )

    def _watch(self, side: Side) -> None:
        lines = self._queued(side)
        lines.touch()
        rows = side.watched(self._plan.watch_s)
        side.settle()
        for row in rows:
            row["jobs_per_s"] = _lines(lines) / self._plan.watch_s
        self.found.passes += rows
        self.found.loads.append(os.getloadavg()[0])


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f} {text}", file=sys.stderr)


# -- tables ------------------------------------------------------------------------------------------------------


def _best_and_worst(rows: list[Row]) -> tuple[Row, float]:
    return max(rows, key=lambda row: row["per_s"]), min(row["per_s"] for row in rows)


def _burst_table(found: Found) -> str:
    rows = []
    # Commands come last, after all that went over HTTP.
    for name, runs in sorted(found.bursts.items(), key=lambda item: "`" in item[0]):
        top, worst = _best_and_worst(runs)
        shown = worst if len(runs) > 1 else None
        rows.append([name, top["per_s"], shown, *[top[key] for key in ("p50_ms", "p99_ms", "cpu_ms_each")]])
    head = ["through", "per second", "worst round", "answer p50 ms", "p99 ms", "server CPU ms each"]
    return table(head, rows)


def _run_table(found: Found) -> str:
    rows = []
    for name, runs in found.runs.items():
        top, worst = _best_and_worst(runs)
        lines, twice = sum(row["lines"] for row in runs), sum(row["twice"] for row in runs)
        rows.append([name, top["per_s"], worst if len(runs) > 1 else None, top["cpu_ms_each"], lines, twice])
    head = ["scheduler", "jobs per second", "worst round", "server CPU ms each", "lines in all", "run twice"]
    return table(head, rows)


def _kill_table(found: Found) -> str:
    rows = [[name, *[sum(row[key] for row in runs) for key in runs[0]]] for name, runs in found.kills.items()]
    head = [
        "server killed",
        "acknowledged",
        "of these lost",
        "numbers given out again",
        "older jobs",
        "of these lost",
    ]
    return table(head, rows)


def _queue_table(found: Found) -> str:
    rows = []
    for name, runs in found.queues.items():
        wall_s = sorted(row["wall_s"] for row in runs)
        median = {
            key: statistics.median(row[key] for row in runs) for key in ("cpu_s", "server_cpu_s", "kib")
        }
        spread = f"{wall_s[0]:.2f} to {wall_s[-1]:.2f}"
        rows.append([f"`{name}`", statistics.median(wall_s), spread, *median.values()])
    return table(["command", "wall s", "from, to", "its CPU s", "server CPU s", "KiB"], rows)


def _pass_table(found: Found) -> str:
    keys = ("p50_ms", "p99_ms", "mean_ms", "max_ms", "passes", "jobs_per_s")
    rows = [[row["pass"], *[row[key] for key in keys]] for row in found.passes]
    return table(["pass", "p50 ms", "p99 ms", "mean ms", "max ms", "passes", "jobs run per second"], rows)


def _text(found: Found, plan: Plan, slurm: SlurmSide | None) -> str:
    about = f"Slurm is {slurm.version}, {slurm.parameters}." if slurm else "Slurm was not measured."
    disk_ms = [1000 * each for each in sorted(found.disk_s)]
    return "\n\n".join(
        part
        for part in [
            f"{GPUS} GPUs, {CLIENTS} clients, best of {plan.rounds} rounds. {about} Load average while measuring: "
            f"{min(found.loads):.1f} to {max(found.loads):.1f}. fdatasync of 4 KiB on this disk, {len(disk_ms)} times: "
            f"p50 {percentile(disk_ms, 50):.2f} ms, p99 {percentile(disk_ms, 99):.2f} ms.",
            f"Submissions while nothing may start: {plan.short:,} in a round into an empty queue, {plan.burst:,} in a "
            f"round on top of each other, and those by command for {COMMANDS_S:g} s:",
            _burst_table(found),
            MEANING.format(unsaved_s=slurm.unsaved_s) if slurm else "",
            f"So each server was also killed (`kill -9`) {plan.kills} times in a stream of submissions, "
            f"{plan.kill_s:g} s after its begin or a multiple of that, and started again; then came 100 more jobs:",
            _kill_table(found),
            f"{plan.short:,} waiting jobs of one GPU (`/bin/true` and a line into a file), from letting them go to the "
            f"last line:",
            _run_table(found),
            f"With {plan.waiting:,} waiting jobs, median of {plan.repeats}, run as processes:",
            _queue_table(found),
            f"Passes while that queue is let go, {plan.watch_s:g} s of short jobs starting and ending:",
            _pass_table(found),
            CAVEAT if slurm else "",
        ]
        if part
    )


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=10_000, help="jobs in the long queue")
    parser.add_argument("--scheduler", default="", help="SchedulerParameters for Slurm; its own unless given")
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("figures of a quick run are not to be published")
    plan = Plan(options.rounds, waiting=options.waiting)
    if options.quick:
        plan = Plan(
            1, burst=200, commands=40, short=100, waiting=1000, watch_s=5, repeats=3, kills=1, kill_s=1
        )
    with ExitStack() as things:
        folder = Path(things.enter_context(tempfile.TemporaryDirectory(prefix="gpuyard-load-")))
        folder.chmod(0o755)
        yard = YardSide(folder)
        things.callback(yard.stop)
        slurm = _slurm(folder, options.scheduler)
        if slurm is not None:
            things.callback(slurm.stop)
        elif options.write:
            return 1
        found = Bench([yard, slurm] if slurm else [yard], folder, plan).run()
    rows = {name: getattr(found, name) for name in ("bursts", "kills", "runs", "queues", "passes")}
    publish("load", _text(found, plan, slurm), rows, write=options.write)
    return 0


def _slurm(folder: Path, scheduler: str) -> SlurmSide | None:
    try:
        return SlurmSide(folder, scheduler)
    except Missing as refusal:
        print(f"Slurm is not measured: {refusal}", file=sys.stderr)
        return None


if __name__ == "__main__":
    sys.exit(main())
