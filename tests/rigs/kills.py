"""A server that is killed again and again while clients submit: what was acknowledged must run, once, under its id.

Nothing is believed that the server says about itself: each job appends a line to a file when it runs, and the process
table is searched for what was left behind.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from harness.patience import Patience, patient

READY_S = 30.0
DONE_S = 300.0

CONFIG = """\
version: 1
clusters:
  here:
    engine: local
    pools:
      main: {nodes: 1, gpus: 8 x A100-80GB, emulate: true}
"""


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Server:
    """`yard up` as a process of its own."""

    data: Path
    store: str = ""
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    under: tuple[str, ...] = ()
    """A command that runs it, such as a tracer."""
    config: str = CONFIG
    words: tuple[str, ...] = ()
    """More options of `yard up`."""
    started: ClassVar[list["Server"]] = []
    """Those of this file, which do not outlive it."""

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.started.append(self)
        self.data.mkdir(parents=True, exist_ok=True)
        config = self.data / "yard.yaml"
        config.write_text(self.config, encoding="utf-8")
        command = [*self.under, sys.executable, "-m", "gpuyard.cli", "up", "--data", str(self.data)]
        command += ["--port", str(self.port), "--config", str(config)]
        command += [*(["--store", self.store] if self.store else []), *self.words]
        with (self.data / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        patience = Patience(READY_S)
        while patience:
            try:
                if self.call("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            assert self.process.poll() is None, f"the server ended: {self.story()}"
            time.sleep(0.02)
        raise AssertionError(f"the server did not become ready: {self.story()}")

    def story(self) -> str:
        """The end of what it wrote."""
        return (self.data / "server.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it at once, or send it another signal."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait()

    def end(self) -> None:
        """End what is left of it, and its jobs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in leftovers(self.data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """One request over the loopback; raises `OSError` if there is no answer."""
        token = (self.data / "token").read_text().strip() if (self.data / "token").exists() else ""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patient(20))
        try:
            sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, text


