"""Does the console keep up with a large yard? Frames, first paint, the server under many pages, and the page's memory.

    python benchmarks/bench_console.py [--nodes 1250] [--jobs 10000] [--rate 100] [--seconds 10] [--pages 50]
                                       [--heap SECONDS] [--write]

The server is `yard up`'s own, on SQLite, with the simulated engine (`gpuyard.testing.engine`): half of the jobs run for
long on all GPUs but a hundred, and through these others go, `rate` of them a second: each is submitted, starts and
ends. Chromium (Debian's, without a GPU) looks at it through Playwright and has a core of its own, the last one; the
server and the clients have the others. The many pages are clients that ask what a page asks, half of them as the Queue
does, half as the Yard does: as many browsers would measure themselves.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import ROOT, Row, publish, table
from load_clients import Caller, connected
from load_yard import YardProcess

GPUS_PER_NODE = 8
GPUS_PER_JOB = 2
SLOTS_GPUS = 100
LIFE_MS = SLOTS_GPUS // GPUS_PER_JOB * 1000
"""Over the rate: how long a short job runs, so that as many go through a second as asked for."""
TENANTS = 10
CHANGES_PER_JOB = 3
"""It is submitted, it starts, it ends."""
HOUR_CHANGES = 15_000
"""Of an hour on such a yard, with 5,000 jobs that run for an hour each."""
LOOK_S, USES_S = 2.0, 10.0
"""How often the page Yard looks at the nodes, and at what their GPUs do."""
_CONFIG = """\
version: 1
attempts_per_user: 100000
attempts_per_node: 100000
clusters: {here: {gpus: 8 x H100, emulate: true, allow_root: true}}
"""
FRAMES = """([ms, step]) => new Promise((resolve) => {
  const move = new Function("turn", step);
  const took = [];
  let last = 0;
  const began = performance.now();
  const frame = (now) => {
    if (last) took.push(now - last);
    last = now;
    move(took.length);
    if (performance.now() - began < ms) requestAnimationFrame(frame);
    else resolve(took.sort((a, b) => a - b));
  };
  requestAnimationFrame(frame);
})"""
ZOOM = """
  const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new WheelEvent("wheel", {
    deltaY: turn % 120 < 60 ? -30 : 30, ctrlKey: true, bubbles: true, cancelable: true,
    clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
"""
SCROLL = """
  const list = document.querySelector("[role=list]");
  list.scrollTop += turn % 400 < 200 ? 90 : -90;
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def told(text: str) -> None:
    """What goes on, for a person that waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def serve(data: Path, port: int, config: Path, nodes: int, rate: int) -> None:
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
        made = [
            Node(f"n{n:04}", cluster.name, "p", "H100", GPUS_PER_NODE, 1 << 20, 1 << 30, rack=f"r{n // 8:03}")
            for n in range(nodes)
        ]

        def life(launch: Any) -> Life:
            if launch.name.startswith("long"):
                return Life(86_400_000)
            most_ms = LIFE_MS // rate
            return Life(most_ms // 2 + zlib.crc32(launch.key.encode()) % most_ms)

        return Timed(clock_ms, made, life)

    LiveCluster.engine = engine  # type: ignore[method-assign]
    # Nothing of it is on this machine: no process of its own starts jobs.
    LiveCluster.here = property(lambda _cluster: False)  # type: ignore[assignment]
    serve_yard(Options(data, port, config=config), lambda _yard: None)


class Side(YardProcess):
    """The server as the benchmark sees it, and the jobs that come."""

    def __init__(self, folder: Path, nodes: int, rate: int) -> None:
        self.start = (sys.executable, __file__, "--nodes", str(nodes), "--rate", str(rate), "--serve")
        self._rate, self._coming = rate, threading.Event()
        self.come = 0
        """How many short jobs came by now."""
        self._comes: threading.Thread | None = None
        super().__init__(folder, _CONFIG)

    def fill(self, nodes: int, jobs: int) -> None:
        """Long jobs on all GPUs but a few, and short ones that wait."""
        long = (nodes * GPUS_PER_NODE - SLOTS_GPUS) // GPUS_PER_JOB
        for kind, count in (("long", long), ("short", jobs - long)):
            for tenant in range(TENANTS):
                some = count * (tenant + 1) // TENANTS - count * tenant // TENANTS
                self._submit(kind, tenant, some)
            told(f"{count:,} {kind} jobs submitted")
        until_s = time.monotonic() + 120
        while (running := self._count("running")) < long:
            if time.monotonic() > until_s:
                raise TimeoutError(f"only {running:,} of {long:,} jobs run")
            time.sleep(1)
        self._comes = threading.Thread(target=self._come, daemon=True)
        self._comes.start()

    def _count(self, what: str) -> int:
        found: int = json.loads(self.ask("GET", "/api/v1/queue?limit=1"))[what]
        return found

    def _submit(self, kind: str, tenant: int, count: int) -> None:
        body = {
            "command": ["true"],
            "name": f"{kind}-{tenant}",
            "gpus": GPUS_PER_JOB,
            "tenant": f"team-{tenant}",
            "array": f"0-{count - 1}",
            "time_limit_s": 90_000,
        }
        self.ask("POST", "/api/v1/jobs", json.dumps(body).encode())

    def _come(self) -> None:
        """As many jobs come as go."""
        caller = self.caller()
        body = {"command": ["true"], "gpus": GPUS_PER_JOB, "time_limit_s": 600}
        while not self._coming.wait(1 / self._rate):
            self.come += 1
            named = {**body, "name": f"short-{self.come}", "tenant": f"team-{self.come % TENANTS}"}
            reply = caller.ask("POST", "/api/v1/jobs", json.dumps(named).encode())
            if reply.status != 201:
                raise RuntimeError(f"{reply.status} {reply.body[:300]!r}")
        caller.close()

    def rest(self) -> None:
        """No more jobs come."""
        self._coming.set()
        if self._comes is not None:
            self._comes.join()


def on_own_core(program: str, folder: Path) -> str:
    """A program that starts this one on the last core, before whatever else runs there; this process and those that it
    starts from now on have the other cores."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return program
    os.sched_setaffinity(0, cores[:-1])
    first = "chrt --rr 1" if os.geteuid() == 0 else ""
    made = folder / "chromium"
    made.write_text(f'#!/bin/sh\nexec {first} taskset -c {cores[-1]} {program} "$@"\n', encoding="utf-8")
    made.chmod(0o755)
    return str(made)


@contextmanager
def chromium_page(side: Side, program: str) -> Iterator[Any]:
    """A page that is signed in."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--js-flags=--expose-gc"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        code = json.loads(side.ask("POST", "/api/v1/login/codes"))["code"]
        page.goto(f"http://127.0.0.1:{side.port}/#/open/{code}")
        page.get_by_role("heading", name="Queue").wait_for()
        try:
            yield page
        finally:
            browser.close()


def changes_per_s(side: Side, seconds: float) -> float:
    """Submissions, starts and ends: each job that is gone was submitted and had started, while as many are about."""

    def listed() -> set[int]:
        return {row[0] for row in json.loads(side.ask("GET", "/api/v1/queue"))["rows"]}

    first = listed()
    time.sleep(seconds)
    return CHANGES_PER_JOB * len(first - listed()) / seconds


def frames(page: Any, place: str, ready: str, step: str, seconds: float) -> Row:
    """How long frames took while something moves."""
    page.evaluate("place => { location.hash = place }", f"#/{place}")
    page.locator(ready).first.wait_for()
    page.wait_for_timeout(3000)
    processes = page.context.browser.new_browser_cdp_session()

    def cpu_s() -> float:
        found = processes.send("SystemInfo.getProcessInfo")["processInfo"]
        return float(sum([each["cpuTime"] for each in found]))

    began_s = cpu_s()
    took = page.evaluate(FRAMES, [1000 * seconds, step])
    cpu_ms = 1000 * (cpu_s() - began_s) / len(took)
    return {
        "page": place,
        "frames": len(took),
        "frame_ms_p50": float(took[len(took) // 2]),
        "frame_ms_p95": float(took[len(took) * 95 // 100]),
        "frame_ms_max": float(took[-1]),
        "cpu_ms_a_frame": cpu_ms,
    }


def first_paint(page: Any, port: int) -> Row:
    """Of a page that is signed in, with an empty cache; the best of five, since others use the machine."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    took = []
    for _ in range(5):
        page.goto(f"http://127.0.0.1:{port}/#/queue")
        page.reload()
        page.get_by_role("listitem").first.wait_for()
        took.append(page.evaluate(PAINT))
    session.send("Network.setCacheDisabled", {"cacheDisabled": False})
    names = list((ROOT / "src/gpuyard/console").rglob("*.gz"))
    whole = sum(path.stat().st_size for path in names)
    first = sum(path.stat().st_size for path in names if not path.name.startswith("Shell"))
    return {
        "paint_ms": min(took),
        "paint_ms_max": max(took),
        "packed_kb": whole / 1000,
        "first_kb": first / 1000,
    }


def look(port: int, token: str, pages: int) -> None:
    """Clients that ask what pages ask, in a process of their own, until it is told to stop."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    headers = {"Authorization": f"Bearer {token}"}

    def queue() -> None:
        door = connected(port, 30)
        head = f"GET /api/v1/changes HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        door.sendall(head.encode())
        door.settimeout(1)
        while not stopping.is_set():
            try:
                door.recv(1 << 18)
            except TimeoutError:
                continue

    def yard(first_s: float) -> None:
        caller, turn = Caller(port, headers), 0
        stopping.wait(first_s)
        while not stopping.is_set():
            caller.ask("GET", "/api/v1/overview")
            if turn % round(USES_S / LOOK_S) == 0:
                caller.ask("GET", "/api/v1/gpus")
                caller.ask("GET", "/api/v1/mig")
            turn += 1
            stopping.wait(LOOK_S)

    many = [threading.Thread(target=queue) for _ in range(pages - pages // 2)]
    many += [threading.Thread(target=yard, args=(LOOK_S * n / pages,)) for n in range(pages // 2)]
    for each in many:
        each.start()
    for each in many:
        each.join()


def cores(side: Side, pages: int, seconds: float) -> Row:
    """What the server takes without pages and with them."""
    found = {}
    for count in (0, pages):
        words = [
            sys.executable,
            __file__,
            "--look",
            str(count),
            "--port",
            str(side.port),
            "--token",
            side.token,
        ]
        crowd = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words]) if count else None
        time.sleep(5)
        cpu_s, began_s = side.cpu_s(), time.monotonic()
        time.sleep(seconds)
        found[count] = (side.cpu_s() - cpu_s) / (time.monotonic() - began_s)
        if crowd is not None:
            crowd.terminate()
            crowd.wait()
    return {
        "pages": pages,
        "cores_alone": found[0],
        "cores": found[pages],
        "cores_for_pages": found[pages] - found[0],
    }


def heap(side: Side, page: Any, seconds: float) -> Row:
    """What the page holds after a collection, at first and then after so long and an hour's changes, on several pages.

    A machine that is shared with others takes longer for the changes.
    """
    session = page.context.new_cdp_session(page)

    def held() -> float:
        page.evaluate("place => { location.hash = place }", "#/queue")
        page.get_by_role("heading", name="Queue").wait_for()
        page.wait_for_timeout(3000)
        session.send("HeapProfiler.collectGarbage")
        page.wait_for_timeout(500)
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 2**20

    places = ("queue", "yard", "nodes", "queue", "yard")
    for place in places:
        page.evaluate("place => { location.hash = place }", f"#/{place}")
        page.wait_for_timeout(4000)
    first = held()
    began_s, come, turn = time.monotonic(), side.come, 0
    while time.monotonic() < began_s + seconds or CHANGES_PER_JOB * (side.come - come) < HOUR_CHANGES:
        page.evaluate("place => { location.hash = place }", f"#/{places[turn % len(places)]}")
        page.wait_for_timeout(min(20_000, 1000 * max(1.0, seconds / 10)))
        turn += 1
    took_s, changes = time.monotonic() - began_s, CHANGES_PER_JOB * (side.come - come)
    last = held()
    return {
        "seconds": took_s,
        "changes": changes,
        "heap_mib_first": first,
        "heap_mib_last": last,
        "grown_percent": 100 * (last / first - 1),
    }


def measured(asked: argparse.Namespace) -> Row:
    """All of it, on one server."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("bench_console.py: install chromium")
    with tempfile.TemporaryDirectory(prefix="yard-console-") as folder:
        program = chromium if asked.heap else on_own_core(chromium, Path(folder))
        side = Side(Path(folder), asked.nodes, asked.rate)
        try:
            side.fill(asked.nodes, asked.jobs)
            row: Row = {"gpus": asked.nodes * GPUS_PER_NODE, "jobs": asked.jobs, "load": os.getloadavg()[0]}
            row["changes_per_s"] = changes_per_s(side, 5)
            with chromium_page(side, program) as page:
                row |= first_paint(page, side.port)
                told(f"first paint {row['paint_ms']:.0f} ms")
                if asked.heap:
                    return row | heap(side, page, asked.heap)
                row["frames"] = [
                    frames(page, "yard", "canvas", ZOOM, asked.seconds),
                    frames(page, "queue", "[role=listitem]", SCROLL, asked.seconds),
                ]
                told(str(row["frames"]))
            return row | cores(side, asked.pages, asked.seconds)
        finally:
            side.rest()
            side.down()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument(
        "--heap", type=float, default=0, help="only this: the page's memory after so many seconds or more"
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--look", type=int)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default="")
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.data, asked.port, asked.config, asked.nodes, asked.rate)
        return 0
    if asked.look is not None:
        look(asked.port, asked.token, asked.look)
        return 0
    row = measured(asked)
    if asked.heap:
        print(json.dumps(row))
        return 0
    head = ("page", "frames", "frame p50 ms", "p95 ms", "longest ms", "CPU ms a frame")
    keys = ("page", "frames", "frame_ms_p50", "frame_ms_p95", "frame_ms_max", "cpu_ms_a_frame")
    said = (
        f"{row['gpus']:,} GPUs, {row['jobs']:,} jobs, {row['changes_per_s']:.0f} changes a second. "
        f"First paint {row['paint_ms']:.0f} ms at best of five, {row['paint_ms_max']:.0f} ms at worst; "
        f"{row['first_kb']:.0f} kB packed for it, {row['packed_kb']:.0f} kB with the terminal. "
        f"The server took {row['cores_alone']:.2f} cores alone and {row['cores']:.2f} with {row['pages']} pages. "
        f"Load average {row['load']:.1f}."
    )
    text = table(head, [[each[key] for key in keys] for each in row["frames"]])
    publish("console", f"{text}\n\n{said}", [row], write=asked.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
