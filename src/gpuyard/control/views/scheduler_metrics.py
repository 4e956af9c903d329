"""The scheduler's own figures for a Prometheus: the queue and why it waits, what was started and ended, the loop.

Nothing here walks through all jobs: what happened was counted when it was written (`Tally`), and what waits is counted
in the published model, chunk by chunk. Labels are bounded: tenants by number, classes and reasons by their nature.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from gpuyard.control.access.rights import Sight
from gpuyard.control.duties.duty import RunningDuty
from gpuyard.control.reading.plain_views import node_state
from gpuyard.control.reading.queue_counts import Key
from gpuyard.control.replica.labels import node_key
from gpuyard.control.replica.tally import Histogram, Tally, histogram_lines
from gpuyard.core import State
from gpuyard.core.fleet.stranded import stranded_milli
from gpuyard.core.quota.tenants import ROOT
from gpuyard.model import JobState
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.units import MILLI, SECOND_MS
from gpuyard.telemetry.exposition import PREFIX, Row, family_lines, labels_text
from gpuyard.wire.replies.people import ProjectionReply, ReadyReply

TENANTS_MAX = 2000
"""Rows of tenants: a tree may have any number, a Prometheus should not."""
QUEUE_MAX = 5000
"""Rows of the queue, the longest first; the rest is added up by reason."""
OTHERS = "(others)"
"""The tenant, and the class, of that rest."""
ENDS = tuple([state.value.lower() for state in JobState if state.ended])


class Heard(Protocol):
    """How an engine answers."""

    @property
    def at_ms(self) -> int:
        """When it last did; 0: not yet."""

    @property
    def answers(self) -> bool:
        """Whether it did when it was last asked."""


class Standing(Protocol):
    """What the leader's loop says of itself."""

    all_steps_s: Histogram
    decisions_s: Histogram

    @property
    def heard(self) -> Mapping[str, Heard]:
        """How each engine answers, by cluster."""


class NodeNames:
    """Nodes by the keys of their series, as people write them: with the cluster where two have one of this name."""

    def __init__(self, state: State) -> None:
        count = Counter([name for _cluster, name in state.node_number])
        self._several = {name for name, there in count.items() if there > 1}

    def __call__(self, key: str) -> str:
        name = key.partition(":")[2]
        return key if name in self._several else name


def gauge_lines(name: str, help: str, rows: Iterable[Row]) -> list[str]:
    """A metric of ours that goes up and down."""
    return family_lines(f"{PREFIX}{name}", "gauge", help, rows)


def counter_lines(name: str, help: str, rows: Iterable[Row]) -> list[str]:
    """A metric of ours that only rises."""
    return family_lines(f"{PREFIX}{name}_total", "counter", help, rows)


def _by(label: str, counted: Mapping[str, int | float]) -> list[Row]:
    return [(labels_text(**{label: key}), counted[key]) for key in sorted(counted)]


# -- the replica, with its lock --------------------------------------------------------------------------------


