"""A projection over events, without a store: for tests of your own projections."""

from collections.abc import Iterable
from json import loads

from gpuyard.control.projections.following import Projection, Rows, facts
from gpuyard.model import Event
from gpuyard.model.serialise import Plain


def projected(projection: Projection, events: Iterable[Event]) -> dict[str, Plain]:
    """The rows that a projection makes of a log, by key."""
    rows = Rows()
    for seq, event in enumerate(events, start=1):
        for fact in facts(event):
            projection.fold(rows, seq, fact)
    return {key: loads(value) for key, value in sorted(rows.known.items()) if value is not None}
