"""gpuyard's side of the load benchmark: a server as `yard up` starts it, with a folder of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Row
from load_clients import Burst, Caller, cpu_s_of
from load_sides import CLIENTS, GPUS, READY_S, Patience, Submitter, burst, by_commands, until

_CONFIG = """\
version: 1
clusters:
  here:
    engine: local
    gpus: {gpus} x A100-80GB
    emulate: true
    allow_root: true
"""


class YardProcess:
    """A server of its own, with its data in a folder."""

    program = Path(sys.executable).parent / "yard"
    start: Sequence[str] = (str(program), "up")
    """What starts it; the options of `yard up` follow."""

    def __init__(self, folder: Path, config: str, store: str = "", options: Sequence[str] = ()) -> None:
        """`config`: the text of its yard.yaml; `store`: a database that several servers share, else its own file."""
        self._shared = bool(store)
        self._options = [*(("--store", store) if store else ()), *options]
        self._out = folder / "yard.out"
        self._data = folder / "yard"
        self._config = folder / "yard.yaml"
        self._config.write_text(config, encoding="utf-8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.up()
        except BaseException:
            self.stop()
            raise

    def up(self) -> None:
        """Start it and wait until it answers."""
        # The kernel ends the server if we are killed before we can. It has a session of its own, as `yard up -d` has.
        command = ["setpriv", "--pdeathsig", "TERM", *self.start, "--data", str(self._data)]
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--config", str(self._config), *self._options],
                env=_compiled(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        limit = Patience(READY_S)
        while not self._ready():
            if self._process.poll() is not None or not limit:
                said = self._out.read_text(errors="replace")[-2000:]
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
    def token(self) -> str:
        """Of an administrator."""
        return (self._data / "token").read_text(encoding="ascii").strip()

    def caller(self) -> Caller:
        """A connection that may do everything."""
        return Caller(self.port, {"Authorization": f"Bearer {self.token}"})

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """One request; anything but success raises."""
        caller = self.caller()
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
        return {**_compiled(), "YARD_SERVER": f"http://127.0.0.1:{self.port}", "YARD_TOKEN": self.token}

    @property
    def socket(self) -> Path:
        """Where users of this machine connect."""
        return self._data / (f"yard-{self.port}.sock" if self._shared else "yard.sock")

    def pids(self) -> list[int]:
        """The server and what helps it, such as the process by which it starts supervisors; not these, nor jobs."""
        if self._process is None:
            return []
        lists = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        return [self._process.pid, *[int(pid) for file in lists for pid in file.read_text().split()]]

    def cpu_s(self) -> float:
        """Of the server and what helps it."""
        return cpu_s_of(self.pids())

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def down(self) -> None:
        """SIGTERM, and KILL if it does not listen."""
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
            down = [str(self.program), "down", "--jobs", "--data", str(self._data)]
            subprocess.run(down, capture_output=True, check=False, timeout=120)
        self.down()


class YardSide:
    """The server, and the commands that a user has."""

    name = "gpuyard"
    api = "gpuyard, POST /api/v1/jobs"
    command = "gpuyard, `yard submit`"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = YardProcess(folder, _CONFIG.format(gpus=GPUS))
        self._ask = self._server.ask
        self._caller = self._server.caller
        self._yard = [str(YardProcess.program)]
        self._node = json.loads(self._ask("GET", "/api/v1/nodes"))["nodes"][0]["name"]

    @property
    def environment(self) -> dict[str, str]:
        """Points commands at this server."""
        return self._server.environment

    def submitters(self, script: str) -> list[Submitter]:
        """POST /api/v1/jobs."""
        job = {"script": script, "gpus": 1, "time_limit_s": 3600, "stdout": "/dev/null", "cwd": "/tmp"}
        return [Submitter(self._caller(), "/api/v1/jobs", job, 201, "id") for _ in range(CLIENTS)]

    def submit(self, script: str, count: int) -> Burst:
        """The clients' share each."""
        return burst(self.submitters(script), count)

    def submit_by_command(self, script: str, count: int) -> Burst:
        """`yard submit`."""
        file = self.folder / "job.sh"
        file.write_text(script, encoding="utf-8")
        file.chmod(0o755)
        return by_commands(
            [*self._yard, "submit", "-g", "1", "--stdout", "/dev/null", str(file)], self.environment, count
        )

    def hold_back(self) -> None:
        """Drain the node."""
        self._ask("POST", f"/api/v1/nodes/{self._node}/drain", b"{}")

    def let_go(self) -> None:
        """Take it back into use."""
        self._ask("POST", f"/api/v1/nodes/{self._node}/resume")

    def settle(self) -> None:
        """Until no job runs by the replica."""
        until(lambda: not json.loads(self._ask("GET", "/api/v1/jobs?state=running&limit=1"))["jobs"])

    def watched(self, seconds: float) -> list[Row]:
        """The server is started anew first, because it reports its steps since the start."""
        self._server.down()
        self._server.up()
        self.let_go()
        time.sleep(seconds)
        self.hold_back()
        found: dict[str, Any] = json.loads(self._ask("GET", "/readyz"))
        kinds = {"step": "gpuyard, step: observe, decide, commit, act", "decide": "gpuyard, decide alone"}
        return [
            {
                "pass": name,
                "passes": found["steps"],
                **{f"{key}_ms": found.get(f"{kind}_ms_{key}") for key in ("p50", "p99", "mean", "max")},
            }
            for kind, name in kinds.items()
            if f"{kind}_ms_p50" in found
        ]

    def cpu_s(self) -> float:
        """Of the server."""
        return self._server.cpu_s()

    def queue_commands(self) -> dict[str, list[str]]:
        """For people and for programs."""
        return {
            "yard queue": [*self._yard, "queue"],
            "yard queue -o json": [*self._yard, "queue", "-o", "json"],
        }

    def kill(self) -> None:
        """The server."""
        self._server.kill()

    def revive(self) -> None:
        """The same command again."""
        self._server.up()

    def waiting(self) -> set[int]:
        """The queue has nothing else while it is held back."""
        return self.known()

    def known(self) -> set[int]:
        """From the queue: nothing has run since."""
        found = json.loads(self._ask("GET", "/api/v1/queue"))
        place = found["columns"].index("id")
        return {row[place] for row in found["rows"]}

    def stop(self) -> None:
        """End the jobs and the server."""
        self._server.stop()


def _compiled() -> dict[str, str]:
    """Our environment, in which Python may keep what it compiled, as an installed program has it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
