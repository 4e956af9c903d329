"""A real run on real Slurm daemons, imported and simulated: do the simulated starts agree with what happened?

    python benchmarks/bench_slurm_replay.py [--jobs 120] [--over 120] [--seed 1] [--write]

Each round brings up a private cluster of 4 nodes with 8 GPUs that are not there (Debian's packages, root), hands in a
seeded mix of jobs at their times, waits until all have ended, reads the cluster with `yard slurm import`'s own code,
simulates the trace under the policy that was imported, and compares job by job when each started.

Every round is run twice. Once with Slurm as it comes but for its passes, one a second. Once prompt: its backfill
reckons in seconds and not in minutes, it looks for the next job when one leaves, and shares are counted in GPUs.

Why it is off is looked for in two ways. Slurm starts a job at one of its passes and keeps times in whole seconds; the
jobs say theirs in milliseconds, and simulated once more with those, every job holds its GPUs longer by the lag of jobs
that found free GPUs. And the simulation is shaken: each job comes up to a second later, as passes would have it; how
far such simulations are from one another is how far a start can be foretold at all.
"""

import argparse
import json
import random
import statistics
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import yaml
from figures import Row, publish, table
from slurm_drive import shares

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpuyard.config import Config
from gpuyard.config.reading import loads
from gpuyard.config.slurm.importing import make_document
from gpuyard.config.slurm.importing_tenants import find_places, find_tenant
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.site.accounting import JobRow
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.site import SlurmSite, list_sources, read_running_site, read_saved_site
from gpuyard.engines.slurm.words.forms import guess_models
from gpuyard.model import PolicySpec
from gpuyard.policies import registry
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.slurm_history import History, make_history
from gpuyard.sim.trace import Trace
from rigs.slurm.cluster import SlurmCluster

NODES, GPUS = 4, 8
QUICK = "bf_interval=1,sched_interval=1,sched_min_interval=0,bf_continue,bf_max_job_test=500"
PROMPT = f"{QUICK},bf_resolution=1,batch_sched_delay=0"
FIRST_COME, MULTIFACTOR = ("PriorityType=priority/basic",), ("PriorityCalcPeriod=1",)
MORE = ("Epilog=/bin/true", "PartitionName=DEFAULT TRESBillingWeights=GRES/gpu=1")
ROUNDS = {
    "first-come": (QUICK, FIRST_COME),
    "first-come, prompt": (PROMPT, FIRST_COME + MORE),
    "multifactor": (QUICK, MULTIFACTOR),
    "multifactor, prompt": (PROMPT, MULTIFACTOR + MORE),
}
"""SchedulerParameters, and lines beside the rig's own, which has the multifactor plugin: fair share, QOS and age."""

PASS_MS, SHAKES = 1000, 8
Times = dict[int, list[int]]
"""By the number of a job when it was handed in, began and ended, in milliseconds, as it wrote itself."""

ABOUT = """\
{jobs} jobs in {over} s on {nodes} nodes of {gpus} GPUs, 1 GPU to 2 nodes each, 2 to 20 s long with limits of 1 to 4
minutes, of two accounts with shares 3 and 1 and two QOS; seed {seed}. The error is the simulated start less the real
one. Shaken: how far simulations are from one another in which each job comes up to a second later."""


@dataclass(frozen=True)
class Order:
    """A job to hand in."""

    at_s: float
    options: tuple[str, ...]
    run_s: int


def orders(jobs: int, over_s: float, seed: int) -> list[Order]:
    """The mix: mostly small, some whole nodes, a few gangs over two."""
    rng = random.Random(seed)
    found = []
    for _ in range(jobs):
        nodes, gpus = rng.choices([(1, 1), (1, 2), (1, 4), (1, 8), (2, 8)], [40, 20, 20, 14, 6])[0]
        run_s = rng.choice([2, 3, 5, 8, 12, 20])
        account = rng.choices(["big", "small"], [3, 2])[0]
        qos = rng.choices(["normal", "high"], [8, 1])[0]
        limit = rng.choice([1, 2, 4])
        options = (f"-N{nodes}", f"--gres=gpu:{gpus}", "--mem=1G", f"-t{limit}", f"-A{account}", f"-q{qos}")
        found.append(Order(rng.uniform(0, over_s), options, run_s))
    return sorted(found, key=lambda order: order.at_s)


