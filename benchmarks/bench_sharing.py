"""Small training jobs on one real GPU: one by one with all of it, against what the yard chooses when told their memory.

    python benchmarks/bench_sharing.py [--jobs 28] [--steps 4000] [--memory 8G] [--strict] [--most-s 540] [--out DIR]
                                       [--write] [--rehearse]

Needs an NVIDIA GPU, root, and PyTorch in the Python that GPU_PYTHON names (default: python3). All rounds go through
`yard submit`; the jobs and their results are the same. Settings of the GPU are changed only with GPU_SETTINGS=change in
the environment, which `--strict` needs (MIG), and are put back whatever happens. It ends within
`--most-s`: jobs that have not ended by then are cancelled, and the figures say of how many they are.

`--rehearse` does all of it here and now: emulated GPUs, and jobs that compute on the CPU. Its figures mean nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from figures import measured_on, publish, table

from gpuyard.api.client import Client
from gpuyard.engines.local.gpus.mps import Mps
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model.mig import MIG_MODELS
from hardware import settings
from hardware.conftest import CONFIG, Hardware

PROGRAM = Path(__file__).with_name("train_small.py")
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "hardware.md"
MOST_S = 540
RESERVED_S = 30
"""Of it to put everything back."""


class Rehearsal(Hardware):
    """Everything but the GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "yard"
        self.gpus = [GpuReading("GPU-emulated", "H200, emulated", 144_384)]
        self.geometry = MIG_MODELS["H200"]
        self.python = sys.executable

    def up(self) -> None:
        config = self.folder / "yard.yaml"
        config.write_text(
            CONFIG.replace("engine: local", "gpus: 1 x H200, emulate: true").replace("SETTINGS", "change"),
            encoding="utf-8",
        )
        self("up", "-d", "--port", 0, "--config", config)

    def mig_mode(self) -> list[str]:
        kept = json.loads((self.data / "engine" / "emulated-mig.json").read_text() or "{}")
        return ["Enabled" if kept else "Disabled"]

    def put_back(self) -> None:
        Mps(str(self.data / "engine")).stop_unused(set())


@contextmanager
def yard_of(*, rehearse: bool) -> Iterator[Hardware]:
    """One over the GPUs of this machine, or over emulated ones. Not up yet."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        try:
            hardware = (Rehearsal if rehearse else Hardware)(Path(folder))
        except LookupError as error:
            print(f"skipped: {error}; --rehearse does without")
            sys.exit(0)
        yield hardware


def asked_for_settings(what: str) -> None:
    """End here, with the reason, where the owner of the machine has not said that settings may be changed."""
    if not settings.may_change():
        print(f"skipped: {what} {settings.REASON}; --rehearse does without")
        sys.exit(0)


def keep(folder: Path | None, name: str, text: str, found: dict[str, Any]) -> None:
    """The figures in files, to be carried home."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        (folder / f"{name}.md").write_text(f"{measured_on()}\n\n{text}\n", encoding="utf-8")


