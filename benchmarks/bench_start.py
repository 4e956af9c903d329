"""How long it takes until a command of `yard` is there, against an interpreter that does nothing; and `yard top`.

    python benchmarks/bench_start.py [--rounds 7] [--jobs 10000] [--write]

Commands are run as processes against a yard of their own with emulated GPUs, taking turns round by round. CPU seconds
are the process's own, user and system; of the rounds the least counts: other work on the machine only ever adds. The
ratio is to `python -c pass` of the same interpreter. Bytecode is kept in a folder of its own and read, as that of an
installed program is, whatever PYTHONDONTWRITEBYTECODE says here. `yard top` is driven without a terminal, by Textual's
own pilot.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Row, publish, table

SCREEN = (120, 40)
KEYS = ("down", "pagedown", "end", "home", "pageup")


def timed(words: list[str], environment: dict[str, str]) -> Row:
    """One process: CPU and wall seconds. Its output is read and thrown away, as a pipe does."""
    began_s = time.monotonic()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    size = len(process.stdout.read())
    process.stdout.close()
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"bench_start: exit code {process.returncode} from {' '.join(words)}")
    return {"cpu_s": used.ru_utime + used.ru_stime, "wall_s": time.monotonic() - began_s, "bytes": size}


def commands(python: list[str], yard: list[str], job: int) -> dict[str, list[str]]:
    """What is measured, by name."""
    return {
        "`python -c pass`": [*python, "-c", "pass"],
        "`yard --help`": [*yard, "--help"],
        "`yard submit -- true`": [*yard, "submit", "--hold", "--", "true"],
        "`yard submit -g 1 --time 2h -- true`": [
            *yard,
            "submit",
            "--hold",
            "-g",
            "1",
            "--time",
            "2h",
            "--",
            "true",
        ],
        "`yard run -- true`": [*yard, "run", "--", "true"],
        "`yard show`": [*yard, "show", str(job)],
        "`yard hold`": [*yard, "hold", str(job)],
        "`yard nodes`": [*yard, "nodes"],
        "`yard queue --limit 10`": [*yard, "queue", "--limit", "10"],
        "`yard submit --help`": [*yard, "submit", "--help"],
    }


def listings(yard: list[str]) -> dict[str, list[str]]:
    """What is measured once there are many jobs."""
    return {
        f"`yard queue -o {form}`": [*yard, "queue", "-o", form] for form in ("table", "csv", "json", "yaml")
    }


def measured(what: dict[str, list[str]], rounds: int, environment: dict[str, str]) -> dict[str, Row]:
    """The least of some rounds, in which all take turns, after one that writes the bytecode."""
    for words in what.values():
        timed(words, environment)
    found: dict[str, list[Row]] = {name: [] for name in what}
    for _ in range(rounds):
        for name, words in what.items():
            found[name].append(timed(words, environment))
    return {
        name: {key: min(row[key] for row in rows) for key in ("cpu_s", "wall_s", "bytes")}
        for name, rows in found.items()
    }


async def watched(jobs: int) -> Row:
    """`yard top` with the queue as it is: CPU of a picture and of a key, and what it takes while nothing happens."""
    from gpuyard.cli.top.app import Top  # noqa: PLC0415 (finds the yard by the environment)
    from gpuyard.cli.top.queue_pane import QueuePane  # noqa: PLC0415

    app = Top()
    async with app.run_test(size=SCREEN) as pilot:
        queue = app.query_one(QueuePane)
        while len(queue.rows) < jobs:
            await pilot.pause(0.1)
        picture = app.picture
        assert picture is not None
        app.feed.close()
        await pilot.pause(1.0)
        drawn, keyed, waits = [], [], []
        for _ in range(10):
            began = time.process_time()
            app.show_picture(picture)
            await pilot.pause()
            drawn.append(time.process_time() - began)
        for key in KEYS * 6:
            began, began_s = time.process_time(), time.perf_counter()
            await pilot.press(key)
            keyed.append(time.process_time() - began)
            waits.append(time.perf_counter() - began_s)
    keyed.sort()
    waits.sort()
    return {
        "jobs": jobs,
        "picture_cpu_ms": 1000 * min(drawn),
        "key_cpu_ms_p50": 1000 * keyed[len(keyed) // 2],
        "key_cpu_ms_max": 1000 * keyed[-1],
        "key_wall_ms_p50": 1000 * waits[len(waits) // 2],
    }


def fetched() -> Row:
    """What one look at the yard costs the client: both requests and reading their answers."""
    from gpuyard.api.client import Client  # noqa: PLC0415

    took = []
    with Client() as client:
        for _ in range(5):
            began = time.process_time()
            client.overview()
            client.queue()
            took.append(time.process_time() - began)
    return {"fetch_cpu_ms": 1000 * min(took)}


def main() -> int:
    """Start a yard, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    yard = [sys.executable, "-m", "gpuyard.cli"]
    with tempfile.TemporaryDirectory(prefix="yard-start-") as folder:
        os.environ["YARD_DATA"] = str(Path(folder) / "yard")
        os.environ.pop("YARD_SERVER", None)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def said(*words: str) -> str:
            return subprocess.run(
                [*yard, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        said("up", "-d", "--port", "0", "--emulate", "8 x H100")
        try:
            job = int(said("submit", "--hold", "--", "true"))
            starts = measured(commands([sys.executable], yard, job), options.rounds, environment)
            said("submit", "-g", "8", "--array", f"0-{options.jobs - 1}", "-n", "many", "--", "sleep", "3600")
            time.sleep(2)
            many = measured(listings(yard), max(1, options.rounds // 2), environment)
            screen = asyncio.run(watched(options.jobs)) | fetched()
        finally:
            said("down", "--jobs")
    _publish(starts, many, screen, options.write)
    return 0


def _publish(starts: dict[str, Row], many: dict[str, Row], screen: Row, write: bool) -> None:
    nothing = starts["`python -c pass`"]["cpu_s"]
    head = ("command", "CPU s", "wall s", "times `pass`")
    rows = [(name, row["cpu_s"], row["wall_s"], row["cpu_s"] / nothing) for name, row in starts.items()]
    lists = [
        (name, row["cpu_s"], row["wall_s"], row["cpu_s"] / nothing, row["bytes"] // 1024)
        for name, row in many.items()
    ]
    top = [
        ("one look: ask and read", screen["fetch_cpu_ms"]),
        ("one picture: take over and draw", screen["picture_cpu_ms"]),
        ("one key, median", screen["key_cpu_ms_p50"]),
        ("one key, most", screen["key_cpu_ms_max"]),
    ]
    busy = (
        f"The load average was {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: where it is above their number, CPU "
        "seconds count and wall seconds say little."
    )
    text = "\n\n".join(
        [
            busy,
            table(head, rows),
            f"With {screen['jobs']:,} jobs in the queue:",
            table((*head, "KiB"), lists),
            f"`yard top` on a screen of {SCREEN[0]} x {SCREEN[1]} with those jobs:",
            table(("what", "CPU ms"), top),
        ]
    )
    publish("start", text, {"starts": starts, "listings": many, "top": screen}, write=write)


if __name__ == "__main__":
    sys.exit(main())
