"""Run the AccaSim simulator on an SWF trace and print one JSON line to compare with gpuyard.

AccaSim is a benchmark peer, not a dependency, and gets an environment of its own:

    python -m venv VENV && VENV/bin/pip install -r benchmarks/peers/requirements.txt
    VENV/bin/python benchmarks/peers/accasim_run.py --swf trace.swf --gpus 1024 --policy easy

A GPU is a `core` of AccaSim; a job is as many units of one core as SWF field 8 says, all or nothing.

Placement: units go one by one to the first nodes with a free GPU, so any job, even one of 2 GPUs, may be
scattered over nodes, and it fits whenever the whole cluster has enough free GPUs: fragmentation delays no
one. A scheduler that keeps small gangs on one node and gives large ones whole nodes may wait longer.

Policies, as AccaSim 1.1.3 has them, both with its FirstFit allocator:

- `fifo` is strict: the first job that does not fit ends the pass.
- `easy` is not textbook EASY. The head of the queue gets a start time from the users' estimates (SWF field
  9), but backfilling is called with an empty list of reserved nodes, so a later job starts whenever it
  fits, even if that delays the head; and the head is not tried again before its reserved time, even if
  GPUs become free early. Its mean wait is not that of EASY: on a busy cluster it can be well below.

Numbers:

- `cpu_s`: CPU seconds of this process and its children, from after the imports to the end of the simulation:
  building the cluster, parsing the SWF, simulating. AccaSim's output files are switched off, except that
  `--schedule-file` leaves the file of the schedule on, as it is by default; child processes write it.
- `cpu_s_process`: the same for the whole process so far, imports and the check of the trace included.
- `peak_rss_mib`: high-water mark of this process (VmHWM; `ru_maxrss` survives exec and so may be the
  caller's size).
- `mean_wait_s`: mean of start minus submission over all jobs, from AccaSim's own record of waits.

Two adaptations, neither of which changes the simulation: `collections.Mapping` is put back, which Python
3.10 removed; nodes have no `mem`, because `easy` divides by a job's request for each resource of the
system, and these jobs request no memory. Linux only.
"""

import argparse
import collections
import collections.abc
import contextlib
import json
import resource
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

collections.Mapping = collections.abc.Mapping  # accasim.utils.misc imports it from the old place.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # AccaSim's regular expressions are not raw strings.
    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
    from accasim.base.simulator_class import Simulator

POLICIES = {"easy": EASYBackfilling, "fifo": FirstInFirstOut}
SWF_FIELDS = 18


class PeerError(Exception):
    """The run cannot be used as a measurement."""


def count_jobs(swf: Path) -> int:
    """Jobs in the trace; raises on lines that AccaSim would skip or, worse, misread without a word.

    Its pattern lets one number be split into two fields, and it cuts the last character of every line.
    """
    jobs = 0
    with swf.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.startswith(";"):
                continue
            if len(line.split()) != SWF_FIELDS or not line.endswith("\n"):
                raise PeerError(f"{swf}:{number}: not a line of {SWF_FIELDS} fields and a newline")
            jobs += 1
    if not jobs:
        raise PeerError(f"{swf}: no jobs")
    return jobs


def write_system_config(path: Path, nodes: int, gpus_per_node: int) -> None:
    """Describe a uniform cluster to AccaSim: one SWF processor is one core is one GPU."""
    config = {
        "groups": {"gpu_node": {"core": gpus_per_node}},
        "resources": {"gpu_node": nodes},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }
    path.write_text(json.dumps(config), encoding="utf-8")


def simulate(swf: Path, nodes: int, gpus_per_node: int, policy: str, schedule_file: bool) -> list[int]:
    """Run AccaSim to the end of the trace; returns the wait of every completed job in seconds."""
    with tempfile.TemporaryDirectory(prefix="accasim-") as work_dir:
        config = Path(work_dir) / "system.json"
        write_system_config(config, nodes, gpus_per_node)
        simulator = Simulator(
            str(swf),
            str(config),
            POLICIES[policy](FirstFit()),
            scheduling_output=schedule_file,
            statistics_output=False,
            show_statistics=False,
            RESULTS_FOLDER_PATH=work_dir,
            LOG_LEVEL="WARNING",
        )
        simulator.start_simulation()
    return simulator.mapper.wtimes


def peak_rss_mib() -> float:
    """Largest resident size that this process has had."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise PeerError("/proc/self/status has no VmHWM line")


def cpu_s_so_far() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(
    swf: Path, gpus: int, gpus_per_node: int, policy: str, schedule_file: bool = False
) -> dict[str, object]:
    """One run as a table row; raises unless AccaSim ran every job of the trace."""
    if gpus < 1 or gpus_per_node < 1 or gpus % gpus_per_node:
        raise PeerError(f"{gpus} GPUs do not make whole nodes of {gpus_per_node}")
    jobs = count_jobs(swf)
    # AccaSim prints its troubles on stdout, which is kept for the JSON line.
    with contextlib.redirect_stdout(sys.stderr):
        cpu_s_before = cpu_s_so_far()
        waits_s = simulate(swf, gpus // gpus_per_node, gpus_per_node, policy, schedule_file)
        cpu_s = cpu_s_so_far() - cpu_s_before
    if len(waits_s) != jobs:
        raise PeerError(f"the trace has {jobs} jobs, AccaSim ran {len(waits_s)}")
    return {
        "peer": "accasim",
        "version": version("accasim"),
        "policy": policy,
        "schedule_file": schedule_file,
        "jobs": jobs,
        "gpus": gpus,
        "cpu_s": round(cpu_s, 3),
        "cpu_s_process": round(cpu_s_so_far(), 3),
        "jobs_per_cpu_s": round(jobs / cpu_s, 1),
        "peak_rss_mib": round(peak_rss_mib(), 1),
        "mean_wait_s": round(sum(waits_s) / jobs, 1),
    }


def main() -> int:
    """Parse the command line, run once, print one line."""
    parser = argparse.ArgumentParser(description="Run AccaSim on an SWF trace; print one JSON line.")
    parser.add_argument("--swf", type=Path, required=True, help="the trace, sorted by submission time")
    parser.add_argument("--gpus", type=int, required=True, help="GPUs in the cluster")
    parser.add_argument("--gpus-per-node", type=int, default=8, help="GPUs per node (default: 8)")
    parser.add_argument("--policy", choices=sorted(POLICIES), required=True)
    parser.add_argument("--schedule-file", action="store_true", help="let AccaSim write its schedule")
    options = parser.parse_args()
    try:
        row = measure(options.swf, options.gpus, options.gpus_per_node, options.policy, options.schedule_file)
    except (PeerError, OSError) as error:
        print(f"accasim_run: {error}", file=sys.stderr)
        return 1
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