def one_round(
    hardware: Hardware, ask: tuple[str, ...], jobs: int, words: list[str], until: float
) -> dict[str, Any]:
    """Submit all at once; how long until the last has ended, and what they found out."""
    array = hardware(
        "submit", *ask, "--array", f"0-{jobs - 1}", "--", hardware.python, PROGRAM, *words
    ).strip()
    labels = [f"{array}_{index}" for index in range(jobs)]
    ended = _ended(hardware, labels, until)
    if len(ended) < jobs:
        hardware("cancel", array, code=None)
    if not ended:
        sys.exit(f"none of {jobs} jobs ended in time with {' '.join(ask)}")
    wall_s = (max(job["ended_ms"] for job in ended) - min(job["started_ms"] for job in ended)) / 1000
    lines = [hardware("logs", job["label"]).split() for job in ended]
    took = sorted([float(line[3]) for line in lines if len(line) > 3])
    return {
        "asked for": " ".join(ask),
        "jobs": len(ended),
        "seconds": round(wall_s, 1),
        "jobs per hour": round(len(ended) * 3600 / wall_s),
        "at once": _at_once(ended),
        "training s, median": took[len(took) // 2] if took else None,
        "tries": max(job["attempts"] for job in ended),
        "states": ", ".join(sorted({job["state"] for job in ended})),
        "results": ", ".join(sorted({line[1] if len(line) > 1 else "none" for line in lines})),
    }


def _ended(hardware: Hardware, labels: list[str], until: float) -> list[dict[str, Any]]:
    """Those of the jobs that have ended by then."""
    found: dict[str, dict[str, Any]] = {}
    with Client(data=hardware.data) as yard:
        while len(found) < len(labels) and time.monotonic() < until:
            for label in labels:
                if label not in found:
                    job = dict(yard.job(label, explain=False))
                    if job["ended_ms"] is None:
                        break
                    found[label] = job
            time.sleep(0.1)
        # The last ones may have ended behind one that has not.
        for label in labels:
            job = dict(yard.job(label, explain=False))
            if job["ended_ms"] is not None:
                found[label] = job
    return list(found.values())


def _at_once(ended: list[dict[str, Any]]) -> int:
    spans = sorted([(job["started_ms"], 1) for job in ended] + [(job["ended_ms"], -1) for job in ended])
    now = most = 0
    for _at, change in spans:
        now += change
        most = max(most, now)
    return most


def persistence() -> str:
    """What the machine itself says."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return ", ".join(said.stdout.split())


def measured(hardware: Hardware, options: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    end = time.monotonic() + options.most_s
    memory, strict = ("--gpu-memory", options.memory), ("--isolation", "strict")
    asks = [(*memory, "--isolation", "any"), ("-g", "1")] + ([(*memory, *strict)] if options.strict else [])
    words = [str(options.steps), *(["--cpu"] if options.rehearse else [])]
    rows = []
    hardware.up()
    try:
        for ask in asks:
            rows.append(one_round(hardware, ask, options.jobs, words, end - RESERVED_S))
            print(rows[-1], file=sys.stderr, flush=True)
        awake = persistence()
        hardware("down", "--jobs")
    finally:
        hardware.put_back()
    shared, alone = rows[:2]
    return {
        "gpu": hardware.gpus[0].name,
        "cores": os.cpu_count(),
        "rehearsal": options.rehearse,
        "persistence_mode_while_up": awake,
        "mig_mode_at_the_end": hardware.mig_mode(),
        "rounds": [alone, shared, *rows[2:]],
        "ratio": round(shared["jobs per hour"] / alone["jobs per hour"], 2),
        "same_results": len({row["results"] for row in rows}) == 1 and "," not in alone["results"],
        "all_completed": {"COMPLETED"} == {row["states"] for row in rows},
        "all_jobs": all([row["jobs"] == options.jobs for row in rows]),
    }


def fragment(found: dict[str, Any]) -> str:
    """The figures as they stand in docs/hardware.md."""
    rounds = found["rounds"]
    text = f"One {found['gpu']}, {found['cores']} cores, persistence mode {found['persistence_mode_while_up']}.\n\n"
    text += table(list(rounds[0]), [list(row.values()) for row in rounds])
    same = "the same in every job" if found["same_results"] else "NOT the same in every job"
    text += f"\n\nShared as the yard chose: {found['ratio']:.2f} x the jobs per hour of one by one; results are {same}."
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=28)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--memory", default="8G")
    parser.add_argument("--strict", action="store_true", help="a third round, on MIG slices")
    parser.add_argument("--most-s", type=int, default=MOST_S, help="end within so many seconds")
    parser.add_argument("--out", type=Path, help="a folder for sharing.json and sharing.md")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/hardware.md")
    parser.add_argument("--rehearse", action="store_true", help="emulated GPUs and jobs on the CPU")
    options = parser.parse_args()
    if options.rehearse and options.write:
        parser.error("a rehearsal has no figures to write")
    if options.strict and not options.rehearse:
        asked_for_settings("--strict")
    with yard_of(rehearse=options.rehearse) as hardware:
        found = measured(hardware, options)
    keep(options.out, "sharing", fragment(found), found)
    publish("sharing", fragment(found), found, write=options.write, page=DOCUMENT)
    if not (found["same_results"] and found["all_completed"]):
        sys.exit("not every job completed with the same result")


if __name__ == "__main__":
    main()
