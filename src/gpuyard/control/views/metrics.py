"""Everything that a Prometheus may want to know of a server, in its text: signals, and the scheduler's own figures.

What people may see of jobs they see here: rows of jobs and tenants go through the asker's sight.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuyard import __version__
from gpuyard.control.access.rights import Sight
from gpuyard.control.reading.plain_views import node_state
from gpuyard.control.replica.labels import key_of
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch
from gpuyard.core import State
from gpuyard.core.quota.tenants import ROOT
from gpuyard.model.units import MILLI
from gpuyard.shipping.contract import Sends
from gpuyard.telemetry.exposition import PREFIX, Row, family, labels, signals, written

TENANTS_MAX = 2000
"""Rows of tenants: a tree may have any number, a Prometheus should not."""


def metrics_text(
    replica: Replica,
    watch: Watch,
    ready: Mapping[str, Any],
    sight: Sight,
    shippers: Sequence[Sends] = (),
) -> str:
    """The whole answer. `ready` is what the server says of itself (`Yard.readiness`)."""
    with replica.lock:
        replica.catch_up()
        names = _Names(replica.state)
        yard, state = replica.store.yard, replica.state
        jobs, info = _jobs(state, yard, sight)
        own = [*_counts(state), *_tenants(state, sight)]
    lines = [
        *_family(
            "info", "Which release this is, and which yard.", [(labels(version=__version__, yard=yard), 1)]
        ),
        *_server(ready),
        *own,
        *_family("job_info", "A job that runs, to be joined by its id.", info),
        *_watch(watch, names),
        *_sinks(shippers),
        *signals(
            [replace(each, node=names(each.node)) for each in watch.latest()],
            {(names(node), gpu): card for (node, gpu), card in watch.cards().items()},
            jobs,
        ),
    ]
    return written(lines)


class _Names:
    """Nodes by the keys of their series, as people write them: with the cluster where two have one of this name."""

    def __init__(self, state: State) -> None:
        count = Counter([name for _cluster, name in state.node_number])
        self._several = {name for name, there in count.items() if there > 1}

    def __call__(self, key: str) -> str:
        name = key.partition(":")[2]
        return key if name in self._several else name


def _family(name: str, help: str, rows: list[Row], kind: str = "gauge") -> list[str]:
    return family(f"{PREFIX}{name}", kind, help, rows)


def _server(ready: Mapping[str, Any]) -> list[str]:
    def times(what: str) -> list[Row]:
        rows = [(labels(percentile=str(at)), ready[f"{what}_ms_p{at}"]) for at in (50, 99)]
        return [(labelled, ms / 1000) for labelled, ms in rows if ms is not None]

    return [
        *_family("ready", "Whether the server can do its work.", [("", int(ready["ready"]))]),
        *_family("leader", "Whether this server leads.", [("", int(ready["role"] == "leader"))]),
        *_family("troubles", "Things that the last step could not do.", [("", len(ready["troubles"]))]),
        *_family("steps_total", "Steps of the control loop.", [("", ready["steps"])], "counter"),
        *_family("events_total", "Events in the log.", [("", ready["events"])], "counter"),
        *_family("step_seconds", "How long a step took lately.", times("step")),
        *_family("decide_seconds", "How long a decision took lately.", times("decide")),
    ]


def _counts(state: State) -> list[str]:
    jobs: list[Row] = [
        (labels(state="running"), len(state.running)),
        (labels(state="waiting"), state.queue.count),
        (labels(state="set_aside"), len(state.deferred)),
    ]
    nodes: Counter[tuple[str, str]] = Counter()
    gpus: Counter[tuple[str, str, str]] = Counter()
    free: Counter[tuple[str, str, str]] = Counter()
    for number, node in enumerate(state.nodes.node):
        kind = (node.cluster, node.pool, node.gpu_model)
        nodes[node.cluster, node_state(state, number)[0].lower()] += 1
        gpus[kind] += node.gpus
        free[kind] += (
            0 if state.nodes.shut(number) else sum([max(0, each) for each in state.nodes.gpu_free[number]])
        )

    def of_kind(kind: tuple[str, str, str]) -> str:
        return labels(cluster=kind[0], pool=kind[1], model=kind[2])

    return [
        *_family("jobs", "Jobs by how they stand.", jobs),
        *_family(
            "nodes",
            "Nodes by how they stand.",
            [
                (labels(cluster=cluster, state=word), count)
                for (cluster, word), count in sorted(nodes.items())
            ],
        ),
        *_family("gpus", "GPUs that there are.", [(of_kind(each), gpus[each]) for each in sorted(gpus)]),
        *_family(
            "gpus_free",
            "GPUs that a job could have now, parts of GPUs included.",
            [(of_kind(each), free[each] / MILLI) for each in sorted(free)],
        ),
    ]


def _tenants(state: State, sight: Sight) -> list[str]:
    tenants = state.tenants
    waiting, wanted = state.counts.by_tenant(tenants.chain)
    seen = [
        (labels(tenant=path), number)
        for path, number in sorted(tenants.number.items())
        if number != ROOT and sight.knows(path)
    ][:TENANTS_MAX]
    return [
        *_family(
            "tenant_gpus", "GPUs that a tenant has.", [(each, tenants.used[n][0] / MILLI) for each, n in seen]
        ),
        *_family(
            "tenant_gpus_wanted",
            "GPUs that a tenant's waiting jobs ask for.",
            [(each, wanted[n] / MILLI) for each, n in seen],
        ),
        *_family(
            "tenant_jobs_running",
            "A tenant's jobs that run.",
            [(each, tenants.running[n]) for each, n in seen],
        ),
        *_family(
            "tenant_jobs_waiting", "A tenant's jobs that wait.", [(each, waiting[n]) for each, n in seen]
        ),
    ]


def _jobs(state: State, yard: str, sight: Sight) -> tuple[dict[str, str], list[Row]]:
    """Ids of the attempts that run and may be seen, by key, and a row about each."""
    jobs, info = {}, []
    for record in state.running.values():
        spec = record.job.spec
        if sight.sees(spec.tenant):
            jobs[key_of(yard, record)] = record.job.label
            row = labels(
                job=record.job.label,
                name=spec.name,
                user=spec.user,
                tenant=spec.tenant,
                **{"class": spec.klass},
            )
            info.append((row, 1))
    return jobs, sorted(info)


def _watch(watch: Watch, names: _Names) -> list[str]:
    refused: list[Row] = [
        (labels(node=names(node), cause=cause), count)
        for (node, cause), count in sorted(watch.faults().items())
    ]
    clocks: list[Row] = [
        (labels(node=names(node)), off_ms / 1000)
        for node, off_ms in sorted(watch.handed_in.clocks_off_ms().items())
    ]
    return [
        *_family("node_clock_off_seconds", "By how much the clock of a node is behind the yard's.", clocks),
        *_family("watch_cpu_seconds_total", "CPU time of the collector.", [("", watch.spent_s)], "counter"),
        *_family("values_refused_total", "Values of signals that could not be.", refused, "counter"),
    ]


def _sinks(shippers: Sequence[Sends]) -> list[str]:
    """How far logs have come to each receiver."""
    each = [(labels(sink=one.spec.name, kind=one.spec.kind), one) for one in shippers]
    lines: list[Row] = [
        (labels(sink=one.spec.name, kind=one.spec.kind, result=result), count)
        for one in shippers
        for result, count in (("sent", one.sent), ("refused", one.refused))
    ]
    return [
        *_family(
            "log_sink_up",
            "Whether a receiver of logs takes lines.",
            [(at, int(not one.trouble)) for at, one in each],
        ),
        *_family("log_sink_lines_total", "Lines that a receiver took, or did not want.", lines, "counter"),
        *_family(
            "log_sink_lag_seconds",
            "For how long there has been a line that a receiver has not taken.",
            [(at, one.lag_s) for at, one in each],
        ),
        *_family(
            "log_sink_streams",
            "Logs that are not sent to their end.",
            [(at, one.streams) for at, one in each],
        ),
        *_family(
            "log_sink_left_out_bytes_total",
            "What long logs had lost (log_limit) before a receiver could take it.",
            [(at, one.left_out_bytes) for at, one in each],
            "counter",
        ),
        *_family(
            "log_sink_logs_lost_total",
            "Logs that were removed, or given up, before a receiver took them to their end.",
            [(at, one.lost) for at, one in each],
            "counter",
        ),
    ]
