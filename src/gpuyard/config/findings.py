"""Collects what the checks find, each with its place, so that all of it can be raised at once."""

from gpuyard.config.document import Document
from gpuyard.config.problems import FOUND_MAX, ConfigError, Path, Position, Problem


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
