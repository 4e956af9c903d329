"""What seeing a large fleet costs: collectors of 10,000 GPUs beside a scheduler that works, space, curves, `/metrics`.

    python benchmarks/bench_seeing.py [--nodes 1250] [--seconds 40] [--turns 3] [--only beside|week] [--write]

The server is `yard up`'s own, on SQLite; its engine is the simulated one (`gpuyard.testing.engine`), full, with jobs
that end and start all the time. Collectors are played by one client: each node has a token of its own and hands in a
sample every 10 s over a connection of its own, with 15 signals of each GPU, those of the machine and those of its job.
Turn by turn they tell and are silent; decisions and CPU time are those of both kinds of turns. One collector is a real
`yard collect` of eight GPUs, with a stand-in for NVML that answers as an H200 did. Saving and folding, space and curves
are measured on the series alone, over days that pass quickly.
"""

import argparse
import getpass
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench_series import BEGIN_MS, NAMES, STEP_MS, Gpu
from figures import Row, publish, table
from load_clients import Caller, cpu_s_of, percentile
from load_yard import YardProcess

from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.telemetry.exposition import SignalLines, exposition_text
from gpuyard.telemetry.samples import Sample, check_sample
from gpuyard.telemetry.series import HOURS, MINUTES, RAW, Series
from gpuyard.telemetry.sources import GpuCard

GPUS_PER_NODE = 8
EVERY_S = STEP_MS / 1000
LONG = 0.8
"""Nodes with a job that runs through the whole run; on the others jobs come and go."""
SHORT_MS = 20_000
QUEUE = 300
SETTLE_S = 12.0
"""Before each turn is measured: every collector has told once, and its token was looked up."""
PATTERNS = 24
HANDS = 4
WEEK_MS = 7 * DAY_MS
_CONFIG = f"""\
version: 1
attempts_per_user: 100000
attempts_per_node: 100000
clusters: {{here: {{gpus: 8 x A100-80GB, emulate: true, allow_root: true}}}}
auth: {{users: {{bench: {{unix: {getpass.getuser()}, role: admin}}}}}}
"""
_NODE = ("cpu", "memory_used", "memory_available", "disk_read", "disk_written", "net_received", "net_sent")
_ATTEMPT = ("cpu", "memory", "memory_peak", "disk_read", "disk_written", "gpu_memory", "gpu_busy", "energy")


def serve(data: Path, port: int, config: Path, nodes: int) -> None:
    """The server, in a process of its own."""
    from gpuyard.api.server.serving import serve as serve_yard  # noqa: PLC0415 (only the server needs all this)
    from gpuyard.control.clock import clock_ms  # noqa: PLC0415
    from gpuyard.control.fleet import LiveCluster  # noqa: PLC0415
    from gpuyard.control.loop import loop  # noqa: PLC0415
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
            Node(f"n{n}", cluster.name, "p", "A100-80GB", GPUS_PER_NODE, 1 << 20, 1 << 30)
            for n in range(nodes)
        ]
        started = [0]

        def life(_launch: Any) -> Life:
            started[0] += 1
            return Life(
                DAY_MS if started[0] <= LONG * nodes else SHORT_MS // 2 + started[0] * 7919 % SHORT_MS
            )

        return Timed(clock_ms, made, life)

    real, spent = loop.decide, [0.0, 0.0, 0]

    def decide(*words: Any) -> Any:
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        plan = real(*words)
        spent[0] += time.thread_time() - cpu_s
        spent[1] += time.perf_counter() - wall_s
        spent[2] += 1
        return plan

    def tell() -> None:
        while True:
            time.sleep(0.25)
            (data / "spent.new").write_text(json.dumps(spent), encoding="ascii")
            (data / "spent.new").replace(data / "spent")

    loop.decide = decide  # type: ignore[assignment]
    LiveCluster.engine = engine  # type: ignore[method-assign]
    threading.Thread(target=tell, daemon=True).start()
    serve_yard(Options(data, port, config=config, auth=True), lambda _yard: None)


