"""Pure: a launch as the plan that a job of Slurm follows on its nodes, and the files it leaves as reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.engines.contract import AttemptReport, Launch, Phase
from gpuyard.engines.machine.launches import (
    CHECKPOINT,
    UnixAccount,
    find_key_flaw,
    flaw_of_recipe,
    plain_containers,
)
from gpuyard.engines.patterns import appends, expand
from gpuyard.engines.slurm.calls.submission import LOOSE_VARIABLES
from gpuyard.engines.slurm.cluster import ContainerRuntime
from gpuyard.engines.slurm.words.rows import SlurmNode
from gpuyard.model import Outcome
from gpuyard.model.units import MILLI

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TASKS_MAX = 1024
"""Processes that one job may start with on one node."""


_FROM_SUBMITTER = ("SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST")


@dataclass(frozen=True, slots=True)
class SlurmContext:
    """What a plan has to know about where it is followed."""

    folder: str
    """The attempt's own, on the shared file system."""
    job_folder: str
    knock: str
    """The file to make when it has ended."""
    program: str
    sruns: list[list[str]]
    yard: str = ""
    containers: str = ContainerRuntime.PODMAN.value
    """What runs containers there."""


def find_flaw(launch: Launch, nodes: Mapping[str, SlurmNode]) -> str:
    """Why this launch can never run on these nodes; empty: it can."""
    if flaw := find_key_flaw(launch.key):
        return flaw
    names = [part.node for part in launch.parts]
    if not names or len(set(names)) != len(names):
        return "a launch names each of its nodes once"
    for part in launch.parts:
        node = nodes.get(part.node)
        if node is None:
            return f"there is no node {part.node} in Slurm"
        count, kind = node.gpus
        if (part.gpus and part.milli != MILLI) or part.slices:
            return "Slurm gives whole GPUs; a MIG type of Slurm is a GPU model of its own here"
        if len(set(part.gpus)) != len(part.gpus) or any(not 0 <= gpu < count for gpu in part.gpus):
            return f"there are no GPUs {list(part.gpus)} on {part.node}, which has {count} of type {kind or 'gpu'}"
        if not 1 <= part.tasks <= TASKS_MAX:
            return f"{part.tasks} tasks on one node: it takes 1 to {TASKS_MAX}"
    return flaw_of_recipe(launch)


def plan_of(
    launch: Launch, account: UnixAccount, place: SlurmContext, nodes: Mapping[str, SlurmNode]
) -> dict[str, Any]:
    """Everything the nodes need to know, in plain values."""
    recipe = launch.recipe
    checkpoint = recipe.env.get("YARD_CHECKPOINT_FILE") or f"{place.job_folder}/{CHECKPOINT}"
    cwd = recipe.cwd or place.job_folder
    letters = launch.letters(account.user)
    image = {
        "containers": plain_containers(recipe),
        "volumes": [f"{place.job_folder}:{place.job_folder}"],
        "cwd": recipe.cwd,
        "home": account.home,
        "by": place.containers,
    }
    return {
        "key": launch.key,
        "folder": place.folder,
        "run": f"{place.folder}/run",
        "knock": place.knock,
        "program": place.program,
        "sruns": place.sruns,
        "parts": {part.node: {"tasks": part.tasks, "gpus": list(part.gpus)} for part in launch.parts},
        "addresses": {part.node: nodes[part.node].address for part in launch.parts},
        "world": sum([part.tasks for part in launch.parts]),
        "argv": list(recipe.argv),
        "script": recipe.script,
        "batch": recipe.batch,
        "cwd": cwd,
        "umask": recipe.umask,
        "stdout": expand(recipe.stdout, letters),
        "stderr": expand(recipe.stderr, letters),
        "append": appends(recipe.open_mode, launch.restarts),
        "uid": account.uid,
        "gid": account.gid,
        "env": _base(account, place, boxed=bool(recipe.containers)) | _own_variables(recipe.env),
        "yard": _yard(launch, place) | {"YARD_CHECKPOINT_FILE": checkpoint},
        "dropped": list(LOOSE_VARIABLES),
        "limit_ms": launch.limit_ms,
        "grace_ms": launch.grace_ms,
        "warn_signal": recipe.warn_signal,
        "warn_ms": recipe.warn_ms,
        "warn_shell": recipe.warn_shell,
        "terminal": recipe.terminal,
        **({"image": image} if recipe.containers else {}),
        "checkpoint": checkpoint if checkpoint.startswith("/") else f"{cwd}/{checkpoint}",
    }


