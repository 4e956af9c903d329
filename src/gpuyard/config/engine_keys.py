"""The keys that a cluster has for its engine: a mapping of the engine's name, `slurm: {…}`.

They are taken out of the file before the schema sees it. Those of an engine of another package are read by its own
model; those of Slurm go where old files have them, beside `engine`, which a note tells.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from gpuyard.config.document import Document, Mapping, Node, Nothing, Scalar, plain_of
from gpuyard.config.problems import Path, Problem, described, inside
from gpuyard.config.slurm_cluster import SlurmKeys
from gpuyard.config.values import Engine
from gpuyard.engines.registry import EngineKind, kind_of
from gpuyard.errors import quoted, remedy

_SLURM = Engine.SLURM.value


@dataclass(slots=True)
class Separated:
    """A file without the keys of engines."""

    document: Document
    own: dict[str, Any] = field(default_factory=dict)
    """By cluster: the keys of an engine of another package, as its model has them; None: it has no keys."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What people should know about the file, in sentences."""


def separated(document: Document) -> Separated:
    """Take the keys of engines out of a file."""
    found = Separated(document)
    place_of_clusters, clusters = document.root.entries.get("clusters", (None, None))
    if not isinstance(clusters, Mapping) or place_of_clusters is None:
        return found
    entries = {
        name: (place, _cluster(found, name, node) if isinstance(node, Mapping) else node)
        for name, (place, node) in clusters.entries.items()
    }
    root = replace(
        document.root,
        entries={
            **document.root.entries,
            "clusters": (place_of_clusters, replace(clusters, entries=entries)),
        },
    )
    found.document = replace(document, root=root)
    return found


def _cluster(found: Separated, name: str, cluster: Mapping) -> Mapping:
    entries = dict(cluster.entries)
    engine = _text(entries.get("engine"))
    if _SLURM in entries:
        return replace(cluster, entries=_slurm(found, name, entries))
    if engine == _SLURM and (old := [key for key in entries if key in SlurmKeys.model_fields]):
        keys = ", ".join([quoted(key) for key in old])
        found.notes.append(f"cluster {quoted(name)}: {keys} should be below 'slurm:', as keys of that engine")
    kind = kind_of(engine) if engine else None
    if kind is not None:
        _place, node = entries.pop(kind.name, (None, None))
        found.own[name] = _own(found, ("clusters", name, kind.name), kind, node)
    return replace(cluster, entries=entries)


def _text(entry: tuple[object, Node] | None) -> str:
    return entry[1].text if entry is not None and isinstance(entry[1], Scalar) else ""


def _slurm(found: Separated, name: str, entries: dict[str, Any]) -> dict[str, Any]:
    """The keys of Slurm beside the cluster's own, with the places where they stand."""
    path: Path = ("clusters", name, _SLURM)
    place, keys = entries.pop(_SLURM)
    if isinstance(keys, Scalar) and keys.null:
        return entries
    if not isinstance(keys, Mapping):
        text = f"{described(path)} must be a mapping of keys to values"
        found.problems.append(Problem(place, text))
        return entries
    for key, (where, value) in keys.entries.items():
        if key not in SlurmKeys.model_fields:
            known = remedy(key, SlurmKeys.model_fields, "keys")
            found.problems.append(Problem(where, f"unknown key {quoted(key)} {inside(path)}; {known}"))
        elif key in entries:
            text = f"{described((*path, key))} is also beside 'slurm:'; remove one of the two"
            found.problems.append(Problem(where, text))
        else:
            entries[key] = (where, value)
    return entries


def _own(found: Separated, path: Path, kind: EngineKind, node: Node | None) -> Any:
    """The keys of an engine of another package, as its own model reads them."""
    given = {} if node is None else plain_of(node)
    if given is Nothing.NOTHING:
        given = {}
    if kind.keys is None:
        if given:
            text = f"{described(path)} is not known: engine {kind.name} has no keys; remove it"
            found.problems.append(Problem(found.document.place(path, key=True), text))
        return None
    try:
        return kind.keys.model_validate(given)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False):
            where = (*path, *error["loc"])
            is_key = error["type"] == "extra_forbidden"
            text = _wrong(where, error, list(kind.keys.model_fields))
            found.problems.append(Problem(found.document.place(where, key=is_key), text))
        return None


def _wrong(path: Path, error: Any, known: list[str]) -> str:
    """What is wrong with a key of an engine of another package."""
    if error["type"] == "extra_forbidden" and len(path) == _OWN_KEY:
        key = str(path[-1])
        return f"unknown key {quoted(key)} {inside(path[:-1])}; {remedy(key, known, 'keys')}"
    if error["type"] == "value_error":
        return f"{described(path)} {error['ctx']['error']}"
    if error["type"] == "missing":
        return f"{described(path[:-1])} has no {quoted(str(path[-1]))}; add it"
    return f"{described(path)} is not valid: {error['msg']}"


_OWN_KEY = 4
"""How long the path of a key of an engine is: clusters, the cluster, the engine, the key."""
