"""`srun` inside a job: read its options, wait for room among the job's other steps, run, give the room back."""

import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

from gpuyard.cli.slurm.language.getopt import Read
from gpuyard.cli.slurm.language.step_asks import add_variables, no_step, read_ask
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.engines import patterns
from gpuyard.engines.local.steps.environments import TaskPlan, plan_tasks
from gpuyard.engines.local.steps.grants import (
    BUSY,
    GRES,
    Never,
    NodeGrant,
    RoomNode,
    StepAsk,
    count_nodes,
)
from gpuyard.engines.local.steps.live_steps import LiveSteps, NoRoom, pause
from gpuyard.engines.local.steps.running import Files, Manner, Tasks
from gpuyard.intake.sbatch.amounts import parse_minutes
from gpuyard.intake.sbatch.exports import export

_SERVED = frozenset(
    {
        "ntasks", "ntasks-per-node", "nodes", "nodelist", "exclude", "relative", "cpus-per-task", "threads-per-core",
        "gpus", "gpus-per-node", "gpus-per-task", "gres", "ntasks-per-gpu", "gpu-bind", "mem", "mem-per-cpu",
        "mem-per-gpu", "exact", "exclusive", "overlap", "whole", "overcommit", "immediate", "distribution",
        "label", "unbuffered", "output", "error", "input", "open-mode", "chdir", "kill-on-bad-exit", "wait",
        "jobid", "pty", "mpi", "export", "time", "multi-prog", "cpus-per-gpu",
    }
)  # fmt: skip
_ASKS_NOTHING = frozenset(
    {
        "cpu-bind", "mem-bind", "job-name", "quiet", "verbose", "hint", "preserve-env", "disable-status",
        "threads", "msg-timeout", "quit-on-interrupt", "slurmd-debug", "accel-bind", "account", "partition",
        "qos", "comment", "propagate", "cpu-freq", "acctg-freq", "resv-ports", "network",
    }
)  # fmt: skip
"""Options without an effect on a step of a yard."""
_PMI = ("none", "list")


def run_step(given: Read) -> int:
    """Start the step's processes, wait for all, and end with the highest exit code."""
    read = add_variables(given, os.environ)
    _warn(given, read)
    try:
        ledger = LiveSteps(os.environ)
    except NoRoom as why:
        raise no_step(str(why)) from None
    ask = read_ask(read, os.environ, ledger.ranks, len(ledger.nodes))
    _check_types(ask, ledger.nodes)
    try:
        _tell_nodes(ask, len(ledger.nodes))
        step, granted = _taken(ledger, ask, quiet=read.has("quiet"))
    except Never as never:
        raise _refused(never) from None
    try:
        return _ran(read, ask, step, granted, ledger.nodes)
    finally:
        ledger.give_back(step)


def _warn(given: Read, read: Read) -> None:
    if given.has("quiet"):
        return
    known = _SERVED | _ASKS_NOTHING
    for name in dict.fromkeys([name for name, _ in given.given if name not in known]):
        print(f"srun: warning: --{name} is not served in a step", file=sys.stderr)
    mpi = read.last("mpi")
    if mpi and mpi not in _PMI:
        print(
            f"srun: warning: --mpi={mpi}: a yard has no PMI; an MPI program needs a launcher of its own, as in mpirun",
            file=sys.stderr,
        )


def _check_types(ask: StepAsk, nodes: tuple[RoomNode, ...]) -> None:
    """Refuse a type that the job's GPUs do not have: it would never come."""
    models = {node.gpu_model for node in nodes if node.gpus and node.gpu_model}
    if not ask.gpu_types or not models:
        return
    from gpuyard.model.gpu_names import find_models, parse_mig_profile

    for kind in ask.gpu_types:
        if not parse_mig_profile(kind) and not models & set(find_models(kind)):
            raise _refused(Never(f"the job's GPUs are {', '.join(sorted(models))}, not {kind}", GRES))


def _refused(never: Never) -> Stop:
    *first, last = never.lines
    if last.startswith(("Only allocated", "Hostlist")):
        return make_stop("srun", last)
    return Stop(*[f"srun: error: {line}" for line in first], *no_step(last).lines)


def _tell_nodes(ask: StepAsk, room: int) -> None:
    wanted = ask.nodes_min or (room if room > 1 else 1)
    if ask.tasks < wanted and count_nodes(ask, room, room) < wanted:
        print(
            f"srun: Warning: can't run {ask.tasks} processes on {wanted} nodes, setting nnodes to {ask.tasks}",
            file=sys.stderr,
        )


def _taken(ledger: LiveSteps, ask: StepAsk, *, quiet: bool) -> tuple[int, tuple[NodeGrant, ...]]:
    """The step's number and room, once there is some."""
    until = None if ask.wait_s is None else time.monotonic() + ask.wait_s
    job = os.environ.get("SLURM_JOB_ID", "")
    turn = 0
    while True:
        got = ledger.take(ask)
        if got is not None:
            if turn and not quiet:
                print(f"srun: Step created for job {job}", file=sys.stderr, flush=True)
            return got
        if until is not None and time.monotonic() >= until:
            raise no_step(BUSY)
        if not turn and not quiet:
            print(
                f"srun: Job {job} step creation temporarily disabled, retrying ({BUSY})",
                file=sys.stderr,
                flush=True,
            )
        pause(turn)
        turn += 1


