"""A real run on real Slurm daemons, imported and simulated: do the simulated starts agree with what happened?

    python benchmarks/bench_slurm_replay.py [--jobs 120] [--over 120] [--seed 1] [--write]

Each round brings up a private cluster of 4 nodes with 8 GPUs that are not there (Debian's packages, root), hands in a
seeded mix of jobs at their times, waits until all have ended, reads the cluster with `yard slurm import`'s own code,
simulates the trace under the policy that was imported, and compares job by job when each started.

Every round is run twice. Once with Slurm as it comes but for its passes, one a second. Once prompt: its backfill
reckons in seconds and not in minutes, it looks for the next job when one leaves, and shares are counted in GPUs; what
is still off then is not for want of these. Slurm keeps times in whole seconds; the jobs say theirs in milliseconds,
and with those the same run is simulated once more.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from figures import Row, publish, table
from slurm_drive import shares

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpuyard.config import Config, loads
from gpuyard.config.slurm.importing import document
from gpuyard.config.slurm.importing_tenants import paths, tenant_of
from gpuyard.config.slurm.notes import Notes
from gpuyard.config.slurm.types import GpuTypes
from gpuyard.engines.slurm.accounting import JobRow
from gpuyard.engines.slurm.commands import Commands
from gpuyard.engines.slurm.forms import models_of
from gpuyard.engines.slurm.site import Site, from_commands, from_files, sources
from gpuyard.policies import registry
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.slurm_history import History, history
from rigs.slurm import SlurmCluster

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

Times = dict[int, list[int]]
"""By the number of a job when it was handed in, began and ended, in milliseconds, as it wrote itself."""

ABOUT = """\
{jobs} jobs in {over} s on {nodes} nodes of {gpus} GPUs, 1 GPU to 2 nodes each, 2 to 20 s long with limits of 1 to 4
minutes, of two accounts with shares 3 and 1 and two QOS; seed {seed}. The error is the simulated start less the real
one."""


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


def imported(site: Site, rows: Sequence[JobRow]) -> tuple[Config, History]:
    """The cluster as a configuration, and these jobs as a trace, as `yard slurm import` makes them."""
    types, places = GpuTypes(), paths(site)
    config = loads(yaml.safe_dump(document(site, types, Notes()), sort_keys=False))
    models = {each: model for kind, model in types.chosen.items() for each in models_of(kind)}
    return config, history(rows, lambda row: tenant_of(row.account, row.user, places), models)


def replayed(config: Config, past: History, backfill: str = "") -> list[float]:
    """Simulated start less real start, in seconds, by row of the trace."""
    spec = replace(config.settings.policy, backfill=backfill or config.settings.policy.backfill)
    simulation = Simulation(past.trace, config.pools, config.settings, registry.build(spec))
    result = simulation.run()
    if result.rejected or result.unfinished:
        sys.exit(f"bench_slurm_replay: {result.rejected} jobs rejected, {result.unfinished} unfinished")
    errors = [0.0] * len(past.rows)
    for job_id, wait_ms in zip(result.job_id, result.wait_ms, strict=True):
        row = past.rows[job_id - 1]
        start_ms = past.trace.origin_ms + past.trace.submit_ms[job_id - 1] + wait_ms
        errors[job_id - 1] = (start_ms - row.start_ms) / 1000
    return errors


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
    for source in sources(1):
        (folder / source.file).write_text(commands.run(*source.words), encoding="utf-8")


def run(name: str, jobs: int, over_s: float, seed: int, keep: Path | None = None) -> list[Row]:
    """One round: the run, the import and the simulation."""
    scheduler, extra = ROUNDS[name]
    with SlurmCluster(NODES, GPUS, rest=False, scheduler=scheduler, extra=extra) as slurm:
        times = record(slurm, orders(jobs, over_s, seed))
        site = from_commands(Commands(conf=str(slurm.folder / "slurm.conf")), 1)
        if keep is not None:
            _save(Commands(conf=str(slurm.folder / "slurm.conf")), keep / name)
            (keep / name / "times.json").write_text(json.dumps(times), encoding="utf-8")
    if len(site.jobs.rows) != jobs:
        sys.exit(f"bench_slurm_replay: {len(site.jobs.rows)} jobs came back of {jobs}")
    return compared(name, site, times)


def compared(name: str, site: Site, times: Times) -> list[Row]:
    """The lines of a round."""
    config, past = imported(site, site.jobs.rows)
    _, sharp = imported(site, exact(site.jobs.rows, times))
    return [
        figures(name, past, replayed(config, past)),
        figures(f"{name}, EASY instead", past, replayed(config, past, "easy")),
        figures(f"{name}, in milliseconds", sharp, replayed(config, sharp)),
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
            rows += compared(name, from_files(options.again / name), times)
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
    ]
    body = [
        [row["round"], f"{row['wait_s']:.1f} s", f"{row['simulated_wait_s']:.1f} s", f"{row['mae_s']:.1f} s",
         f"{row['median_s']:.1f} s", f"{row['p90_s']:.1f} s", f"{row['within_2s']:.0%}", f"{row['bias_s']:+.1f} s"]
        for row in rows
    ]  # fmt: skip
    about = ABOUT.format(
        jobs=options.jobs, over=f"{options.over:g}", nodes=NODES, gpus=GPUS, seed=options.seed
    )
    publish("replay", "\n\n".join([about, table(head, body)]), rows, write=options.write)


if __name__ == "__main__":
    main()
