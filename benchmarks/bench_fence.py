"""What a job's fence costs: short jobs a second, and from submission to a job's first line. Turn by turn in one run.

    python benchmarks/bench_fence.py [--rounds 5] [--before CHECKOUT] [--user USER [--program YARD]] [--write]

Each turn is a server of its own with emulated GPUs: with `fence: auto`, with `fence: off`, and, where BEFORE names
another checkout with its own `.venv`, that one's. Jobs are counted by the lines that they wrote. USER runs the servers
as that account, whose yard fences by a user namespace; YARD is the command, where USER may not run this one. Of each
kind the median of its turns is told. The folder is not below /tmp, because a job in a fence has a /tmp of its own.
"""

import argparse
import json
import os
import pwd
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from figures import publish, table
from load_clients import percentile
from load_yard import YardProcess

SHORT, ALONE = 300, 40
DONE_S = 120.0
_CONFIG = "version: 1\nclusters: {{here: {{gpus: 64 x A100-80GB, emulate: true{more}}}}}\n"


class Turn(YardProcess):
    """A server of one kind."""

    def __init__(self, folder: Path, program: Path, fence: str, account: pwd.struct_passwd | None) -> None:
        self.program = program
        more = ", allow_root: true" if account is None else ""
        more += f", fence: {fence}" if fence else ""
        self.start = (str(program), "up")
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
            person = ("--reuid", account.pw_name, "--regid", str(account.pw_gid), "--clear-groups")
            self.start = ("setpriv", *person, *self.start)
        self.lines = folder / "lines"
        self.lines.touch()
        self.lines.chmod(0o666)
        super().__init__(folder, _CONFIG.format(more=more))

    def submit(self) -> None:
        """A job on one GPU that writes a line."""
        script = f"#!/bin/sh\necho $YARD_JOB_ID >>{self.lines}\n"
        job = {"script": script, "gpus": 1, "time_limit_s": 600, "stdout": "/dev/null", "cwd": "/"}
        self.ask("POST", "/api/v1/jobs", json.dumps(job).encode())

    def count(self) -> int:
        """How many jobs have written."""
        return self.lines.read_bytes().count(b"\n")

    def until(self, count: int) -> None:
        """Until so many jobs have written; what takes too long is an error."""
        deadline = time.monotonic() + DONE_S
        while self.count() < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.count()} of {count} jobs wrote within {DONE_S:.0f} s")
            time.sleep(0.0005)

    def measure(self) -> tuple[list[float], float, float]:
        """Milliseconds to the first lines, jobs a second, and the server's CPU milliseconds for a job."""
        alone_ms = []
        for number in range(ALONE):
            began_s = time.perf_counter()
            self.submit()
            self.until(number + 1)
            alone_ms.append(1000 * (time.perf_counter() - began_s))
            time.sleep(0.15)
        node = json.loads(self.ask("GET", "/api/v1/nodes"))["nodes"][0]["name"]
        self.ask("POST", f"/api/v1/nodes/{node}/drain", b"{}")
        for _ in range(SHORT):
            self.submit()
        cpu_s, began_s = self.cpu_s(), time.perf_counter()
        self.ask("POST", f"/api/v1/nodes/{node}/resume")
        self.until(ALONE + SHORT)
        took_s = time.perf_counter() - began_s
        return alone_ms, SHORT / took_s, 1000 * (self.cpu_s() - cpu_s) / SHORT


def main() -> int:
    """Take turns and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--user", default="")
    parser.add_argument("--program", type=Path, default=Path(sys.executable).parent / "yard")
    parser.add_argument("--folder", type=Path, default=Path("/srv"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    kinds = {"fence off": (options.program, "off"), "fence on": (options.program, "auto")}
    if options.before is not None:
        kinds = {"before": (options.before.resolve() / ".venv/bin/yard", ""), **kinds}
    account = pwd.getpwnam(options.user) if options.user else None
    found: dict[str, list[tuple[list[float], float, float]]] = {kind: [] for kind in kinds}
    for turn in range(options.rounds):
        for kind in list(kinds)[:: 1 if turn % 2 else -1]:
            folder = Path(tempfile.mkdtemp(prefix="yard-fence-", dir=options.folder))
            folder.chmod(0o755)
            try:
                server = Turn(folder, *kinds[kind], account)
                try:
                    found[kind].append(server.measure())
                finally:
                    server.stop()
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    head = ["yard", "first line p50, ms", "p90, ms", "short jobs/s", "server's CPU ms for a job"]
    rows = []
    for kind, turns in found.items():
        alone = sorted(ms for alone_ms, _, _ in turns for ms in alone_ms)
        rates, cpu_ms = [rate for _, rate, _ in turns], [cpu for _, _, cpu in turns]
        first = [statistics.median(alone), percentile(alone, 90)]
        rows.append([kind, *first, statistics.median(rates), statistics.median(cpu_ms)])
    publish("fence of a user" if options.user else "fence", table(head, rows), rows, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
