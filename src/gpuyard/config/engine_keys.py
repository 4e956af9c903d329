"""The keys that a cluster has for its engine: a mapping of the engine's name, `slurm: {…}`.

Those of an engine of another package are taken out of the file before the schema sees it, and read by its own model.
Old files have the keys of Slurm beside `engine`: they are put below `slurm`, which a note tells.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from gpuyard.config.document import Document, Mapping, Node, Nothing, Scalar, plain_of
from gpuyard.config.problems import Path, Problem, described, inside
from gpuyard.config.slurm.cluster import SlurmKeys
from gpuyard.config.values import Engine
from gpuyard.engines.registry import EngineKind, kind_of
from gpuyard.errors import quoted, remedy

_SLURM = Engine.SLURM.value


@dataclass(slots=True)
class Separated:
    """A file without the keys of engines of other packages."""

    document: Document
    own: dict[str, Any] = field(default_factory=dict)
    """By cluster: the keys of an engine of another package, as its model has them; None: it has no keys."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What people should know about the file, in sentences."""


def separated(document: Document) -> Separated:
    """Take the keys of engines of other packages out of a file."""
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
    _nest(found, name, entries)
    kind = kind_of(engine) if engine else None
    if kind is not None:
        _place, node = entries.pop(kind.name, (None, None))
        found.own[name] = _own(found, ("clusters", name, kind.name), kind, node)
    return replace(cluster, entries=entries)


def _text(entry: tuple[object, Node] | None) -> str:
    return entry[1].text if entry is not None and isinstance(entry[1], Scalar) else ""


def _nest(found: Separated, name: str, entries: dict[str, Any]) -> None:
    """Put keys of Slurm that stand beside `engine`, as in old files, below `slurm`; each keeps its place."""
    old = [key for key in entries if key in SlurmKeys.model_fields]
    if not old:
        return
    place, below = entries.get(_SLURM, (entries[old[0]][0], None))
    keys = dict(below.entries) if isinstance(below, Mapping) else {}
    for key in old:
        where, value = entries.pop(key)
        if key in keys:
            text = f"{described(('clusters', name, key))} is also below 'slurm:'; remove one of the two"
            found.problems.append(Problem(where, text))
        keys[key] = (where, value)
    if below is None or isinstance(below, Mapping):
        entries[_SLURM] = (place, Mapping(place, keys))
    told = ", ".join([quoted(key) for key in old])
    found.notes.append(f"cluster {quoted(name)}: {told} should be below 'slurm:', as keys of that engine")


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