def collect(words: list[str]) -> None:
    """`yard collect` of eight GPUs on a machine that has none."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from rigs.nvml import GPM, Recorded, process  # noqa: PLC0415

    sys.modules["pynvml"] = Recorded(  # type: ignore[assignment]
        GPUS_PER_NODE,
        **GPM,
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=93, memory=11),
        nvmlDeviceGetPowerUsage=612_345,
        nvmlDeviceGetTemperature=51,
        nvmlDeviceGetClockInfo=1980,
        nvmlDeviceGetCurrentClocksEventReasons=4,
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetComputeRunningProcesses=[process(os.getpid(), 4500)],
    )
    from gpuyard.cli import main as yard  # noqa: PLC0415

    sys.argv = ["yard", "collect", *words]
    yard()


class Side(YardProcess):
    """The server as the benchmark sees it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.start = (sys.executable, __file__, "--nodes", str(nodes), "--serve")
        super().__init__(folder, _CONFIG)
        # Who started the server is known at its socket, and may do everything.
        caller = Caller(self.socket, {})
        self._token = _made(caller, "bench", "admin")
        caller.close()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    @property
    def token(self) -> str:
        """Of an administrator."""
        return self._token

    def _fill(self) -> None:
        """Keep a queue before the nodes."""
        caller = self.caller()
        body = json.dumps({"command": ["true"], "name": "job", "gpus": GPUS_PER_NODE}).encode()
        request, look = caller.request("POST", "/api/v1/jobs", body), "/api/v1/queue?limit=1"
        while not self._stopping.is_set():
            waiting = json.loads(caller.ask("GET", look).body)["waiting"]
            for _ in range(max(0, QUEUE - waiting)):
                caller.send(request)
            self._stopping.wait(1.0)
        caller.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self.down()

    def running(self) -> list[Row]:
        """Jobs that run, with their nodes."""
        found: list[Row] = []
        cursor = ""
        while True:
            page = json.loads(self.ask("GET", f"/api/v1/jobs?state=running&limit=1000{cursor}"))
            found += page["jobs"]
            if not page["next_cursor"]:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def spent(self) -> tuple[float, float, int]:
        """CPU seconds and seconds of all decisions so far, and how many there were."""
        cpu_s, wall_s, count = json.loads((self._data / "spent").read_text(encoding="ascii"))
        return cpu_s, wall_s, count

    def tokens(self, names: list[str]) -> dict[str, str]:
        """One for each node's collector."""
        caller = self.caller()
        found = {name: _made(caller, name, "collector") for name in names}
        caller.close()
        return found


def _made(caller: Caller, user: str, role: str) -> str:
    """A token."""
    reply = caller.ask("POST", "/api/v1/tokens", json.dumps({"user": user, "role": role}).encode())
    if reply.status >= 300:
        raise RuntimeError(f"{reply.status} {reply.body[:300]!r}")
    return str(json.loads(reply.body)["secret"])


