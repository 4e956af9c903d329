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
import zlib
from pathlib import Path
from typing import Any

from figures import Row, publish, table
from load_clients import connected, percentile
from load_yard import YardProcess

from gpuyard.errors import YardError

MOST_S = 600.0
"""No run takes longer: on a busy machine it gives up and says where."""
LISTS_PER_S = 4
LIFE_MS = 1000
GPUS_PER_NODE = 8
SUBMITTERS = 4
MORE_S = 5
"""Jobs start also while nothing is measured."""
REST_S = 30.0
"""How long a queue that nothing happens to may take to reach a follower."""
_CONFIG = "version: 1\nclusters: {here: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}}\n"


def serve(data: Path, port: int, config: Path, rate: int) -> None:
    """The server, in a process of its own."""
    from gpuyard.api.server.serving import serve as serve_yard  # noqa: PLC0415 (only the server needs all this)
    from gpuyard.control.clock import clock_ms  # noqa: PLC0415
    from gpuyard.control.fleet import LiveCluster  # noqa: PLC0415
    from gpuyard.control.options import Options  # noqa: PLC0415
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

    def engine(cluster: LiveCluster, *_: Any) -> Any:
        # An end is seen, and another job started, some 20 ms after it is due.
        count = -(-rate * (LIFE_MS + 20) // 1000 // GPUS_PER_NODE)
        nodes = [
            Node(f"n{n}", cluster.name, "p", "A100-80GB", GPUS_PER_NODE, 1 << 20, 1 << 30)
            for n in range(count)
        ]

        def life(launch: Any) -> Life:
            # A second each, on average: jobs that start together do not end together.
            return Life(LIFE_MS // 2 + zlib.crc32(launch.key.encode()) % LIFE_MS)

        return Timed(clock_ms, nodes, life)

    LiveCluster.engine = engine  # type: ignore[method-assign]
    serve_yard(Options(data, port, config=config), lambda _yard: None)


class Side(YardProcess):
    """The server as the benchmark sees it."""

    def __init__(self, folder: Path, rate: int) -> None:
        self.start = (sys.executable, __file__, "--rate", str(rate), "--serve")
        super().__init__(folder, _CONFIG)

    def submit(self, count: int, until_s: float) -> None:
        """Single jobs, each with a name of its own, while nothing starts: the nodes are drained meanwhile."""
        nodes = [node["name"] for node in json.loads(self.ask("GET", "/api/v1/nodes"))["nodes"]]
        for name in nodes:
            self.ask("POST", f"/api/v1/nodes/{name}/drain", b"{}")
        failed: list[Exception] = []

        def some(first: int) -> None:
            caller = self.caller()
            try:
                for number in range(first, count, SUBMITTERS):
                    body = {
                        "command": ["true"],
                        "name": f"job-{number}",
                        "gpus": 1,
                        "tenant": f"t{number % 5}",
                    }
                    reply = caller.ask("POST", "/api/v1/jobs", json.dumps(body).encode())
                    if reply.status != 201:
                        raise RuntimeError(f"{reply.status} {reply.body[:300]!r}")
                    if time.monotonic() > until_s:
                        raise TimeoutError(f"only {number:,} of {count:,} jobs were submitted in time")
                    if first == 0 and number % 2000 == 0:
                        told(f"{number:,} of {count:,} jobs submitted")
            except (OSError, RuntimeError) as error:
                failed.append(error)
            finally:
                caller.close()

        threads = [threading.Thread(target=some, args=(first,)) for first in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        for name in nodes:
            self.ask("POST", f"/api/v1/nodes/{name}/resume")


def told(text: str) -> None:
    """What goes on, for a person that waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


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


class Kept:
    """The queue as `yard top` keeps it, by changes alone."""

    def __init__(self, side: Side) -> None:
        from gpuyard.api.client import Client  # noqa: PLC0415
        from gpuyard.api.connecting.mirror import Mirror  # noqa: PLC0415

        def client() -> Client:
            return Client(f"http://127.0.0.1:{side.port}", side.token)

        self._closed = False
        self._lock = threading.Lock()
        self._mirror, self._lists, self._stream = Mirror(), client(), client()
        self._mirror.fill(self._lists.queue())
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for name, data in self._stream.changes(str(self._mirror.seq)):
                with self._lock:
                    if self._mirror.heed(name, data):
                        self._mirror.fill(self._lists.queue())
        except (OSError, YardError):
            if not self._closed:
                raise

    def same(self) -> bool:
        """Whether the rows so kept are those of a list, once the queue rests."""
        deadline_s = time.monotonic() + REST_S
        while time.monotonic() < deadline_s:
            time.sleep(1.5)
            with self._lock:
                if sorted(self._mirror.rows()) == sorted(self._lists.queue()["rows"]):
                    return True
        return False

    def close(self) -> None:
        self._closed = True
        self._stream.hang_up()
        self._thread.join(5)


def measured(side: Side, followers: int, seconds: float) -> Row:
    """Lists while so many follow."""
    words = [
        sys.executable,
        __file__,
        "--follow",
        str(followers),
        "--port",
        str(side.port),
        "--token",
        side.token,
    ]
    crowd = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words], stdout=subprocess.PIPE, text=True)
    caller = side.caller()
    request = caller.request("GET", "/api/v1/queue")
    first = json.loads(caller.send(request).body)
    took, size = [], 0
    cpu_s, began_s = side.cpu_s(), time.monotonic()
    for turn in range(int(seconds * LISTS_PER_S)):
        due_s = began_s + turn / LISTS_PER_S
        time.sleep(max(0.0, due_s - time.monotonic()))
        reply = caller.send(request)
        took.append(time.monotonic() - due_s)
        size = len(reply.body)
    wall_s, spent_s = time.monotonic() - began_s, side.cpu_s() - cpu_s
    took.sort()
    last = json.loads(caller.send(request).body)
    caller.close()
    crowd.send_signal(signal.SIGTERM)
    told_them = json.loads(crowd.communicate(timeout=30)[0])
    gone = {row[0] for row in first["rows"]} - {row[0] for row in last["rows"]}
    status = Path(f"/proc/{side.pids()[0]}/status").read_text().splitlines()
    rss = next(line for line in status if "VmHWM" in line)
    each = max(1, followers) * told_them["s"]
    return {
        "followers": followers,
        "waiting": last["waiting"],
        "ended_per_s": len(gone) / wall_s,
        "list_ms_p50": 1000 * percentile(took, 50),
        "list_ms_p99": 1000 * percentile(took, 99),
        "list_kib": size / 1024,
        "cores": spent_s / wall_s,
        "rss_mib": int(rss.split()[1]) / 1024,
        "events_per_follower_s": told_them["events"] / each,
        "kib_per_follower_s": told_them["bytes"] / 1024 / each,
        "load": os.getloadavg()[0],
    }


def both(folder: Path, asked: argparse.Namespace) -> list[Row]:
    """Without followers and with them, one after the other on one server; then the queue comes to rest."""
    until_s = time.monotonic() + MOST_S
    side = Side(folder, asked.rate)
    try:
        kept, rows = Kept(side), []
        for followers in (0, asked.followers):
            waiting = json.loads(side.ask("GET", "/api/v1/queue?limit=1"))["waiting"]
            # So many that those wait at the end which are asked for.
            wanted = asked.waiting + int(asked.rate * (asked.seconds + MORE_S))
            side.submit(max(0, wanted - waiting), until_s)
            time.sleep(2 * LIFE_MS / 1000)
            told(f"{asked.seconds:g} s with {followers} followers")
            rows.append(measured(side, followers, asked.seconds))
        told("the queue comes to rest")
        queue = json.loads(side.ask("GET", "/api/v1/queue"))["rows"]
        hold = [str(row[0]) for row in queue if row[6] == "PENDING"]
        for at in range(0, len(hold), 2000):
            side.ask("POST", "/api/v1/jobs/hold", json.dumps({"ids": hold[at : at + 2000]}).encode())
        time.sleep(2 * LIFE_MS / 1000)
        same = kept.same()
        kept.close()
        return [{**row, "kept": same} for row in rows]
    finally:
        side.down()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--followers", type=int, default=50)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--follow", type=int)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default="")
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.data, asked.port, asked.config, asked.rate)
        return 0
    if asked.follow is not None:
        follow(asked.port, asked.follow, asked.token)
        return 0
    with tempfile.TemporaryDirectory(prefix="yard-changes-") as folder:
        rows = both(Path(folder), asked)
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
