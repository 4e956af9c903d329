"""Collects what the checks find, each with its place, so that all of it can be raised at once."""

from collections.abc import Collection
from dataclasses import dataclass

from gpuyard.errors import quote, suggest
from gpuyard.keys.problems import FOUND_MAX, ConfigError, Path, Position, Problem, described
from gpuyard.keys.tree import Document


class Findings:
    """The problems of one document found so far."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems = list(document.problems)

    def at(self, path: Path, text: str) -> None:
        """A problem with the value at a path, or with the nearest value above it."""
        self._add(self._document.place(path), text)

    def at_key(self, path: Path, text: str) -> None:
        """A problem with the key at the end of a path."""
        self._add(self._document.place(path, key=True), text)

    def _add(self, place: Position, text: str) -> None:
        self._problems.append(Problem(place, text))
        if len(self._problems) >= FOUND_MAX:
            self.raise_if_any()

    def extend(self, problems: list[Problem]) -> None:
        """Problems that know their places already."""
        self._problems.extend(problems)

    def raise_if_any(self) -> None:
        """Raise everything found as one `ConfigError`."""
        if self._problems:
            raise ConfigError(self._document.name, self._problems)


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a cluster has the keys of an engine."""

    cluster: str
    mapping: str = ""
    """The mapping that they stand in; empty: the cluster's own."""
    silent: bool = False
    """Whether messages leave the mapping out."""

    def path(self, *key: str | int) -> Path:
        """The path of a key; of none: of the mapping."""
        return ("clusters", self.cluster, *([self.mapping] if self.mapping else []), *key)

    def described(self, path: Path) -> str:
        """How a message names the value at a path of the file, which begins with that of the mapping."""
        below = path[len(self.path()) :]
        return described(("clusters", self.cluster, *below)) if self.silent and below else described(path)


class KeyFindings:
    """What the check of an engine finds in one cluster's keys, each with its place in the file."""

    def __init__(self, findings: Findings, place: KeyPlace, has_pools: bool, models: Collection[str]) -> None:
        self._findings, self._place, self._models = findings, place, models
        self.has_pools = has_pools
        """Whether the file gives the cluster pools."""

    def described(self, *key: str | int) -> str:
        """How a message names a key: `'conf' of cluster 'hpc'`; none: the cluster."""
        if not key:
            return described(("clusters", self._place.cluster))
        return self._place.described(self._place.path(*key))

    def at(self, *key: str | int, text: str) -> None:
        """A problem with the value of a key; `text` is the whole sentence, with what to do."""
        self._findings.at(self._place.path(*key), text)

    def at_cluster(self, text: str) -> None:
        """A problem with the cluster as a whole, such as a key that it lacks."""
        self._findings.at_key(("clusters", self._place.cluster), text)

    def check_model(self, *key: str | int, model: str) -> None:
        """Refuse the value of a key that is no GPU model."""
        if model not in self._models:
            self.at(*key, text=unknown_model(model, self._models))


def unknown_model(name: str, known: Collection[str]) -> str:
    """The message for an unknown GPU model."""
    instead = suggest(name, known, "GPU models")
    joint = " Or" if instead.endswith("?") else "; or"
    return f"unknown GPU model {quote(name)}; {instead}{joint} add it under 'gpu_models'"
