"""The words for what the core hands out as values: remedies of a reason, and changes with which a job would start.

Commands, options and keys of a file stand here and not in the core. The API and every command show these words.
"""

from typing import Any

from gpuyard.core.explain.suggestions import Help
from gpuyard.core.phrases import count_text, names_text
from gpuyard.model import Ask, Cure, LimitTime, Remedy, Whole
from gpuyard.model.stand_in import clusters_text
from gpuyard.model.units import ENDLESS_MS, MILLI, SECOND_MS
from gpuyard.quantities import duration_in_one_unit, span_words

_WORDS = {
    Cure.RELEASE: "yard release {names}",
    Cure.SUBMIT_AGAIN: "a new submission",
    Cure.LESS_TIME: "a shorter time limit",
    Cure.TIME_LIMIT: "a time limit (-t)",
    Cure.FEWER_GPUS: "fewer GPUs",
    Cure.LESS: "a smaller ask",
    Cure.GPUS_A_NODE: "--gpus {names} or less, or several tasks (--tasks)",
    Cure.NO_GPUS: "--gpus 0; or GPUs, which this machine pretends to have by `{shown}` in yard.yaml "
    "(then yard up --config yard.yaml)",
    Cure.FEWER_CORES: "fewer cores a task, or none (--cpus)",
    Cure.LESS_MEMORY: "less memory a task (--mem)",
    Cure.ONE_TASK: "a job of one task",
    Cure.WHOLE_GPUS: "whole GPUs, as in --gpus 1",
    Cure.WHOLE_OR_SHARE: "ask for whole GPUs, or for a part of one as a fraction",
    Cure.RUN_IMAGES: "an engine that runs images (for that of this machine, root installs what runs them: apt-get "
    "install podman crun uidmap, or runc where `yard up` asks for it: docs/how-to/containers.md), or no image: the "
    "command then runs with the node's own programs",
    Cure.OTHER_MODEL: "another GPU model: {either}",
    Cure.SLICE_MODEL: "GPU model {names}, which is such a slice",
    Cure.SLICE_SIZE: "a size of slice that the fleet has: `yard mig` lists them",
    Cure.OTHER_POOL: "another pool: {either}",
    Cure.OTHER_CLUSTER: "another cluster: {either}",
    Cure.OPEN_POOL: "another wall of {names} (an admin: allow, deny and limits of the pool in yard.yaml, then yard "
    "apply)",
    Cure.OTHER_NODES: "other nodes than those it asks for",
    Cure.OTHER_LABELS: "other labels than those it selects, or an admin that sets them (yard label)",
    Cure.TOLERATE: "tolerating it (--tolerate {either}), or an admin that removes it (yard taint)",
    Cure.SEVERAL_DOMAINS: "GPUs of several NUMA domains (without --numa single)",
    Cure.FURTHER_APART: "a wider level, or one that is only preferred (--topology)",
    Cure.TIME: "time",
    Cure.NEXT_TICK: "the next tick",
    Cure.NEXT_WINDOW: "the next window",
    Cure.JOBS_START: "the start of {jobs}",
    Cure.JOBS_END: "{jobs} ending",
    Cure.ROOM_FREED: "the engine's word that it is free",
    Cure.JOBS_OF_END: "jobs of {names} ending",
    Cure.JOB_OF_ENDS: "a job of {names} ending",
    Cure.JOB_THERE_ENDS: "a job there ending",
    Cure.AHEAD_START: "jobs ahead of it starting",
    Cure.OTHERS_MOVE: "others starting and ending",
    Cure.ANY_CHANGE: "a change in what runs",
    Cure.LESS_USE: "use of others going down",
    Cure.RESUME_NODE: "yard resume {names}",
    Cure.NODE_BACK: "node {names} coming back",
    Cure.NODES_OPEN: "{names} taking new work again",
    Cure.FOREIGN_ENDS: "those processes ending",
    Cure.RELEASE_LAYOUT: "yard mig release --node {names}",
    Cure.MORE_GPUS: "more GPUs",
    Cure.HIGHER_LIMIT: "a higher limit",
    Cure.HIGHER_BORROW: "a higher borrow",
    Cure.HIGHER_LEND: "a higher lend",
    Cure.HIGHER_BUDGET: "a higher budget",
    Cure.MORE_PER_USER: "more for each user (max_gpus_per_user)",
    Cure.MORE_PER_JOB: "more for each job (max_gpus_per_job)",
    Cure.MORE_RUNNING: "more jobs at a time (max_running_jobs)",
    Cure.MORE_OF_CLASS: "a higher limit for a class (classes of {names})",
    Cure.MORE_CORES: "more cores for {names} (max_cpus)",
    Cure.MORE_MEMORY: "more memory for {names} (max_memory)",
    Cure.MORE_ATTEMPTS: "more for each user (attempts_per_user)",
    Cure.MORE_PER_NODE: "more for each node (attempts_per_node)",
}
"""Kinds whose words depend on more than names stand in `_remedy`."""


def remedies_text(remedies: tuple[Remedy, ...]) -> str:
    """`yard release 4`; of several, `jobs of lab ending, or a higher limit`."""
    said = [_remedy(each) for each in remedies]
    first = remedies[0]
    if first.kind is Cure.JOBS_START and len(said) > 1:
        said[0] = f"{_jobs(first.names)} starting"
    return ", or ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else said[0]