def _ran(
    read: Read, ask: StepAsk, step: int, granted: tuple[NodeGrant, ...], nodes: tuple[RoomNode, ...]
) -> int:
    try:
        plans = plan_tasks(step, ask, granted, nodes, _base(read))
    except ValueError as wrong:
        raise make_stop("srun", f"Invalid --gpu-bind argument: {wrong}") from None
    job = os.environ.get("SLURM_JOB_ID", "")
    manner = Manner(
        argvs=_commands(read, len(plans)),
        limit_s=60 * _minutes(read),
        folder=read.last("chdir"),
        label=read.has("label"),
        pty=read.has("pty"),
        append=read.last("open-mode").lower().startswith("a"),
        kill_on_bad_exit=read.has("kill-on-bad-exit") and read.last("kill-on-bad-exit") != "0",
        wait_s=int(read.last("wait")) if read.last("wait").isdecimal() else 0,
    )
    files = [_files(read, plan, step, os.environ) for plan in plans]
    try:
        return Tasks(f"{job}.{step}", plans, files, manner, _tell).run()
    except OSError as wrong:
        raise make_stop("srun", f"Could not open file {wrong.filename}: {wrong.strerror}") from None


def _tell(line: str) -> None:
    print(f"srun: {line}", file=sys.stderr, flush=True)


def _base(read: Read) -> dict[str, str]:
    """The environment of the step: all of it, or as --export says; variables about the job always go along."""
    if not read.has("export"):
        return dict(os.environ)
    try:
        said = export(read.last("export"))
    except ValueError as wrong:
        raise make_stop("srun", f"--export {wrong}", 255) from None
    kept = {
        name: value
        for name, value in os.environ.items()
        if said.everything or name in said.names or name.startswith(("SLURM", "YARD_", "CUDA_"))
    }
    # A program is looked for on the PATH of the `srun` that starts it.
    return {"PATH": os.environ.get("PATH", os.defpath), **kept, **said.values}


def _commands(read: Read, tasks: int) -> list[list[str]]:
    if not read.has("multi-prog"):
        return [list(read.rest)] * tasks
    try:
        with open(read.rest[0], encoding="utf-8") as file:
            return commands(file.read(), tasks)
    except OSError as wrong:
        raise make_stop(
            "srun", f"unable to open configuration file {read.rest[0]}: {wrong.strerror}"
        ) from None
    except ValueError as wrong:
        raise make_stop("srun", f"{read.rest[0]}: {wrong}") from None


def _minutes(read: Read) -> int:
    try:
        return parse_minutes(read.last("time")) if read.has("time") else 0
    except ValueError as wrong:
        raise make_stop("srun", f"--time {wrong}", 255) from None


def _files(read: Read, plan: TaskPlan, step: int, environment: Mapping[str, str]) -> Files:
    def named(option: str) -> str | None:
        text = read.last(option)
        if not text or text.lower() == "all":
            return None
        if text.lower() == "none" or (text.isdecimal() and int(text) != plan.rank):
            return os.devnull
        return None if text.isdecimal() else patterns.expand(text, _letters(plan, step, environment))

    stdout = named("output")
    return Files(named("input"), stdout, named("error") if read.last("error") else stdout)


def _letters(plan: TaskPlan, step: int, environment: Mapping[str, str]) -> dict[str, str | int]:
    job = environment.get("SLURM_JOB_ID", "")
    index = environment.get("SLURM_ARRAY_TASK_ID", "")
    found: dict[str, str | int] = {
        "A": environment.get("SLURM_ARRAY_JOB_ID", job),
        "J": f"{job}.{step}",
        "N": plan.node.partition(".")[0],
        "j": job,
        "n": plan.node_number,
        "s": step,
        "t": plan.rank,
        "u": environment.get("USER", ""),
        "x": environment.get("SLURM_JOB_NAME", ""),
    }
    return found | ({"a": index, "b": int(index) % 10} if index.isdecimal() else {})


_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def commands(text: str, tasks: int) -> list[list[str]]:
    """The command of every task by rank; `ValueError` with what is wrong.

    `%t` in an argument is the rank, `%o` the task's place in its line. A line for `*` is for all that have none.
    """
    found: dict[int, list[str]] = {}
    rest: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if len(words) < 2:
            raise ValueError(f"line {number} names no program")
        if words[0] == "*":
            rest = words[1:]
            continue
        for place, rank in enumerate(_ranks(words[0], number)):
            found.setdefault(rank, _filled(words[1:], rank, place))
    missing = [rank for rank in range(tasks) if rank not in found]
    if missing and not rest:
        raise ValueError(f"there is no program for task {missing[0]}")
    return [
        found[rank] if rank in found else _filled(rest, rank, missing.index(rank)) for rank in range(tasks)
    ]


def _ranks(text: str, line: int) -> list[int]:
    ranks: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"line {line} must begin with tasks such as 0, 1-3 or *, not {text!r}")
        ranks += range(int(match[1]), int(match[2] or match[1]) + 1)
    return ranks


def _filled(words: Sequence[str], rank: int, place: int) -> list[str]:
    return [word.replace("%t", str(rank)).replace("%o", str(place)) for word in words]
