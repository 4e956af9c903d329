"""`yard efficiency` against programs that say themselves what they took; they run again with the smaller ask."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box

pytestmark = [pytest.mark.rig, pytest.mark.wide]

CONFIG = """
version: 1
clusters:
  main:
    allow_root: true
    pools:
      p: {nodes: 1, gpus: 8 x A100-80GB, cpus: 32, memory: 64G, emulate: true}
"""
RUN_S = 30
_SAYS = f"""
import json, resource, sys, time
began = time.monotonic()
def burn(s):
    until = time.thread_time() + s
    while time.thread_time() < until:
        pass
def left():
    return began + {RUN_S} - time.monotonic()
def say():
    own = resource.getrusage(resource.RUSAGE_SELF)
    s = time.monotonic() - began
    print(json.dumps({{"cpu_s": own.ru_utime + own.ru_stime, "s": s, "mib": own.ru_maxrss / 1024}}))
"""
PROGRAMS: dict[str, str] = {
    # Much memory, all the time.
    "holds": "held = bytearray(600 << 20)\nheld[::4096] = b'x' * len(held[::4096])\nwhile left() > 0: time.sleep(0.2)",
    # Much memory for a while: the most of it counts.
    "peaks": "time.sleep(6)\nheld = bytearray(400 << 20)\nheld[::4096] = b'x' * len(held[::4096])\ntime.sleep(12)\n"
    "del held\nwhile left() > 0: time.sleep(0.2)",
    # A core, as much of it as it gets.
    "computes": "while left() > 0: burn(0.05)",
    # Works a quarter of the time, and sleeps.
    "rests": "while left() > 0:\n    burn(0.05)\n    time.sleep(0.15)",
    # Hardly uses its GPU.
    "idles": "while left() > 0: time.sleep(0.2)",
}  # fmt: skip
ASK = ("--cpus", "2", "--memory", "4G", "--time", "2h")
GPU_PCT, GPU_MIB = 8, 3072


def test_figures_are_those_of_the_programs_and_the_smaller_ask_runs_them(tmp_path: Path) -> None:
    box = Box(tmp_path / "yard", CONFIG)
    fleet = ("--config", box.config, "--look-every", "2")
    assert 0 == box("up", "-d", "--port", 0, *fleet).code
    try:
        jobs = {}
        for name, body in PROGRAMS.items():
            file = tmp_path / f"{name}.py"
            file.write_text(f"{_SAYS}\n{body}\nsay()\n", encoding="utf-8")
            more = (
                ["-g", "1", "--env", f"YARD_EMULATED_LOAD={GPU_PCT}% {GPU_MIB}MiB"]
                if name == "idles"
                else ["-g", "0"]
            )
            jobs[name] = box.submit("--name", name, *ASK, *more, "--", "python3", file)
        found: dict[str, tuple[dict[str, float], dict[str, Any]]] = {}
        for job in jobs.values():
            box.wait(job, "COMPLETED", s=RUN_S + 90)
        for name, job in jobs.items():
            truth = json.loads(box("logs", job).out)
            (row,) = json.loads(box("efficiency", job, "-o", "json").out)
            found[name] = truth, row
            print(
                name,
                truth,
                {key: row[key] for key in ("cpus_used", "memory_used_mib", "gpu_busy_pct", "smaller")},
            )

        for name, (truth, row) in found.items():
            cores = truth["cpu_s"] / truth["s"]
            assert abs(row["cpus_used"] - cores) <= max(0.05 * cores, 0.05), (name, truth, row)
            # Below 100 MiB the interpreter's shared pages are counted by one and not by the other.
            if truth["mib"] > 100:
                assert abs(row["memory_used_mib"] - truth["mib"]) <= 0.05 * truth["mib"], (name, truth, row)
            assert {"cpus", "memory", "time"} <= row["smaller"].keys(), row
        _truth, idles = found["idles"]
        assert abs(idles["gpu_busy_pct"] - GPU_PCT) <= 0.05 * GPU_PCT
        assert abs(idles["gpu_memory_mib"] - GPU_MIB) <= 0.05 * GPU_MIB
        assert "gpus" in idles["smaller"]

        again = {}
        for name, (_truth, row) in found.items():
            words = [word for key, value in row["smaller"].items() for word in (f"--{key}", value)]
            again[name] = box.submit("--like", jobs[name], *words)
        for name, job in again.items():
            view = box.wait(job, "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", s=RUN_S + 90)
            assert "COMPLETED" == view["state"], (name, found[name][1]["smaller"])
    finally:
        box("down", "--jobs")