def _remedy(remedy: Remedy) -> str:
    names, ms = remedy.names, remedy.ms
    match remedy.kind:
        case Cure.LESS_TIME if ms:
            return f"a time limit of at most {span_words(ms)}"
        case Cure.DEPENDENCY:
            return "".join(names) or "dependency"
        case Cure.JOBS_STOPPED:
            jobs = f"{_jobs(names)} {'have' if len(names) > 1 else 'has'}" if names else "they have"
            return f"the engine's word that {jobs} stopped"
        case Cure.JOBS_END_BY:
            left = f"promised within {span_words(ms)}" if ms > 0 else "overdue"
            return f"{_jobs(names)} ending ({'no time limit' if ms >= ENDLESS_MS else left})"
        case Cure.COMES_FREE:
            return f"{''.join(names) or 'room'} coming free when something that runs ends"
        case Cure.HIGHER_BUDGET if names:
            return f"a higher budget (an admin: budgets.{names[0]} in yard.yaml, then yard apply)"
        case Cure.TOLERATE if len(names) > 1:
            return f"tolerating all of them ({' '.join([f'--tolerate {name}' for name in names])})"
        case Cure.HIGHER_LIMIT if names:
            return f"a higher limit for {names[0]}"
        case Cure.MORE_PER_USER if names:
            return f"more for each user of {names[0]} (max_gpus_per_user)"
        case kind:
            return _WORDS[kind].format(
                names=names_text(names), either=" or ".join(names), jobs=_jobs(names), shown=clusters_text()
            )


def _jobs(labels: tuple[str, ...]) -> str:
    return f"job{'s' if len(labels) > 1 else ''} {names_text(labels)}"


def help_text(change: Help) -> str:
    """What would let a job start now: `with 2 GPUs instead of 8 it would start now`."""
    lift, was = change.lift, change.was
    if isinstance(lift, LimitTime):
        # If any limit will do, the job that was promised the room waits for a job without a time limit.
        limit = "a time limit" if change.any_limit else f"a time limit of {span_words(lift.limit_ms)}"
        return f"with {limit} it would start now"
    ask = lift.ask
    if ask.models != was.models:
        return f"on {ask.models[0]} it would start now"
    if ask.pools != was.pools:
        return f"in pool {ask.pools[0]} it would start now"
    if ask.one_domain != was.one_domain:
        return "with GPUs of several NUMA domains it would start now"
    if _is_apart(ask, was):
        near = f"within one {ask.level}" if ask.level_required else f"without one {was.level} for all of it"
        return f"{near} it would start now"
    each, size = _each(was), _each(ask)
    if _is_spread(ask, was):
        before = f"{was.tasks} x {each} GPUs" if was.tasks > 1 else f"{count_text(each, 'GPU')} on one node"
        return f"{ask.tasks} x {size} on up to {ask.nodes_max} nodes instead of {before} would start now"
    if ask.tasks != was.tasks:
        return f"with {count_text(ask.tasks, 'task')} instead of {was.tasks} it would start now"
    return f"with {count_text(size, 'GPU')} instead of {each} it would start now"


def help_flags(change: Help) -> str:
    """How to ask for it: options of `yard submit`, and the key of a job file where there is no option."""
    lift, was = change.lift, change.was
    if isinstance(lift, LimitTime):
        return f"--time {duration_in_one_unit(lift.limit_ms)}"
    ask = lift.ask
    if ask.models != was.models:
        return f"--gpu-model {ask.models[0]}"
    if ask.pools != was.pools:
        return f"`pools: [{ask.pools[0]}]` in its YAML"
    if ask.one_domain != was.one_domain:
        return "no --numa"
    if _is_apart(ask, was):
        return f"--topology {'' if ask.level_required else 'prefer:'}{ask.level}"
    if _is_spread(ask, was):
        return f"--tasks {ask.tasks} --gpus {_each(ask)}, and `nodes_max: {ask.nodes_max}` in its YAML"
    return f"--tasks {ask.tasks}" if ask.tasks != was.tasks else f"--gpus {_each(ask)}"


def help_fields(change: Help) -> dict[str, Any]:
    """The same as fields of the request that submits the job."""
    lift, was = change.lift, change.was
    if isinstance(lift, LimitTime):
        return {"time_limit_s": lift.limit_ms // SECOND_MS}
    ask = lift.ask
    if ask.models != was.models:
        return {"gpu_models": list(ask.models)}
    if ask.pools != was.pools:
        return {"pools": list(ask.pools)}
    if ask.one_domain != was.one_domain:
        return {"numa": ""}
    if _is_apart(ask, was):
        return {"topology": {"level": str(ask.level), "required": ask.level_required}}
    if _is_spread(ask, was):
        fields: dict[str, Any] = {"tasks": ask.tasks, "gpus": _each(ask), "nodes_max": ask.nodes_max}
        # A smaller task needs its part of the cores and the memory.
        if ask.cpu_milli != was.cpu_milli:
            fields["cpus"] = ask.cpu_milli / MILLI
        if ask.memory_mib != was.memory_mib:
            fields["memory_mib"] = ask.memory_mib
        return fields
    return {"tasks": ask.tasks} if ask.tasks != was.tasks else {"gpus": _each(ask)}


def _is_apart(ask: Ask, was: Ask) -> bool:
    """Whether the same is asked for on nodes that need not be as near."""
    return (ask.level, ask.level_required) != (was.level, was.level_required)


def _is_spread(ask: Ask, was: Ask) -> bool:
    """Whether the same GPUs are asked for on more nodes."""
    return ask.tasks > was.tasks or ask.nodes_max != was.nodes_max


def _each(ask: Ask) -> int:
    """GPUs of one task; changes of size are found for whole GPUs only."""
    assert isinstance(ask.gpus, Whole)
    return ask.gpus.count


# -- tries of jobs that another scheduler runs. What a try ended with is in the log: these words are never changed.

LETS_WAIT_AGAIN, NODE_FAILED = "which lets it wait again", "its node failed"
"""How the reason of a try ends after which there may be another one: `preempted by Slurm, which lets it wait again`."""
