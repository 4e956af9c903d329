"""How long it takes to cancel many waiting jobs: 20,000 by their ids, as many that never were, and all of a yard.

    python benchmarks/bench_cancel.py [--waiting 190000]

Root's yard with 8 GPUs that are not there, all busy, and arrays of 10,000 tasks that wait. Ids are those of the first
in line, in one request. `yard down --jobs` cancels all the others and ends the server.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from figures import Row, publish, table
from load_clients import Caller
from load_yard import YardProcess

ARRAY = 10_000
IDS = 20_000
NEVER = 10**9
GPUS = 8
CONFIG = f"""\
version: 1
waiting_per_user: 1000000
clusters:
  here: {{engine: local, gpus: {GPUS} x A100-80GB, emulate: true, allow_root: true}}
"""


def measured(waiting: int) -> list[Row]:
    """What was done, in seconds by the clock and of the server's processor."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="yard-cancel-", ignore_cleanup_errors=True) as folder:
        yard = YardProcess(Path(folder), CONFIG)

        def timed(what: str, work: Callable[[], object]) -> None:
            began_s, cpu_s = time.monotonic(), yard.cpu_s()
            work()
            took_s = time.monotonic() - began_s
            # Of a server that has ended nobody knows any more.
            used_s = yard.cpu_s() - cpu_s if _answers(yard) else None
            rows.append({"what": what, "took_s": took_s, "cpu_s": used_s})

        try:
            for _ in range(GPUS):
                _submit(yard, {"command": ["sleep", "3600"], "gpus": 1})
            arrays = [
                _submit(yard, {"command": ["true"], "gpus": 1, "array": f"0-{ARRAY - 1}"})
                for _ in range(waiting // ARRAY)
            ]
            time.sleep(3)
            ids = [f"{array}_{index}" for array in arrays for index in range(ARRAY)][:IDS]
            timed(f"{len(ids):,} ids", lambda: _cancel(yard, ids))
            timed(f"{IDS:,} ids that never were", lambda: _cancel(yard, [*range(NEVER, NEVER + IDS)]))
            left = waiting - len(ids) + GPUS
            timed(f"`yard down --jobs` with {left:,} jobs", yard.stop)
        finally:
            yard.stop()
    return rows


def _answers(yard: YardProcess) -> bool:
    try:
        yard.ask("GET", "/healthz")
    except OSError:
        return False
    return True


def _submit(yard: YardProcess, job: Row) -> int:
    found: int = json.loads(yard.ask("POST", "/api/v1/jobs", json.dumps(job).encode()))["id"]
    return found


def _cancel(yard: YardProcess, ids: "list[str] | list[int]") -> None:
    caller = Caller(yard.port, {"Authorization": f"Bearer {yard.token}"}, most_s=600)
    try:
        reply = caller.ask("POST", "/api/v1/jobs/cancel", json.dumps({"ids": ids}).encode())
    finally:
        caller.close()
    if reply.status != 200 or len(json.loads(reply.body)["results"]) != len(ids):
        raise RuntimeError(f"{reply.status} {reply.body[:500]!r}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--waiting", type=int, default=190_000)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("Cancels are not measured: the jobs are root's.", file=sys.stderr)
        return 0
    try:
        rows = measured(options.waiting)
    except subprocess.TimeoutExpired:
        print("yard down --jobs did not end in 120 s", file=sys.stderr)
        return 1
    text = f"{options.waiting:,} waiting jobs.\n\n" + table(
        ["cancelled", "s", "CPU s of the server"],
        [[row["what"], row["took_s"], row["cpu_s"]] for row in rows],
    )
    publish("cancels", text, rows, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
