"""Where a pod may run: node selector, affinity to nodes and tolerations, as what a job selects, prefers and tolerates.

Labels that name a pool, a GPU model or a node become these. What holds anyway is left out; every other label is one of
the nodes, and a yard without it refuses the job when it is submitted.
"""

from typing import Any

from gpuyard.intake.kubernetes.tree import Part, whole
from gpuyard.model import Effect, Expression, Operator, Toleration
from gpuyard.model.gpu_names import find_models
from gpuyard.model.placement import (
    FOR_GOOD,
    WEIGHT_MAX,
    check_label,
    check_toleration,
    make_expression,
    preference_text,
    terms_text,
)
from gpuyard.model.units import SECOND_MS

POOL_LABELS = (
    "gpuyard/pool",
    "yard/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "agentpool",
)
MODEL_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpuyard/gpu-model",
    "gpu.nvidia.com/class",
)
_HOSTNAME = "kubernetes.io/hostname"
_SO_ANYWAY = {
    "kubernetes.io/os": "linux",
    "beta.kubernetes.io/os": "linux",
    "nvidia.com/gpu.present": "true",
}
_OPERATORS = {each.value: each for each in Operator}
_EFFECTS = {each.value: each for each in Effect}
_SECONDS_MAX = 10 * 365 * 86_400


def placement_fields(spec: Part) -> dict[str, Any]:
    """Fields of a job for the part of a pod that says where it may run."""
    found: dict[str, Any] = {}
    selects: list[str] = []
    with spec.part("nodeSelector") as selector:
        found |= _selected(selector, selects)
    prefers: list[str] = []
    with spec.part("affinity") as affinity:
        with affinity.part("nodeAffinity") as part:
            selects += _required(part)
            prefers += _preferred(part)
        _of_pods(affinity)
    found |= {"select": selects} if selects else {}
    found |= {"prefer": prefers} if prefers else {}
    tolerates = [text for part in spec.parts("tolerations") if (text := _toleration(part))]
    return found | ({"tolerate": list(dict.fromkeys(tolerates))} if tolerates else {})


def _selected(selector: Part, selects: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in selector.names():
        value = selector.text(key)
        if key in MODEL_LABELS:
            found["gpu_models"] = list(find_models(value))
        elif key in POOL_LABELS:
            found["pools"] = [value]
        elif key == _HOSTNAME:
            found["on_nodes"] = [value]
        elif _SO_ANYWAY.get(key) != value:
            try:
                selects.append(str(make_expression(key, Operator.IN, (value,))))
            except ValueError as error:
                selector.problem(key, f"cannot be kept: it {error}")
    return found


# -- affinity ----------------------------------------------------------------------------------------------------------


def _required(part: Part) -> list[str]:
    """What must hold, as one selection; none if nothing must."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    if not part.has(key):
        return []
    with part.part(key) as required:
        terms = required.parts("nodeSelectorTerms")
        if not terms:
            required.problem("nodeSelectorTerms", "is missing: no node would do")
        read = [_term(term) for term in terms]
    # A term that holds anyway makes the whole hold.
    return [] if not all(read) else [terms_text(read)]


def _preferred(part: Part) -> list[str]:
    found = []
    for each in part.parts("preferredDuringSchedulingIgnoredDuringExecution"):
        with each:
            weight = each.get("weight", whole(1, WEIGHT_MAX), 1)
            if term := _term(each.part("preference")):
                found.append(preference_text(weight, term))
    return found


def _term(term: Part) -> tuple[Expression, ...]:
    """The expressions of a term; none: it holds anyway."""
    found = []
    with term:
        listed = [*term.parts("matchExpressions"), *term.parts("matchFields")]
        if not listed:
            term.problem("matchExpressions", "is missing: no node would do")
        for part in listed:
            with part:
                found += _expression(part)
    return tuple(found)


def _expression(part: Part) -> list[Expression]:
    key, operator, values = part.text("key"), part.text("operator"), part.texts("values")
    if operator not in _OPERATORS:
        part.problem("operator", f"must be one of {', '.join(_OPERATORS)}")
        return []
    if key in MODEL_LABELS:
        key, values = MODEL_LABELS[0], [model for value in values for model in find_models(value)]
    elif key in POOL_LABELS:
        key = POOL_LABELS[0]
    elif key == "metadata.name":
        key = _HOSTNAME
    elif operator == "In" and _SO_ANYWAY.get(key) in values:
        return []
    try:
        return [make_expression(key, _OPERATORS[operator], tuple(values))]
    except ValueError as error:
        part.problem("key", f"cannot be kept: it {error}")
        return []


def _of_pods(affinity: Part) -> None:
    """Affinity to other pods, and away from them."""
    for kind in ("podAffinity", "podAntiAffinity"):
        with affinity.part(kind) as part:
            for key in part.names():
                if key.startswith("preferred"):
                    part.left_out({key: "there are no soft constraints between jobs"})
                else:
                    part.refused({key: "jobs are not placed by where other jobs are; use nodeSelector"})


# -- tolerations -------------------------------------------------------------------------------------------------------


def _toleration(part: Part) -> str:
    """A toleration as text; empty: there is nothing to tolerate, or it is wrong."""
    with part:
        key, value, effect = part.text("key"), part.text("value"), part.text("effect")
        operator = part.text("operator") or "Equal"
        if operator not in ("Equal", "Exists"):
            part.problem("operator", "must be Equal or Exists")
            return ""
        if operator == "Exists" and value:
            part.problem("value", "is for operator Equal: Exists takes any value")
            return ""
        if operator == "Equal" and not key:
            part.problem("key", "is missing: only operator Exists takes any key")
            return ""
        if effect and effect not in _EFFECTS:
            part.problem("effect", f"must be one of {', '.join(_EFFECTS)}")
            return ""
        stays_ms = FOR_GOOD
        if part.has("tolerationSeconds"):
            if effect != Effect.NO_EXECUTE.value:
                part.problem("tolerationSeconds", f"is for effect {Effect.NO_EXECUTE.value}")
                return ""
            stays_ms = part.get("tolerationSeconds", whole(0, _SECONDS_MAX), 0) * SECOND_MS
        try:
            if key:
                check_label(key, value)
            return str(
                check_toleration(
                    Toleration(key, value if operator == "Equal" else None, _EFFECTS.get(effect), stays_ms)
                )
            )
        except ValueError as error:
            part.problem("key", f"cannot be kept: it {error}")
            return ""
