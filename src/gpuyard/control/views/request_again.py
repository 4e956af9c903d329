"""The request of a job that is there, as it could be sent again: the inverse of what `newjobs` makes of one.

What was decided at submission is undone: pools have the names that the job had for them, cores that it did not name are
left out, and what was made concrete on the fleet as it was then (`exclusive`, an amount of GPU memory) is asked for as
it was sent. What belongs to one submission is left out: when it may begin and should be done, what it waited for, and
whether it was held.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.model import Ask, JobSpec, Mig, Milli, Whole
from gpuyard.model.placement import features_text, preference_text, terms_text
from gpuyard.model.units import MILLI, SECOND_MS
from gpuyard.wire.job_fields import GPU_PARTS, JOB_FIELDS, PROJECT

_SECRETS = "/run/secrets/"
_ARRAY_VARIABLES = "SLURM_ARRAY_TASK_"
_SAME = ("script", "cwd", "umask", "stdout", "stderr", "open_mode", "warn_signal", "warn_shell", "slurm_commands",
         "terminal", "batch")  # fmt: skip
"""Fields that a recipe has under the same name."""


def rebuild_request(
    spec: JobSpec, limit_ms: int, recipe: Mapping[str, Any], indices: Sequence[int] = (), at_a_time: int = 0
) -> dict[str, Any]:
    """The fields of a job (`JOB_FIELDS`) that differ from their defaults. `indices`: those of an array."""
    ranks = recipe.get("ranks", 0)
    found: dict[str, Any] = {
        "name": spec.name,
        "tenant": spec.tenant,
        "class": spec.klass,
        "project": dict(spec.labels).get(PROJECT),
        "labels": {key: value for key, value in spec.labels if key != PROJECT},
        "command": recipe.get("argv"),
        "env": {
            name: value
            for name, value in (recipe.get("env") or {}).items()
            if not name.startswith(_ARRAY_VARIABLES)
        },
        "warn_s": recipe.get("warn_ms", 0) // SECOND_MS,
        "ranks": 0 if recipe.get("batch") and ranks == spec.ask.tasks else ranks,
        "time_limit_s": limit_ms // SECOND_MS or None,
        "checkpoint_s": spec.checkpoint_ms // SECOND_MS,
        "retries": spec.retries,
        "requeue": spec.requeue,
        "array": ",".join(map(str, indices)) or None,
        "array_limit": at_a_time,
        **{name: recipe.get(name, JOB_FIELDS[name].default) for name in _SAME},
        **_resources(spec.ask),
        "pools": spec.partition.split(",") if spec.partition else list(spec.ask.pools),
        **_images(recipe.get("containers") or ()),
        **json.loads(recipe.get("asked") or "{}"),
    }
    return {name: found[name] for name, field in JOB_FIELDS.items() if _said(found.get(name), field.default)}


def revise_request(request: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The request with these fields in place of its own. Labels are added to it; one with an empty value goes."""
    gone = set(fields)
    if gone & set(GPU_PARTS[:-1]):
        gone.update(GPU_PARTS)
    kept = {name: value for name, value in request.items() if name not in gone}
    said = dict(fields)
    if "labels" in said:
        labels = {**request.get("labels", {}), **said["labels"]}
        said["labels"] = {key: value for key, value in labels.items() if value}
        if PROJECT in fields["labels"]:
            kept.pop(PROJECT, None)
    return {**kept, **said}


def _said(value: Any, default: Any) -> bool:
    return value is not None and value != default and value not in ([], (), {})


def _resources(ask: Ask) -> dict[str, Any]:
    gpus, cores = ask.gpus, ask.cpu_milli
    found: dict[str, Any] = {}
    match gpus:
        case Whole(count):
            found = {"gpus": count}
        case Milli(count, milli):
            found = {"gpus": count, "gpu_milli": milli}
        case Mig(count, profile):
            found = {"gpus": count, "mig": profile}
    # What a job counts that names no cores: none with a GPU, else one.
    unnamed = 0 if gpus != Whole(0) else MILLI
    return {
        **found,
        "gpu_models": list(ask.models),
        "tasks": ask.tasks,
        "cpus": None if cores == unnamed else cores / MILLI,
        "memory_mib": ask.memory_mib,
        "clusters": list(ask.clusters),
        "nodes_max": ask.nodes_max,
        "nodes_min": ask.nodes_min,
        "on_nodes": list(ask.on_nodes),
        "not_nodes": list(ask.not_nodes),
        "select": [terms_text(ask.selects)] if ask.selects else [],
        "prefer": [preference_text(weight, term) for weight, term in ask.prefers],
        "tolerate": [str(each) for each in ask.tolerates],
        "topology": _topology(ask),
        "numa": "single" if ask.one_domain else "",
        "constraint": features_text(ask.features),
    }


def _topology(ask: Ask) -> dict[str, Any] | None:
    if ask.level is None:
        return None
    found: dict[str, Any] = {"level": str(ask.level)}
    if not ask.level_required:
        found["required"] = False
    return found | ({"for_s": ask.level_ms // SECOND_MS} if ask.level_ms else {})


def _images(containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The job's own container, then the others."""
    if not containers:
        return {}
    own, *others = containers
    secrets, volumes = {}, []
    for volume in own.get("volumes") or ():
        source, _, target = volume.partition(":")
        name = target.removeprefix(_SECRETS).removesuffix(":ro")
        if target == f"{_SECRETS}{name}:ro":
            secrets[name] = source
        else:
            volumes.append(volume)
    return {
        "image": own["image"],
        "entrypoint": own.get("entrypoint"),
        "workdir": own.get("workdir"),
        "volumes": volumes,
        "secrets": secrets,
        "pull": own.get("pull"),
        "containers": [_container(each) for each in others],
    }


def _container(each: Mapping[str, Any]) -> dict[str, Any]:
    found = {("command" if name == "argv" else name): value for name, value in each.items() if name != "pull"}
    return {name: value for name, value in found.items() if value}