def record(slurm: SlurmCluster, wanted: Sequence[Order]) -> Times:
    """Hand the jobs in at their times and wait until all have ended; gives when each came, began and ended."""
    for words in (
        "add account big fairshare=3", "add account small fairshare=1", "add qos high priority=100",
        "add user root account=big qos=normal,high", "add user root account=small qos=normal,high",
    ):  # fmt: skip
        slurm.command("sacctmgr", "-i", *words.split())
    # Without the multifactor plugin nobody reckons any.
    while MULTIFACTOR[0] in slurm.layout.extra and not all(shares(slurm, ("big", "small"))):
        time.sleep(1)
    lines = slurm.folder / "lines"
    say = f'echo "$SLURM_JOB_ID $(date +%s%3N)" >>{lines}'
    times: Times = {}
    began = time.monotonic()
    for order in wanted:
        time.sleep(max(0.0, began + order.at_s - time.monotonic()))
        script = f"#!/bin/sh\n{say}\nsleep {order.run_s}\n{say}\n"
        times[slurm.submit(script, *order.options)] = [time.time_ns() // 1_000_000]
    until = time.monotonic() + 600
    while slurm.command("squeue", "-h").strip():
        if time.monotonic() > until:
            sys.exit("bench_slurm_replay: the jobs did not end within 10 minutes")
        time.sleep(1)
    # The accounting lags a little.
    time.sleep(6)
    for line in lines.read_text(encoding="ascii").splitlines():
        number, at_ms = line.split()
        times[int(number)].append(int(at_ms))
    return times


def exact(rows: Sequence[JobRow], times: Times) -> list[JobRow]:
    """The rows with the times that the jobs wrote down."""
    found = []
    for row in rows:
        came_ms, began_ms, ended_ms = times[row.id]
        found.append(replace(row, submit_ms=came_ms, eligible_ms=came_ms, start_ms=began_ms, end_ms=ended_ms))
    return found


def imported(site: SlurmSite, rows: Sequence[JobRow]) -> tuple[Config, History]:
    """The cluster as a configuration, and these jobs as a trace, as `yard slurm import` makes them."""
    types, places = GpuTypes(), find_places(site)
    config = loads(yaml.safe_dump(make_document(site, types, Notes()), sort_keys=False))
    models = {each: model for kind, model in types.chosen.items() for each in guess_models(kind)}
    return config, make_history(rows, lambda row: find_tenant(row.account, row.user, places), models)


def replayed(config: Config, past: History, backfill: str = "", more_ms: int = 0) -> list[float]:
    """Simulated start less real start, in seconds, by row of the trace; each job runs so much longer."""
    spec = replace(config.settings.policy, backfill=backfill or config.settings.policy.backfill)
    begun_ms = starts_ms(config, past.trace, spec, [0] * len(past.trace), more_ms)
    real_ms = [row.start_ms - past.trace.origin_ms for row in past.rows]
    return [(begun - real) / 1000 for begun, real in zip(begun_ms, real_ms, strict=True)]


def starts_ms(
    config: Config, trace: Trace, spec: PolicySpec, later_ms: Sequence[int], more_ms: int
) -> list[int]:
    """When each row of the trace starts, if it comes so much later than it did."""
    came_ms = [at_ms + late for at_ms, late in zip(trace.submit_ms, later_ms, strict=True)]
    order = sorted(range(len(came_ms)), key=lambda row: (came_ms[row], row))
    moved = replace(
        trace,
        spec=array("i", [trace.spec[row] for row in order]),
        submit_ms=array("q", [came_ms[row] for row in order]),
        run_ms=array("q", [trace.run_ms[row] + more_ms for row in order]),
        limit_ms=array("q", [trace.limit_ms[row] for row in order]),
    )
    result = Simulation(moved, config.pools, config.settings, registry.build(spec)).run()
    if result.rejected or result.unfinished:
        sys.exit(f"bench_slurm_replay: {result.rejected} jobs rejected, {result.unfinished} unfinished")
    found = [0] * len(order)
    for job_id, wait_ms in zip(result.job_id, result.wait_ms, strict=True):
        found[order[job_id - 1]] = moved.submit_ms[job_id - 1] + wait_ms
    return found


def lag_ms(past: History) -> int:
    """From the coming of a job that found free GPUs to its first line, the median: what a pass costs."""
    waits = [row.start_ms - row.submit_ms for row in past.rows]
    return int(statistics.median([wait for wait in waits if wait < PASS_MS]))


def shaken_s(config: Config, past: History, more_ms: int) -> float:
    """How far simulations are from one another in which every job comes up to a pass later; mean of all pairs."""
    rng, spec, size = random.Random(SHAKES), config.settings.policy, len(past.trace)
    runs = [
        starts_ms(config, past.trace, spec, [rng.randrange(PASS_MS) for _ in range(size)], more_ms)
        for _ in range(SHAKES)
    ]
    apart = [abs(one - other) for a, b in combinations(runs, 2) for one, other in zip(a, b, strict=True)]
    return statistics.mean(apart) / 1000


def figures(name: str, past: History, errors: Sequence[float]) -> Row:
    """One line of the table."""
    size = [abs(error) for error in errors]
    waits = [(row.start_ms - max(row.submit_ms, row.eligible_ms)) / 1000 for row in past.rows]
    simulated = [wait + error for wait, error in zip(waits, errors, strict=True)]
    return {
        "round": name,
        "jobs": len(errors),
        "wait_s": statistics.mean(waits),
        "simulated_wait_s": statistics.mean(simulated),
        "mae_s": statistics.mean(size),
        "median_s": statistics.median(size),
        "p90_s": sorted(size)[len(size) * 9 // 10],
        "within_2s": sum(each <= 2 for each in size) / len(size),
        "bias_s": statistics.mean(errors),
    }


def _save(commands: Commands, folder: Path) -> None:
    """Keep what the commands printed, for a second look with --again."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in list_sources(1):
        (folder / source.file).write_text(commands.run(*source.words), encoding="utf-8")


def run(name: str, jobs: int, over_s: float, seed: int, keep: Path | None = None) -> list[Row]:
    """One round: the run, the import and the simulation."""
    scheduler, extra = ROUNDS[name]
    with SlurmCluster(NODES, GPUS, rest=False, scheduler=scheduler, extra=extra) as slurm:
        times = record(slurm, orders(jobs, over_s, seed))
        site = read_running_site(Commands(conf=str(slurm.folder / "slurm.conf")), 1)
        if keep is not None:
            _save(Commands(conf=str(slurm.folder / "slurm.conf")), keep / name)
            (keep / name / "times.json").write_text(json.dumps(times), encoding="utf-8")
    if len(site.jobs.rows) != jobs:
        sys.exit(f"bench_slurm_replay: {len(site.jobs.rows)} jobs came back of {jobs}")
    return compared(name, site, times)


def compared(name: str, site: SlurmSite, times: Times) -> list[Row]:
    """The lines of a round."""
    config, past = imported(site, site.jobs.rows)
    _, sharp = imported(site, exact(site.jobs.rows, times))
    lag = lag_ms(sharp)
    lagging = figures(f"{name}, with a lag of {lag / 1000:.1f} s", sharp, replayed(config, sharp, "", lag))
    return [
        figures(name, past, replayed(config, past)),
        figures(f"{name}, EASY instead", past, replayed(config, past, "easy")),
        {**lagging, "shaken_s": shaken_s(config, sharp, lag)},
    ]


def main() -> None:
    """Run the rounds and publish the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--over", type=float, default=120.0, help="seconds in which they are handed in")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", nargs="+", default=list(ROUNDS), choices=ROUNDS)
    parser.add_argument("--keep", type=Path, help="save what Slurm's commands printed here")
    parser.add_argument("--again", type=Path, help="compare what --keep saved, without a new run")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    rows = []
    for name in options.rounds:
        if options.again is not None:
            kept = json.loads((options.again / name / "times.json").read_text(encoding="utf-8"))
            times = {int(number): value for number, value in kept.items()}
            rows += compared(name, read_saved_site(options.again / name), times)
        else:
            rows += run(name, options.jobs, options.over, options.seed, options.keep)
    head = [
        "",
        "mean wait, real",
        "simulated",
        "mean abs. error",
        "median",
        "p90",
        "within 2 s",
        "mean error",
        "shaken",
    ]
    body = [
        [row["round"], f"{row['wait_s']:.1f} s", f"{row['simulated_wait_s']:.1f} s", f"{row['mae_s']:.1f} s",
         f"{row['median_s']:.1f} s", f"{row['p90_s']:.1f} s", f"{row['within_2s']:.0%}", f"{row['bias_s']:+.1f} s",
         f"{row['shaken_s']:.1f} s" if "shaken_s" in row else ""]
        for row in rows
    ]  # fmt: skip
    about = ABOUT.format(
        jobs=options.jobs, over=f"{options.over:g}", nodes=NODES, gpus=GPUS, seed=options.seed
    )
    publish("replay", "\n\n".join([about, table(head, body)]), rows, write=options.write)


if __name__ == "__main__":
    main()
