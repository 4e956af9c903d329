"""Pure translation: a launch into the plan that a supervisor follows, end files into reports, readings into a node."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.engines.contract import AttemptReport, Launch, Part, Phase, Usage
from gpuyard.engines.local.attempt.room import SCRATCH
from gpuyard.engines.machine.launches import (
    CHECKPOINT,
    UnixAccount,
    find_key_flaw,
    flaw_of_recipe,
    read_image_use,
)
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.engines.name_lists import fold_counts, fold_names
from gpuyard.engines.patterns import appends, expand
from gpuyard.model import Node, Outcome
from gpuyard.model.gpu_names import recognise_model
from gpuyard.model.units import MILLI

FOLDER_VARIABLE = "YARD_ATTEMPT_DIR"
"""The variable that finds the processes of an attempt when nothing else knows them any more.

Not by the key: another yard on the same machine may have chosen the same name.
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Seat:
    """What a plan has to know about one node of an attempt."""

    node: str
    uuids: tuple[str, ...]
    """UUIDs of the node's GPUs, in order."""
    devices: tuple[str, ...] | None = None
    """The names by which its tasks see their GPUs or slices; None: the UUIDs of their GPUs."""
    environment: dict[str, str] = field(default_factory=dict)
    """The variables that they need to use them."""
    gpu_model: str = ""
    """The model of the node's GPUs."""
    emulated_mib: int | None = None
    """The memory of each of them, where they are emulated; None: they are not."""

    def devices_of(self, part: Part) -> tuple[str, ...]:
        """The names by which a job sees the GPUs or slices that it has there."""
        return self.devices if self.devices is not None else tuple([self.uuids[gpu] for gpu in part.gpus])


@dataclass(frozen=True, slots=True)
class LocalContext:
    """What a plan has to know about the machine."""

    seats: tuple[Seat, ...]
    """One for each part of the launch."""
    boot: str
    folder: str
    """The attempt's own."""
    job_folder: str
    """Shared by all attempts of the job, owned by its user."""
    cgroup: str
    """The attempt's own group; empty: none."""
    limits: bool
    """Whether memory and CPU limits can be set there."""
    drop: bool
    """Whether the supervisor changes to the job's user."""
    port: int
    """A free port for the tasks of a gang."""
    lang: str
    held: dict[str, Any] = field(default_factory=dict)
    """Its GPUs that are cut or shared, for other attempts to read."""
    commands: str = ""
    """The folder of Slurm's commands, for jobs that are to have them."""
    emulated: str = ""
    """The folder of `nvidia-smi` for emulated GPUs; empty: they are real, and so is the program."""
    host: str = ""
    """The machine's name."""
    yard: str = ""
    """The yard's own folder, so that `yard` commands of the job find it; empty: they look where everyone does."""


def find_flaw(launch: Launch, gpus_of: Mapping[str, int]) -> str:
    """Why this launch can never run on these nodes with their numbers of GPUs; empty: it can."""
    if flaw := find_key_flaw(launch.key):
        return flaw
    return _flaw_of_parts(launch.parts, gpus_of) or flaw_of_recipe(launch)


TASKS_MAX = 1024
"""Processes that one job may start with on this machine."""


def _flaw_of_parts(parts: tuple[Part, ...], gpus_of: Mapping[str, int]) -> str:
    names = [part.node for part in parts]
    if not names or len(set(names)) != len(names):
        return "a launch names each of its nodes once"
    for part in parts:
        if part.node not in gpus_of:
            there = f"{next(iter(gpus_of))} is the only one" if len(gpus_of) == 1 else f"{len(gpus_of)} are"
            return f"there is no node {part.node} here; {there}"
        gpus = gpus_of[part.node]
        if part.gpus and part.milli != MILLI and (part.tasks > 1 or (len(part.gpus) > 1 and not part.slices)):
            return "a share is one part of one GPU, for one task"
        if len(set(part.gpus)) != len(part.gpus) or any(not 0 <= gpu < gpus for gpu in part.gpus):
            return f"there are no GPUs {list(part.gpus)} on {part.node}, which has {gpus}"
        if part.tasks < 1:
            return f"{part.tasks} tasks on {part.node}: it takes at least one"
    if (tasks := sum([part.tasks for part in parts])) > TASKS_MAX:
        return f"{tasks} tasks on one machine: it takes 1 to {TASKS_MAX}"
    return ""


