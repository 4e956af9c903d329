"""The two sides of the load benchmark, each with the same few handles: submit, hold back, let go, look.

Both run 64 GPUs that are not there, as root, on loopback, with everything on the same disk. Nothing starts while a side
is held back: gpuyard's node is drained, Slurm's partition is down.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from figures import ROOT, Row
from load_clients import Burst, Caller, cpu_s_of, percentile, together

sys.path.insert(0, str(ROOT / "tests"))

from rigs.slurm import SlurmCluster

GPUS = 64
CLIENTS = 4
_READY_S = 60.0
_CONFIG = """\
version: 1
clusters:
  here:
    engine: local
    gpus: {gpus} x A100-80GB
    emulate: true
    allow_root: true
"""


def job_script(lines: Path) -> str:
    """A job that does nothing and says that it did, in one write, under its own number."""
    return f"#!/bin/sh\n/bin/true\necho $SLURM_JOB_ID >>{lines}\n"


class Side(Protocol):
    """One scheduler under load."""

    name: str

    def submit(self, script: str, count: int) -> Burst:
        """So many jobs of one GPU through the HTTP API."""

    def submit_by_command(self, script: str, count: int) -> Burst:
        """The same with the command line, a process for each job."""

    def hold_back(self) -> None:
        """Let nothing start."""

    def let_go(self) -> None:
        """Let jobs start."""

    def watched(self, seconds: float) -> list[Row]:
        """How long passes took over the next seconds."""

    def cpu_s(self) -> float:
        """CPU time of the servers so far, without the jobs."""

    def queue_commands(self) -> dict[str, list[str]]:
        """Commands that list everything that waits."""

    @property
    def environment(self) -> dict[str, str]:
        """For its commands."""

    def stop(self) -> None:
        """End what was started."""


class YardSide:
    """gpuyard's server as `yard up` starts it."""

    name = "gpuyard"
    program = Path(sys.executable).parent / "yard"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data = folder / "yard"
        self._config = folder / "yard.yaml"
        self._config.write_text(_CONFIG.format(gpus=GPUS), encoding="utf-8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._yard = [str(self.program)]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._up()
            self._node = json.loads(self._ask("GET", "/api/v1/nodes"))["nodes"][0]["name"]
        except BaseException:
            self.stop()
            raise

    def _up(self) -> None:
        command = [*self._yard, "up", "--data", str(self._data), "--port", str(self.port)]
        with (self.folder / "yard.out").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--config", str(self._config)], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        deadline = time.monotonic() + _READY_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "yard.out").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"yard up did not get ready: {said}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            caller = Caller(self.port, {})
        except OSError:
            return False
        try:
            return caller.ask("GET", "/readyz").status == 200
        except OSError:
            return False
        finally:
            caller.close()

    @property
    def _token(self) -> str:
        return (self._data / "token").read_text(encoding="ascii").strip()

    def _caller(self) -> Caller:
        return Caller(self.port, {"Authorization": f"Bearer {self._token}"})

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        caller = self._caller()
        try:
            reply = caller.ask(method, path, body)
        finally:
            caller.close()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.body[:500]!r}")
        return reply.body

    @property
    def environment(self) -> dict[str, str]:
        """Points commands at this server."""
        return {**os.environ, "YARD_SERVER": f"http://127.0.0.1:{self.port}", "YARD_TOKEN": self._token}

    def submit(self, script: str, count: int) -> Burst:
        """POST /api/v1/jobs."""
        job = {"script": script, "gpus": 1, "time_limit_s": 3600, "stdout": "/dev/null", "cwd": "/tmp"}
        callers = [self._caller() for _ in range(CLIENTS)]
        request = callers[0].request("POST", "/api/v1/jobs", json.dumps(job).encode())

        def one(client: int) -> bytes:
            reply = callers[client].send(request)
            if reply.status != 201:
                raise RuntimeError(f"refused: {reply.status} {reply.body[:500]!r}")
            return reply.body

        try:
            burst = together(one, count, CLIENTS)
        finally:
            for caller in callers:
                caller.close()
        _distinct([json.loads(reply)["id"] for reply in burst.replies])
        return burst

    def submit_by_command(self, script: str, count: int) -> Burst:
        """`yard submit`."""
        file = self.folder / "job.sh"
        file.write_text(script, encoding="utf-8")
        file.chmod(0o755)
        return _commands([*self._yard, "submit", "-g", "1", str(file)], self.environment, count)

    def hold_back(self) -> None:
        """Drain the node."""
        self._ask("POST", f"/api/v1/nodes/{self._node}/drain", b"{}")

    def let_go(self) -> None:
        """Take it back into use."""
        self._ask("POST", f"/api/v1/nodes/{self._node}/resume")

    def watched(self, seconds: float) -> list[Row]:
        """The server is started anew first, because it reports its steps since the start."""
        self._down()
        self._up()
        self.let_go()
        time.sleep(seconds)
        self.hold_back()
        found: dict[str, Any] = json.loads(self._ask("GET", "/readyz"))
        return [
            {
                "pass": "gpuyard, step: observe, decide, commit, act",
                "passes": found["steps"],
                "p50_ms": found["step_ms_p50"],
                "p99_ms": found["step_ms_p99"],
                "mean_ms": found.get("step_ms_mean"),
                "max_ms": found.get("step_ms_max"),
            }
        ]

    def cpu_s(self) -> float:
        """Of the server; jobs hang below a process of their own."""
        return cpu_s_of([self._process.pid]) if self._process else 0.0

    def queue_commands(self) -> dict[str, list[str]]:
        """For people and for programs."""
        return {
            "yard queue": [*self._yard, "queue"],
            "yard queue -o json": [*self._yard, "queue", "-o", "json"],
        }

    def _down(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def stop(self) -> None:
        """End the jobs and the server."""
        if self._process is not None and self._process.poll() is None:
            down = [*self._yard, "down", "--jobs", "--data", str(self._data)]
            subprocess.run(down, capture_output=True, check=False, timeout=120)
        self._down()


class SlurmSide:
    """Slurm from Debian's packages: 8 nodes of 8 GPUs, with accounting, over slurmrestd and sbatch."""

    name = "Slurm"

    def __init__(self, folder: Path, scheduler: str = "") -> None:
        self._slurm = SlurmCluster(8, GPUS // 8, scheduler=scheduler, parent=folder)
        self.folder = folder
        self._headers = {"X-SLURM-USER-NAME": "root", "X-SLURM-USER-TOKEN": self._slurm.token()}
        self.version = self._slurm.command("sinfo", "--version").strip()

    @property
    def environment(self) -> dict[str, str]:
        """Points commands at this cluster."""
        return self._slurm.environment

    def submit(self, script: str, count: int) -> Burst:
        """slurmrestd's job/submit, with a JSON web token."""
        job = {
            "gres": "gpu:a100:1",
            "tasks": 1,
            "memory_per_node": 100,
            "time_limit": 60,
            "standard_output": "/dev/null",
            "current_working_directory": "/tmp",
            "environment": {"PATH": "/usr/bin:/bin"},
        }
        body = json.dumps({"script": script, "job": job}).encode()
        callers = [Caller(self._slurm.rest_port, self._headers) for _ in range(CLIENTS)]
        request = callers[0].request("POST", "/slurm/v0.0.38/job/submit", body)

        def one(client: int) -> bytes:
            reply = callers[client].send(request)
            if reply.status != 200:
                raise RuntimeError(f"refused: {reply.status} {reply.body[:500]!r}")
            return reply.body

        try:
            burst = together(one, count, CLIENTS)
        finally:
            for caller in callers:
                caller.close()
        _distinct([json.loads(reply)["job_id"] for reply in burst.replies])
        return burst

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
        return _commands(["sbatch", *how, str(file)], self.environment, count)

    def hold_back(self) -> None:
        """Take the partition down; what runs goes on."""
        self._slurm.command("scontrol", "update", "partitionname=main", "state=down")

    def let_go(self) -> None:
        """Bring it up."""
        self._slurm.command("scontrol", "update", "partitionname=main", "state=up")

    def watched(self, seconds: float) -> list[Row]:
        """sdiag's figures, over REST; percentiles from what `last cycle` was, ten times a second."""
        self._slurm.command("sdiag", "-r")
        self.let_go()
        caller = Caller(self._slurm.rest_port, self._headers)
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

    def state_age_s(self, timeout_s: float = 15.0) -> float | None:
        """How long until the file with all jobs is written anew: a job acknowledged just now is lost before that."""
        file, began_s = self._slurm.folder / "state" / "job_state", time.time()
        while time.time() - began_s < timeout_s:
            if file.exists() and file.stat().st_mtime > began_s:
                return time.time() - began_s
            time.sleep(0.05)
        return None

    def cpu_s(self) -> float:
        """Of every daemon; slurmd too, which has a part in each job."""
        return cpu_s_of([self._slurm.pid(name) for name in self._slurm.names])

    def queue_commands(self) -> dict[str, list[str]]:
        """For people and for programs."""
        return {"squeue": ["squeue"], "squeue --json": ["squeue", "--json"]}

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


def _commands(command: list[str], environment: dict[str, str], count: int) -> Burst:
    def one(_client: int) -> bytes:
        # Without close_fds Python takes the quick way to start a process.
        done = subprocess.run(command, env=environment, capture_output=True, check=False, close_fds=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: exit code {done.returncode}: {done.stderr[-500:]!r}")
        return done.stdout

    return together(one, count, CLIENTS)


def _distinct(numbers: list[int]) -> None:
    if len(set(numbers)) != len(numbers) or 0 in numbers:
        raise RuntimeError("two jobs were given one number, or one was given none")
