"""Engines by name: those of gpuyard, and those that other packages bring along.

An engine of another package is one value, an `EngineKind`: a name, the keys that a cluster has for it in yard.yaml, in
a mapping of the engine's name, and how it is built from them. It is found by an entry point of the group
`gpuyard.engines`, or registered by the program that embeds the yard.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from gpuyard.engines.contract import Engine
from gpuyard.errors import YardError
from gpuyard.model import Capability, Node

ENTRY_POINTS = "gpuyard.engines"
"""Engines of installed packages are found under this name."""
OWN = ("local", "slurm", "kubernetes", "sim")
"""Engines that gpuyard has itself."""
_OWN_KINDS = {"local": "gpuyard.engines.local.kind", "slurm": "gpuyard.engines.slurm.kind"}
"""Those that run jobs: the modules that have their `KIND`. Each is loaded when a cluster of it is run."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an engine is built with, besides its own keys."""

    cluster: str
    """The name of its cluster, which its nodes carry."""
    folder: Path
    """A folder of its own below the yard's data; it exists."""
    yard: Path
    """The yard's data."""
    nodes: tuple[Node, ...] = ()
    """Nodes of the pools that yard.yaml gives the cluster; none: the engine knows its nodes."""
    gpu_memory_mib: Mapping[str, int] = field(default_factory=dict)
    """Memory of GPU models that yard.yaml adds to the catalogue."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What the yard has to know of an engine to offer it in yard.yaml."""

    name: str
    """As in `engine: NAME`. Small letters, digits and hyphens."""
    build: Callable[[Any, Context], Engine]
    """Makes the engine from its keys. It is made whether its world can be reached or not."""
    keys: type[Any] | None = None
    """A pydantic model of the mapping NAME of a cluster (`gpuyard.config.fields.YamlMapping` is a base for it); None:
    there are no keys. Values are texts as in the file."""
    lacks: frozenset[Capability] = frozenset()
    """What it can never do, known without asking it."""
    words: str | Callable[[Any], str] = ""
    """What becomes of jobs, for people: `jobs run as pods of Kubernetes`. A function gets the keys."""
    title: str = ""
    """The system that it speaks to, as people write it: `Kubernetes`; empty: the name."""
    takes_nodes: bool = True
    """Whether the nodes of the cluster's pools are its nodes (`Context.nodes`); else it knows its nodes."""
    observes: Callable[[Any], bool] | None = None
    """Whether a cluster with these keys is only looked at; None: none is."""
    check: Callable[[str, Any], None] | None = None
    """Refuses (`BadInput`) a cluster of that name and these keys that cannot be run, before anything is built."""
    differences: Callable[[Any, Any], list[str]] | None = None
    """What two sets of keys, of the running yard and of a file, differ in, in words; None: that they do is all that is
    told."""

    def told(self, keys: Any) -> str:
        """What becomes of jobs, for people."""
        words = self.words if isinstance(self.words, str) else self.words(keys)
        return words or f"jobs are handed to {self.name}"

    def differ(self, ours: Any, theirs: Any) -> list[str]:
        """What two sets of keys differ in, in words."""
        if self.differences is not None:
            return self.differences(ours, theirs)
        return [] if ours == theirs else ["the keys of its engine are others in the file"]


_registered: dict[str, EngineKind] = {}


def register(kind: EngineKind) -> None:
    """Offer an engine in yard.yaml, in this process."""
    _registered[_checked(kind).name] = kind


def unregister(name: str) -> None:
    """Offer an engine no longer."""
    _registered.pop(name, None)


def kinds() -> dict[str, EngineKind]:
    """Engines of other packages, by name."""
    # Only a yard.yaml that names such an engine needs to look.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = dict(_registered)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            kind = _checked(entry.load())
        except Exception as error:
            raise YardError(
                f"the engine {entry.name} ({entry.value}) cannot be loaded: {error}",
                "Repair the package that has it, or remove the package.",
            ) from error
        found.setdefault(kind.name, kind)
    return dict(sorted(found.items()))


def kind_of(name: str) -> EngineKind | None:
    """An engine of another package; None: there is none of that name."""
    if name in OWN:
        return None
    return _registered.get(name) or kinds().get(name)


def runnable(name: str) -> EngineKind | None:
    """An engine that runs jobs, of gpuyard or of another package; None: there is none of that name."""
    if name in _OWN_KINDS:
        found: EngineKind = import_module(_OWN_KINDS[name]).KIND
        return found
    return kind_of(name)


def _checked(kind: object) -> EngineKind:
    if not isinstance(kind, EngineKind):
        raise YardError(f"{kind!r} is no engine", "Give a gpuyard.engines.registry.EngineKind.")
    name = kind.name
    if not (name and name.replace("-", "").isalnum() and name.isascii() and name == name.lower()):
        raise YardError(f"{name!r} is no name for an engine", "Use small letters, digits and hyphens.")
    if name in OWN:
        raise YardError(f"gpuyard has an engine {name} itself", "Give the engine another name.")
    return kind