def fleet_lines(state: State, names: NodeNames) -> list[str]:
    """Jobs, nodes and GPUs by how they stand. Called with the replica locked."""
    nodes = state.nodes
    kinds: dict[tuple[str, str, str], list[int]] = {}
    """GPUs, milli-GPUs free, and of these stranded."""
    by_state: Counter[tuple[str, str]] = Counter()
    by_free: Counter[tuple[str, str, str, int]] = Counter()
    info: list[Row] = []
    stranded = stranded_milli(nodes, state.queue.shapes())
    for number, node in enumerate(nodes.node):
        kind = (node.cluster, node.pool, node.gpu_model)
        shut = nodes.shut(number)
        counted = kinds.setdefault(kind, [0, 0, 0])
        counted[0] += node.gpus
        counted[1] += 0 if shut else sum([max(0, each) for each in nodes.gpu_free[number]])
        counted[2] += stranded.get(number, 0)
        by_state[node.cluster, node_state(state, number)[0].lower()] += 1
        if not shut:
            by_free[*kind, nodes.free_mask[number].bit_count()] += 1
        where = {"cluster": node.cluster, "pool": node.pool, "rack": node.rack, "switch": node.switch}
        name = names(node_key(node.cluster, node.name))
        info.append((labels_text(node=name, model=node.gpu_model, **where), 1))

    def of_kind(kind: tuple[str, ...]) -> dict[str, str]:
        return {"cluster": kind[0], "pool": kind[1], "model": kind[2]}

    def rows(place: int, per: int) -> list[Row]:
        return [(labels_text(**of_kind(kind)), kinds[kind][place] / per) for kind in sorted(kinds)]

    jobs = {
        "running": len(state.running),
        "waiting": state.queue.count,
        "set_aside": len(state.deferred),
    }
    submitted = state.last_job_id + max(0, state.last_external_id - FIRST_EXTERNAL_ID + 1)
    return [
        *gauge_lines("jobs", "Jobs by state.", _by("state", jobs)),
        *counter_lines("jobs_submitted", "Ids that were given to jobs and arrays.", [("", submitted)]),
        *gauge_lines(
            "nodes",
            "Nodes by state.",
            [(labels_text(cluster=at, state=word), count) for (at, word), count in sorted(by_state.items())],
        ),
        *gauge_lines("gpus", "GPUs of the yard.", rows(0, 1)),
        *gauge_lines("gpus_free", "GPUs that a job could get now, including parts of GPUs.", rows(1, MILLI)),
        *gauge_lines(
            "gpus_stranded",
            "Free GPUs on nodes where no waiting job has room.",
            rows(2, MILLI),
        ),
        *gauge_lines(
            "nodes_open",
            "Nodes that take jobs, by the number of their wholly free GPUs.",
            [
                (labels_text(**of_kind(kind[:3]), gpus_free=str(kind[3])), count)
                for kind, count in sorted(by_free.items())
            ],
        ),
        *gauge_lines("node_info", "A node, as labels; join it by its name.", sorted(info)),
    ]


def tenant_lines(state: State, sight: Sight, ended: Mapping[tuple[str, str], int]) -> list[str]:
    """What tenants have, want and were given. Called with the replica locked."""
    tree = state.tenants
    waiting, wanted = state.counts.by_tenant(tree.chain)
    seen = [
        (path, labels_text(tenant=path), number)
        for path, number in sorted(tree.number.items())
        if number != ROOT and sight.knows(path)
    ][:TENANTS_MAX]
    some_ended = {tenant for tenant, _state in ended}
    ends: list[Row] = [
        (labels_text(tenant=path, state=word), ended.get((path, word), 0))
        for path, _labelled, _number in seen
        if path in some_ended and sight.sees(path)
        for word in ENDS
    ]

    def each(name: str, help: str, values: Sequence[Any], per: int = 1) -> list[str]:
        return gauge_lines(name, help, [(labelled, values[number] / per) for _path, labelled, number in seen])

    return [
        *each("tenant_gpus", "GPUs that a tenant has.", [used[0] for used in tree.used], MILLI),
        *each("tenant_gpus_wanted", "GPUs that a tenant's waiting jobs ask for.", wanted, MILLI),
        *each("tenant_jobs_running", "A tenant's jobs that run.", tree.running),
        *each("tenant_jobs_waiting", "A tenant's jobs that wait.", waiting),
        *counter_lines("jobs_ended", "Jobs whose end this server wrote, by outcome.", ends),
    ]


# -- without it ------------------------------------------------------------------------------------------------


def queue_lines(counts: Mapping[Key, int], sight: Sight) -> list[str]:
    """Jobs that wait, by tenant, class and reason."""
    seen = sorted([(-count, key) for key, count in counts.items() if sight.sees(key[0])])
    told = {key: -count for count, key in seen[:QUEUE_MAX]}
    for count, (_tenant, _klass, reason) in seen[QUEUE_MAX:]:
        key = (OTHERS, OTHERS, reason)
        told[key] = told.get(key, 0) - count
    rows: list[Row] = [
        (labels_text(tenant=tenant, **{"class": klass}, reason=reason), told[tenant, klass, reason])
        for tenant, klass, reason in sorted(told)
    ]
    return gauge_lines("queue_jobs", "Waiting jobs by reason.", rows)


