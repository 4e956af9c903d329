"""Ctrl-C: what is done is printed, marked, and the exit code says that it is not all."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpuyard.cli.commands.bench.bench_yard import bench_yard
from gpuyard.sim.traces import save
from harness.patience import Patience, patient

from .conftest import environment

WAIT_S = 60

JOBS = 120_000
NONE_DONE = re.compile(r'"finished": 0\b')


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More jobs than any machine simulates before the test stops it."""
    path = tmp_path_factory.mktemp("long") / "long.csv"
    save(bench_yard(256, "fifo").trace(JOBS, 1.1, 1), path)
    return path


def used_cpu_s(pid: int) -> float:
    """The CPU time of a process and of those that it has started."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if str(pid) in (stat.parent.name, fields[1]):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def interrupted(after_cpu_s: float, *words: object) -> tuple[int, str, str]:
    """Run a command and stop it once it and what it started have used that much CPU time."""
    running = subprocess.Popen(
        [sys.executable, "-m", "gpuyard.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    patience = Patience(WAIT_S)
    while patience and running.poll() is None:
        if used_cpu_s(running.pid) >= after_cpu_s:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=patient(WAIT_S))
    return running.returncode, out, err


def interrupted_amid(*words: object) -> tuple[int, str, str]:
    """Stop a command amid its work: later where a slow machine was still reading the trace or had just begun."""
    for after_cpu_s in (1.5, 3, 6, 12, 24):
        code, out, err = interrupted(after_cpu_s, *words)
        if out and not NONE_DONE.search(out):
            break
    return code, out, err


def test_ctrl_c_prints_what_is_done(long_trace: Path) -> None:
    code, out, err = interrupted_amid(
        "simulate",
        "--trace",
        long_trace,
        "--gpus",
        256,
        "--policy",
        "fifo",
        "--policy",
        "sjf",
        "--policy",
        "class",
        "--cores",
        2,
        "-o",
        "json",
    )

    assert 130 == code
    begun = json.loads(out)["policies"]
    assert ["fifo", "sjf"] == list(begun)
    for name, told in begun.items():
        assert told["interrupted"]
        assert 0 < told["finished"] < JOBS
        assert told["jobs"] == told["finished"] + told["timeouts"] + told["unfinished"] + told["rejected"]
        assert f"yard: interrupted: {name} got through" in err
    assert "yard: interrupted before class" in err
    assert "Traceback" not in err


def test_ctrl_c_marks_the_table(long_trace: Path) -> None:
    code, out, _ = interrupted_amid("simulate", "--trace", long_trace, "--gpus", 256, "--policy", "fifo")

    assert 130 == code
    assert out.splitlines()[1].startswith("fifo (interrupted)  ")


def test_ctrl_c_before_there_is_anything_to_print(long_trace: Path) -> None:
    code, out, err = interrupted(0.6, "simulate", "--trace", long_trace, "--gpus", 256, "-o", "json")

    assert 130 == code
    assert "Traceback" not in err
    assert "" == out or {"policies", "trace"} == set(json.loads(out))


def test_ctrl_c_ends_a_benchmark_without_figures() -> None:
    code, out, err = interrupted(1.5, "bench", "simulate", "--jobs", JOBS, "--gpus", 256, "--load", 1.1)

    assert (130, "", "") == (code, out, err)
