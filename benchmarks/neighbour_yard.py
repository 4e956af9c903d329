"""The ground of the noisy neighbour: root's yard, a user who works in peace, another who attacks, and what is counted.

The two users are processes with numbers of their own, as tests have them (tests/rigs/others.py); the kernel tells the
yard who asks. The one who works opens a connection for each request, as commands do, and asks at fixed times, whether
the request before has been answered or not: a request that waits for another counts from when it was due.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import Any

from load_clients import Caller, percentile
from load_yard import YardProcess
from neighbour_attacks import Attack, Hand, counted

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from rigs.hung import hung_mount
from rigs.kills import leftovers
from rigs.postgres import PostgresServer

ATTACKER, WORKER = 54_321, 54_322
Wait = tuple[float, float]
"""When something was due, and how long it took from then on, in seconds."""
RUN_S_MAX = 120.0
"""A job of the worker that has not run so long after everything was over is lost."""
HANDS_MAX = 64
NICE = 10
"""Of the attacker's own programs: what is measured is the server, not who gets a core of a small machine."""
CONFIG = f"""\
version: 1
clusters:
  here:
    engine: local
    pools:
      main: {{nodes: 8, gpus: 8 x A100-80GB, emulate: true}}
    allow_root: true
tenants:
  uid-{ATTACKER}: {{limit: 16}}
  uid-{WORKER}: {{guarantee: 32}}
  crowd: {{limit: 16}}
"""


class Ground:
    """A yard of root with one server on SQLite; on PostgreSQL with one that leads, and two that are asked."""

    def __init__(self, stack: ExitStack, *, postgres: bool = False, more: str = "") -> None:
        """`more`: what its yard.yaml has besides."""
        self.folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="yard-noise-", ignore_cleanup_errors=True))
        )
        self.folder.chmod(0o711)
        self.lines = self.folder / "lines"
        self.lines.touch()
        self.lines.chmod(0o666)
        self.attackers = self.folder / "attacker"
        self.attackers.mkdir()
        os.chown(self.attackers, ATTACKER, ATTACKER)
        url = ""
        if postgres:
            database = PostgresServer(fsync=True)
            stack.callback(database.stop)
            url = database.fresh()
        self.yards = [YardProcess(self.folder, CONFIG + more, url)]
        if postgres:
            self.yards += [YardProcess(self.folder, CONFIG + more, url, ["--no-lead"]) for _ in range(2)]
        stack.callback(self._end)

    def _end(self) -> None:
        """Kill the servers and what their jobs run: nobody has to cancel 200,000 jobs one by one."""
        for yard in self.yards:
            yard.kill()
        for _ in range(50):
            left = leftovers(self.folder / "yard")
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    @property
    def doors(self) -> list[Path]:
        """The sockets of the servers that are asked."""
        return [yard.socket for yard in self.yards[-2:]]

    def fill(self, waiting: int) -> None:
        """Let so many jobs of root's wait: two of them run, and no more may. They are accepted sooner than taken in."""
        caller, there = self.yards[0].caller(), waiting
        job: dict[str, Any] = {"command": ["sleep", "3600"], "gpus": 8, "tenant": "crowd"}
        while waiting > 0:
            array = min(10_000, waiting)
            reply = caller.ask("POST", "/api/v1/jobs", json.dumps(job | {"array": f"0-{array - 1}"}).encode())
            if reply.status != 201:
                raise RuntimeError(f"the queue could not be filled: {reply.status} {reply.body[:300]!r}")
            waiting -= array
        while json.loads(caller.ask("GET", "/api/v1/queue?limit=1").body)["waiting"] < there - 2:
            time.sleep(0.2)
        caller.close()

    def forget_peak(self) -> None:
        """Measure the memory from now on."""
        for yard in self.yards:
            for pid in yard.pids()[:1]:
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_mib(self) -> int:
        """The most that one of the servers has had since."""
        return max(_kib(yard.pids()[0], "VmHWM") for yard in self.yards) // 1024

    def helpers_mib(self) -> int:
        """What the processes have now that help one of the servers."""
        return max(sum(_kib(pid, "VmRSS") for pid in yard.pids()[1:]) for yard in self.yards) // 1024

    def cpu_s(self) -> float:
        """Of the servers so far."""
        return sum(yard.cpu_s() for yard in self.yards)

    @contextmanager
    def dead_files(self, wanted: bool) -> Iterator[None]:
        """A file system that does not answer in the attacker's folder, where the kernel has FUSE."""
        gone = self.attackers / "gone"
        gone.mkdir(exist_ok=True)
        os.chown(gone, ATTACKER, ATTACKER)
        if not wanted:
            yield
            return
        with hung_mount(gone, taken=True):
            yield