EMULATED_GPUS = "YARD_EMULATED_GPUS"
"""What tells the `nvidia-smi` of emulated GPUs the cards of a job, as UUID=MODEL=MIB with commas between."""
WORK = ("argv", "script", "envs", "room", "image")
"""The parts of a plan that only its supervisor needs."""


def plan_of(launch: Launch, account: UnixAccount, place: LocalContext) -> dict[str, Any]:
    """Everything a supervisor needs, in plain values."""
    recipe, parts = launch.recipe, launch.parts
    checkpoint = recipe.env.get("YARD_CHECKPOINT_FILE") or f"{place.job_folder}/{CHECKPOINT}"
    cwd = recipe.cwd or place.job_folder
    letters = launch.letters(account.user)
    shared = _environment(launch, account, place) | {"YARD_CHECKPOINT_FILE": checkpoint}
    envs = [shared | each for each in _task_environments(launch, place)]
    plan = {
        "key": launch.key,
        "job_id": launch.job_id,
        "nodes": [part.node for part in parts],
        "names": [part.node for part in parts if part.node != place.host] if place.host else [],
        "boot": place.boot,
        "argv": list(recipe.argv),
        "script": recipe.script,
        "cwd": cwd,
        "umask": recipe.umask,
        "stdout": expand(recipe.stdout, letters),
        "stderr": expand(recipe.stderr, letters),
        "append": appends(recipe.open_mode, launch.restarts),
        "restarts": launch.restarts,
        "uid": account.uid,
        "gid": account.gid,
        "user": account.user,
        "drop": place.drop,
        "envs": envs[:1] if recipe.batch else envs,
        "held": place.held,
        "milli": min([part.milli for part in parts if part.gpus], default=MILLI),
        "room": _room(
            launch,
            [seat.devices_of(part) for part, seat in zip(parts, place.seats, strict=True)],
            [seat.gpu_model for seat in place.seats],
            place.job_folder,
        ),
        "scratch": recipe.slurm_commands,
        "limit_ms": launch.limit_ms,
        "grace_ms": launch.grace_ms,
        "warn_signal": recipe.warn_signal,
        "warn_ms": recipe.warn_ms,
        "warn_shell": recipe.warn_shell,
        "checkpoint": checkpoint if checkpoint.startswith("/") else f"{cwd}/{checkpoint}",
        "cgroup": place.cgroup,
        "memory_mib": sum([part.memory_mib for part in parts]) if place.limits else 0,
        "cpu_milli": sum([part.cpu_milli for part in parts]) if place.limits else 0,
    }
    if recipe.terminal:
        plan["terminal"] = True
    return plan


def _room(
    launch: Launch, devices: Sequence[Sequence[str]], gpu_models: Sequence[str], job_folder: str
) -> dict[str, Any]:
    """The room of a launch, for its parts in order: what a job names to see its GPUs there, and their model."""
    shares = _ranks_of(launch)
    nodes = [
        _node(part, devices[place], gpu_models[place], shares[place])
        for place, part in enumerate(launch.parts)
    ]
    return {"nodes": nodes, "ranks": sum(shares), "steps": f"{job_folder}/.steps-{launch.attempt}"}


