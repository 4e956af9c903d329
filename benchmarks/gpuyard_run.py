"""Run gpuyard on an SWF trace and print one JSON line to compare with a peer's (peers/accasim_run.py).

The same work is timed as for the peer, by the same clock: reading the SWF file, building the cluster and
simulating, after the imports. `cpu_s_simulation` is the part without reading the file.
"""

import argparse
import json
import sys
from pathlib import Path
from time import process_time

from gpuyard.cli.commands.bench.bench import peak_rss_mib
from gpuyard.cli.commands.foresight.fleet import make_uniform_pool
from gpuyard.errors import BadInput
from gpuyard.model import Settings
from gpuyard.policies.registry import PRESETS, build
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.traces import load


def measure(swf: Path, gpus: int, policy: str) -> dict[str, object]:
    """One run as a table row; raises unless every job of the trace ran to its end."""
    started = process_time()
    trace = load(swf, "swf", strict=True)
    read = process_time()
    pool = make_uniform_pool(gpus, "H100", 8)
    result = Simulation(trace, (pool,), Settings(), build(PRESETS[policy])).run()
    ended = process_time()
    if result.finished != len(trace):
        raise BadInput(f"{len(trace)} jobs, {result.finished} finished", "Choose another trace.")
    return {
        "peer": "gpuyard",
        "policy": policy,
        "jobs": len(trace),
        "gpus": gpus,
        "cpu_s": round(ended - started, 4),
        "cpu_s_simulation": round(ended - read, 4),
        "cpu_s_process": round(ended, 4),
        "jobs_per_cpu_s": round(len(trace) / (ended - started), 1),
        "peak_rss_mib": peak_rss_mib(),
        "mean_wait_s": round(sum(result.wait_ms) / len(trace) / 1000, 1),
    }


def main() -> int:
    """Parse the command line, run once, print one line."""
    parser = argparse.ArgumentParser(description="Run gpuyard on an SWF trace; print one JSON line.")
    parser.add_argument("--swf", type=Path, required=True, help="the trace")
    parser.add_argument("--gpus", type=int, required=True, help="GPUs in the cluster, in nodes of 8")
    parser.add_argument("--policy", choices=sorted(PRESETS), default="fifo")
    options = parser.parse_args()
    try:
        print(json.dumps(measure(options.swf, options.gpus, options.policy)))
    except (BadInput, OSError) as error:
        print(f"gpuyard_run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
