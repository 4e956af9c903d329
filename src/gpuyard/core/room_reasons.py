"""What the nodes have to say: where the room is, why it is not enough, and whose it will be."""

from gpuyard.core.admission import ask_text
from gpuyard.core.bits import each
from gpuyard.core.nodes import Kind
from gpuyard.core.passes import Pass
from gpuyard.core.policy import Policy
from gpuyard.core.records import JobRecord
from gpuyard.core.reserve import promise
from gpuyard.core.shapes import Shape, Way
from gpuyard.core.state import State
from gpuyard.core.words import span
from gpuyard.model import Reason, ReasonCode
from gpuyard.model.units import MILLI


def room_reasons(
    state: State, policy: Policy, record: JobRecord, ahead: list[JobRecord], now_ms: int
) -> list[Reason]:
    """No room, or room that is promised to someone ahead."""
    place, shape = policy.place, record.shape
    if all(place(state.nodes, shape, way, way.pools) is None for way in shape.ways):
        return [*_no_room(state, shape), *_shut(state, shape)]
    if not ahead:
        return []
    first = next((other for other in ahead if other.earmark is None and not _fits(state, policy, other)), None)
    if first is None:
        text = f"{len(ahead)} jobs are ahead of it and start first"
        return [Reason(ReasonCode.NOT_EXAMINED, "order", text, False, "their start")]
    if policy.spec.backfill == "none":
        text = f"job {first.job.label} is ahead and waits for {ask_text(first.shape)}; nobody may overtake"
        return [Reason(ReasonCode.HEAD_BLOCKED, "order", text, False, f"the start of job {first.job.label}")]
    promised = promise(Pass(state, policy, now_ms), first)
    if promised is None or record.estimate_ms <= promised.at_ms - now_ms:
        return []
    text = (
        f"there is room now, but job {first.job.label} is promised {ask_text(first.shape)} in "
        f"{span(promised.at_ms - now_ms)}, and this job may run {span(record.estimate_ms)}"
    )
    return [Reason(ReasonCode.RESERVATION, "backfill", text, False, "a shorter time limit, or its start")]


def _fits(state: State, policy: Policy, record: JobRecord) -> bool:
    return any(policy.place(state.nodes, record.shape, w, w.pools) is not None for w in record.shape.ways)


def _no_room(state: State, shape: Shape) -> list[Reason]:
    """One reason for each way, with the best node and the sum."""
    return [_of_way(state, shape, way) for way in shape.ways]


def _of_way(state: State, shape: Shape, way: Way) -> Reason:
    kind = state.nodes.kinds[way.kind]
    free = [(count, bucket & way.pools) for count, bucket in enumerate(kind.buckets)]
    best = max((count for count, members in free if members), default=0)
    total = sum(count * members.bit_count() for count, members in free)
    spread = sum(members.bit_count() for count, members in free if count)
    if shape.milli != MILLI:
        left = max((max(state.nodes.gpu_free[n]) for n in each(_open(kind, way))), default=0)
        text = f"{ask_text(shape)}: the GPU with most left has {max(0, left) / MILLI:g}"
    elif shape.tasks == 1:
        text = f"{ask_text(shape)} on one node: best node has {best} free; {total} free in all on {spread} nodes"
    else:
        need = shape.gpus * way.tasks_per_node
        ready = sum(members.bit_count() for count, members in free if count >= need)
        wanted = way.full_nodes + (way.rest_tasks > 0)
        text = f"{ask_text(shape)}: needs {wanted} nodes with {need} free, {ready} have them; {total} free in all"
    if best >= way.node_gpus and shape.tasks == 1 and (shape.cpu_milli or shape.memory_mib):
        text += _short_of(state, shape, way, kind)
    return Reason(ReasonCode.ROOM, "placement", text, True, "the end of a running job")


def _short_of(state: State, shape: Shape, way: Way, kind: Kind) -> str:
    """Where GPUs are free and cores or memory are not."""
    nodes = state.nodes
    enough = [n for n in each(_open(kind, way)) if nodes.free_mask[n].bit_count() >= shape.gpus]
    cpu = max((nodes.cpu_free[n] for n in enough), default=0)
    memory = max((nodes.memory_free[n] for n in enough), default=0)
    short = []
    if cpu < shape.cpu_milli:
        short.append(f"{shape.cpu_milli / MILLI:g} cores asked, {cpu / MILLI:g} free at most")
    if memory < shape.memory_mib:
        short.append(f"{shape.memory_mib} MiB asked, {memory} free at most")
    return f"; where GPUs are free: {', '.join(short) or 'cores and memory are free on other nodes'}"


def _open(kind: Kind, way: Way) -> int:
    members = 0
    for bucket in kind.buckets:
        members |= bucket
    return members & way.pools


def _shut(state: State, shape: Shape) -> list[Reason]:
    """Nodes that could serve the job if they were up and open."""
    nodes = state.nodes
    found = []
    for why, column in (("down", nodes.down), ("cordoned", nodes.cordoned)):
        numbers = [
            n
            for way in shape.ways
            for n in each(nodes.kinds[way.kind].members & way.pools)
            if column[n]
        ]
        if numbers:
            gpus = sum(nodes.node[n].gpus for n in numbers)
            verb = "is" if len(numbers) == 1 else "are"
            text = f"{len(numbers)} node{'s' * (len(numbers) != 1)} with {gpus} such GPUs {verb} {why}"
            lifted = "their return" if why == "down" else "yard resume"
            found.append(Reason(ReasonCode.ROOM, "fleet", text, False, lifted))
    return found
