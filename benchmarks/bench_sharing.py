"""Small training jobs on one real GPU: one by one with all of it, against what the yard chooses when told their memory.

    python benchmarks/bench_sharing.py [--jobs 28] [--steps 4000] [--memory 16G] [--write]

Needs an NVIDIA GPU, and PyTorch in the Python that GPU_PYTHON names (default: python3). Both rounds go through
`yard submit`; the jobs and their results are the same. Whatever happens, MIG is off at the end.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from figures import publish, table

from hardware.conftest import Hardware

PROGRAM = Path(__file__).with_name("train_small.py")
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "hardware.md"


def rounds(hardware: Hardware, ask: tuple[str, ...], jobs: int, steps: int) -> dict[str, object]:
    """Submit all at once; how long until the last has ended, and what they found out."""
    began = time.monotonic()
    ids = [hardware("submit", *ask, "--", hardware.python, PROGRAM, steps).strip() for _ in range(jobs)]
    ended = hardware.wait(*ids, s=550)
    wall_s = (max(each["ended_ms"] for each in ended) - min(each["started_ms"] for each in ended)) / 1000
    lines = [hardware("logs", job).split() for job in ids]
    states = sorted({each["state"] for each in ended})
    spans = sorted([(each["started_ms"], 1) for each in ended] + [(each["ended_ms"], -1) for each in ended])
    at_once = most = 0
    for _at, change in spans:
        at_once += change
        most = max(most, at_once)
    took = sorted([float(line[3]) for line in lines if len(line) > 3])
    return {
        "asked for": " ".join(ask),
        "jobs": jobs,
        "seconds": round(wall_s, 1),
        "jobs per hour": round(jobs * 3600 / wall_s),
        "at once": most,
        "training s, median": took[len(took) // 2] if took else None,
        "states": ", ".join(states),
        "results": ", ".join(sorted({line[1] for line in lines if len(line) > 1})),
        "submit s": round(time.monotonic() - began - wall_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=28)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--memory", default="16G")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hardware = Hardware(Path(folder))
        hardware.up()
        try:
            shared = rounds(hardware, ("--gpu-memory", options.memory), options.jobs, options.steps)
            print(shared, flush=True)
            sliced = rounds(
                hardware,
                ("--gpu-memory", options.memory, "--isolation", "strict"),
                options.jobs,
                options.steps,
            )
            print(sliced, flush=True)
            alone = rounds(hardware, ("-g", "1"), options.jobs, options.steps)
            print(alone, flush=True)
            hardware("down", "--jobs")
        finally:
            hardware.put_back()
    rows = [alone, shared, sliced]
    ratio = shared["jobs per hour"] / alone["jobs per hour"]  # type: ignore[operator]
    text = f"One {hardware.gpus[0].name}, {os.cpu_count()} cores.\n\n{table(list(alone), [list(row.values()) for row in rows])}"
    text += f"\n\nShared as the yard chose: {ratio:.2f} x the jobs per hour of one by one."
    publish("sharing", text, rows, write=options.write, page=DOCUMENT)


if __name__ == "__main__":
    main()