def tally_lines(tally: Tally) -> list[str]:
    """What this server has written since it began."""
    return [
        *counter_lines(
            "attempts_started", "Attempts that this server decided to start.", _by("class", tally.started)
        ),
        *counter_lines(
            "attempts_ended", "Attempts whose end this server wrote.", _by("outcome", tally.attempts)
        ),
        *counter_lines(
            "preemptions",
            "Attempts that were stopped to make room for others.",
            _by("cause", tally.preempted),
        ),
        *histogram_lines(
            f"{PREFIX}wait_seconds",
            "From the submission of a job, or its begin time, to its first start.",
            [({"class": klass}, tally.waits[klass]) for klass in sorted(tally.waits)],
        ),
    ]


def server_lines(ready: ReadyReply, standing: Standing) -> list[str]:
    """The server and its loop. `ready` is what the server says of itself (`Readiness`)."""

    def times(name: str, help: str, taken: Histogram) -> list[str]:
        return histogram_lines(f"{PREFIX}{name}_seconds", help, [({}, taken)])

    return [
        *gauge_lines("ready", "Whether the server can do its work.", [("", int(ready["ready"]))]),
        *gauge_lines("leader", "Whether this server leads.", [("", int(ready["role"] == "leader"))]),
        *gauge_lines(
            "troubles", "Troubles that the last step of the loop met.", [("", len(ready["troubles"]))]
        ),
        *counter_lines("events", "Events in the log.", [("", ready["events"])]),
        *times("step", "How long steps of the control loop took.", standing.all_steps_s),
        *times("decision", "How long decisions took.", standing.decisions_s),
    ]


def engine_lines(standing: Standing, now_ms: int) -> list[str]:
    """How engines answer. Only the leader asks them."""
    heard = sorted(standing.heard.items())
    return [
        *gauge_lines(
            "engine_up",
            "Whether the engine of a cluster answered the last time.",
            [(labels_text(cluster=cluster), int(each.answers)) for cluster, each in heard],
        ),
        *gauge_lines(
            "engine_report_age_seconds",
            "Age of the last answer of a cluster's engine.",
            [
                (labels_text(cluster=cluster), max(0, now_ms - each.at_ms) / SECOND_MS)
                for cluster, each in heard
                if each.at_ms
            ],
        ),
    ]


def duty_lines(running: Iterable[RunningDuty]) -> list[str]:
    """What this server does by itself. Where another server leads, the leader's duties are not late here."""
    each = [(labels_text(duty=one.duty.name), one) for one in running]
    return [
        *counter_lines(
            "duty_runs", "Rounds of a duty of this server.", [(at, one.record.runs) for at, one in each]
        ),
        *counter_lines(
            "duty_failures",
            "Rounds of a duty of this server that failed.",
            [(at, one.record.failures) for at, one in each],
        ),
        *gauge_lines(
            "duty_good_round_age_seconds",
            "Age of the last good round of a duty, or the time since this server took the duty over.",
            [(at, round(one.good_age_s, 3)) for at, one in each if one.here],
        ),
    ]


def projection_lines(status: Sequence[ProjectionReply]) -> list[str]:
    """How far the projections that follow the log have come (`Filler.status`)."""
    each = [(labels_text(projection=one["name"]), one) for one in status]
    return [
        *gauge_lines(
            "projection_behind_events",
            "Events of the log that a projection has not folded yet.",
            [(at, max(0, one["head"] - one["seq"])) for at, one in each],
        ),
        *gauge_lines(
            "projection_stuck",
            "Whether a projection is stuck at an event that it cannot fold.",
            [(at, int(bool(one["error"]))) for at, one in each],
        ),
    ]
