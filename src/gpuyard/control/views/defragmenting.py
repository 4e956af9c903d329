"""Which jobs could move so that whole nodes or GPUs become free, with what that destroys: a plan and nothing else."""

from collections.abc import Callable

from gpuyard.control.reading.plain_views import gpus_number
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State, dump, load
from gpuyard.core.fleet.bits import positions
from gpuyard.model.units import MILLI, SECOND_MS
from gpuyard.packing.defrag import Emptied, Move, empty_gpus, empty_nodes
from gpuyard.wire.replies.fleet import DefragReply, DefragRow, MoveReply

MOVES_UNSAID = 100
"""Moves of one plan, unless the request says otherwise."""


def defrag_view(replica: Replica, now_ms: Callable[[], int], moves_max: int = MOVES_UNSAID) -> DefragReply:
    """The plan: what most is gained by for what it destroys first. The replica is locked only while it is copied."""
    with replica.lock:
        replica.catch_up()
        plain, policy, at_ms = dump(replica.state), replica.policy, max(now_ms(), replica.state.now_ms)
    state = load(plain)
    found = [_row(state, each, "node") for each in empty_nodes(state, policy.place, at_ms, moves_max)]
    found += [_row(state, each, "gpu") for each in empty_gpus(state, at_ms, moves_max)]
    # 1. most GPUs for the work destroyed; 2. least destroyed; 3. where.
    found.sort(key=lambda row: (-row["gpus_per_gpu_hour"], row["lost_gpu_s"], row["node"], row["gpus"]))
    return {"at_ms": at_ms, "plan": found}


def _row(state: State, found: Emptied, what: str) -> DefragRow:
    nodes = state.nodes
    gained = positions[found.gpus]
    free = nodes.free_mask[found.node]
    fresh = [gpu for gpu in gained if not free >> gpu & 1]
    lost_s = found.destroyed_milli_ms / MILLI / SECOND_MS
    return {
        "frees": what,
        "node": nodes.node[found.node].name,
        "gpus": list(fresh if what == "gpu" else gained),
        "gained_gpus": len(fresh),
        "lost_gpu_s": round(lost_s, 1),
        # One second of one GPU is the least that a stop costs.
        "gpus_per_gpu_hour": round(len(fresh) * 3600 / max(1.0, lost_s), 1),
        "moves": [_move(state, move) for move in found.moves],
    }


def _move(state: State, move: Move) -> MoveReply:
    nodes, record = state.nodes, state.jobs[move.job_id]
    return {
        "job": record.job.label,
        "user": record.job.spec.user,
        "tenant": record.job.spec.tenant,
        "gpus": gpus_number(record.shape.gpu_milli),
        "from_node": nodes.node[move.source.node].name,
        "from_gpus": list(positions[move.source.gpus]),
        "to_node": nodes.node[move.target.node].name,
        "to_gpus": list(positions[move.target.gpus]),
        "lost_gpu_s": round(move.destroyed_milli_ms / MILLI / SECOND_MS, 1),
    }
