"""What does the queue cost while many watch it? Lists and followers of `/changes`; the jobs are simulated.

    python benchmarks/bench_changes.py [--waiting 10000] [--followers 50] [--rate 100] [--seconds 30] [--write]

The server is `yard up`'s own, on SQLite, but its engine is the simulated one (`gpuyard.testing.engine`): it starts and
ends as many jobs a second as asked for, without processes. The followers read all that they are sent. Meanwhile the
whole queue is listed four times a second, each time counted from when it was due. One follower keeps the queue as
`yard top` does; when everything is over, its rows must be those of a last list.
"""

import argparse
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Row, publish, table
from load_clients import Caller, connected, cpu_s_of, percentile

LISTS_PER_S = 4
LIFE_MS = 1000
GPUS_PER_NODE = 8
SUBMITTERS = 4
READY_S = 30.0


def serve(folder: Path, port: int, rate: int) -> None:
    """The server, in a process of its own."""
    from gpuyard.api.serving import serve as serve_yard  # noqa: PLC0415 (only the server needs all this)
    from gpuyard.control.fleet import Fleet  # noqa: PLC0415
    from gpuyard.control.serve import Options, clock_ms  # noqa: PLC0415
    from gpuyard.model import Node  # noqa: PLC0415
    from gpuyard.testing.engine import Life, SimEngine  # noqa: PLC0415

    class Timed(SimEngine):
        """On the real clock: ends are told when they are due."""

        def wait(self, timeout_s: float) -> bool:
            due_ms = self.next_ms()
            left_s = timeout_s if due_ms is None else (due_ms - clock_ms()) / 1000
            time.sleep(min(timeout_s, max(0.01, left_s)))
            due_ms = self.next_ms()
            return due_ms is not None and due_ms <= clock_ms()

    def engine(fleet: Fleet, _folder: Path) -> Any:
        # An end is seen, and another job started, some 20 ms after it is due.
        count = -(-rate * (LIFE_MS + 20) // 1000 // GPUS_PER_NODE)
        nodes = [
            Node(f"n{n}", fleet.cluster, "p", "A100-80GB", GPUS_PER_NODE, 1 << 20, 1 << 30)
            for n in range(count)
        ]
        return Timed(clock_ms, nodes, lambda _launch: Life(LIFE_MS))

    Fleet.engine = engine  # type: ignore[assignment,method-assign]
    serve_yard(Options(folder / "yard", port, config=folder / "yard.yaml"), lambda _yard: None)


class Side:
    """The server as the benchmark sees it."""

    def __init__(self, folder: Path, rate: int) -> None:
        with connected_port() as probe:
            self.port: int = probe.getsockname()[1]
        self._token = folder / "yard" / "token"
        (folder / "yard.yaml").write_text(
            "version: 1\nclusters: {here: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}}\n", "utf-8"
        )
        words = [
            sys.executable,
            __file__,
            "--serve",
            str(folder),
            "--port",
            str(self.port),
            "--rate",
            str(rate),
        ]
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words])
        deadline_s = time.monotonic() + READY_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError("the server did not get ready")
            time.sleep(0.1)

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

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.read_text(encoding='ascii').strip()}"}

    def caller(self) -> Caller:
        return Caller(self.port, self.headers())

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def submit(self, count: int) -> None:
        """Single jobs, each with a name of its own."""

        def some(first: int) -> None:
            caller = self.caller()
            for number in range(first, count, SUBMITTERS):
                body = {"command": ["true"], "name": f"job-{number}", "gpus": 1, "tenant": f"t{number % 5}"}
                reply = caller.ask("POST", "/api/v1/jobs", json.dumps(body).encode())
                if reply.status != 201:
                    raise RuntimeError(f"{reply.status} {reply.body[:300]!r}")
            caller.close()

        threads = [threading.Thread(target=some, args=(first,)) for first in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def connected_port() -> Any:
    import socket  # noqa: PLC0415

    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    return probe


def follow(port: int, count: int, token: str) -> None:
    """Followers that read all that they are sent, in a process of their own; its output is how much that was."""
    chosen = selectors.DefaultSelector()
    request = (
        f"GET /api/v1/changes HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    for _ in range(count):
        door = connected(port, 30)
        door.sendall(request)
        chosen.register(door, selectors.EVENT_READ)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    size = events = 0
    began_s = time.monotonic()
    while not stopping.is_set():
        for key, _mask in chosen.select(0.2):
            piece = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            if not piece:
                raise ConnectionError("the server hung up on a follower")
            size, events = size + len(piece), events + piece.count(b"event: rows")
    print(json.dumps({"bytes": size, "events": events, "s": time.monotonic() - began_s}), flush=True)


def kept(side: Side) -> Callable[[], tuple[list[Any], list[Any]]]:
    """Follow as `yard top` does; gives the rows so kept, and those of a list, once both show the same event."""
    from gpuyard.api.client import Client  # noqa: PLC0415
    from gpuyard.api.replica import Replica  # noqa: PLC0415

    def client() -> Client:
        secret = side.headers()["Authorization"].removeprefix("Bearer ")
        return Client(f"http://127.0.0.1:{side.port}", secret)

    replica, lists = Replica(), client()
    replica.fill(lists.queue())

    def listen() -> None:
        for name, data in client().changes(str(replica.seq)):
            if replica.heed(name, data):
                replica.fill(lists.queue())

    threading.Thread(target=listen, daemon=True).start()

    def both() -> tuple[list[Any], list[Any]]:
        deadline_s = time.monotonic() + 60
        while True:
            time.sleep(1.5)
            found = client().queue()
            if found["seq"] <= replica.seq or time.monotonic() > deadline_s:
                return replica.rows(), found["rows"]

    return both


def measured(side: Side, waiting: int, followers: int, rate: int, seconds: float) -> Row:
    """One run."""
    both = kept(side)
    token = side.headers()["Authorization"].removeprefix("Bearer ")
    words = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        sys.executable,
        __file__,
        "--follow",
        str(followers),
        "--port",
        str(side.port),
        "--token",
        token,
    ]
    crowd = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    caller = side.caller()
    request = caller.request("GET", "/api/v1/queue")
    # Some start meanwhile: it is filled up until so many will still wait at the end.
    while (lacks := waiting + int(rate * seconds) - json.loads(caller.send(request).body)["waiting"]) > 0:
        side.submit(lacks)
    first = json.loads(caller.send(request).body)
    took, size = [], 0
    cpu_s, began_s = cpu_s_of([side.process.pid]), time.monotonic()
    for turn in range(int(seconds * LISTS_PER_S)):
        due_s = began_s + turn / LISTS_PER_S
        time.sleep(max(0.0, due_s - time.monotonic()))
        reply = caller.send(request)
        took.append(time.monotonic() - due_s)
        size = len(reply.body)
    wall_s = time.monotonic() - began_s
    took.sort()
    spent_s = cpu_s_of([side.process.pid]) - cpu_s
    last = json.loads(caller.send(request).body)
    crowd.send_signal(signal.SIGTERM)
    told = json.loads(crowd.communicate(timeout=30)[0])
    gone = {row[0] for row in first["rows"]} - {row[0] for row in last["rows"]}
    rss = [
        line for line in Path(f"/proc/{side.process.pid}/status").read_text().splitlines() if "VmHWM" in line
    ]
    # Then the queue comes to rest, and what was kept by changes has to be what there is.
    hold = [str(row[0]) for row in json.loads(caller.send(request).body)["rows"] if row[6] == "PENDING"]
    for at in range(0, len(hold), 2000):
        caller.ask("POST", "/api/v1/jobs/hold", json.dumps({"ids": hold[at : at + 2000]}).encode())
    time.sleep(2 * LIFE_MS / 1000)
    mine, listed = both()
    return {
        "waiting": last["waiting"],
        "ended_per_s": len(gone) / wall_s,
        "list_ms_p50": 1000 * percentile(took, 50),
        "list_ms_p99": 1000 * percentile(took, 99),
        "list_kib": size / 1024,
        "cores": spent_s / wall_s,
        "rss_mib": int(rss[0].split()[1]) / 1024,
        "events_per_follower_s": told["events"] / told["s"] / followers if followers else 0.0,
        "kib_per_follower_s": told["bytes"] / 1024 / told["s"] / followers if followers else 0.0,
        "kept": sorted(mine) == sorted(listed),
        "load": os.getloadavg()[0],
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--followers", type=int, default=50)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve", type=Path)
    parser.add_argument("--follow", type=int)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default="")
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.serve, asked.port, asked.rate)
        return 0
    if asked.follow is not None:
        follow(asked.port, asked.follow, asked.token)
        return 0
    rows = []
    for followers in (0, asked.followers):
        with tempfile.TemporaryDirectory(prefix="yard-changes-") as folder:
            side = Side(Path(folder), asked.rate)
            try:
                found = measured(side, asked.waiting, followers, asked.rate, asked.seconds)
            finally:
                side.stop()
        rows.append({"followers": followers, **found})
    head = ("followers", "waiting", "jobs ended a second", "list p50 ms", "list p99 ms", "list KiB",
            "cores of the server", "server MiB", "events a second for each", "KiB a second for each")  # fmt: skip
    keys = ("followers", "waiting", "ended_per_s", "list_ms_p50", "list_ms_p99", "list_kib", "cores", "rss_mib",
            "events_per_follower_s", "kib_per_follower_s")  # fmt: skip
    same = "the rows of a last list" if all(row["kept"] for row in rows) else "NOT the rows of a last list"
    said = f"What a follower kept by changes alone was {same}. Load average {rows[-1]['load']:.1f}."
    publish(
        "changes",
        f"{table(head, [[row[key] for key in keys] for row in rows])}\n\n{said}",
        rows,
        write=asked.write,
    )
    return 0 if all(row["kept"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