def _kib(pid: int, field: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0


# -- the user who works ------------------------------------------------------------------------------------------


class Worker:
    """Submits short jobs, lists its own and, if told to, asks about the whole queue, each at its own steady rate."""

    def __init__(self, ground: Ground, seconds: float, per_s: float, questions: bool = False) -> None:
        self._doors = ground.doors
        self._lines = ground.lines
        self._seconds = seconds
        self._found: dict[str, Any] = {"sent": {}, "refused": [], "waits": {}}
        self._lock = threading.Lock()
        self._rates = {"submit": (per_s, 0.0), "list": (per_s, 0.0)}
        if questions:
            # A user's questions are answered one by one: they are not asked at the same moment.
            self._rates |= {verb: (0.2, turn * 5 / 3) for turn, verb in enumerate(("queue", "why", "eta"))}
        self._news, out = os.pipe()
        self._child = os.fork()
        if not self._child:
            with _child(WORKER):
                os.close(self._news)
                self._work(out)
        os.close(out)

    def wait(self) -> dict[str, Any]:
        """Everything that it noted, once its time is over."""
        with os.fdopen(self._news, "rb") as news:
            text = news.read()
        os.waitpid(self._child, 0)
        if not text:
            raise RuntimeError("the worker ended early; its story is above")
        found: dict[str, Any] = json.loads(text)
        return found

    # In the child.

    def _work(self, out: int) -> None:
        began_s = time.time() + 0.05
        threads = [
            threading.Thread(target=self._steadily, args=(verb, per_s, began_s + after_s))
            for verb, (per_s, after_s) in self._rates.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with os.fdopen(out, "wb") as news:
            news.write(json.dumps(self._found).encode())

    def _steadily(self, verb: str, per_s: float, began_s: float) -> None:
        script = f"#!/bin/sh\necho $YARD_JOB_ID $(date +%s%N) >>{self._lines}\n"
        # A job has a /tmp of its own; of the machine's it sees the folder that it runs in.
        here = str(self._lines.parent)
        job = {"script": script, "gpus": 1, "time_limit_s": 600, "stdout": "/dev/null", "cwd": here}
        body = json.dumps(job).encode()
        paths = {
            "list": f"/api/v1/queue?user=uid-{WORKER}",
            "queue": "/api/v1/queue",
            "why": "/api/v1/jobs/{id}/why",
            "eta": "/api/v1/jobs/{id}/eta",
        }
        waits = self._found["waits"].setdefault(verb, [])
        for turn in range(int(self._seconds * per_s)):
            due_s = began_s + turn / per_s
            time.sleep(max(0.0, due_s - time.time()))
            door = self._doors[turn % len(self._doors)]
            if verb == "submit":
                reply = self._ask(verb, door, "POST", "/api/v1/jobs", body)
                if reply:
                    self._found["sent"][json.loads(reply)["id"]] = due_s
            else:
                # Of the crowd that waits, one after the other.
                self._ask(verb, door, "GET", paths[verb].format(id=1000 + 17 * turn))
            waits.append((due_s, time.time() - due_s))

    def _ask(self, verb: str, door: Path, method: str, path: str, body: bytes = b"") -> bytes:
        try:
            caller = Caller(door, {}, most_s=600)
            try:
                reply = caller.ask(method, path, body)
            finally:
                caller.close()
        except OSError as error:
            refusal = f"{verb}: {error!r}"
        else:
            if reply.status < 300:
                return reply.body
            refusal = f"{verb}: {reply.status} {reply.body[:200]!r}"
        with self._lock:
            self._found["refused"].append(refusal)
        return b""


def ran(lines: Path, sent: dict[str, float]) -> tuple[list[Wait], int, int]:
    """When the worker's jobs were due, and how long until their own first write; how many never ran, or ran twice.

    Believed is what the jobs wrote. Waits for those that have not run yet, within reason.
    """
    until_s = time.monotonic() + RUN_S_MAX
    while True:
        rows = [line.split() for line in lines.read_text(encoding="ascii").splitlines()]
        seen = {job_id: int(at) / 1e9 for job_id, at in rows if job_id in sent}
        if len(seen) == len(sent) or time.monotonic() > until_s:
            break
        time.sleep(0.1)
    twice = sum(job_id in sent for job_id, _ in rows) - len(seen)
    starts = sorted((sent[job_id], at - sent[job_id]) for job_id, at in seen.items())
    return starts, len(sent) - len(seen), twice


# -- the user who attacks ----------------------------------------------------------------------------------------


@contextmanager
def under_attack(
    ground: Ground, attack: Attack, hands_max: int = HANDS_MAX
) -> Iterator[Callable[[], dict[str, int]]]:
    """The attack goes on until the block is left; what it gives tells how much it has done."""
    hands = min(attack.hands, hands_max)
    shared = mmap(-1, 1 << 13)
    port = ground.yards[-1].port
    children = []
    for number in range(hands):
        child = os.fork()
        if not child:
            with _child(ATTACKER):
                _stand_back()
                attack.work(Hand(number, ground.doors, port, ground.attackers, shared))
        children.append(child)
    try:
        yield lambda: counted(shared, hands)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


@contextmanager
def _child(uid: int) -> Iterator[None]:
    """What is done in the block is done by somebody else, in a process that ends with it."""
    code = 1
    try:
        os.setsid()
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.chdir("/")
        yield
        code = 0
    except BaseException as error:
        print(f"user {uid}: {error!r}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _stand_back() -> None:
    """Let others go first, also where the kernel shares the processor between sessions."""
    os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))


def summed(seconds: Sequence[float]) -> dict[str, float]:
    """What a row of a table says of many waits."""
    ascending = sorted(seconds)
    if not ascending:
        return {"count": 0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    return {
        "count": len(ascending),
        "p50_ms": 1000 * percentile(ascending, 50),
        "p99_ms": 1000 * percentile(ascending, 99),
        "max_ms": 1000 * ascending[-1],
    }
