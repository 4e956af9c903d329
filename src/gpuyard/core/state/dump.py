"""A state as plain values, and a state from them.

A dump holds what the log adds up to and nothing that can be derived from it: no free counts, no sorted queues, no
cached answers. `load` derives all of that again, so a state that was folded event by event and one that was loaded
must decide alike; tests check that. Snapshots, bug reports and what-if questions are made of dumps.
"""

import json
from typing import Any

from gpuyard.core.fleet import claims
from gpuyard.core.fleet.marks import LiveMarks
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.jobs.queue import WaitQueue
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.quota.tenants import ROOT, Tenants
from gpuyard.core.quota.usage import UsageDelta
from gpuyard.core.state import dependencies
from gpuyard.core.state.state import FIFO, State
from gpuyard.model import (
    After,
    Ask,
    AttemptState,
    Capability,
    Earmark,
    Grant,
    Job,
    JobSpec,
    JobState,
    Node,
    Settings,
    StopCause,
    Verb,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.serialise import Plain, from_plain, to_plain

VERSION = 1

_STATES = {state.value: state for state in JobState}
_EXTRAS = ("ran_ms", "held", "suspended_ms", "for_job", "failures", "delayed_ms")


def dump(state: State) -> dict[str, Plain]:
    """Everything that the log adds up to, in JSON's own types."""
    specs: dict[JobSpec, int] = {}
    jobs = [_job(state, state.jobs[job_id], specs) for job_id in sorted(state.jobs)]
    nodes = state.nodes
    return {
        "version": VERSION,
        "now_ms": state.now_ms,
        "last_job_id": state.last_job_id,
        **({"skipped_ms": state.skipped_ms} if state.skipped_ms else {}),
        **(
            {"last_external_id": state.last_external_id}
            if state.last_external_id >= FIRST_EXTERNAL_ID
            else {}
        ),
        "settings": _settings(state.settings),
        "models": list(state.models),
        "nodes": [
            {
                "node": to_plain(node),
                "down": nodes.down[number],
                "cordoned": nodes.cordoned[number],
                **({"live": to_plain(nodes.marks.live[number])} if number in nodes.marks.live else {}),
                "foreign": list(nodes.foreign.get(number, (0, ""))),
                "idle": {
                    str(gpu): [list(place) for place in held]
                    for gpu, held in sorted(nodes.slices_idle.get(number, {}).items())
                },
                "pins": {
                    str(gpu): claims.write_pin(found)
                    for gpu, found in sorted(nodes.pins.get(number, {}).items())
                },
            }
            for number, node in enumerate(nodes.node)
        ],
        "period_start_ms": state.tenants.period_start_ms,
        "tenants": _tenants(state.tenants),
        "specs": [to_plain(spec) for spec in specs],
        "jobs": jobs,
        "ends": [[job_id, ended.value] for job_id, ended in sorted(state.ends.items())],
        "ended_tasks": [[job_id, label] for job_id, label in sorted(state.ended_tasks.items())],
        "demand": [[to_plain(ask), weight] for ask, weight in state.demand],
        "demand_version": state.demand_version,
        "arrived": [[to_plain(shape.ask), count] for shape, count in state.arrived.items()],
        # Only if there is any, so that the dumps of existing stores do not change.
        **({"budgets": _budgets(state.tenants)} if state.tenants.budget_row else {}),
        **({"ended_recipes": ended} if (ended := _ended_recipes(state)) else {}),
        **(
            {"tainted_since": [[*place, since] for place, since in sorted(nodes.marks.since_ms.items())]}
            if nodes.marks.since_ms
            else {}
        ),
        **(
            {"lacks": {cluster: _lacks(found) for cluster, found in sorted(nodes.lacks.items())}}
            if nodes.lacks
            else {}
        ),
    }


def _settings(settings: Settings) -> Plain:
    plain = to_plain(settings)
    if not settings.budgets:
        del plain["budgets"]
    return plain


def _budgets(tenants: Tenants) -> list[Plain]:
    """What named budgets have spent, and what of that was told."""
    rows: list[Plain] = []
    for name, number in sorted(tenants.budget_row.items()):
        spend = tenants.spend[number]
        assert spend is not None
        parts = [[day, user, part] for (day, user), part in sorted(spend.parts.items())]
        rows.append({"name": name, "spent": spend.spent, "parts": parts, "told": spend.told})
    return rows


def _ended_recipes(state: State) -> dict[str, Plain]:
    return {user: list(each) for user, each in state.counts.all_ended(state.now_ms).items()}


def _lacks(found: frozenset[Capability]) -> list[Plain]:
    return sorted([each.value for each in found])


def canonical(state: State) -> str:
    """The dump as one text: two states are equal if their texts are."""
    return json.dumps(dump(state), sort_keys=True, separators=(",", ":"))


def _tenants(tenants: Tenants) -> list[Plain]:
    """By number, because the number breaks ties: what each tenant has used, and spent of its budget."""
    rows = []
    for number, path in tenants.places():
        spend = tenants.spend[number]
        rows.append(
            {
                "path": path,
                "usage": tenants.usage[number],
                "accrued": tenants.accrued[number],
                "window_start_ms": spend.window_start_ms if spend else 0,
                "spent_milli_ms": spend.spent if spend else 0,
            }
        )
    return rows


def _job(state: State, record: JobRecord, specs: dict[JobSpec, int]) -> dict[str, Plain]:
    job = record.job
    return {
        "id": record.id,
        "spec": specs.setdefault(job.spec, len(specs)),
        "submitted_ms": job.submitted_ms,
        "asked_limit_ms": job.limit_ms,
        "deadline_ms": job.deadline_ms,
        "begin_ms": job.begin_ms,
        "array_id": job.array_id,
        "array_index": job.array_index,
        # A job keeps the tenant and the limit that it was submitted with until the settings change.
        "leaf": state.tenants.path[record.leaf],
        "limit_ms": record.limit_ms,
        "state": record.state.value,
        "held": record.held,
        "deferred": record.id in state.deferred,
        "attempt": record.attempt,
        "phase": to_plain(record.phase),
        "grants": to_plain(record.grants),
        "model": record.model,
        "rate": record.rate,
        "started_ms": record.started_ms,
        "end_ms": record.end_ms,
        "checkpoint_ms": record.checkpoint_ms,
        "suspended_ms": record.suspended_ms,
        "saved_ms": record.saved_ms,
        "ran_ms": record.ran_ms,
        **({"delayed_ms": record.delayed_ms} if record.delayed_ms else {}),
        "preemptions": record.preemptions,
        "cause": to_plain(record.cause),
        "for_job": record.for_job,
        "failures": record.failures,
        "not_before_ms": record.begin_ms,
        "wanted": to_plain(record.wanted),
        "wanted_by": list(record.wanted_by),
        "boost": record.boost,
        "moved_by": record.moved_by,
        **({"place": [record.joined_ms, record.nice_ms]} if record.line_ms != job.submitted_ms else {}),
        "pending": to_plain(tuple(record.pending)),
        "doomed": record.doomed,
        "earmark": to_plain(record.earmark),
    }


def load(plain: dict[str, Plain]) -> State:
    """The state of a dump, with everything derived computed again."""
    if plain["version"] != VERSION:
        raise ValueError(f"a dump of version {plain['version']}; this release reads version {VERSION}")
    state = State()
    state.now_ms = plain["now_ms"]
    state.last_job_id = plain["last_job_id"]
    state.skipped_ms = plain.get("skipped_ms", 0)
    # Missing in dumps of earlier releases, where the jobs of other schedulers had the next ids.
    state.last_external_id = plain.get("last_external_id", state.last_external_id)
    if state.last_job_id >= FIRST_EXTERNAL_ID:
        state.last_job_id, state.last_external_id = 0, state.last_job_id
    state.models.update({name: number for number, name in enumerate(plain["models"])})
    for row in plain["nodes"]:
        node = from_plain(Node, row["node"])
        number = state.nodes.add(node, state.models[node.gpu_model if node.gpus else ""])
        state.node_number[node.cluster, node.name] = number
        if row["down"]:
            state.nodes.set_down(number, row["down"])
        if row["cordoned"]:
            state.nodes.set_cordoned(number, row["cordoned"])
        if "live" in row:
            state.nodes.mark(number, from_plain(LiveMarks, row["live"]))
        if row["foreign"][0]:
            state.nodes.set_foreign(number, *row["foreign"])
        for gpu, places in row.get("idle", {}).items():
            held = tuple([PlacedSlice(*place) for place in places])
            state.nodes.find_slices(number, int(gpu), held)
        for gpu, found in row.get("pins", {}).items():
            state.nodes.pin(number, int(gpu), claims.read_pin(found))
    # Missing where there are no such taints.
    state.nodes.marks.resume({(number, key): since for number, key, since in plain.get("tainted_since", ())})
    for cluster, found in plain.get("lacks", {}).items():
        state.nodes.set_lacks(cluster, frozenset([Capability(each) for each in found]))
    state.configure(from_plain(Settings, plain["settings"]))
    _load_tenants(state.tenants, plain)
    specs = [from_plain(JobSpec, spec) for spec in plain["specs"]]
    state.ends = {job_id: JobState(ended) for job_id, ended in plain["ends"]}
    # Missing in dumps of earlier releases.
    state.ended_tasks = dict(plain.get("ended_tasks", ()))
    for row in plain["jobs"]:
        _load_job(state, row, specs[row["spec"]])
    dependencies.reindex(state)
    # Missing in dumps of earlier releases.
    state.counts.count_ended(plain.get("ended_recipes", {}))
    state.demand = tuple([(from_plain(Ask, ask), weight) for ask, weight in plain["demand"]])
    state.demand_version = plain["demand_version"]
    # Missing in dumps of earlier releases.
    for ask, count in plain.get("arrived", ()):
        state.arrived[state.shape_of(from_plain(Ask, ask))] = count
    state.arrivals = sum(state.arrived.values())
    state.relax_levels()
    state.reindex(FIFO)
    return state


def _load_tenants(tenants: Tenants, plain: dict[str, Plain]) -> None:
    tenants.begin_period(plain["period_start_ms"])
    for row in plain["tenants"]:
        number = tenants.find(row["path"])
        tenants.resume(number, row["usage"], row["accrued"])
        spend = tenants.spend[number]
        if spend is not None:
            spend.resume(row["window_start_ms"], row["spent_milli_ms"])
    # Missing in dumps of yards without named budgets.
    for row in plain.get("budgets", ()):
        spend = tenants.spend[tenants.budget_row[row["name"]]]
        assert spend is not None
        parts = {(day, user): part for day, user, part in row["parts"]}
        spend.resume_named(plain["now_ms"], row["spent"], parts, row["told"])
    tenants.set_due()


def _load_job(state: State, row: dict[str, Plain], spec: JobSpec) -> None:
    job = Job(
        row["id"],
        spec,
        row["submitted_ms"],
        row["asked_limit_ms"],
        row["deadline_ms"],
        row["begin_ms"],
        row["array_id"],
        row["array_index"],
    )
    if state.counts_for_tenant(spec):
        leaf = state.tenants.number[row["leaf"]]
        party = state.party_of(leaf, spec)
    else:
        leaf, party = state.place_of(spec)
    shape = state.shape_for(spec, row["limit_ms"])
    count = state.counts.find(leaf, spec.user, shape.gpu_milli)
    record = JobRecord(job, shape, state.klass_for(spec), leaf, party, count)
    record.limit_ms = row["limit_ms"]
    record.keep(row["saved_ms"])
    record.state = _STATES[row["state"]]
    record.attempt, record.started_ms, record.end_ms = row["attempt"], row["started_ms"], row["end_ms"]
    record.checkpoint_ms, record.preemptions = row["checkpoint_ms"], row["preemptions"]
    record.begin_ms = row["not_before_ms"]
    _load_extras(state, record, row)
    if row["phase"]:
        record.phase = from_plain(AttemptState, row["phase"])
    state.jobs[record.id] = record
    state.count(record)
    if row["grants"]:
        record.usage = UsageDelta(
            party, row["model"], record.shape.gpu_milli, row["rate"], record.shape.measure
        )
        record.grants = from_plain(tuple[Grant, ...], row["grants"])
        state.running[record.id] = record
        if record.phase is AttemptState.STOPPING:
            state.leaving[record.id] = record
        _hold_again(state, record)
    if row["deferred"]:
        state.defer(record)
    if row["earmark"]:
        record.earmark = from_plain(Earmark, row["earmark"])
        state.earmarks[record.id] = record
        state.nodes.take(record.earmark.grants)


def _load_extras(state: State, record: JobRecord, row: dict[str, Plain]) -> None:
    """Fields that few jobs have. A dump of an earlier release lacks some of them."""
    for name in _EXTRAS:
        if value := row.get(name):
            setattr(record, name, value)
    if row["wanted"]:
        record.wanted = from_plain(Verb, row["wanted"])
    by, at_ms = row.get("wanted_by", ("", 0))
    if by or at_ms:
        record.wanted_by = (by, at_ms)
    if boost := row.get("boost", 0):
        record.move(boost, row.get("moved_by", ""))
    if "place" in row:
        record.stand(*row["place"])
    if row["pending"]:
        record.pending = dict.fromkeys(from_plain(tuple[After, ...], row["pending"]))
    if row["doomed"]:
        dependencies.doom(state, record, row["doomed"])
    if row["cause"]:
        record.cause = from_plain(StopCause, row["cause"])


def _hold_again(state: State, record: JobRecord) -> None:
    """Count an attempt again without checking for room: its node may be down by now."""
    tenants, milli = state.tenants, record.shape.gpu_milli
    state.nodes.place_again(record.grants, record.end_ms, record.id)
    # Its part of the current period is in `accrued`: count it as if it had started with the period.
    since_ms, stranded = tenants.period_start_ms, state.stranded_milli(record)
    tenants.move(record.party, record.model, milli, record.rate, since_ms, 1, record.shape.measure, stranded)
    if tenants.budgeted:
        tenants.commit(record.party, milli, state.micro_of(record), record.limit_ms)


def derived(state: State) -> dict[str, Any]:
    """The derived tables, as plain values under names that do not depend on the order of events.

    Nothing is recomputed here: the tables show what `decide` would see.
    """
    tenants, fair = state.tenants, state.queue.order.fair
    return {
        "nodes": _derived_nodes(state.nodes),
        "used_milli": tenants.used[ROOT][0],
        "up_milli": list(state.nodes.up_milli),
        "weights": list(state.weights),
        "classes": sorted(state.classes),
        "running": sorted(state.running),
        "leaving": sorted(state.leaving),
        "deferred": sorted(state.deferred),
        "wake_ms": state.wake_ms(),
        "earmarks": sorted(state.earmarks),
        "tenants": {path: _derived_tenant(tenants, number, fair) for number, path in tenants.places()},
        # A seat without running jobs stays known until the settings change, but a dump does not have it.
        "seats": {
            f"{tenants.path[rule]}:{user}:{leaf}": [tenants.used[seat], tenants.running[seat]]
            for (rule, user, leaf), seat in sorted(tenants.seats.items())
            if tenants.running[seat]
        },
        "budgets": {name: tenants.spend[row].committed for name, row in sorted(tenants.budget_row.items())},  # type: ignore[union-attr]
        "queue": _derived_queue(state.queue, tenants),
        "waiting": {
            f"{tenants.path[leaf]}:{user}:{milli}": [count.jobs, count.of_user.jobs]
            for (leaf, user, milli), count in sorted(state.counts.known.items())
            if count.jobs
        },
        "recipe_bytes": state.counts.recipes(),
        "jobs": {
            job_id: [record.estimate_ms, record.klass.name, record.shape.gpu_milli, len(record.shape.ways)]
            for job_id, record in sorted(state.jobs.items())
        },
    }


def _derived_nodes(nodes: Nodes) -> dict[str, Any]:
    return {
        "gpu_free": [list(row) for row in nodes.gpu_free],
        "free_mask": list(nodes.free_mask),
        "odd": sorted(nodes.partly_free),
        "sharers": {number: dict(sorted(row.items())) for number, row in sorted(nodes.sharers.items())},
        "cut": {number: dict(sorted(row.items())) for number, row in sorted(nodes.slices_used.items())},
        "cpu_free": list(nodes.cpu_free),
        "memory_free": list(nodes.memory_free),
        "beside": dict(sorted(nodes.beside.items())),
        "kind": list(nodes.kind),
        "closed": list(nodes.closed),
        "buckets": [list(kind.buckets) for kind in nodes.kinds],
        "partial": [kind.partial for kind in nodes.kinds],
        "members": [kind.members for kind in nodes.kinds],
        "domains": [
            {level: dict(sorted(there.items())) for level, there in kind.domains.items()}
            for kind in nodes.kinds
        ],
        "by_pool": dict(sorted(nodes.by_pool.items())),
        "on": [
            {job_id: (end_ms, tuple(grant)) for job_id, (end_ms, grant) in sorted(row.items())}
            for row in nodes.attempts_on
        ],
    }


def _derived_tenant(tenants: Tenants, number: int, fair: bool) -> dict[str, Any]:
    spend = tenants.spend[number]
    return {
        "parent": tenants.path[tenants.parent[number]],
        "used": list(tenants.used[number]),
        "claimed": list(tenants.claimed[number]) if tenants.holding else [],
        "running": tenants.running[number],
        "measure": list(tenants.measure[number]) if tenants.measured else [],
        "rate": tenants.rate[number],
        "committed_milli_ms": spend.committed if spend else 0,
        "guarded": tenants.guarded[number],
        # Maintained only while an order needs it.
        "fair_key": tenants.fair_key[number] if fair else 0,
    }


def _derived_queue(queue: WaitQueue, tenants: Tenants) -> dict[str, Any]:
    """The queue in order. A single job is not sorted in yet and has no place to show."""
    if queue.count <= 1:
        return {"count": queue.count, "ids": [queue.only().id] if queue.count else []}
    groups: list[Any] = []
    for key in queue.group_keys:
        group = queue.groups[key]
        for at in sorted(group.streams):
            streams = [[row[-1].id for row in rows] for rows in group.streams[at].values()]
            rows = sorted([row for rows in group.streams[at].values() for row in rows])
            groups.append([list(key), tenants.path[at], [row[-1].id for row in rows], sorted(streams)])
        counts = {tenants.path[number]: count for number, count in sorted(group.counts.items()) if count}
        groups.append([list(key), counts])
    return {"count": queue.count, "groups": groups}
