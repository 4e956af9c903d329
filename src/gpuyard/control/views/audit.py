"""The audit trail: the events of the log that a person caused, with that person. There is no other record to keep."""

from collections.abc import Callable
from typing import NamedTuple

from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.mig_geometry import PlacedSlice, layout_text
from gpuyard.model import (
    ConfigSet,
    Event,
    JobChanged,
    JobEntered,
    JobSubmitted,
    LayoutPinned,
    LayoutReleased,
    MonthClosed,
    NameUnbound,
    NodeCordoned,
    NodeMarked,
    NodeUncordoned,
    Requested,
    TasksSubmitted,
    TokenMade,
    TokenRevoked,
)
from gpuyard.store import Store
from gpuyard.wire.replies.people import AuditLine

KINDS = (
    ConfigSet, JobSubmitted, TasksSubmitted, JobChanged, Requested, NodeCordoned, NodeUncordoned, NodeMarked,
    LayoutPinned, LayoutReleased, TokenMade, TokenRevoked, NameUnbound, MonthClosed, JobEntered,
)  # fmt: skip
_NAMES = [kind.__name__ for kind in KINDS]
_BLOCK = 1000
_LOOKED_AT_MAX = 20_000
"""Events that one request looks at; the reply says where the next one begins."""


class Done(NamedTuple):
    """What a person did."""

    by: str
    what: str
    about: str
    tenant: str = ""
    together: object = None
    """Lines that follow each other and have the same were one wish: the tasks of an array, jobs cancelled at once."""


class _Line:
    """One line of the trail, for one event or for several that were one wish."""

    def __init__(self, seq: int, event: Event, done: Done) -> None:
        self.done = done
        self.seq, self.at_ms = seq, event.at_ms
        self.first = event
        """The earliest so far."""
        self.jobs = _jobs(event)

    def takes(self, event: Event, done: Done) -> bool:
        """Whether an event belongs to this line; if so it is in."""
        if done.together is None or done.together != self.done.together:
            return False
        self.first, self.jobs = event, self.jobs + _jobs(event)
        return True

    def told(self, job: Callable[[int], str]) -> AuditLine:
        done, about = self.done, self.done.about
        if self.jobs > 1 and isinstance(self.first, JobSubmitted | TasksSubmitted):
            about = f"job {self.first.job.array_id}, {self.jobs} tasks"
        elif self.jobs > 1 and isinstance(self.first, JobChanged):
            about = f"{self.jobs} jobs, job {self.first.job.label} first: {self.first.what}"
        elif self.jobs > 1 and isinstance(self.first, Requested):
            about = f"{self.jobs} jobs, job {job(self.first.job_id)} first"
        return {
            "seq": self.seq,
            "at_ms": self.at_ms,
            "who": done.by,
            "what": done.what,
            "about": about,
            "tenant": done.tenant,
        }


def _jobs(event: Event) -> int:
    return len(event.indices) if isinstance(event, TasksSubmitted) else 1


def read_audit(
    store: Store,
    node: Callable[[int], str],
    job: Callable[[int], str] = str,
    *,
    user: str = "",
    before_seq: int | None = None,
    limit: int = 100,
) -> tuple[list[AuditLine], int | None]:
    """Lines, the newest first, and where the next ones begin; None: there are no more."""
    lines: list[_Line] = []
    looked_at, more = 0, True
    while more and looked_at < _LOOKED_AT_MAX:
        found = store.read_back(_NAMES, before_seq, _BLOCK)
        for seq, event in found:
            done = _done(event, node, job)
            if (not user or done.by.partition(" ")[0] == user) and not (
                lines and lines[-1].takes(event, done)
            ):
                if len(lines) == limit:
                    return [line.told(job) for line in lines], before_seq
                lines.append(_Line(seq, event, done))
            before_seq = seq
        looked_at += len(found)
        more = len(found) == _BLOCK
    return [line.told(job) for line in lines], before_seq if more else None


def _marks_text(event: NodeMarked) -> str:
    """`zone=a, disk-, gone:NoExecute`."""
    parts = ["reset to yard.yaml"] if event.reset else []
    parts += [f"{key}={value}" for key, value in event.labels] + [f"{key}-" for key in event.unlabelled]
    parts += [str(taint) for taint in event.taints] + [f"{taint}-" for taint in event.untainted]
    return ", ".join(parts)


def _done(event: Event, node: Callable[[int], str], job: Callable[[int], str]) -> Done:
    match event:
        case ConfigSet():
            return Done(event.by, "configure", f"version {event.number} of the configuration")
        case JobSubmitted() | TasksSubmitted():
            spec = event.job.spec
            array = event.job.array_id or None
            return Done(spec.user, "submit", f"job {event.job.label}", spec.tenant, array)
        case JobChanged():
            about, once = f"job {event.job.label}: {event.what}", (event.by, event.what, event.at_ms)
            return Done(event.by, "update", about, event.job.spec.tenant, once)
        case Requested():
            together = (event.by, event.verb, event.at_ms)
            return Done(event.by, event.verb.value, f"job {job(event.job_id)}", "", together)
        case NodeCordoned():
            return Done(event.by, "drain", f"node {node(event.node)}: {event.why}")
        case NodeUncordoned():
            return Done(event.by, "resume", f"node {node(event.node)}")
        case NodeMarked():
            return Done(event.by, "mark", f"node {node(event.node)}: {_marks_text(event)}")
        case LayoutPinned():
            pieces = {gpu: [PlacedSlice(p.profile, p.start) for p in event.slices if p.gpu == gpu]
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
        case NameUnbound():
            return Done(event.by, "unbind name", event.user)
        case MonthClosed():
            return Done(event.by, "close month", event.month)
        case JobEntered():
            return Done(event.by, "enter", f"job {job(event.job_id)}: {event.how}")
    raise AssertionError(event)