def _node(part: Part, devices: Sequence[str], model: str, ranks: int) -> dict[str, Any]:
    # Several slices may lie on one GPU: then the devices are counted, not the GPUs.
    plain = len(devices) == len(part.gpus)
    return {
        "name": part.node,
        "gpus": [
            {"index": part.gpus[place] if plain else place, "device": device}
            for place, device in enumerate(devices)
        ],
        "gpu_model": model,
        "cpus": -(-part.cpu_milli // 1000),
        "memory_mib": part.memory_mib,
        "tasks": ranks,
    }


def _environment(launch: Launch, account: UnixAccount, place: LocalContext) -> dict[str, str]:
    """A clean base, then the recipe's variables, then those that only the yard knows."""
    recipe, parts = launch.recipe, launch.parts
    inside = bool(recipe.containers)
    # An image has programs and a shell of its own, and no homes.
    shell = (
        {"HOME": place.job_folder}
        if inside
        else {"PATH": _PATH, "HOME": account.home, "SHELL": account.shell}
    )
    base = {
        **shell,
        "USER": account.user,
        "LOGNAME": account.user,
        "LANG": place.lang,
        # The output of a program is read while it runs.
        "PYTHONUNBUFFERED": "1",
    }
    tasks = sum([part.tasks for part in parts])
    yard = {
        FOLDER_VARIABLE: place.folder,
        "YARD_ATTEMPT_KEY": launch.key,
        "YARD_JOB_ID": launch.label,
        "YARD_JOB_NAME": launch.name,
        "YARD_ATTEMPT": str(launch.attempt),
        "YARD_RESTART_COUNT": str(launch.restarts),
    } | _slurm_of_job(launch, account.uid, account.gid, account.user)
    if launch.array_id:
        yard["JOB_COMPLETION_INDEX"] = str(launch.array_index)
    if tasks > 1 and not recipe.batch:
        yard |= {
            # Also of several nodes, which are all this machine.
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(place.port),
            "WORLD_SIZE": str(tasks),
        }
    if place.yard:
        base["YARD_DATA"] = place.yard
    env = base | _slurm_defaults(launch, place.job_folder, place.host) | recipe.env | yard
    if recipe.slurm_commands:
        env["SLURM_TMPDIR"] = f"{place.folder}/{SCRATCH}"
    if place.emulated and not inside:
        env["PATH"] = f"{place.emulated}:{env['PATH']}"
    if recipe.slurm_commands and place.commands and not inside:
        env["PATH"] = f"{place.commands}:{env['PATH']}"
    return env


def _task_environments(launch: Launch, place: LocalContext) -> Iterator[dict[str, str]]:
    """What differs from task to task, by rank: where it runs, its number, and which of the GPUs are meant for it.

    Every task sees all GPUs of the job on its node, because training scripts choose theirs by LOCAL_RANK.
    """
    batch, rank = launch.recipe.batch, 0
    gang = sum([part.tasks for part in launch.parts]) > 1 and not batch
    for number, (part, seat) in enumerate(zip(launch.parts, place.seats, strict=True)):
        devices = seat.devices_of(part)
        each, rest = divmod(len(devices), part.tasks)
        for local in range(part.tasks):
            share = devices if rest or batch else devices[local * each : (local + 1) * each]
            env = {
                **seat.environment,
                "YARD_NODE": seat.node,
                "YARD_GPUS": ",".join([seat.uuids[gpu] for gpu in part.gpus]),
                "CUDA_VISIBLE_DEVICES": ",".join(devices),
                **(
                    {"NVIDIA_VISIBLE_DEVICES": ",".join(devices) or "void"}
                    if launch.recipe.containers
                    else {}
                ),
                "YARD_TASK_GPUS": ",".join(share),
                **_emulated(part, seat),
                **_slurm_of_task(launch, number, local),
            }
            if gang:
                env |= {"RANK": str(rank), "LOCAL_RANK": str(local), "NODE_RANK": str(number)}
            yield env
            rank += 1


def _emulated(part: Part, seat: Seat) -> dict[str, str]:
    """What tells `nvidia-smi` which emulated GPUs a task has."""
    if seat.emulated_mib is None:
        return {}
    cards = [f"{seat.uuids[gpu]}={seat.gpu_model}={seat.emulated_mib}" for gpu in part.gpus]
    return {EMULATED_GPUS: ",".join(cards)}


def read_end(key: str, end: dict[str, Any]) -> AttemptReport:
    """An end file as a report."""
    return AttemptReport(
        key=key,
        phase=Phase.ENDED,
        outcome=Outcome(end["outcome"]),
        exit_code=end["exit_code"],
        started_ms=end["started_ms"],
        ended_ms=end["ended_ms"],
        checkpoint_ms=min(end["checkpoint_ms"], max(end["ended_ms"], end["started_ms"])),
        why=end["why"],
        # An end of an earlier release says nothing of it.
        for_good=end.get("for_good") is True,
    )


def read_usage(found: object, facts: dict[str, Any] | None = None, started_ms: int = 0) -> Usage:
    """CPU time and memory as written at the end; an earlier release, or a lost supervisor, wrote none."""
    known = found if isinstance(found, dict) else {}
    names = ("cpu_ms", "memory_mib", "process_mib")
    figures = [value if isinstance(value := known.get(name), int) else None for name in names]
    return Usage(figures[0], figures[1], figures[2], read_image_use(facts, started_ms) if facts else None)


def make_lost_end(running: dict[str, Any] | None, claimed_ms: int, now_ms: int, why: str) -> dict[str, Any]:
    """The end of an attempt that has no supervisor left to write it; it ended by `now_ms`."""
    started_ms = running["started_ms"] if running else claimed_ms
    return {
        "outcome": Outcome.NODE_FAIL.value,
        "exit_code": 0,
        "why": why,
        "started_ms": started_ms,
        "ended_ms": max(started_ms, now_ms),
        "checkpoint_ms": 0,
    }


def make_unborn_end(outcome: str, now_ms: int) -> dict[str, Any]:
    """The end of an attempt that was stopped before it ran."""
    return {
        "outcome": outcome,
        "exit_code": 0,
        "why": "stopped before it ran",
        "started_ms": 0,
        "ended_ms": now_ms,
        "checkpoint_ms": 0,
    }


@dataclass(frozen=True, slots=True)
class MachineReading:
    """The rest of the machine."""

    name: str
    cpu_milli: int
    memory_mib: int


def find_alike(readings: Sequence[GpuReading]) -> list[int]:
    """The GPUs that a node can be made of, by their place in the list: those of the most common model."""
    models = [recognise_model(each.name, each.memory_mib) for each in readings]
    if not models:
        return []
    # 1. most GPUs; 2. the name.
    best = min(Counter(models).items(), key=lambda item: (-item[1], item[0]))[0]
    return [place for place, model in enumerate(models) if model == best]


def make_node(machine: MachineReading, readings: Sequence[GpuReading], cluster: str, pool: str) -> Node:
    """The machine as a node. `readings` are alike."""
    return Node(
        name=machine.name,
        cluster=cluster,
        pool=pool,
        gpu_model=recognise_model(readings[0].name, readings[0].memory_mib) if readings else "",
        gpus=len(readings),
        cpu_milli=machine.cpu_milli,
        memory_mib=machine.memory_mib,
        nvlink_group_size=_link_group(readings),
        numa_domains=_numa_domains(readings),
    )


def _link_group(readings: Sequence[GpuReading]) -> int:
    """How many GPUs in a row NVLink connects; 0 if the groups are not rows of one size."""
    if not readings:
        return 0
    size = 1 + len(readings[0].linked)
    for place, reading in enumerate(readings):
        first = place // size * size
        if {place, *reading.linked} != set(range(first, first + size)):
            return 0
    return size if size > 1 else 0


def _numa_domains(readings: Sequence[GpuReading]) -> int:
    """Into how many even runs the NUMA nodes split the GPUs; 1 if they do not."""
    order = [reading.numa for reading in readings]
    domains = len(set(order))
    if domains < 2 or len(order) % domains:
        return 1
    each = len(order) // domains
    runs = [set(order[first : first + each]) for first in range(0, len(order), each)]
    return domains if all(len(run) == 1 for run in runs) else 1


# -- the variables that Slurm sets for a job and its tasks, as far as a yard knows what they mean ----------------------
#
# `tests/slurm/test_variables.py` compares them name by name with a job on a real Slurm. A few more come with the
# submission: where it came from, and what an sbatch script asked for (`intake/sbatch/taking`).


def _ranks_of(launch: Launch) -> list[int]:
    """How many processes the job means to start on each of its nodes."""
    tasks = [part.tasks for part in launch.parts]
    ranks = launch.recipe.ranks or sum(tasks)
    if ranks == sum(tasks):
        return tasks
    each, rest = divmod(ranks, len(tasks))
    return [each + (place < rest) for place in range(len(tasks))]


def _slurm_defaults(launch: Launch, folder: str, host: str) -> dict[str, str]:
    """Defaults that a recipe may override: the script's names for pool, tenant and class, and where it came from."""
    return {
        "SLURM_SUBMIT_DIR": launch.recipe.cwd or folder,
        "SLURM_SUBMIT_HOST": host,
        "SLURM_JOB_PARTITION": launch.partition,
        "SLURM_JOB_ACCOUNT": launch.account,
        "SLURM_JOB_QOS": launch.qos,
    }


def _slurm_of_job(launch: Launch, uid: int, gid: int, user: str) -> dict[str, str]:
    """The variables that are the same for all tasks."""
    recipe, parts = launch.recipe, launch.parts
    shares = _ranks_of(launch)
    ranks = sum(shares)
    nodes = fold_names([part.node for part in parts])
    found = {
        "SLURM_JOB_ID": str(launch.job_id),
        "SLURM_JOBID": str(launch.job_id),
        "SLURM_JOB_NAME": launch.name,
        "SLURM_JOB_UID": str(uid),
        "SLURM_JOB_GID": str(gid),
        "SLURM_JOB_USER": user,
        "SLURM_CLUSTER_NAME": launch.cluster,
        "SLURM_NTASKS": str(ranks),
        "SLURM_NPROCS": str(ranks),
        "SLURM_NNODES": str(len(parts)),
        "SLURM_JOB_NUM_NODES": str(len(parts)),
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_TASKS_PER_NODE": fold_counts(shares),
        "SLURM_JOB_CPUS_PER_NODE": fold_counts([_cores(part.cpu_milli) for part in parts]),
        "SLURM_CPUS_PER_TASK": str(max(1, sum([part.cpu_milli for part in parts]) // ranks // 1000)),
        "SLURM_GPUS": str(sum([len(part.gpus) for part in parts])),
        "SLURM_RESTART_COUNT": str(launch.restarts),
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }
    if launch.array_id:
        found |= {
            "SLURM_ARRAY_JOB_ID": str(launch.array_id),
            "SLURM_ARRAY_TASK_ID": str(launch.array_index),
        }
    memory_mib = parts[0].memory_mib
    if memory_mib and not any([name.startswith("SLURM_MEM_PER_") for name in recipe.env]):
        found["SLURM_MEM_PER_NODE"] = str(memory_mib)
    return found


def _slurm_of_task(launch: Launch, number: int, local: int) -> dict[str, str]:
    """The variables of one task. `number`: its node among those of the job; `local`: the task among those there."""
    part = launch.parts[number]
    first = sum([each.tasks for each in launch.parts[:number]])
    there = [first + place for place in range(1 if launch.recipe.batch else part.tasks)]
    return {
        "SLURMD_NODENAME": part.node,
        "SLURM_TOPOLOGY_ADDR": part.node,
        "SLURM_NODEID": str(number),
        "SLURM_PROCID": str(first + local),
        "SLURM_LOCALID": str(local),
        "SLURM_GTIDS": ",".join(map(str, there)),
        "SLURM_JOB_GPUS": ",".join([str(gpu) for gpu in part.gpus]),
        "SLURM_GPUS_ON_NODE": str(len(part.slices) or len(part.gpus)),
        "SLURM_CPUS_ON_NODE": str(_cores(part.cpu_milli)),
    }


def _cores(cpu_milli: int) -> int:
    return max(1, -(-cpu_milli // 1000))
