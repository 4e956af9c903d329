"""The whole yard in one answer: every GPU and the jobs on it, every tenant and what it holds. For `yard top`.

It is made once for all (`Fleet`), with the replica locked; each person gets the part that they may see.
"""

from dataclasses import dataclass
from typing import Any

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.reading.plain_views import View, gpus_number, node_state
from gpuyard.core import State
from gpuyard.core.fleet.bits import positions
from gpuyard.core.quota.tenants import ROOT, UNLIMITED
from gpuyard.model.units import MILLI

NODES_MAX = 2500
"""Nodes beyond this number are counted and not drawn: ten thousand bars help no reader, twenty thousand GPUs do."""
FOREIGN = "foreign"
"""Stands for the job on a GPU that someone outside the yard uses."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes and tenants at one event, as a person with sight of everything sees them."""

    seq: int = -1
    now_ms: int = 0
    running: int = 0
    waiting: int = 0
    set_aside: int = 0
    nodes_in_all: int = 0
    nodes: tuple[View, ...] = ()
    """A GPU has how much of it is used, the tenant, the label of the job, and the job's number (0: none)."""
    tenants: tuple[View, ...] = ()


def make_fleet(state: State, seq: int) -> Fleet:
    """Counts, nodes with their GPUs, tenants with their use. Called with the replica locked."""
    nodes = state.nodes
    return Fleet(
        seq,
        state.now_ms,
        len(state.running),
        state.queue.count,
        len(state.deferred),
        len(nodes.node),
        tuple([_node(state, number) for number in range(min(NODES_MAX, len(nodes.node)))]),
        tuple(_tenants(state)),
    )


def make_overview(fleet: Fleet, at_ms: int, sight: Sight = ALL) -> View:
    """The part that a person may see. A job out of sight has its number and no tenant, as in the queue."""
    return {
        "at_ms": max(at_ms, fleet.now_ms),
        "running": fleet.running,
        "waiting": fleet.waiting,
        "set_aside": fleet.set_aside,
        "nodes_in_all": fleet.nodes_in_all,
        "nodes": [{**node, "gpus": [_cell(cell, sight) for cell in node["gpus"]]} for node in fleet.nodes],
        "tenants": [each for each in fleet.tenants if sight.knows(each["tenant"])],
    }


def _cell(cell: list[Any], sight: Sight) -> list[Any]:
    milli, tenant, label, job_id = cell
    return [milli, "", str(job_id)] if job_id and not sight.sees(tenant) else [milli, tenant, label]


def _node(state: State, number: int) -> View:
    nodes, node = state.nodes, state.nodes.node[number]
    foreign, _by = nodes.foreign.get(number, (0, ""))
    gpus: list[list[Any]] = [
        [MILLI, "", FOREIGN, 0] if foreign >> gpu & 1 else [0, "", "", 0] for gpu in range(node.gpus)
    ]
    for job_id, (_end_ms, grant) in sorted(nodes.attempts_on[number].items()):
        record = state.jobs.get(job_id)
        if record is None:
            continue
        for gpu in positions[grant.gpus]:
            cell = gpus[gpu]
            # Of several that share a GPU the first gives its name; what they use is added up.
            if not cell[2]:
                cell[1:] = [record.job.spec.tenant, record.job.label, job_id]
            cell[0] = min(MILLI, cell[0] + grant.milli)
    state_word, why = node_state(state, number)
    return {
        "name": node.name,
        "cluster": node.cluster,
        "rack": node.rack,
        "state": state_word,
        "why": why,
        "gpu_model": node.gpu_model,
        "gpus": gpus,
    }


def _tenants(state: State) -> list[View]:
    tenants = state.tenants
    waiting, wanted_milli = state.counts.by_tenant(tenants.chain)
    found = []
    for path, number in sorted(tenants.number.items()):
        limit = tenants.limit[number][0]
        if number != ROOT:
            found.append(
                {
                    "tenant": path,
                    "weight": tenants.weight[number],
                    "running": tenants.running[number],
                    "waiting": waiting[number],
                    "gpus": gpus_number(tenants.used[number][0]),
                    "gpus_wanted": gpus_number(wanted_milli[number]),
                    "guarantee": gpus_number(max(tenants.guarantee[number][0], sum(tenants.guarantee[number][1:]))),
                    "limit": None if limit >= UNLIMITED else gpus_number(limit),
                }
            )  # fmt: skip
    return found
