"""The queue as a list: the jobs that were asked for, in the order of the scheduler, made piece by piece.

It is made of what was published last and does not need the replica: a slow reader of hundreds of thousands of rows gets
those of one event, and no other request waits for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.reading.model import Line, Model, encode
from gpuyard.control.reading.plain_views import MORE_COLUMNS, masked_row, more_values, queue_row
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import Node
from gpuyard.wire.endpoints import QUEUE_COLUMNS
from gpuyard.wire.replies.jobs import QueueHead

PIECE = 2500
"""Rows that are made at a time."""

OWN_MAX = 100
"""A user with at most this many jobs gets them without a walk through all jobs."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs. What is empty does not matter."""

    states: frozenset[str] = frozenset()
    tenant: str = ""
    """With all tenants below it."""
    user: str = ""
    name: str = ""
    cluster: str = ""
    """Jobs that run in this cluster, and those that wait and may. Only the queue knows where jobs are."""
    ran: bool = False
    """Only jobs that have started."""
    sight: Sight = ALL
    """Of these rows, those that the person may see."""

    def live(self, record: JobRecord) -> bool:
        """Whether a live job is wanted."""
        spec = record.job.spec
        return (
            (self.sight.whole or self.sight.sees(spec.tenant))
            and (not self.states or record.state.value in self.states)
            and (not self.user or spec.user == self.user)
            and (not self.name or spec.name == self.name)
            and (not self.ran or record.started_ms > 0)
            and (not self.tenant or f"{spec.tenant}/".startswith(f"{self.tenant}/"))
        )

    def in_cluster(self, record: JobRecord, nodes: Sequence[Node]) -> bool:
        """Whether a live job runs in the cluster that is wanted, or may."""
        if not self.cluster:
            return True
        if record.grants:
            return nodes[record.grants[0].node].cluster == self.cluster
        clusters = record.job.spec.ask.clusters
        return not clusters or self.cluster in clusters


EVERYTHING = Filter()


class QueueList:
    """One list: what stands above the rows, and the rows."""

    def __init__(
        self,
        model: Model,
        own: list[int] | None,
        wanted: Filter,
        limit: int | None,
        wide: bool,
        now_ms: int,
        piece: int = PIECE,
    ) -> None:
        """`own`: the few jobs of the user that is asked for; None: of all, or they are many. `piece`: how many rows are
        made at one go.
        """
        self._most = piece
        self._model = model
        self._wanted = wanted
        self._left = limit
        self._wide = wide
        self._masks = not (
            wanted.sight.whole or wanted.tenant or wanted.user or wanted.name or wanted.cluster
        )
        self._ids = model.ids() if wanted == EVERYTHING and not wide else iter(())
        self._line: Line = model.line() if own is None else model.own(own)
        self.head: QueueHead = {
            "seq": model.seq,
            "at_ms": max(now_ms, model.now_ms),
            "running": model.running,
            "waiting": model.waiting,
            "set_aside": model.set_aside,
            "columns": [*QUEUE_COLUMNS, *MORE_COLUMNS] if wide else list(QUEUE_COLUMNS),
        }
        self._first, self._over = self._piece()

    @property
    def short(self) -> bool:
        """Whether all of it is made already."""
        return self._over

    def pieces(self) -> Iterator[str]:
        """The rows as JSON, without the brackets around them all, some at a time. Can be asked for once."""
        if self._first:
            yield self._first
        comma = "," if self._first else ""
        while not self._over:
            rows, self._over = self._piece()
            if rows:
                yield comma + rows
                comma = ","

    def _piece(self) -> tuple[str, bool]:
        """The rows of the next jobs, and whether these were the last."""
        model, wanted, wide, left = self._model, self._wanted, self._wide, self._left
        most = self._most
        everything, nodes, reason, alike = wanted == EVERYTHING, model.nodes, model.reason, model.alike
        texts: list[str] = []
        if everything and not wide:
            texts = model.texts(self._ids, most if left is None else min(most, left))
            if left is not None:
                self._left = left - len(texts)
            return ",".join(texts), len(texts) < most or self._left == 0
        looked = 0
        for place, row in islice(self._line, most):
            looked += 1
            record = row.record
            if everything or (wanted.live(record) and wanted.in_cluster(record, nodes)):
                if wide:
                    said = queue_row(record, nodes, reason(row, place))
                    texts.append(encode(said + more_values(record, row.waits_for)))
                else:
                    texts.append(row.text(nodes, reason(row, place), alike))
            elif self._masks and _out_of_sight(wanted, record):
                texts.append(encode(masked_row(record, wide)))
            if len(texts) == left:
                break
        if left is not None:
            self._left = left = left - len(texts)
        return ",".join(texts), looked < most or left == 0


def _out_of_sight(wanted: Filter, record: JobRecord) -> bool:
    """Whether a job is in the wanted state but out of sight: its row is shown without names."""
    seen = wanted.sight.sees(record.job.spec.tenant)
    return not seen and (not wanted.states or record.state.value in wanted.states)
