"""Slurm's side of the load benchmark: the cluster of tests/rigs, over slurmrestd and sbatch."""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from figures import ROOT, Row
from load_clients import Burst, Caller, cpu_s_of, percentile
from load_sides import CLIENTS, GPUS, Submitter, burst, by_commands, until

sys.path.insert(0, str(ROOT / "tests"))

from rigs.components import Missing
from rigs.slurm.cluster import SlurmCluster

__all__ = ["Missing", "SlurmSide"]


class SlurmSide:
    """Slurm from Debian's packages: 8 nodes of 8 GPUs, with accounting, over slurmrestd and sbatch."""

    name = "Slurm"
    api = "Slurm, slurmrestd with JWT"
    command = "Slurm, `sbatch`"

    def __init__(self, folder: Path, scheduler: str = "") -> None:
        self._slurm = SlurmCluster(8, GPUS // 8, scheduler=scheduler, parent=folder)
        self.folder = folder
        self._headers = {"X-SLURM-USER-NAME": "root", "X-SLURM-USER-TOKEN": self._slurm.token()}
        self.unsaved_s = 0.0
        """The longest time in which jobs were acknowledged and not saved."""
        self.parameters = f"with SchedulerParameters={scheduler}" if scheduler else "with its own parameters"
        self.version = self._slurm.command("sinfo", "--version").split()[-1]

    @property
    def environment(self) -> dict[str, str]:
        """Points commands at this cluster."""
        return self._slurm.environment

    def submitters(self, script: str) -> list[Submitter]:
        """slurmrestd's job/submit, with a JSON web token."""
        job = {
            "gres": "gpu:a100:1",
            "tasks": 1,
            # Without it a job takes all the memory of its node, and the node runs one at a time.
            "memory_per_node": 100,
            "time_limit": 60,
            "standard_output": "/dev/null",
            "current_working_directory": "/tmp",
            "environment": {"PATH": "/usr/bin:/bin"},
        }
        path, body = "/slurm/v0.0.38/job/submit", {"script": script, "job": job}
        return [Submitter(self._caller(), path, body, 200, "job_id") for _ in range(CLIENTS)]

    def _caller(self) -> Caller:
        return Caller(self._slurm.rest_port, self._headers)

    def submit(self, script: str, count: int) -> Burst:
        """The clients' share each."""
        with self._watch_state():
            return burst(self.submitters(script), count)

    @contextmanager
    def _watch_state(self) -> Iterator[None]:
        """Take note how long jobs were acknowledged without the file of all jobs being written."""
        file = self._slurm.folder / "state" / "job_state"
        over = threading.Event()
        moments = {time.time()}

        def look() -> None:
            while not over.wait(0.05):
                with suppress(FileNotFoundError):
                    moments.add(file.stat().st_mtime)

        watcher = threading.Thread(target=look)
        watcher.start()
        began_s = min(moments)
        try:
            yield
        finally:
            over.set()
            watcher.join()
        during = sorted({*[each for each in moments if each >= began_s], time.time()})
        gaps = [after - before for before, after in pairwise(during)]
        self.unsaved_s = max(self.unsaved_s, *gaps)

    def submit_by_command(self, script: str, count: int) -> Burst:
        """`sbatch`."""
        file = self.folder / "job.sh"
        file.write_text(script, encoding="utf-8")
        how = [
            "--parsable",
            "--gres=gpu:a100:1",
            "--mem=100",
            "--time=60",
            "--output=/dev/null",
            "--chdir=/tmp",
        ]
        return by_commands(["sbatch", *how, str(file)], self.environment, count)

    def hold_back(self) -> None:
        """Take the partition down; what runs goes on."""
        self._slurm.command("scontrol", "update", "partitionname=main", "state=down")

    def let_go(self) -> None:
        """Bring it up."""
        self._slurm.command("scontrol", "update", "partitionname=main", "state=up")

    def settle(self) -> None:
        """Until no job runs or completes."""
        until(lambda: not self._slurm.command("squeue", "-h", "-t", "RUNNING,COMPLETING", "-o", "%i"))

    def watched(self, seconds: float) -> list[Row]:
        """sdiag's figures, over REST; percentiles from what `last cycle` was, ten times a second."""
        self._slurm.command("sdiag", "-r")
        self.let_go()
        caller = self._caller()
        request = caller.request("GET", "/slurm/v0.0.38/diag")
        last: dict[str, dict[int, float]] = {"schedule": {}, "bf": {}}
        found: dict[str, Any] = {}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = json.loads(caller.send(request).body)["statistics"]
            for kind, counter in (("schedule", "schedule_cycle_total"), ("bf", "bf_cycle_counter")):
                if found[counter]:
                    last[kind][found[counter]] = found[f"{kind}_cycle_last"] / 1000
            time.sleep(0.1)
        caller.close()
        self.hold_back()
        return [
            _slurm_pass(
                "Slurm, main cycle", found, "schedule", found["schedule_cycle_total"], last["schedule"]
            ),
            _slurm_pass("Slurm, backfill cycle", found, "bf", found["bf_cycle_counter"], last["bf"]),
        ]

    def cpu_s(self) -> float:
        """Of every daemon; slurmd too, which has a part in each job."""
        return cpu_s_of([self._slurm.pid(name) for name in self._slurm.names])

    def queue_commands(self) -> dict[str, list[str]]:
        """For people and for programs."""
        return {"squeue": ["squeue"], "squeue --json": ["squeue", "--json"]}

    def kill(self) -> None:
        """slurmctld; slurmrestd and the others go on."""
        self._slurm.end("slurmctld", signal.SIGKILL)

    def revive(self) -> None:
        """It reads what it had saved."""
        self._slurm.start("slurmctld")

    def waiting(self) -> set[int]:
        """Those that have not started."""
        return self._listed("PENDING")

    def known(self) -> set[int]:
        """All states: those that ended a moment ago count."""
        return self._listed("all")

    def _listed(self, states: str) -> set[int]:
        return set(map(int, self._slurm.command("squeue", "-h", "-t", states, "-o", "%i").split()))

    def stop(self) -> None:
        """End the cluster."""
        self._slurm.stop()


def _slurm_pass(name: str, found: dict[str, Any], kind: str, passes: int, seen: dict[int, float]) -> Row:
    took = sorted(seen.values())
    return {
        "pass": name,
        "passes": passes,
        "p50_ms": percentile(took, 50) if took else None,
        "p99_ms": percentile(took, 99) if took else None,
        "mean_ms": found[f"{kind}_cycle_mean"] / 1000,
        "max_ms": found[f"{kind}_cycle_max"] / 1000,
    }