def _base(account: UnixAccount, place: SlurmContext, *, boxed: bool) -> dict[str, str]:
    # An image has programs and a shell of its own, and no homes.
    shell = {"HOME": place.job_folder}
    if not boxed:
        shell = {"PATH": _PATH, "HOME": account.home, "SHELL": account.shell}
    base = {
        **shell,
        "USER": account.user,
        "LOGNAME": account.user,
        "LANG": "C.UTF-8",
        # The output of a program is read while it runs.
        "PYTHONUNBUFFERED": "1",
    }
    return base | ({"YARD_DATA": place.yard} if place.yard else {})


def _own_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The job's own variables. Slurm itself sets those for a script's options: both would confuse `srun`."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("SLURM_") or name in _FROM_SUBMITTER or name.startswith("SLURM_ARRAY_TASK_")
    }


def _yard(launch: Launch, place: SlurmContext) -> dict[str, str]:
    """Variables that only the yard knows. Job ids are Slurm's own here, so that its commands work in the job."""
    yard = {
        "YARD_ATTEMPT_DIR": place.folder,
        "YARD_ATTEMPT_KEY": launch.key,
        "YARD_JOB_ID": launch.label,
        "YARD_JOB_NAME": launch.name,
        "YARD_ATTEMPT": str(launch.attempt),
        "YARD_RESTART_COUNT": str(launch.restarts),
        "SLURM_RESTART_COUNT": str(launch.restarts),
        "SLURM_JOB_NAME": launch.name,
        "SLURM_SUBMIT_DIR": launch.recipe.cwd or place.job_folder,
    }
    yard |= {name: launch.recipe.env[name] for name in _FROM_SUBMITTER if name in launch.recipe.env}
    if launch.recipe.batch:
        ranks = launch.recipe.ranks or sum([part.tasks for part in launch.parts])
        yard |= {"SLURM_NTASKS": str(ranks), "SLURM_NPROCS": str(ranks)}
    if launch.array_id:
        yard |= {
            "SLURM_ARRAY_JOB_ID": str(launch.array_id),
            "SLURM_ARRAY_TASK_ID": str(launch.array_index),
            "JOB_COMPLETION_INDEX": str(launch.array_index),
        }
    return yard


def report_end(key: str, end: Mapping[str, Any], outcome: Outcome, now_ms: int) -> AttemptReport:
    """An end as a report."""
    return AttemptReport(
        key=key,
        phase=Phase.ENDED,
        outcome=outcome,
        exit_code=end["exit_code"],
        started_ms=end["started_ms"],
        ended_ms=end["ended_ms"],
        checkpoint_ms=min(end["checkpoint_ms"], now_ms),
        saved_by_now=True,
        why=end["why"],
        # An end of an earlier release says nothing of it.
        for_good=end.get("for_good") is True,
    )


def end_of(outcome: Outcome, why: str, started_ms: int, now_ms: int, exit_code: int = 0) -> dict[str, Any]:
    """The end of an attempt that no node has written."""
    return {
        "outcome": outcome.value,
        "exit_code": exit_code,
        "why": why,
        "started_ms": started_ms,
        "ended_ms": max(started_ms, now_ms),
        "checkpoint_ms": 0,
    }


def read_gpus(news: Mapping[str, Any] | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The GPUs that Slurm gave, as the nodes wrote them down."""
    given = (news or {}).get("gpus", {})
    return tuple([(node, tuple(given[node])) for node in sorted(given)])
