"""The audit trail: the lines of the log that somebody wrote, with who that was. There is no other record to keep."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuyard.core.bits import positions
from gpuyard.core.geometry import Place, layout_text
from gpuyard.model import (
    ConfigSet,
    Event,
    JobSubmitted,
    LayoutPinned,
    LayoutReleased,
    NodeCordoned,
    NodeUncordoned,
    Requested,
    TokenMade,
    TokenRevoked,
)
from gpuyard.store import Store

KINDS = (
    ConfigSet, JobSubmitted, Requested, NodeCordoned, NodeUncordoned, LayoutPinned, LayoutReleased, TokenMade,
    TokenRevoked,
)  # fmt: skip
_NAMES = [kind.__name__ for kind in KINDS]
_LOOKED_AT_MAX = 20_000
"""Lines that one question looks at; where the next begins is told."""


class Done(NamedTuple):
    """What somebody did."""

    who: str
    what: str
    about: str
    tenant: str = ""


def audit(
    store: Store,
    node: Callable[[int], str],
    *,
    user: str = "",
    before_seq: int | None = None,
    limit: int = 100,
) -> tuple[list[dict[str, Any]], int | None]:
    """Lines, the newest first, and where the next ones begin; None: there are no more."""
    lines: list[dict[str, Any]] = []
    looked_at = 0
    while looked_at < _LOOKED_AT_MAX:
        found = store.read_back(_NAMES, before_seq, 1000)
        for seq, event in found:
            before_seq = seq
            done = _done(event, node)
            if user and done.who.partition(" ")[0] != user:
                continue
            lines.append({"seq": seq, "at_ms": event.at_ms, **done._asdict()})
            if len(lines) == limit:
                return lines, before_seq
        looked_at += len(found)
        if len(found) < 1000:
            return lines, None
    return lines, before_seq


def _done(event: Event, node: Callable[[int], str]) -> Done:
    match event:
        case ConfigSet():
            return Done(event.by, "configure", f"version {event.number} of the configuration")
        case JobSubmitted():
            spec = event.job.spec
            return Done(spec.user, "submit", f"job {event.job.label}", spec.tenant)
        case Requested():
            return Done(event.by, event.verb.value, f"job {event.job_id}")
        case NodeCordoned():
            return Done(event.by, "drain", f"node {node(event.node)}: {event.why}")
        case NodeUncordoned():
            return Done(event.by, "resume", f"node {node(event.node)}")
        case LayoutPinned():
            pieces = {gpu: [Place(p.profile, p.start) for p in event.slices if p.gpu == gpu]
                      for gpu in positions[event.gpus]}  # fmt: skip
            said = ", ".join([f"GPU {gpu} to {layout_text(held)}" for gpu, held in pieces.items()])
            return Done(event.by, "pin", f"node {node(event.node)}: {said}")
        case LayoutReleased():
            gpus = ", ".join([str(gpu) for gpu in positions[event.gpus]])
            return Done(event.by, "unpin", f"node {node(event.node)}: GPU {gpus}")
        case TokenMade():
            text = f"token {event.token} for {event.user} as {event.role}"
            return Done(event.by, "make token", text, event.tenant)
        case TokenRevoked():
            return Done(event.by, "revoke token", f"token {event.token} of {event.user}")
    raise AssertionError(event)
