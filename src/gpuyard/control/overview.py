"""The whole yard in one answer: every GPU and who is on it, every tenant and what it holds. For `yard top`."""

from typing import Any

from gpuyard.control.plain_views import View, gpus_number, node_state
from gpuyard.control.rights import ALL, Sight
from gpuyard.core import State
from gpuyard.core.fleet.bits import positions
from gpuyard.core.quota.tenants import ROOT, UNLIMITED
from gpuyard.model.units import MILLI

NODES_MAX = 1000
"""Nodes beyond so many are counted and not drawn: nobody looks at ten thousand bars."""
FOREIGN = "foreign"
"""Stands for the job on a GPU that someone outside the yard uses."""


def overview(state: State, at_ms: int, sight: Sight = ALL) -> View:
    """Counts, nodes with their GPUs, tenants with their use. Called with the books locked.

    A job that is not there for whoever asks has its number and no tenant, as in the queue.
    """
    nodes = state.nodes
    return {
        "at_ms": at_ms,
        "running": len(state.running),
        "waiting": state.queue.count,
        "set_aside": len(state.deferred),
        "nodes_in_all": len(nodes.node),
        "nodes": [_node(state, number, sight) for number in range(min(NODES_MAX, len(nodes.node)))],
        "tenants": _tenants(state, sight),
    }


def _node(state: State, number: int, sight: Sight) -> View:
    nodes, node = state.nodes, state.nodes.node[number]
    foreign, _by = nodes.foreign.get(number, (0, ""))
    gpus: list[list[Any]] = [
        [MILLI, "", FOREIGN] if foreign >> gpu & 1 else [0, "", ""] for gpu in range(node.gpus)
    ]
    for job_id, (_end_ms, grant) in sorted(nodes.on[number].items()):
        record = state.jobs.get(job_id)
        if record is None:
            continue
        for gpu in positions[grant.gpus]:
            cell = gpus[gpu]
            # Of several that share a GPU the first gives its name; what they use is added up.
            if not cell[2]:
                seen = sight.sees(record.job.spec.tenant)
                cell[1] = record.job.spec.tenant if seen else ""
                cell[2] = record.job.label if seen else str(job_id)
            cell[0] = min(MILLI, cell[0] + grant.milli)
    state_word, why = node_state(state, number)
    return {
        "name": node.name,
        "state": state_word,
        "why": why,
        "gpu_model": node.gpu_model,
        "gpus": gpus,
    }


def _tenants(state: State, sight: Sight) -> list[View]:
    tenants = state.tenants
    waiting = [0] * len(tenants.path)
    wanted_milli = [0] * len(tenants.path)
    for record in state.jobs.values():
        if record.phase is None:
            for number in tenants.chain[record.leaf]:
                waiting[number] += 1
                wanted_milli[number] += record.shape.gpu_milli
    found = []
    for path, number in sorted(tenants.number.items()):
        limit = tenants.limit[number][0]
        if number != ROOT and sight.knows(path):
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