@dataclass
class Siege:
    """Clients, a killer, and what they saw."""

    server: Server
    submissions: int
    kills: int
    seed: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Job name -> the id it was acknowledged under."""
    changed: dict[int, set[str]] = field(default_factory=dict)
    """By the id of a job: the change of it that was acknowledged last, and those after it that got no answer."""
    killed: int = 0
    _done: threading.Event = field(default_factory=threading.Event)
    _finished: threading.Event = field(default_factory=threading.Event)
    _up: threading.Lock = field(default_factory=threading.Lock)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def runs_file(self) -> Path:
        """Where jobs tell that they ran."""
        return self.server.data / "runs"

    def run(self, clients: int = 4) -> None:
        """Submit everything while the server is killed, then wait for the jobs to end."""
        self.server.start()
        self.runs_file.touch()
        names = [[f"c{c}-{n}" for n in range(c, self.submissions, clients)] for c in range(clients)]
        workers = [threading.Thread(target=self._guarded, args=(self._client, part)) for part in names]
        killer = threading.Thread(target=self._guarded, args=(self._killer, clients))
        changer = threading.Thread(target=self._guarded, args=(self._changer, Random(self.seed + 1)))
        for thread in (*workers, killer, changer):
            thread.start()
        for thread in (*workers, killer):
            thread.join()
        self._finished.set()
        changer.join()
        assert not self.errors, self.errors
        self._settle()

    def _guarded(self, work: Any, argument: Any) -> None:
        try:
            work(argument)
        except BaseException as error:
            self.errors.append(error)
            self._done.set()

    def _client(self, names: list[str]) -> None:
        for name in names:
            body = {
                "command": ["/bin/sh", "-c", f'echo "{name} $YARD_JOB_ID $YARD_ATTEMPT" >> {self.runs_file}'],
                "name": name,
                "gpus": 1,
                "tenant": "t",
            }
            # A server that is quicker than the killer is waited for, so that every kill hits it at work.
            while self.killed < self.kills and len(self.acknowledged) > self._goal() + 8:
                time.sleep(0.002)
            while not self._done.is_set():
                try:
                    status, answer = self.server.call("POST", "/api/v1/jobs", body, {"Idempotency-Key": name})
                except OSError:
                    time.sleep(0.02)
                    continue
                if status in (200, 201):
                    self.acknowledged[name] = answer["id"]
                    break
                assert status >= 500, f"{name}: {status} {answer}"
                time.sleep(0.02)

    def _changer(self, rng: Random) -> None:
        """Label jobs anew, whether they wait or run."""
        turn = 0
        while not (self._done.is_set() or self._finished.wait(0.01)):
            ids = [*self.acknowledged.values()][-20:]
            if not ids:
                continue
            turn, job_id = turn + 1, rng.choice(ids)
            body = {"ids": [job_id], "change": {"labels": {"turn": str(turn)}, "retries": 0}}
            try:
                status, answer = self.server.call("POST", "/api/v1/jobs/update", body)
            except OSError:
                self.changed.setdefault(job_id, {""}).add(str(turn))
                continue
            if status == 200 and answer["results"][0]["status"] == 202:
                self.changed[job_id] = {str(turn)}
            else:
                assert status >= 500 or answer["results"][0]["status"] in (404, 409), f"{status} {answer}"

    def _killer(self, clients: int) -> None:
        rng = Random(self.seed)
        while self.killed < self.kills and not self.errors:
            # Spread over the submissions, at any moment.
            while len(self.acknowledged) < self._goal() - clients and not self.errors:
                time.sleep(0.002)
            time.sleep(rng.random() * 0.1)
            self.server.kill()
            self.killed += 1
            self.server.start()

    def _goal(self) -> int:
        """How many are to be acknowledged before the next kill."""
        return self.submissions * (self.killed + 1) // (self.kills + 1)

    def _settle(self) -> None:
        patience = Patience(DONE_S)
        while patience:
            status, answer = self.server.call("GET", "/api/v1/jobs?state=PENDING,RUNNING&limit=1")
            if status == 200 and not answer["jobs"]:
                return
            time.sleep(0.2)
        raise AssertionError(f"jobs did not end: {self.server.story()}")

    # -- what must hold ------------------------------------------------------------------------------------------

    def check(self) -> dict[str, int]:
        """0 lost, 0 run twice, 0 ids reused, 0 orphans; what was counted."""
        lines = [line.split() for line in self.runs_file.read_text().splitlines()]
        ran = Counter(name for name, _id, _attempt in lines)
        lost = [name for name in self.acknowledged if name not in ran]
        twice = {name: count for name, count in ran.items() if count > 1}
        ids = Counter(self.acknowledged.values())
        reused = [job_id for job_id, count in ids.items() if count > 1]
        wrong = [line for line in lines if self.acknowledged.get(line[0]) != int(line[1])]
        orphans = leftovers(self.server.data)
        labels = {job_id: self._label(job_id) for job_id in self.changed}
        unlike = {job_id: label for job_id, label in labels.items() if label not in self.changed[job_id]}
        assert len(self.acknowledged) == self.submissions, f"only {len(self.acknowledged)} were acknowledged"
        assert not lost, f"{len(lost)} acknowledged jobs never ran: {lost[:5]}"
        assert not twice, f"jobs ran twice: {dict(list(twice.items())[:5])}"
        assert not reused, f"ids handed out twice: {reused[:5]}"
        assert not wrong, f"jobs ran under another id than was acknowledged: {wrong[:5]}"
        assert not orphans, f"left behind: {orphans}"
        assert not unlike, f"acknowledged changes that are not there: {dict(list(unlike.items())[:5])}"
        return {
            "acknowledged": len(self.acknowledged),
            "ran": sum(ran.values()),
            "kills": self.killed,
            "changed": len(self.changed),
        }

    def _label(self, job_id: int) -> str:
        """What a job was labelled with last; empty: nothing."""
        status, answer = self.server.call("GET", f"/api/v1/jobs/{job_id}?explain=false")
        assert status == 200, f"job {job_id}: {status} {answer}"
        return str(answer["labels"].get("turn", ""))


def leftovers(data: Path) -> list[int]:
    """Processes of this yard's jobs that still run: they carry their attempt's folder in their environment."""
    return processes_with(f"YARD_ATTEMPT_DIR={data}")


def processes_with(*marks: str) -> list[int]:
    """Processes that carry one of these in their environment."""
    wanted, found = [mark.encode() for mark in marks], []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                carried = (entry / "environ").read_bytes()
            except OSError:
                continue
            if any([mark in carried for mark in wanted]):
                found.append(int(entry.name))
    return found
