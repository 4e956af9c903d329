"""gpuyard against AccaSim: the same jobs, the same machine, turn by turn in one run.

    python benchmarks/bench_peers.py [--jobs 10000] [--gpus 1024] [--loads 0.9 1.3] [--rounds 3] [--write]

The trace is generated once per load and written as SWF, which both read. AccaSim runs its EASY with FirstFit,
gpuyard its preset `fifo` (FIFO order, EASY backfill, best fit), each in a process of its own. CPU seconds are
counted, after the imports, for reading the trace, building the cluster and simulating; of the rounds each
program is given its best. AccaSim is measured twice: with its output files off, and as its users run it,
with the file of the schedule written, which it does in child processes whose CPU time is counted too.

Where `make compiled` was run, its core is measured too, in turns with the others.

AccaSim gets an environment of its own, made once in build/peers-venv from benchmarks/peers/requirements.txt.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from figures import ROOT, Row, best, json_of, publish, table

from gpuyard.sim.generate import poisson
from gpuyard.sim.traces.swf_write import save_swf

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "peers" / "requirements.txt"
VENV = ROOT / "build" / "peers-venv"
COMPILED = ROOT / "build" / "compiled"
INTERPRETED_ROW, COMPILED_ROW = "gpuyard fifo", "gpuyard fifo, compiled"

CAVEAT = """\
Not the same scheduler: AccaSim's EASY does not keep its reservation (backfilling may delay the head of the
queue) and scatters a job over any free GPUs, while gpuyard keeps the promise to the head and places a gang on
whole nodes. Where jobs queue, its mean wait is therefore not that of EASY and can be lower. With no queue the
row times arrivals, placement and completions only."""


def peers_python(folder: Path) -> Path:
    """The interpreter of the peers' environment, which is made if it is not there."""
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if not python.exists() or not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"making {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        # AccaSim's own list also has plotting libraries that its simulator never imports.
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
        subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def compare(swf: Path, gpus: int, rounds: int, accasim: Path) -> dict[str, Row]:
    """The best of each program's runs on one trace, taken in turns."""
    where = ["--swf", swf, "--gpus", str(gpus)]
    peer = [accasim, HERE / "peers" / "accasim_run.py", *where, "--policy", "easy"]
    commands: dict[str, list[str | Path]] = {
        "AccaSim EASY, outputs off": peer,
        "AccaSim EASY, schedule written": [*peer, "--schedule-file"],
        INTERPRETED_ROW: [sys.executable, HERE / "gpuyard_run.py", *where, "--policy", "fifo"],
    }
    if (COMPILED / "gpuyard").exists():
        ours = commands[INTERPRETED_ROW]
        commands[COMPILED_ROW] = ["env", f"PYTHONPATH={COMPILED}", *ours]
    runs: dict[str, list[Row]] = {name: [] for name in commands}
    for turn in range(rounds):
        for name, command in commands.items():
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            runs[name].append(json_of(command))
    return {name: {**best(rows), "all_cpu_s": [row["cpu_s"] for row in rows]} for name, rows in runs.items()}


def rows_of(load: float, found: dict[str, Row]) -> list[list[object]]:
    """Table rows of one load; the ratio says how many times as many jobs gpuyard simulates."""
    ours = found[INTERPRETED_ROW]
    rows: list[list[object]] = []
    for name, row in found.items():
        ratio = f"{row['cpu_s'] / ours['cpu_s']:.1f} ×" if "AccaSim" in name else None
        cells = [row[key] for key in ("cpu_s", "jobs_per_cpu_s", "peak_rss_mib", "mean_wait_s")]
        rows.append([f"{name}, load {load:g}", *cells, ratio])
    return rows


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, default=1024, help="in nodes of 8")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.9, 1.3])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--venv", type=Path, default=VENV, help="AccaSim's environment")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    accasim = peers_python(options.venv)
    rows, by_load, inner = [], {}, []
    with tempfile.TemporaryDirectory(prefix="gpuyard-peers-") as folder:
        for load in options.loads:
            swf = Path(folder) / f"load{load:g}.swf"
            save_swf(poisson(options.jobs, options.gpus, load, options.seed), swf)
            found = by_load[f"load {load:g}"] = compare(swf, options.gpus, options.rounds, accasim)
            rows += rows_of(load, found)
            ours, theirs = found[INTERPRETED_ROW], found["AccaSim EASY, outputs off"]
            alone_s = ours["cpu_s_simulation"]
            inner.append(
                f"At load {load:g} gpuyard's simulation without reading the file takes {alone_s:.3f} CPU-s "
                f"({ours['jobs'] / alone_s:,.0f} jobs per CPU-s); whole processes, imports included: AccaSim "
                f"{theirs['cpu_s_process']:.2f} CPU-s, gpuyard {ours['cpu_s_process']:.2f}."
            )
            if COMPILED_ROW in found:
                faster = theirs["cpu_s"] / found[COMPILED_ROW]["cpu_s"]
                inner.append(
                    f"At load {load:g} the compiled core (`make compiled`) is faster by {faster:.1f} ×."
                )
    head = ["program", "CPU s", "jobs per CPU-s", "peak MiB", "mean wait s", "gpuyard is faster by"]
    title = (
        f"{options.jobs:,} jobs, {options.gpus:,} GPUs, seed {options.seed}, best of {options.rounds}, "
        f"AccaSim {theirs['version']}."
    )
    text = "\n\n".join([title, table(head, rows), *inner, CAVEAT])
    publish("peers", text, by_load, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
