"""Engines by name: those of gpuyard, and those that other packages bring along.

An engine is one value, an `EngineKind`: a name, the keys that a cluster has for it in yard.yaml, what is so of every
cluster of it, and how the engine that is driven, or the observer of a cluster that schedules itself, is made from the
keys. Those of gpuyard are named here; one of another package is found by an entry point of the group `gpuyard.engines`,
or registered by the program that embeds the yard.

A kind is loaded whenever a file is read, and what drives its clusters when one is run: see `Later`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from gpuyard.engines.contract import Engine
from gpuyard.engines.observer import LooksOn, Observer
from gpuyard.errors import YardError
from gpuyard.keys.findings import KeyFindings, KeyPlace
from gpuyard.model import Capability, Node

ENTRY_POINTS = "gpuyard.engines"
"""Engines of installed packages are found under this name."""
OWN = ("local", "slurm", "kubernetes", "sim")
"""Engines that gpuyard has itself."""
DEFAULT = "local"
"""The engine of a cluster that names none."""
_OWN_KINDS = {"local": "gpuyard.engines.local.kind", "slurm": "gpuyard.engines.slurm.kind"}
"""Those that run jobs: the modules that have their `KIND`. The others are only simulated."""


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
class Later:
    """A function of a module that is imported at the first call: `Later("package.module:function")`.

    With `build` and `observer` like that, a file is read without what drives its clusters.
    """

    where: str

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)(*arguments)


class Stand(Enum):
    """Where a cluster has the keys of its engine."""

    BELOW = "below"
    """In a mapping of the engine's name."""
    BESIDE = "beside"
    """In the cluster's own mapping, beside `engine`."""
    EITHER = "either"
    """Below; old files have them beside, which a note says, so messages leave the mapping out."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What the yard has to know of an engine to offer it in yard.yaml."""

    name: str
    """As in `engine: NAME`. Small letters, digits and hyphens."""
    build: Callable[[Any, Context], Engine] | None
    """Makes the engine that is driven from its keys. It is made whether its world can be reached or not. None: clusters
    of it are only simulated."""
    keys: type[Any] | None = None
    """A pydantic model of the mapping NAME of a cluster (`gpuyard.keys.fields.YamlMapping` is a base for it); None:
    there are no keys. Values are texts as in the file."""
    lacks: frozenset[Capability] | Callable[[Any], frozenset[Capability]] = frozenset()
    """What it can never do, known without asking it. A function gets the keys."""
    words: str | Callable[[Any], str] = ""
    """What becomes of jobs, for people: `jobs run as pods of Kubernetes`. A function gets the keys."""
    title: str = ""
    """The system that it speaks to, as people write it: `Kubernetes`; empty: the name."""
    takes_nodes: bool = True
    """Whether the nodes of the cluster's pools are its nodes (`Context.nodes`); else it knows its nodes."""
    observer: Callable[[Any, Context], Observer] | None = None
    """Makes what looks on at a cluster whose keys say so, likewise; None: none can be observed."""
    observes: Callable[[Any], bool] | None = None
    """Whether a cluster with these keys is only looked at; None: none is."""
    counts: Callable[[Any], bool] | None = None
    """Whether the jobs of such a cluster count against quotas where it is observed beside others; None: they do not."""
    check: Callable[[str, Any], None] | None = None
    """Refuses (`BadInput`) a cluster of that name and these keys that cannot be run, before anything is built."""
    differences: Callable[[Any, Any], list[str]] | None = None
    """What two sets of keys, of the running yard and of a file, differ in, in words; None: that they do is all that is
    told."""
    fits: Callable[[Any, KeyFindings], None] | None = None
    """Adds what does not fit together in the keys of a cluster, as the model has them, each with its place in the
    file."""
    settled: Callable[[Any, bool], Any] | None = None
    """Turns keys as the model has them into those that all other functions here get. It is told whether the file gives
    the cluster pools as well. None: they stay as they are."""
    stand: Stand = Stand.BELOW
    """Where a cluster has them."""
    example: Mapping[str, Any] | None = None
    """Some of them, as editors show them."""
    this_machine: bool = False
    """Whether its one node is the machine that the yard runs on, which may pretend to have GPUs and to be other nodes:
    `gpus`, `emulate` and `features` of a cluster, and `emulate` of a pool."""
    pool: str = ""
    """The pool of its nodes where the file gives it none; empty: it has pools of its own."""

    @property
    def runs(self) -> bool:
        """Whether it runs jobs; else its clusters are only simulated."""
        return self.build is not None

    def place(self, cluster: str) -> KeyPlace:
        """Where a cluster has its keys."""
        return KeyPlace(
            cluster, "" if self.stand is Stand.BESIDE else self.name, silent=self.stand is Stand.EITHER
        )

    def lacking(self, keys: Any) -> frozenset[Capability]:
        """What a cluster with these keys can never do; one that is observed has what its own scheduler can."""
        if self.is_observed(keys):
            return frozenset()
        return self.lacks(keys) if callable(self.lacks) else self.lacks

    def is_observed(self, keys: Any) -> bool:
        """Whether a cluster with these keys is only looked at."""
        return self.observer is not None and self.observes is not None and self.observes(keys)

    def made(self, keys: Any, context: Context) -> Engine:
        """What stands for a cluster with these keys: the engine that drives it, or its observer."""
        if self.observer is not None and self.is_observed(keys):
            return LooksOn(context.cluster, self.observer(keys, context))
        assert self.build is not None, self.name
        return self.build(keys, context)

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
    """An engine, of gpuyard or of another package; None: there is none of that name."""
    if name in _OWN_KINDS:
        found: EngineKind = import_module(_OWN_KINDS[name]).KIND
        return found
    if name in OWN:
        return EngineKind(name, None)
    return _registered.get(name) or kinds().get(name)


def own_kinds() -> tuple[EngineKind, ...]:
    """Engines of gpuyard that run jobs, whose keys every file may have."""
    return tuple([kind for name in _OWN_KINDS if (kind := kind_of(name)) is not None])


def runnable(name: str) -> EngineKind | None:
    """An engine that runs jobs, of gpuyard or of another package; None: there is none of that name."""
    kind = kind_of(name)
    return kind if kind is not None and kind.runs else None


def _checked(kind: object) -> EngineKind:
    if not isinstance(kind, EngineKind):
        raise YardError(f"{kind!r} is not an engine", "Give a gpuyard.engines.registry.EngineKind.")
    name = kind.name
    if not (name and name.replace("-", "").isalnum() and name.isascii() and name == name.lower()):
        raise YardError(f"{name!r} is not a name for an engine", "Use small letters, digits and hyphens.")
    if name in OWN:
        raise YardError(f"gpuyard has an engine {name} itself", "Give the engine another name.")
    if kind.observes is not None and kind.observer is None:
        raise YardError(f"engine {name} says which clusters are observed, and brings no observer", "Add one.")
    return kind
