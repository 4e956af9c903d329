"""The keys that clusters have for engines, as each engine's own model reads them.

They are taken out of the file before the schema sees it: those of the engines of gpuyard wherever they stand, those of
an engine of another package in its own clusters. Old files have keys beside `engine` that belong below the engine's
name: they are put there, which a note tells.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from gpuyard.config import shape
from gpuyard.engines.registry import DEFAULT, EngineKind, Stand, own_kinds, runnable
from gpuyard.errors import quote
from gpuyard.keys import tree
from gpuyard.keys.findings import Findings, KeyFindings
from gpuyard.keys.problems import Problem, described
from gpuyard.keys.tree import Document, Nothing, Scalar, plain_of

Read = Mapping[str, Mapping[str, Any]]
"""Keys as their models have them, by cluster and engine."""


@dataclass(slots=True)
class Separated:
    """A file, and its keys of engines apart from the rest."""

    document: Document
    """The file, with keys where they belong: the places of all of them are found in it."""
    rest: Document
    """The file without keys of engines."""
    read: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Keys of engines that are given, or whose engine the cluster has."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What people should know about the file, in sentences."""


def separate_keys(document: Document) -> Separated:
    """Take the keys of engines out of a file."""
    found = Separated(document, document)
    place, clusters = document.root.entries.get("clusters", (None, None))
    if not isinstance(clusters, tree.Mapping) or place is None:
        return found
    named = {name: node for name, (_, node) in clusters.entries.items() if isinstance(node, tree.Mapping)}
    kinds = {name: _kinds(node) for name, node in named.items()}
    whole = {name: _nested(found, name, node, kinds[name]) for name, node in named.items()}
    found.document = _with_clusters(document, whole)
    rest = {name: _taken_out(found, name, node, kinds[name]) for name, node in whole.items()}
    found.rest = _with_clusters(document, rest)
    return found


def _with_clusters(document: Document, changed: Mapping[str, tree.Mapping]) -> Document:
    place, clusters = document.root.entries["clusters"]
    assert isinstance(clusters, tree.Mapping)
    entries = {name: (where, changed.get(name, node)) for name, (where, node) in clusters.entries.items()}
    root = replace(
        document.root,
        entries={**document.root.entries, "clusters": (place, replace(clusters, entries=entries))},
    )
    return replace(document, root=root)


def _kinds(cluster: tree.Mapping) -> tuple[EngineKind, ...]:
    """The engines whose keys a cluster may have in the file: those of gpuyard, and its own."""
    kinds = {kind.name: kind for kind in own_kinds()}
    if (kind := runnable(_engine(cluster))) is not None:
        kinds.setdefault(kind.name, kind)
    return tuple(kinds.values())


def _engine(cluster: tree.Mapping) -> str:
    if "engine" not in cluster.entries:
        return DEFAULT
    _place, node = cluster.entries["engine"]
    return node.text if isinstance(node, Scalar) else ""


def _nested(
    found: Separated, name: str, cluster: tree.Mapping, kinds: tuple[EngineKind, ...]
) -> tree.Mapping:
    """Put keys that stand beside `engine`, as in old files, below the engine's name; each keeps its place."""
    entries = dict(cluster.entries)
    for kind in kinds:
        if kind.stand is Stand.EITHER:
            _nest(found, name, entries, kind)
    return replace(cluster, entries=entries)


def _nest(found: Separated, name: str, entries: dict[str, Any], kind: EngineKind) -> None:
    old = [key for key in entries if key in key_names(kind)]
    if not old:
        return
    place, below = entries.get(kind.name, (entries[old[0]][0], None))
    keys = dict(below.entries) if isinstance(below, tree.Mapping) else {}
    for key in old:
        where, value = entries.pop(key)
        if key in keys:
            text = f"{described(('clusters', name, key))} is also below '{kind.name}:'; remove one of the two"
            found.problems.append(Problem(where, text))
        keys[key] = (where, value)
    if below is None or isinstance(below, tree.Mapping):
        entries[kind.name] = (place, tree.Mapping(place, keys))
    told = ", ".join([quote(key) for key in old])
    found.notes.append(
        f"cluster {quote(name)}: {told} should be below '{kind.name}:', as keys of that engine"
    )


def _taken_out(
    found: Separated, name: str, cluster: tree.Mapping, kinds: tuple[EngineKind, ...]
) -> tree.Mapping:
    """Read the keys of engines by their models; the rest of the cluster."""
    entries = dict(cluster.entries)
    engine = _engine(cluster)
    read = found.read[name] = {}
    for kind in kinds:
        given: object = {}
        if kind.stand is Stand.BESIDE:
            given = {key: plain_of(entries.pop(key)[1]) for key in key_names(kind) if key in entries}
            is_there = bool(given)
        elif is_there := kind.name in entries:
            given = plain_of(entries.pop(kind.name)[1])
        if is_there or kind.name == engine:
            read[kind.name] = _read(found, name, kind, {} if given is Nothing.NOTHING else given)
    return replace(cluster, entries=entries)


def key_names(kind: EngineKind) -> list[str]:
    """The keys of an engine, in the order of its model."""
    return list(kind.keys.model_fields) if kind.keys is not None else []


def _read(found: Separated, name: str, kind: EngineKind, given: object) -> Any:
    """The keys of an engine, as its own model reads them; None: it has none, or they are wrong."""
    place = kind.place(name)
    if kind.keys is None:
        if given:
            text = f"{described(place.path())} is not known: engine {kind.name} has no keys; remove it"
            found.problems.append(Problem(found.document.place(place.path(), key=True), text))
        return None
    try:
        return kind.keys.model_validate(given)
    except ValidationError as invalid:
        part = shape.Part(kind.keys, place.path(), place.described)
        found.problems += shape.find_problems(found.document, invalid, part)
        return None


def check(
    engines: Mapping[str, EngineKind],
    pooled: Collection[str],
    read: Read,
    models: Collection[str],
    findings: Findings,
) -> None:
    """Refuse keys of an engine that the cluster does not have, and keys that do not fit together.

    `engines`: the engine of each cluster; `pooled`: clusters to which the file gives pools; `models`: GPU models.
    """
    for name, kind in engines.items():
        for other, keys in _others(kind, read.get(name, {})):
            place = other.place(name)
            # What stands below another engine's name and only writes out a default does no harm.
            wrong = list(keys.given()) if other.stand is Stand.BESIDE else keys.beyond_defaults()
            instead = "" if other.name == DEFAULT else f", or add 'engine: {other.name}'"
            for key in wrong:
                path = place.path(key)
                text = f"{place.described(path)} is for engine {other.name} only; remove it{instead}"
                findings.at(path, text)
        if kind.fits is not None:
            kind.fits(read[name][kind.name], KeyFindings(findings, kind.place(name), name in pooled, models))


def _others(kind: EngineKind, keys: Mapping[str, Any]) -> Iterator[tuple[EngineKind, Any]]:
    yield from [
        (other, keys[other.name]) for other in own_kinds() if other.name != kind.name and other.name in keys
    ]


def settle_keys(engines: Mapping[str, EngineKind], pooled: Collection[str], read: Read) -> dict[str, Any]:
    """The keys of each cluster for its own engine, as that takes them."""
    found = {}
    for name, kind in engines.items():
        keys = read.get(name, {}).get(kind.name)
        found[name] = keys if kind.settled is None else kind.settled(keys, name in pooled)
    return found
