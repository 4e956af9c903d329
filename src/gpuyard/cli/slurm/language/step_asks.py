"""How `srun` reads what a step asks for: its options, and the variables of the job that stand for options."""

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpuyard.cli.slurm.language.getopt import Read
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.engines.local.steps.grants import StepAsk
from gpuyard.intake.sbatch import amounts
from gpuyard.intake.sbatch import gpus as gpu_amounts
from gpuyard.intake.sbatch.hostlists import expand

T = TypeVar("T")

TASKS_MAX = 1024
_FALSE = ("", "0", "no", "false", "off")
_SECONDS_MAX = 1_000_000

_VARIABLES = {
    "gpus-per-task": "SLURM_GPUS_PER_TASK", "gpu-bind": "SLURM_GPU_BIND", "cpus-per-task": "SRUN_CPUS_PER_TASK",
    "distribution": "SLURM_DISTRIBUTION", "label": "SLURM_LABELIO", "overlap": "SLURM_OVERLAP", "exact": "SLURM_EXACT",
    "kill-on-bad-exit": "SLURM_KILL_BAD_EXIT", "wait": "SLURM_WAIT", "immediate": "SLURM_IMMEDIATE",
    "output": "SLURM_STDOUTMODE", "error": "SLURM_STDERRMODE", "input": "SLURM_STDINMODE",
    "open-mode": "SLURM_OPEN_MODE", "chdir": "SLURM_WORKING_DIR", "mpi": "SLURM_MPI_TYPE",
}  # fmt: skip
"""Options that a variable may stand for. The totals that sbatch leaves behind (SLURM_GPUS, SLURM_MEM_PER_NODE) are not
among them: they say what the job has, and a step that names less must not be read as one that asks for everything."""


def add_variables(given: Read, environment: Mapping[str, str]) -> Read:
    """The command line, with the options from variables in front, so that typed ones win."""
    more = [(name, environment[each]) for name, each in _VARIABLES.items() if environment.get(each)]
    switches = ("label", "overlap", "exact")
    kept = [(name, value) for name, value in more if name not in switches or value.lower() not in _FALSE]
    if any(given.has(name) for name in ("gpus", "gpus-per-node", "gres", "gpus-per-task")):
        # A step that names its GPUs in one way does not want the job's other way as well.
        kept = [pair for pair in kept if pair[0] != "gpus-per-task"]
    return Read([*kept, *given.given], given.rest)


def read_ask(given: Read, environment: Mapping[str, str], ranks: int, nodes: int) -> StepAsk:
    """What is asked for; `Stop` in Slurm's words where it cannot be read.

    `ranks`: how many processes the job means to start, on `nodes` nodes.
    """
    nobody: list[str] = []
    per_node = _number(given, "ntasks-per-node", 0)
    tasks_said = given.has("ntasks")
    nodes_min, nodes_max = _value(given, "nodes", amounts.parse_node_range, (0, 0))
    tasks = _number(given, "ntasks", 0) or _default_tasks(environment, ranks)
    if per_node and not tasks_said:
        tasks, tasks_said = per_node * (nodes_min or nodes), True
    if tasks > TASKS_MAX:
        raise make_stop("srun", f"Invalid numeric value {str(tasks)!r} for --ntasks.", 255)
    per_gpu = _number(given, "cpus-per-gpu", 0)
    exact = given.has("exact") or per_gpu > 0 or given.has("cpus-per-task") or given.has("threads-per-core")
    gpus, per_node_gpus, per_task_gpus, types = _gpus(given)
    memory = next((name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if given.has(name)), "")
    return StepAsk(
        tasks=tasks,
        tasks_said=tasks_said,
        per_node=per_node,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        on_nodes=tuple(_value(given, "nodelist", expand, nobody)),
        not_nodes=tuple(_value(given, "exclude", expand, nobody)),
        first_node=_value(given, "relative", _whole, 0),
        cpus=per_gpu * (per_task_gpus or 1) if per_gpu else _number(given, "cpus-per-task", 1),
        cpus_said=given.has("cpus-per-task"),
        whole=not exact,
        overlap=given.has("overlap"),
        overcommit=given.has("overcommit"),
        gpus=gpus,
        gpus_per_node=per_node_gpus,
        gpus_per_task=per_task_gpus,
        gpu_types=types,
        memory_mib=_value(given, memory, amounts.parse_memory_mib, 0) if memory else None,
        memory_per=memory,
        bind=_bind(given, environment),
        cyclic=given.last("distribution").partition(":")[0].lower() == "cyclic",
        wait_s=_patience(given),
    )


def _default_tasks(environment: Mapping[str, str], ranks: int) -> int:
    text = environment.get("SLURM_NTASKS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else max(1, ranks)


def _gpus(given: Read) -> tuple[int | None, int | None, int | None, tuple[str, ...]]:
    """GPUs of the step, of a node and of a task, and their types."""
    if given.has("gpus-per-task") and given.has("ntasks-per-gpu"):
        raise Stop(
            "srun: fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU"
        )
    found: dict[str, int] = {}
    types: list[str] = []
    for name in ("gpus", "gpus-per-node", "gpus-per-task"):
        if given.has(name):
            asked = _value(given, name, gpu_amounts.parse_gpus, gpu_amounts.Gpus(0))
            found[name] = asked.count
            types += [asked.kind] if asked.kind else []
    if given.has("gres"):
        gres = _value(given, "gres", gpu_amounts.parse_gres, gpu_amounts.Gres(None, ()))
        if gres.others:
            raise no_step("Invalid generic resource (gres) specification")
        found["gpus-per-node"] = gres.gpus.count if gres.gpus else 0
        types += [gres.gpus.kind] if gres.gpus and gres.gpus.kind else []
    per_gpu = _number(given, "ntasks-per-gpu", 0)
    if per_gpu and "gpus" not in found:
        found["gpus"] = -(-_number(given, "ntasks", 1) // per_gpu)
    return found.get("gpus"), found.get("gpus-per-node"), found.get("gpus-per-task"), tuple(types)


def _bind(given: Read, environment: Mapping[str, str]) -> str:
    """Tasks that are counted by GPU share one GPU, unless a binding is given."""
    said = given.last("gpu-bind")
    if said or given.has("gpus-per-task"):
        return said
    each = given.last("ntasks-per-gpu") or environment.get("SLURM_NTASKS_PER_GPU", "")
    return f"single:{each}" if each else ""


def _patience(given: Read) -> float | None:
    if not given.has("immediate"):
        return None
    text = given.last("immediate")
    if not text:
        return 0.0
    return float(_value(given, "immediate", _whole, 0))


def _number(given: Read, name: str, default: int) -> int:
    return _value(given, name, amounts.count, default)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) > _SECONDS_MAX:
        raise ValueError(f"must be a whole number, not {text!r}")
    return int(text)


def _value(given: Read, name: str, parse: Callable[[str], T], default: T) -> T:
    if not name or not given.has(name):
        return default
    try:
        return parse(given.last(name))
    except ValueError as wrong:
        raise make_stop("srun", f"--{name} {wrong}", 255) from None


def no_step(why: str) -> Stop:
    """The step cannot be: now, or ever."""
    return make_stop("srun", f"Unable to create step for job {os.environ.get('SLURM_JOB_ID', '')}: {why}")
