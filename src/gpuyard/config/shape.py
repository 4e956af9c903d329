"""Checks a file against the schema: pydantic finds the faults, this words them and adds the place."""

from typing import Any

from pydantic import BaseModel, ValidationError

from gpuyard.config.access import AuthEntry, GroupEntry, LimitsEntry, OidcEntry, UserEntry
from gpuyard.config.document import Document
from gpuyard.config.problems import FOUND_MAX, Path, Problem, described, inside
from gpuyard.config.schema import (
    BudgetEntry,
    ClassEntry,
    ClusterEntry,
    FairnessEntry,
    GpuModelEntry,
    NamedBudgetEntry,
    PolicyEntry,
    PoolEntry,
    RetentionEntry,
    TenantEntry,
    YardFile,
)
from gpuyard.config.servers import KINDS, LogsEntry, PrometheusKeys, SinkEntry, TelemetryEntry
from gpuyard.config.slurm.cluster import RestEntry, SlurmKeys
from gpuyard.errors import quoted, remedy
from gpuyard.model.settings import TOTAL
from gpuyard.model.stand_in import one_line

_KEY = "[key]"
"""What pydantic puts at the end of a path to say that the key itself is wrong."""


def check(document: Document) -> tuple[YardFile | None, list[Problem]]:
    """The file in the schema's form, or the faults in it."""
    try:
        return YardFile.model_validate(document.plain()), []
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=True)
        return None, [_problem(document, error) for error in errors[:FOUND_MAX]]


def _problem(document: Document, error: Any) -> Problem:
    path: Path = error["loc"]
    if path and path[-1] == TOTAL and not document.has(path):
        # A quota that is a bare number: the schema has put it under `total`, the file has not.
        path = path[:-1]
    if path and path[-1] == _KEY and not document.has(path):
        return Problem(document.place(path[:-1], key=True), str(error["ctx"]["error"]))
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(document, path)
        case "missing":
            return _missing_key(document, path)
        case "value_error":
            return Problem(document.place(path), f"{described(path)} {error['ctx']['error']}")
        case "dict_type" | "model_type":
            text = f"must be a mapping of keys to values, not {_kind(error['input'])}"
        case "list_type":
            text = f"must be a list such as [a, b], not {_kind(error['input'])}"
        case _:
            text = f"is not valid: {error['msg']}"
    return Problem(document.place(path), f"{described(path)} {text}")


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return quoted(value)
    return "nothing"


def _model_at(path: Path) -> type[BaseModel]:
    """The part of the schema that describes the mapping at a path."""
    match path:
        case ("clusters", _):
            return ClusterEntry
        case ("clusters", _, "slurm"):
            return SlurmKeys
        case ("clusters", _, "slurm", "rest"):
            return RestEntry
        case ("clusters", _, "pools", _):
            return PoolEntry
        case ("gpu_models", _):
            return GpuModelEntry
        case ("tenants", _):
            return TenantEntry
        case ("tenants", _, "budget"):
            return BudgetEntry
        case ("budgets", _):
            return NamedBudgetEntry
        case ("classes", _):
            return ClassEntry
        case ("policies", _):
            return PolicyEntry
        case ("fairness",):
            return FairnessEntry
        case ("retention",):
            return RetentionEntry
        case ("logs",):
            return LogsEntry
        case ("logs", "sinks", _):
            return SinkEntry
        case ("logs", "sinks", _, str(kind)) if kind in KINDS:
            return KINDS[kind]
        case ("telemetry",):
            return TelemetryEntry
        case ("telemetry", "prometheus"):
            return PrometheusKeys
        case ("auth",):
            return AuthEntry
        case ("auth", "users", _):
            return UserEntry
        case ("auth", "oidc"):
            return OidcEntry
        case ("auth", "oidc", "groups", _):
            return GroupEntry
        case ("auth", "limits"):
            return LimitsEntry
    return YardFile


def _unknown_key(document: Document, path: Path) -> Problem:
    *above, key = path
    model = _model_at(tuple(above))
    own = [field.alias or name for name, field in model.model_fields.items()]
    known = [*own, *(SlurmKeys.model_fields if model is ClusterEntry else ())]
    text = f"unknown key {quoted(str(key))} {inside(tuple(above))}; {remedy(str(key), known, 'keys')}"
    return Problem(document.place(path, key=True), text)


def _missing_key(document: Document, path: Path) -> Problem:
    *above, key = path
    owner = tuple(above)
    field = _model_at(owner).model_fields[str(key)]
    example = field.examples[0] if field.examples else "…"
    shown = f"'{key}: {one_line(example)}'"
    text = f"{described(owner)} has no {quoted(str(key))}; add {shown}"
    return Problem(document.place(owner, key=True), text)