class Collectors:
    """All collectors but one, played by a few threads. Nodes tell one after the other, spread over 10 s."""

    def __init__(self, side: Side, tokens: dict[str, str], attempts: dict[str, str]) -> None:
        """`attempts`: the key of each node's job."""
        self._side, self._tokens, self._attempts = side, tokens, attempts
        self._names = [f"gpu/{gpu}/{name}" for gpu in range(GPUS_PER_NODE) for name in NAMES]
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._tell, args=(hand,), daemon=True) for hand in range(HANDS)
        ]
        self.took_s: list[float] = []
        self.late_s = 0.0
        self.values = 0
        self.failed: list[str] = []
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _tell(self, hand: int) -> None:
        began_s, turn = time.monotonic(), 0
        nodes = list(self._tokens.items())
        chance = random.Random(hand)
        patterns = [[Gpu(chance) for _ in range(GPUS_PER_NODE)] for _ in range(PATTERNS // HANDS)]
        while not self._stopping.is_set():
            made = [[v for gpu in node for v in gpu.step(BEGIN_MS + turn * STEP_MS)] for node in patterns]
            for number in range(hand, len(nodes), HANDS):
                node, token = nodes[number]
                due_s = began_s + EVERY_S * (turn + number / len(nodes))
                if self._stopping.wait(max(0.0, due_s - time.monotonic())):
                    return
                self.late_s = max(self.late_s, time.monotonic() - due_s)
                self._hand_in(node, token, made[number % len(made)], turn)
            turn += 1

    def _hand_in(self, node: str, token: str, values: list[int], turn: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        told = {name: [value] for name, value in zip(self._names, values, strict=True)}
        told |= {f"node/{name}": [1_000_000 + turn * 977] for name in _NODE}
        if key := self._attempts.get(node):
            told |= {f"attempt/{key}/{name}": [500 + turn * 3] for name in _ATTEMPT}
        body = {
            "sent_ms": now_ms,
            "steady_ms": time.monotonic_ns() // 1_000_000,
            "at_ms": [now_ms],
            "series": told,
        }
        began_s = time.monotonic()
        caller = Caller(self._side.port, {"Authorization": f"Bearer {token}"})
        reply = caller.ask("POST", f"/api/v1/nodes/{node}/samples", json.dumps(body).encode())
        caller.close()
        self.took_s.append(time.monotonic() - began_s)
        self.values += len(told)
        if reply.status != 200:
            self.failed.append(f"{reply.status} {reply.body[:200]!r}")


def beside(folder: Path, nodes: int, seconds: float, turns: int) -> Row:
    """The live part: turns without and with collectors, then `/metrics`."""
    side = Side(folder, nodes)
    real = None
    try:
        told("nodes fill")
        deadline_s = time.monotonic() + 120
        while len(running := side.running()) < LONG * nodes and time.monotonic() < deadline_s:
            time.sleep(1.0)
        yard = re.search(rb'gpuyard_info{[^}]*yard="([^"]+)"', side.ask("GET", "/metrics"))[1].decode()  # type: ignore[index]
        attempts = {
            name: f"{yard}-{job['submitted_ms']:x}-{job['id']}-{job['attempts']}"
            for job in running
            for name in job["nodes"]
        }
        names = [node["name"] for node in json.loads(side.ask("GET", "/api/v1/nodes"))["nodes"]]
        told(f"{len(names):,} tokens; {len(running):,} jobs run")
        tokens = side.tokens(names)
        first, token = next(iter(tokens.items()))
        del tokens[first]
        file = folder / "collector.token"
        file.write_text(token, encoding="ascii")
        words = ["--server", f"http://127.0.0.1:{side.port}", "--token-file", str(file), "--node", first]
        real = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", sys.executable, __file__, "--collect", *words]
        )
        real_from, real_s = None, 0.0
        rows: dict[bool, list[Row]] = {False: [], True: []}
        took, values, late_s, sizes, seen, answers, alone = [], 0, 0.0, 0, 0, [], []
        for turn in range(2 * turns):
            with_them = turn % 2 == 1
            told(f"{seconds:g} s {'with' if with_them else 'without'} collectors")
            crowd = Collectors(side, tokens, attempts) if with_them else None
            time.sleep(SETTLE_S)
            if real_from is None:
                # Its start is over.
                real_from, real_s = cpu_s_of([real.pid]), time.monotonic()
            before = side.spent()
            cpu_s, began_s = side.cpu_s(), time.monotonic()
            begun = len(crowd.took_s) if crowd is not None else 0
            time.sleep(seconds)
            wall_s = time.monotonic() - began_s
            spent_s = side.cpu_s() - cpu_s
            decide_cpu_s, decide_s, count = (a - b for a, b in zip(side.spent(), before, strict=True))
            rows[with_them].append(
                {
                    "cores": spent_s / wall_s,
                    "requests_per_s": (len(crowd.took_s) - begun) / wall_s if crowd is not None else 0.0,
                    "decisions": count,
                    "decision_cpu_ms": 1000 * decide_cpu_s / count,
                    "decision_ms": 1000 * decide_s / count,
                    "deciding_cpu_ms": 1000 * decide_cpu_s / wall_s,
                    "deciding_ms": 1000 * decide_s / wall_s,
                }
            )
            if crowd is not None:
                answers += [_scraped(side)[0] for _ in range(3)]
                crowd.close()
                # The threads that play the collectors take a core of their own, which no Prometheus does. What they
                # told is saved by the next round.
                time.sleep(SETTLE_S)
                for _ in range(3):
                    took_s, text = _scraped(side)
                    alone.append(took_s)
                    sizes, seen = len(text), text.count(b"\nDCGM_FI_DEV_GPU_UTIL{")
                if crowd.failed:
                    raise RuntimeError(f"{len(crowd.failed)} requests failed: {crowd.failed[0]}")
                took += crowd.took_s
                values, late_s = values + crowd.values, max(late_s, crowd.late_s)
        if seen != nodes * GPUS_PER_NODE:
            raise RuntimeError(f"/metrics has {seen:,} GPUs, and not those of {nodes:,} nodes")
        real_share = (cpu_s_of([real.pid]) - real_from) / (time.monotonic() - real_s)
        return {
            "nodes": nodes,
            "running": len(running),
            "silent": rows[False],
            "telling": rows[True],
            "requests": len(took),
            "values_per_request": values / len(took),
            "request_ms_p50": 1000 * percentile(sorted(took), 50),
            "request_ms_p99": 1000 * percentile(sorted(took), 99),
            "late_s": late_s,
            "metrics_s": sorted(answers)[len(answers) // 2],
            "metrics_max_s": max(answers),
            "metrics_alone_s": sorted(alone)[len(alone) // 2],
            "load": os.getloadavg()[0],
            "metrics_mib": sizes / 2**20,
            "server_mib": _peak_mib(side.pids()[0]),
            "collector_share": real_share,
            "collector_mib": _peak_mib(real.pid),
        }
    finally:
        if real is not None:
            real.terminate()
            real.wait()
        side.close()


def _scraped(side: Side) -> tuple[float, bytes]:
    """Seconds, and the text."""
    began_s = time.monotonic()
    text = side.ask("GET", "/metrics")
    return time.monotonic() - began_s, text


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024


def told(text: str) -> None:
    """What goes on, for a person that waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def week(folder: Path, nodes: int) -> Row:
    """A week of one node: space of a fleet after thirty days, CPU time of it all, and one job's curves."""
    chance = random.Random(2)
    made = [Gpu(chance) for _ in range(GPUS_PER_NODE)]
    names = [f"gpu/{gpu}/{name}" for gpu in range(GPUS_PER_NODE) for name in NAMES]
    path, node, long = folder / "week.db", "here:n0", "y-1-1-1"
    series = Series(str(path))
    spent_s, values = 0.0, 0
    end_ms = BEGIN_MS + WEEK_MS
    for at_ms in range(BEGIN_MS, end_ms, STEP_MS):
        step = [v for gpu in made for v in gpu.step(at_ms)]
        # One job runs all the week; beside it, another one every two hours.
        rose = (at_ms - BEGIN_MS) // 1000
        short = f"y-1-{1000 + rose // 7200}-1"
        sample = dict(zip(names, step, strict=True)) | {
            f"node/{name}": 1_000_000 + rose * 977 for name in _NODE
        }
        figures = (rose * 3, step[2] // 8, step[2] // 8, rose, rose, step[2], step[0], step[5])
        for key in (long, short):
            sample |= dict(zip([f"attempt/{key}/{name}" for name in _ATTEMPT], figures, strict=True))
        values += len(sample)
        began_s = time.process_time()
        series.add(check_sample(node, at_ms, sample, at_ms), at_ms)
        if at_ms % 60_000 == 0:
            # As for a fleet, whose nodes share a round.
            while series.work(at_ms):
                pass
        if rose and rose % 7200 == 0:
            series.keep(f"y-1-{999 + rose // 7200}-1", [node], at_ms - 2 * HOUR_MS, at_ms, at_ms)
        spent_s += time.process_time() - began_s
    took = []
    for _ in range(5):
        began_s = time.monotonic()
        found = series.of_attempt(long, [node], BEGIN_MS, end_ms, end_ms)
        took.append(time.monotonic() - began_s)
    assert len(found) == len(_ATTEMPT), found.keys()
    db = series._db
    # A row has its key and its place in the tree besides.
    mean = dict(db.execute("SELECT tier, AVG(LENGTH(blob) + 60) FROM chunks GROUP BY tier").fetchall())
    kept_bytes = db.execute("SELECT AVG(LENGTH(blob) + 60) FROM kept").fetchone()[0]
    series.close()
    tiers = {
        "samples": mean[RAW.number] * (RAW.kept_ms // RAW.chunk_ms + 1),
        "minutes": mean[MINUTES.number] * (MINUTES.kept_ms // MINUTES.chunk_ms + 1),
        "hours": mean[HOURS.number] * 30,
        "ended jobs": kept_bytes * 30 * 12,
    }
    return {
        "week_mib": path.stat().st_size / 2**20,
        "values": values,
        "us_per_value": 1e6 * spent_s / values,
        "series_cores": spent_s / (WEEK_MS / 1000) * nodes,
        "curves_ms": 1000 * sorted(took)[len(took) // 2],
        "fleet_mib": {name: nodes * size / 2**20 for name, size in tiers.items()},
    }


def exposed_s(nodes: int) -> float:
    """CPU time of writing the newest samples of the fleet for a Prometheus."""
    chance = random.Random(3)
    made = [Gpu(chance) for _ in range(GPUS_PER_NODE)]
    names = [f"gpu/{gpu}/{name}" for gpu in range(GPUS_PER_NODE) for name in NAMES]
    cards, jobs = {}, {}
    for number in range(nodes):
        node = f"n{number}"
        jobs[f"y-18fe3c0a-{number}-1"] = str(number)
        for gpu in range(GPUS_PER_NODE):
            uuid = f"GPU-{number:08x}-{gpu:04x}-aaaa-bbbb-cccccccccccc"
            cards[node, gpu] = GpuCard(uuid, "NVIDIA H200", "00000000:1B:00.0", "580.159")
    took, lines = [], SignalLines()
    for turn in range(5):
        samples = []
        for number, key in enumerate(jobs):
            step = [v for gpu in made for v in gpu.step(BEGIN_MS + turn * STEP_MS)]
            values = dict(zip(names, step, strict=True)) | {f"node/{name}": 5 + turn for name in _NODE}
            values |= {f"attempt/{key}/{name}": 500 + turn for name in _ATTEMPT}
            samples.append(Sample(f"n{number}", BEGIN_MS, values))
        began_s = time.thread_time()
        exposition_text(lines.of(samples, cards, jobs)).encode()
        took.append(time.thread_time() - began_s)
    return sorted(took)[len(took) // 2]


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3, help="with collectors, and as many without")
    parser.add_argument("--only", choices=["beside", "week"], help="a half of it, printed as JSON")
    parser.add_argument("--of", type=Path, nargs=2, help="halves that were measured before, as files of JSON")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.data, asked.port, asked.config, asked.nodes)
        return 0
    with tempfile.TemporaryDirectory(prefix="yard-seeing-") as folder:
        found: Row = {}
        for file in asked.of or ():
            found |= json.loads(file.read_text(encoding="utf-8"))
        if asked.only != "beside" and not asked.of:
            told("a week of one node")
            found |= week(Path(folder), asked.nodes) | {"metrics_cpu_s": exposed_s(asked.nodes)}
        if asked.only != "week" and not asked.of:
            found |= beside(Path(folder), asked.nodes, asked.seconds, asked.turns)
    if asked.only:
        print(json.dumps(found))
        return 0
    text, good = said(found)
    publish("seeing", text, found, write=asked.write)
    return 0 if good else 1


def _mean(rows: list[Row], key: str) -> float:
    return sum([row[key] for row in rows]) / len(rows)


def said(found: Row) -> tuple[str, bool]:
    """The table, and whether every goal is met."""
    silent, telling = found["silent"], found["telling"]
    # A busy machine may not let all collectors tell in time: what one request takes is what is measured.
    request_s = (_mean(telling, "cores") - _mean(silent, "cores")) / _mean(telling, "requests_per_s")
    intake = request_s * found["nodes"] / EVERY_S + found["series_cores"]
    # As much is to be decided in every turn. Where decisions are fewer, each has more to decide.
    slower = _mean(telling, "deciding_cpu_ms") / _mean(silent, "deciding_cpu_ms") - 1
    fleet_gib = sum(found["fleet_mib"].values()) / 1024
    rows: list[tuple[str, str, str, bool]] = [
        ("taking all samples in, saving and folding", f"{intake:.2f} cores", "1 core", intake <= 1),
        ("decisions meanwhile, CPU time in a second",
         f"{_mean(telling, 'deciding_cpu_ms'):.2f} ms, {100 * slower:+.1f} %",
         f"{_mean(silent, 'deciding_cpu_ms'):.2f} ms + 10 %", slower <= 0.1),
        ("series after 30 days", f"{fleet_gib:.2f} GiB", "2 GiB", fleet_gib <= 2),
        ("`GET /metrics`, CPU time of making it", f"{found['metrics_cpu_s']:.2f} s", "1 s",
         found["metrics_cpu_s"] <= 1),
        ("curves of one job over a week", f"{found['curves_ms']:.0f} ms", "100 ms", found["curves_ms"] <= 100),
        ("`yard collect` of 8 GPUs", f"{100 * found['collector_share']:.2f} % of a core", "1 %",
         found["collector_share"] <= 0.01),
        ("its memory, at most", f"{found['collector_mib']:.0f} MiB", "60 MiB", found["collector_mib"] <= 60),
    ]  # fmt: skip
    cells = [[name, figure, "at most " + goal, "yes" if met else "NO"] for name, figure, goal, met in rows]
    parts = ", ".join([f"{size:,.0f} MiB of {name}" for name, size in found["fleet_mib"].items()])
    about = (
        f"{found['nodes']:,} nodes of {GPUS_PER_NODE} GPUs, {found['running']:,} jobs running, "
        f"{_mean(telling, 'decisions'):,.0f} decisions in each turn; load average {found['load']:.1f}. "
        f"{_mean(telling, 'requests_per_s'):.0f} requests a second of {found['values_per_request']:.0f} values each, "
        f"{1000 * request_s:.1f} ms of CPU time for one, of {found['nodes'] / EVERY_S:.0f} a second that are due; "
        f"saving and folding {found['series_cores']:.2f} cores ({found['us_per_value']:.2f} µs a value).\n\n"
        f"Turn by turn, without and with collectors: cores of the server {_turns(silent, 'cores')} and "
        f"{_turns(telling, 'cores')}; CPU time of decisions in a second {_turns(silent, 'deciding_cpu_ms')} and "
        f"{_turns(telling, 'deciding_cpu_ms')} ms; on the wall clock {_turns(silent, 'deciding_ms')} and "
        f"{_turns(telling, 'deciding_ms')} ms. After 30 days: {parts}. `/metrics` has {found['metrics_mib']:.0f} MiB "
        f"and came after {found['metrics_s']:.1f} s on the wall clock, {found['metrics_alone_s']:.2f} s without "
        f"collectors; the server had {found['server_mib']:.0f} MiB "
        "at most."
    )
    return f"{table(['what', 'measured', 'goal', 'met'], cells)}\n\n{about}", all(row[3] for row in rows)


def _turns(rows: list[Row], key: str) -> str:
    return " / ".join([f"{row[key]:.3g}" for row in rows])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--collect"]:
        collect(sys.argv[2:])
    sys.exit(main())
