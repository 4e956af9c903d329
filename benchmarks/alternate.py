"""Is this checkout slower than another one? Both are measured turn by turn in one run, and the ratio is what counts.

    python benchmarks/alternate.py BEFORE [--rounds 7] [--only simulate,start,load]

BEFORE is another checkout with its own `.venv`, for instance a clone of the commit before. In each round both measure
the same: CPU seconds of a simulation and of single decisions, of the commands that people type most, and of the server
for each job that is submitted and run; where root finds the controller cpuacct of cgroup v1, also of a job with all
that runs it, supervisors and the job's own processes among them. Everything but one row is CPU time, which other work
on the machine disturbs least; a row is slower when its median over the rounds is more than 5 % above the other
checkout's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SLOWER = 1.05
BURST, SHORT, LISTS = 2000, 400, 60
MANY = 16
"""Clients that submit at the same time; fewer share a transaction with fewer."""
CPUACCT = Path("/sys/fs/cgroup/cpuacct")
KINDS = ("simulate", "start", "load")


def simulate() -> dict[str, float]:
    """The scheduler alone."""
    from figures import yard  # noqa: PLC0415 (that of the checkout being measured)

    simulated = yard("bench", "simulate", "--jobs", 10_000)
    decided = yard("bench", "decide", "--waiting", 5_000, "--nodes", 250, "--passes", 100)
    return {
        "simulate 10,000 jobs, CPU s": simulated["cpu_s"],
        "one decision with 5,000 waiting, p50 ms": decided["decide_ms"]["p50"],
    }


def start() -> dict[str, float]:
    """Commands as processes, against a yard of their own."""
    import bench_start  # noqa: PLC0415

    command = [sys.executable, "-m", "gpuyard.cli"]
    with tempfile.TemporaryDirectory(prefix="yard-alternate-") as folder:
        environment = {**os.environ, "YARD_DATA": str(Path(folder) / "yard")}
        environment.pop("YARD_SERVER", None)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def said(*words: str) -> str:
            done = subprocess.run(
                [*command, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            return done.stdout

        said("up", "-d", "--port", "0", "--emulate", "8 x H100")
        try:
            job = int(said("submit", "--hold", "--", "true"))
            what = bench_start.commands([sys.executable], command, job)
            found = bench_start.measured(what, 3, environment)
        finally:
            said("down", "--jobs")
    return {f"{name.strip('`')}, CPU s": row["cpu_s"] for name, row in found.items()}


@contextmanager
def counted_group() -> Iterator[Path | None]:
    """A group in which the kernel counts the CPU time of a server and of all that it starts; None: there is none."""
    group = CPUACCT / f"alternate-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


def load() -> dict[str, float]:
    """A server that takes in jobs and runs them."""
    with counted_group() as group:
        return load_in(group)


def load_in(group: Path | None) -> dict[str, float]:
    """The same with the server in a group that counts."""
    from load_sides import burst, job_script  # noqa: PLC0415
    from load_yard import YardProcess, YardSide  # noqa: PLC0415

    if group is not None:
        enter = f'echo 0 >{group}/cgroup.procs; exec "$0" "$@"'
        YardProcess.start = ("sh", "-c", enter, *YardProcess.start)

    def all_cpu_s() -> float:
        return int((group / "cpuacct.usage").read_text()) / 1e9 if group is not None else 0.0

    with tempfile.TemporaryDirectory(prefix="yard-alternate-") as folder:
        side = YardSide(Path(folder))
        try:
            lines = Path(folder) / "lines"
            lines.touch()
            side.hold_back()
            cpu_s = side.cpu_s()
            side.submit(job_script(Path("/dev/null")), BURST)
            submit_s = side.cpu_s() - cpu_s
            script, clients = job_script(Path("/dev/null")), []
            while len(clients) < MANY:
                clients += side.submitters(script)
            cpu_s = side.cpu_s()
            burst(clients, BURST)
            many_s = side.cpu_s() - cpu_s
            cpu_s, paths = side.cpu_s(), ("/api/v1/jobs?limit=200", "/api/v1/queue")
            for _ in range(LISTS):
                for path in paths:
                    side._ask("GET", path)
            list_s = side.cpu_s() - cpu_s
            side.let_go()
            side.settle()
            while side.known():
                time.sleep(0.1)
            side.hold_back()
            side.submit(job_script(lines), SHORT)
            cpu_s, whole_s, began_s = side.cpu_s(), all_cpu_s(), time.perf_counter()
            side.let_go()
            while len(lines.read_text(encoding="ascii").split()) < SHORT:
                time.sleep(0.01)
            wall_s = time.perf_counter() - began_s
            side.settle()
            run_s, whole_s = side.cpu_s() - cpu_s, all_cpu_s() - whole_s
        finally:
            side.stop()
    whole = {} if group is None else {"CPU ms for a job and all that runs it": 1000 * whole_s / SHORT}
    return {
        "server's CPU ms for a submission": 1000 * submit_s / BURST,
        f"server's CPU ms for one, {MANY} clients": 1000 * many_s / BURST,
        f"server's CPU ms for both lists, {2 * BURST:,} waiting": 1000 * list_s / LISTS,
        "server's CPU ms for a job that runs": 1000 * run_s / SHORT,
        "wall ms for a job that runs": 1000 * wall_s / SHORT,
        **whole,
    }


def one_round(tree: Path, kinds: list[str]) -> dict[str, float]:
    """Measure a checkout with its own Python and its own benchmark programs."""
    python = tree / ".venv" / "bin" / "python"
    command = [str(python), str(Path(__file__).resolve()), "--measure", ",".join(kinds)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "benchmarks")}
    done = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Take turns and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        # The folder of this file comes first by itself; the benchmark programs are to be those of the checkout.
        sys.path.remove(str(Path(__file__).resolve().parent))
        measures = {"simulate": simulate, "start": start, "load": load}
        found: dict[str, float] = {}
        for kind in options.measure.split(","):
            found |= measures[kind]()
        print(json.dumps(found))
        return 0
    if options.before is None:
        parser.error("which checkout to compare with?")
    trees = [options.before.resolve(), Path(__file__).resolve().parents[1]]
    rows: list[dict[str, list[float]]] = [{}, {}]
    for turn in range(options.rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            for name, value in one_round(trees[which], options.only.split(",")).items():
                rows[which].setdefault(name, []).append(value)
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr)
    slower = 0
    print(f"{'median of ' + str(options.rounds):44}  {'before':>9}  {'now':>9}  ratio")
    for name in rows[0]:
        before, now = (statistics.median(side[name]) for side in rows)
        ratio = now / before
        slower += ratio > SLOWER
        print(f"{name:44}  {before:9.4f}  {now:9.4f}  {ratio:5.3f}{'  slower' if ratio > SLOWER else ''}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
