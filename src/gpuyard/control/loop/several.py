"""Several engines asked as one, where something of an attempt is wanted and not where it ran.

An attempt has a key that only one engine knows; the others have nothing to say about it. An engine that does not answer
keeps nothing back that another one knows.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from gpuyard.engines.contract import (
    Engine,
    EngineError,
    GpuSignals,
    HasDaemonLogs,
    HasFence,
    HasTelemetry,
    HasTerminals,
    HasUsage,
    KeepsImages,
    KeepsLeftovers,
    Leftover,
    Protection,
    TruncatesLogs,
    Usage,
)
from gpuyard.model.mig import Slice

T = TypeVar("T")


class SeveralEngines:
    """What engines know together."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = tuple(engines.values())

    def _first(self, ask: Callable[[Engine], T], nothing: T) -> T:
        """The first answer that says something; if none does, the trouble of an engine that could not be asked."""
        trouble: EngineError | None = None
        for engine in self._engines:
            try:
                found = ask(engine)
            except EngineError as error:
                trouble = error
                continue
            if found != nothing:
                return found
        if trouble is not None:
            raise trouble
        return nothing

    def log(self, key: str, stream: str, offset: int, limit: int) -> bytes:
        """Part of what an attempt wrote."""
        return self._first(lambda engine: engine.log(key, stream, offset, limit), b"")

    def log_from(self, key: str, stream: str, offset: int) -> int:
        """Where to read on from an offset."""
        return self._first(
            lambda engine: (
                engine.log_from(key, stream, offset) if isinstance(engine, TruncatesLogs) else offset
            ),
            offset,
        )

    def usage(self, key: str) -> Usage:
        """What an attempt used."""
        return self._first(
            lambda engine: engine.usage(key) if isinstance(engine, HasUsage) else Usage(), Usage()
        )

    def daemon_lines(self, key: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """What the logs of a scheduler's daemons say of an attempt."""
        return self._first(
            lambda engine: engine.daemon_lines(key, nodes) if isinstance(engine, HasDaemonLogs) else (), ()
        )

    def terminal(self, key: str, *, own: bool) -> socket.socket | None:
        """A connection to the keeper of an attempt's terminals."""
        return self._first(
            lambda engine: engine.terminal(key, own=own) if isinstance(engine, HasTerminals) else None, None
        )

    def protections(self) -> tuple[Protection, ...]:
        """What is enforced on the machines of the engines that fence jobs themselves."""
        return tuple(
            [
                each
                for engine in self._engines
                if isinstance(engine, HasFence)
                for each in engine.protections()
            ]
        )

    def signals(self) -> tuple[GpuSignals, ...]:
        """GPU by GPU, of the engines that can see what their GPUs do."""
        return tuple(
            [
                each
                for engine in self._engines
                if isinstance(engine, HasTelemetry)
                for each in engine.signals()
            ]
        )

    def cuts(self) -> dict[str, tuple[Slice, ...]]:
        """The slices that are there now by node."""
        return {node: slices for engine in self._engines for node, slices in engine.cuts().items()}

    def leftovers(self, what: Leftover, names: Sequence[str]) -> dict[str, int]:
        """The bytes on disk of those that exist, in the folders of all engines."""
        found: dict[str, int] = {}
        for engine in self._engines:
            if isinstance(engine, KeepsLeftovers):
                for name, size in engine.leftovers(what, names).items():
                    found[name] = found.get(name, 0) + size
        return found

    def prune_images(self, before_ms: int, *, dry_run: bool) -> dict[str, int]:
        """Remove images that no job has needed since then, of every engine that keeps some."""
        found: dict[str, int] = {}
        for number, engine in enumerate(self._engines):
            if isinstance(engine, KeepsImages):
                told = engine.prune_images(before_ms, dry_run=dry_run)
                found |= {f"{number}/{name}": size for name, size in told.items()}
        return found

    def remove(self, what: Leftover, names: Sequence[str]) -> None:
        """Remove them everywhere."""
        for engine in self._engines:
            if isinstance(engine, KeepsLeftovers):
                engine.remove(what, names)
