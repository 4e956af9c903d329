"""Events as rows of the log, and back: kind, version and a JSON text.

A log outlives the release that wrote it. So a row says which version of its kind it holds, and a reader that knows a
newer version lifts the old text up one version at a time before it makes the event. A field that is added with a
default needs no new version: an old text simply lacks it. Anything else that changes the shape of an event does:
raise its number in `VERSIONS` and add the step to `UPCASTERS`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, get_args

from gpuyard.core.plain import Plain, from_plain, to_plain
from gpuyard.model import Event
from gpuyard.store.errors import StoreDamaged, StoreError

Upcaster = Callable[[Plain], Plain]
"""From the plain form of one version to that of the next."""

VERSIONS: dict[str, int] = {}
"""Kinds whose version is no longer 1."""

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""By kind and the version that is read; gives the version after it."""

_INTEGER_MAX = (1 << 63) - 1
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class Encoded(NamedTuple):
    """One event as it is written."""

    at_ms: int
    kind: str
    version: int
    body: str


class Codec:
    """The kinds of events that a release knows, each with its version and the way up from older ones."""

    def __init__(
        self,
        kinds: Iterable[type],
        versions: Mapping[str, int],
        upcasters: Mapping[tuple[str, int], Upcaster],
    ) -> None:
        self._kinds: dict[str, Any] = {kind.__name__: kind for kind in kinds}
        self._versions = {name: versions.get(name, 1) for name in self._kinds}
        self._tags = {kind: (name, self._versions[name]) for name, kind in self._kinds.items()}
        self._upcasters = dict(upcasters)

    def encode(self, event: Event) -> Encoded:
        """The event as a row."""
        tag = self._tags.get(type(event))
        if tag is None:
            raise StoreError(f"{type(event).__name__} is not a kind of event that can be stored")
        at_ms = event.at_ms
        if not -_INTEGER_MAX <= at_ms <= _INTEGER_MAX:
            raise StoreError(f"{tag[0]} at {at_ms} ms: no such time can be stored")
        return Encoded(at_ms, tag[0], tag[1], _to_json(to_plain(event)))

    def decode(self, seq: int, kind: str, version: int, body: str) -> Event:
        """The event of a row."""
        known = self._versions.get(kind)
        if known is None or version > known:
            what = f"of kind {kind}" if known is None else f"{kind} of version {version}"
            raise StoreError(
                f"event {seq} is {what}, which this release does not know",
                "The log was written by a newer release; start that one.",
            )
        try:
            plain = json.loads(body)
            while version < known:
                plain = self._upcasters[kind, version](plain)
                version += 1
            event: Event = from_plain(self._kinds[kind], plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"event {seq} ({kind}, version {version}) cannot be read: {error!r}",
                "Stop, keep a copy of the store as it is, and restore a backup.",
            ) from error
        return event


CODEC = Codec(get_args(Event), VERSIONS, UPCASTERS)
"""All events of the model."""
