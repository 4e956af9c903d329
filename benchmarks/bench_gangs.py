"""What each word of `gangs` does to large jobs: waits by size against FIFO's, on the demo's week and on Philly.

    python benchmarks/bench_gangs.py [--seeds 0-9] [--policies fifo default:patient ...] [--philly DIR] [--cache DIR]
        [--processes 2] [--plot FILE]

Each policy simulates every seed of the demo's week; with --philly the jobs of Philly on a quarter of its nodes instead,
as `bench_philly.py` does. Waits are pooled over the seeds before a percentile is taken: a week has a dozen jobs of
more than 16 GPUs. The work-weighted wait is the sum of GPU-hours x wait over the sum of GPU-hours. A job counts as
within its guarantee if, when it arrives, all that its team's unfinished jobs ask for is within the team's guarantee.
With --cache, runs are kept in a folder by policy, trace and code, so that a second call only prints.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from heapq import heappop, heappush
from importlib import resources
from pathlib import Path

import bench_philly
from figures import Row, table

from gpuyard.cli.commands.foresight.fleet import make_uniform_pool
from gpuyard.config.reading import loads
from gpuyard.model import PolicySpec, Settings
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI, MINUTE_MS
from gpuyard.pages.markup import element
from gpuyard.pages.scale import Linear, push_apart
from gpuyard.policies.registry import GANGS, PRESETS, build, with_gangs
from gpuyard.sim.generate import teams_week
from gpuyard.sim.result import Result
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.summary import fairness
from gpuyard.sim.trace import Trace

SOURCES = Path(__file__).resolve().parents[1] / "src" / "gpuyard"
PARTS = ("core", "policies", "packing", "sim", "model")
"""The folders whose code decides what a run gives."""

CLASSES = ((1, "1"), (8, "2-8"), (16, "9-16"), (1 << 30, "17+"))
"""The largest number of GPUs of each size class, and its name."""


def code_hash() -> str:
    """One hash over the code that a run depends on."""
    found = hashlib.sha256()
    for part in PARTS:
        for path in sorted((SOURCES / part).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


def size_class(gpu_milli: int) -> str:
    """The size class of a job."""
    gpus = -(-gpu_milli // MILLI)
    return next(name for most, name in CLASSES if gpus <= most)


def within_guarantee(result: Result, settings: Settings, submit_ms: Sequence[int]) -> set[int]:
    """The jobs that arrive while all that their team asks for is within its guarantee."""
    own = {tenant.path: sum(tenant.quota.guarantee.values()) for tenant in settings.tenants}
    rows = sorted(
        zip(result.job_id, result.jct_ms, result.gpu_milli, result.tenant, strict=True),
        key=lambda row: (submit_ms[row[0] - 1], row[0]),
    )
    asked = [0] * len(result.tenants)
    ends: list[tuple[int, int, int]] = []
    found = set()
    for job_id, jct_ms, milli, team in rows:
        at_ms = submit_ms[job_id - 1]
        while ends and ends[0][0] <= at_ms:
            _end_ms, gone, whose = heappop(ends)
            asked[whose] -= gone
        asked[team] += milli
        heappush(ends, (at_ms + jct_ms, milli, team))
        if asked[team] <= own.get(result.tenants[team], 0):
            found.add(job_id)
    return found


def measure(spec: PolicySpec, seed: int, philly: str) -> Row:
    """One run: the waits of every job with its work, and what the table says of the whole."""
    if philly:
        trace, given = bench_philly.read(Path(philly))
        nodes = {vc: -(-count // 4) for vc, count in given.items()}
        pools = [make_uniform_pool(sum(nodes.values()) * bench_philly.GPUS_PER_NODE, "V100", 8)]
        settings = bench_philly.settings(trace, nodes, "shared")
    else:
        text = resources.files("gpuyard.cli.commands.foresight").joinpath("demo.yaml").read_text("utf-8")
        yard = loads(text, "demo.yaml")
        trace, pools, settings = teams_week(seed), yard.pools, yard.settings
    result = Simulation(trace, pools, settings, build(spec)).run()
    return figures_of(result, trace, settings)


def figures_of(result: Result, trace: Trace, settings: Settings) -> Row:
    """What is kept of a run."""
    own = within_guarantee(result, settings, trace.submit_ms)
    jobs = []
    for job_id, wait_ms, milli in zip(result.job_id, result.wait_ms, result.gpu_milli, strict=True):
        row = job_id - 1
        urgent = trace.specs[trace.spec[row]].klass == "urgent"
        jobs.append((job_id, wait_ms, milli, trace.run_ms[row], urgent, job_id in own))
    return {
        "jobs": jobs,
        "span_ms": result.last_end_ms - result.first_submit_ms,
        "destroyed_gpu_ms": result.destroyed_gpu_ms,
        "preemptions": result.preemptions,
        "unfinished": result.unfinished,
        "fairness_error": 1 - (fairness(result.samples) or 0.0),
        "cpu_s": result.cpu_s,
    }


def percentile(ordered: Sequence[int], percent: int) -> float | None:
    """By nearest rank."""
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None


def pooled(runs: Sequence[Row]) -> Row:
    """The figures of one policy over its runs."""
    jobs = [job for run in runs for job in run["jobs"]]
    work = sum(milli * run_ms for _id, _wait, milli, run_ms, *_ in jobs)
    held = sum(milli * run_ms * wait for _id, wait, milli, run_ms, *_ in jobs)
    found: Row = {
        "weighted_h": held / work / HOUR_MS,
        "mean_h": sum(job[1] for job in jobs) / len(jobs) / HOUR_MS,
        "again_gpu_h": sum(run["destroyed_gpu_ms"] for run in runs) / HOUR_MS,
        "preemptions": sum(run["preemptions"] for run in runs),
        "fairness_error": sum(run["fairness_error"] for run in runs) / len(runs),
        "span_d": [run["span_ms"] / DAY_MS for run in runs],
        "unfinished": sum(run["unfinished"] for run in runs),
        "cpu_s": sum(run["cpu_s"] for run in runs),
        "jobs": len(jobs),
    }
    for _most, name in CLASSES:
        waits = sorted(job[1] for job in jobs if size_class(job[2]) == name)
        found[name] = [(percentile(waits, percent) or 0) / HOUR_MS for percent in (50, 95)]
    urgent = sorted(job[1] for job in jobs if job[4])
    own = sorted(job[1] for job in jobs if job[5])
    found["urgent_min"] = (percentile(urgent, 95) or 0) / MINUTE_MS
    found["own_min"] = (percentile(own, 95) or 0) / MINUTE_MS
    found["own_jobs"] = len(own)
    return found


def run_all(
    specs: Sequence[PolicySpec], seeds: Sequence[int], philly: str, cache: Path, processes: int
) -> list[Row]:
    """The runs of every policy, from the cache where they are known."""
    code = code_hash()
    wanted = [(spec, seed) for spec in specs for seed in seeds]
    cache.mkdir(parents=True, exist_ok=True)
    files = {}
    for spec, seed in wanted:
        key = hashlib.sha256(repr((spec, seed, bool(philly), code)).encode()).hexdigest()[:24]
        files[spec.name, seed] = cache / f"{key}.json"
    todo = [(spec, seed) for spec, seed in wanted if not files[spec.name, seed].exists()]
    with ProcessPoolExecutor(processes) as pool:
        running = {(s.name, seed): pool.submit(measure, s, seed, philly) for s, seed in todo}
        for key, future in running.items():
            files[key].write_text(json.dumps(future.result()), encoding="utf-8")
    return [pooled([json.loads(files[spec.name, seed].read_text()) for seed in seeds]) for spec in specs]


def shown(names: Sequence[str], rows: Sequence[Row]) -> str:
    """The table. The first row is what the others are held against."""
    base = rows[0]
    head = ["policy", "weighted wait h", "x", "mean h", *[f"{name}: p50 / p95 h" for _most, name in CLASSES]]
    head += ["p95 x, largest", "ends x, worst", "fairness error", "done again GPU-h", "stops"]
    head += ["urgent p95 min", "own p95 min"]
    lines = []
    for name, row in zip(names, rows, strict=True):
        classes = [f"{row[each][0]:.1f} / {row[each][1]:.1f}" for _most, each in CLASSES]
        times = max(row[each][1] / max(base[each][1], 1e-9) for _most, each in CLASSES)
        ends = max(a / b for a, b in zip(row["span_d"], base["span_d"], strict=True))
        lines.append(
            [
                name,
                f"{row['weighted_h']:.1f}",
                f"{row['weighted_h'] / base['weighted_h']:.2f}",
                f"{row['mean_h']:.2f}",
                *classes,
                f"{times:.2f}",
                f"{ends:.3f}",
                f"{row['fairness_error']:.4f}",
                f"{row['again_gpu_h']:.0f}",
                row["preemptions"],
                f"{row['urgent_min']:.1f}",
                f"{row['own_min']:.1f} ({row['own_jobs']})",
            ]
        )
    return table(head, lines)


def plot(names: Sequence[str], rows: Sequence[Row]) -> str:
    """The frontier as a picture: the mean wait of all jobs against the 95th percentile of the largest."""
    largest = CLASSES[-1][1]
    points = [(row["mean_h"], row[largest][1], name) for name, row in zip(names, rows, strict=True)]
    across = Linear(0, 1.15 * max(x for x, _y, _name in points))
    up = Linear(0, 1.1 * max(y for _x, y, _name in points))
    marks = []
    tops = [340 - 270 * up.at(y) for _x, y, _name in points]
    for (x, y, name), top, beside in zip(points, tops, push_apart(tops, 18, 70, 340), strict=True):
        left = 70 + 800 * across.at(x)
        marks.append(element("circle", cx=f"{left:.0f}", cy=f"{top:.0f}", r=6, fill="#0072b2"))
        text = f"{name}: {x:.1f} h, {y:.0f} h"
        marks.append(element("text", text, x=f"{left + 10:.0f}", y=f"{beside + 5:.0f}", font_size=14))
    title = f"p95 wait of jobs of {largest} GPUs (up), mean wait of all jobs (across)"
    return str(
        element(
            "svg",
            element("rect", width=980, height=380, rx=10, fill="#ffffff"),
            element("text", title, x=40, y=38, font_size=18),
            element("path", d="M70 70V340H940", fill="none", stroke="#59626f"),
            *marks,
            xmlns="http://www.w3.org/2000/svg",
            viewBox="0 0 980 380",
            font_family="system-ui, sans-serif",
        )
    )


def spans(text: str) -> list[int]:
    """`0-9` or `0,3,5`."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def find_policy(text: str) -> PolicySpec:
    """A preset, or one with another word of `gangs`: `default:eager`."""
    name, _, gangs = text.partition(":")
    spec = PRESETS[name]
    return replace(with_gangs(spec, gangs), name=text) if gangs else spec


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=spans, default=spans("0-9"))
    usual = ["fifo", *[f"default:{word}" for word in GANGS]]
    parser.add_argument("--policies", nargs="+", type=find_policy, default=[find_policy(n) for n in usual])
    parser.add_argument("--philly", default="", help="folder of the Philly files; instead of the demo's week")
    parser.add_argument("--cache", type=Path, help="keep runs in this folder")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="draw the frontier into this SVG file")
    options = parser.parse_args()
    seeds = [0] if options.philly else options.seeds
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder)
        rows = run_all(options.policies, seeds, options.philly, cache, options.processes)
    names = [spec.name for spec in options.policies]
    print(shown(names, rows))
    if options.plot is not None:
        options.plot.write_text(f"{plot(names, rows)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
