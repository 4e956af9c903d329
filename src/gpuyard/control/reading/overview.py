"""The whole yard in one answer: every GPU and the jobs on it, every tenant and what it holds. For `yard top`.

It is made once for all (`Fleet`), with the replica locked; each person gets the part that they may see.
"""

from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.reading.plain_views import gpus_number, node_state
from gpuyard.core import State
from gpuyard.core.fleet.bits import positions
from gpuyard.core.quota.tenants import ROOT, UNLIMITED
from gpuyard.model.units import MILLI
from gpuyard.wire.replies.fleet import NodeHead, OverviewReply, TenantUseReply

NODES_MAX = 2500
"""Nodes beyond this number are counted and not drawn: ten thousand bars help no reader, twenty thousand GPUs do."""
FOREIGN = "foreign"
"""Stands for the job on a GPU that someone outside the yard uses."""


class Cell(NamedTuple):
    """A GPU: how much of it is used, the tenant, and the label and number of the job; 0: there is none."""

    milli: int = 0
    tenant: str = ""
    label: str = ""
    job_id: int = 0


class DrawnNode(NamedTuple):
    """A node with its GPUs."""

    head: NodeHead
    cells: list[Cell]


_FREE = Cell()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes and tenants at one event, as a person with sight of everything sees them."""

    seq: int = -1
    now_ms: int = 0
    running: int = 0
    waiting: int = 0
    set_aside: int = 0
    nodes_in_all: int = 0
    nodes: tuple["DrawnNode", ...] = ()
    tenants: tuple[TenantUseReply, ...] = ()


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


def make_overview(fleet: Fleet, at_ms: int, sight: Sight = ALL) -> OverviewReply:
    """The part that a person may see. A job out of sight has its number and no tenant, as in the queue."""
    return {
        "at_ms": max(at_ms, fleet.now_ms),
        "running": fleet.running,
        "waiting": fleet.waiting,
        "set_aside": fleet.set_aside,
        "nodes_in_all": fleet.nodes_in_all,
        "nodes": [{**head, "gpus": [_shown(cell, sight) for cell in cells]} for head, cells in fleet.nodes],
        "tenants": [each for each in fleet.tenants if sight.knows(each["tenant"])],
    }


def _shown(cell: Cell, sight: Sight) -> tuple[int, str, str]:
    hidden = cell.job_id and not sight.sees(cell.tenant)
    return (cell.milli, "", str(cell.job_id)) if hidden else cell[:3]


def _node(state: State, number: int) -> DrawnNode:
    nodes, node = state.nodes, state.nodes.node[number]
    foreign, _by = nodes.foreign.get(number, (0, ""))
    cells = [Cell(MILLI, "", FOREIGN) if foreign >> gpu & 1 else _FREE for gpu in range(node.gpus)]
    for job_id, (_end_ms, grant) in sorted(nodes.attempts_on[number].items()):
        record = state.jobs.get(job_id)
        if record is None:
            continue
        for gpu in positions[grant.gpus]:
            cell = cells[gpu]
            # Of several that share a GPU the first gives its name; what they use is added up.
            milli = min(MILLI, cell.milli + grant.milli)
            if cell.label:
                cells[gpu] = cell._replace(milli=milli)
            else:
                cells[gpu] = Cell(milli, record.job.spec.tenant, record.job.label, job_id)
    state_word, why = node_state(state, number)
    head: NodeHead = {
        "name": node.name,
        "cluster": node.cluster,
        "rack": node.rack,
        "state": state_word,
        "why": why,
        "gpu_model": node.gpu_model,
    }
    return DrawnNode(head, cells)


def _tenants(state: State) -> list[TenantUseReply]:
    tenants = state.tenants
    waiting, wanted_milli = state.counts.by_tenant(tenants.chain)
    found: list[TenantUseReply] = []
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
