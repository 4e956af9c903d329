"""Everything that a Prometheus may want to know of a server, in its text: signals, and the scheduler's own figures.

What people may see of jobs they see here: rows of jobs and tenants go through the asker's sight.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuyard import __version__
from gpuyard.control.access.rights import Sight
from gpuyard.control.duties.duty import Duties
from gpuyard.control.duties.projections import Filler
from gpuyard.control.reading.publisher import Publisher
from gpuyard.control.reading.queue_counts import QueueCounts
from gpuyard.control.replica.labels import current_key
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch
from gpuyard.control.views import scheduler_metrics as scheduler
from gpuyard.control.views.scheduler_metrics import NodeNames, Standing, counter_lines, gauge_lines
from gpuyard.core import State
from gpuyard.shipping.contract import Sends
from gpuyard.telemetry.exposition import Row, SignalLines, exposition_text, labels_text, open_metrics
from gpuyard.wire.replies.people import ReadyReply


class Metrics:
    """What one server tells."""

    def __init__(
        self,
        replica: Replica,
        reading: Publisher,
        standing: Standing,
        watch: Watch,
        projections: Filler,
        shippers: Sequence[Sends],
        duties: Duties,
        readiness: Callable[[], tuple[bool, ReadyReply]],
        now_ms: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._reading = reading
        self._standing = standing
        self._watch = watch
        self._projections = projections
        self._shippers = shippers
        self._duties = duties
        self._readiness = readiness
        self._now_ms = now_ms
        self._queue = QueueCounts()
        self._signals = SignalLines()

    def text(self, sight: Sight, *, as_open: bool = False) -> str:
        """The whole answer, with what this person may see; `as_open`: as OpenMetrics has it."""
        lines = self._lines(sight)
        return exposition_text(open_metrics(lines) if as_open else lines)

    def _lines(self, sight: Sight) -> list[str]:
        replica, watch, standing = self._replica, self._watch, self._standing
        _ready, ready = self._readiness()
        waiting = self._queue.of(self._reading.latest(listing=True))
        with replica.lock:
            replica.catch_up()
            yard, state = replica.store.yard, replica.state
            names = NodeNames(state)
            jobs, info = _jobs(state, yard, sight)
            own = [
                *scheduler.fleet_lines(state, names),
                *scheduler.tenant_lines(state, sight, replica.tally.ended),
                *scheduler.tally_lines(replica.tally),
            ]
        release = [(labels_text(version=__version__, yard=yard), 1)]
        return [
            *gauge_lines("info", "The release and the yard, as labels.", release),
            *scheduler.server_lines(ready, standing),
            *scheduler.engine_lines(standing, self._now_ms()),
            *scheduler.projection_lines(self._projections.status()),
            *scheduler.duty_lines(self._duties),
            *own,
            *scheduler.queue_lines(waiting, sight),
            *gauge_lines("job_info", "A running job, as labels; join it by its id.", info),
            *_watch(watch, names),
            *_sinks(self._shippers),
            *self._signals.of(
                [replace(each, node=names(each.node)) for each in watch.shown()],
                {(names(node), gpu): card for (node, gpu), card in watch.cards().items()},
                jobs,
            ),
        ]


def _jobs(state: State, yard: str, sight: Sight) -> tuple[dict[str, str], list[Row]]:
    """Ids of the attempts that run and may be seen, by key, and a row about each."""
    jobs, info = {}, []
    for record in state.running.values():
        spec = record.job.spec
        if sight.sees(spec.tenant):
            jobs[current_key(yard, record)] = record.job.label
            row = labels_text(
                job_id=record.job.label,
                name=spec.name,
                user=spec.user,
                tenant=spec.tenant,
                **{"class": record.klass.name},
            )
            info.append((row, 1))
    return jobs, sorted(info)


def _watch(watch: Watch, names: NodeNames) -> list[str]:
    refused: list[Row] = [
        (labels_text(node=names(node), cause=cause), count)
        for (node, cause), count in sorted(watch.faults().items())
    ]
    clocks: list[Row] = [
        (labels_text(node=names(node)), off_ms / 1000)
        for node, off_ms in sorted(watch.handed_in.clocks_off_ms().items())
    ]
    asking: list[Row] = [("", int(not watch.asking.trouble))] if watch.asking is not None else []
    return [
        *gauge_lines("prometheus_source_up", "Whether the Prometheus that the yard reads answers.", asking),
        *gauge_lines(
            "node_clock_off_seconds", "Seconds by which the clock of a node is behind the yard's.", clocks
        ),
        *counter_lines("watch_cpu_seconds", "CPU time of the collector.", [("", watch.spent_s)]),
        *counter_lines(
            "values_refused", "Values of signals that the yard refused because they are impossible.", refused
        ),
    ]


def _sinks(shippers: Sequence[Sends]) -> list[str]:
    """How far logs have come to each receiver."""
    each = [(labels_text(sink=one.spec.name, kind=one.spec.kind), one) for one in shippers]
    lines: list[Row] = [
        (labels_text(sink=one.spec.name, kind=one.spec.kind, result=result), count)
        for one in shippers
        for result, count in (("sent", one.sent), ("refused", one.refused))
    ]
    return [
        *gauge_lines(
            "log_sink_up",
            "Whether a receiver of logs takes lines.",
            [(at, int(not one.trouble)) for at, one in each],
        ),
        *counter_lines("log_sink_lines", "Lines that a receiver took or refused.", lines),
        *gauge_lines(
            "log_sink_lag_seconds",
            "Age of the oldest line that a receiver has not taken.",
            [(at, one.lag_s) for at, one in each],
        ),
        *gauge_lines(
            "log_sink_streams",
            "Logs that are not completely sent.",
            [(at, one.streams) for at, one in each],
        ),
        *counter_lines(
            "log_sink_left_out_bytes",
            "Bytes that log_limit cut from long logs before a receiver took them.",
            [(at, one.left_out_bytes) for at, one in each],
        ),
        *counter_lines(
            "log_sink_logs_lost",
            "Logs that were removed or given up before a receiver took all of them.",
            [(at, one.lost) for at, one in each],
        ),
    ]
