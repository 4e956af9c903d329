"""A step: processes of `srun` inside a job, on the room that the job has."""

import os
import signal as signals
import subprocess
import sys
import threading
from typing import IO

from gpuyard.cli.slurm.getopt import Read
from gpuyard.cli.slurm.stopping import error

_TASKS_MAX = 1024


def run_step(given: Read) -> int:
    """Start so many processes, wait for all, and end with the highest exit code."""
    nodes = given.last("nodes", "1")
    if nodes not in ("1", "1-1"):
        raise error(
            "srun", "Unable to create step for job: a step runs on the job's own node; take --nodes out"
        )
    number = _tasks(given)
    _warn(given)
    label = given.has("label")
    node = os.environ.get("YARD_NODE", "localhost")
    started: list[subprocess.Popen[bytes]] = []
    copiers: list[threading.Thread] = []

    def forward(received: int, _: object) -> None:
        for each in started:
            if each.poll() is None:
                each.send_signal(received)

    before = {
        each: signals.signal(each, forward) for each in (signals.SIGTERM, signals.SIGINT, signals.SIGUSR1)
    }
    try:
        for rank in range(number):
            process = _start(
                given.rest, _environment(given, rank, number), piped=label, folder=given.last("chdir")
            )
            started.append(process)
            if label:
                copiers += [
                    _copier(process.stdout, sys.stdout, rank),
                    _copier(process.stderr, sys.stderr, rank),
                ]
        codes = [process.wait() for process in started]
        for copier in copiers:
            copier.join()
    except FileNotFoundError:
        print(f"srun: error: {node}: execve(): {given.rest[0]}: No such file or directory", file=sys.stderr)
        return 2
    except PermissionError:
        print(f"srun: error: {node}: execve(): {given.rest[0]}: Permission denied", file=sys.stderr)
        return 13
    finally:
        for each, handler in before.items():
            signals.signal(each, handler)
    return _ended(node, codes)


def _tasks(given: Read) -> int:
    text = given.last("ntasks") or given.last("ntasks-per-node") or os.environ.get("SLURM_NTASKS", "1")
    if not text.isdecimal() or not 0 < int(text) <= _TASKS_MAX:
        raise error("srun", f"Invalid numeric value {text!r} for --ntasks.", 255)
    return int(text)


def _warn(given: Read) -> None:
    served = {
        "ntasks", "ntasks-per-node", "nodes", "label", "gpus-per-task", "chdir", "unbuffered", "exclusive", "exact",
        "overlap", "cpu-bind", "mpi", "kill-on-bad-exit", "cpus-per-task", "job-name", "quiet", "verbose",
    }  # fmt: skip
    for name in dict.fromkeys([name for name, _ in given.given if name not in served]):
        print(f"srun: warning: --{name} is not served in a step: it has what the job has", file=sys.stderr)


def _environment(given: Read, rank: int, number: int) -> dict[str, str]:
    env = dict(os.environ)
    gpus = [gpu for gpu in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    each = given.last("gpus-per-task").rpartition(":")[2]
    if each:
        if not each.isdecimal() or int(each) * number > len(gpus):
            raise error(
                "srun",
                f"Unable to create step for job: {number} tasks of {each} GPUs, and the job has {len(gpus)}",
            )
        mine = gpus[rank * int(each) : (rank + 1) * int(each)]
        env["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        env["SLURM_STEP_GPUS"] = ",".join(mine)
    return env | {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(number),
        "SLURM_NPROCS": str(number),
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NUM_TASKS": str(number),
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NODELIST": env.get("SLURM_JOB_NODELIST", ""),
        "SLURM_TASK_PID": "",
    }


def _start(words: list[str], env: dict[str, str], *, piped: bool, folder: str) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE if piped else None
    sys.stdout.flush()
    return subprocess.Popen(words, env=env, stdout=pipe, stderr=pipe, cwd=folder or None)


def _copier(source: IO[bytes] | None, target: IO[str], rank: int) -> threading.Thread:
    def copy() -> None:
        assert source is not None
        for line in source:
            text = line if line.endswith(b"\n") else line + b"\n"
            target.buffer.write(f"{rank}: ".encode() + text)  # type: ignore[attr-defined]
            target.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _ended(node: str, codes: list[int]) -> int:
    highest = 0
    for rank, code in enumerate(codes):
        if code < 0:
            print(
                f"srun: error: {node}: task {rank}: {signals.strsignal(-code) or 'Killed'}", file=sys.stderr
            )
        elif code:
            print(f"srun: error: {node}: task {rank}: Exited with exit code {code}", file=sys.stderr)
        highest = max(highest, code if code >= 0 else 128 - code)
    return highest
