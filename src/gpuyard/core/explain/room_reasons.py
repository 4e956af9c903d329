"""Why there is no room, in numbers: what is asked for on one node, and what the best node has.

Judged at the job's turn, with the starts before it already drafted.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpuyard.core.fleet.bits import each, lowest_bit, split_domains, tasks_in_domains
from gpuyard.core.fleet.claims import pinned_mask
from gpuyard.core.fleet.gpu_reserves import room_of
from gpuyard.core.fleet.mig_geometry import layout_text
from gpuyard.core.fleet.nodes import cut_mask, find_barred
from gpuyard.core.fleet.placing import place_anyhow
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import choose_verb, cores_text, count_text, names_text
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.state.state import State
from gpuyard.model import Cure, Level, Lift, Reason, ReasonCode, Remedy
from gpuyard.model.units import MILLI
from gpuyard.quantities import memory_words


def room_reasons(current: Pass, record: JobRecord, may_force: bool) -> list[Reason]:
    """For each suitable GPU model without room, why; and what is closed or kept for other jobs."""
    state, shape = current.state, record.shape
    by_model: dict[int, list[Way]] = {}
    for way in shape.ways:
        by_model.setdefault(way.model, []).append(way)
    reasons: list[Reason] = []
    for model, ways in by_model.items():
        if any(current.policy.place(state.nodes, shape, way, way.pools) is not None for way in ways):
            continue
        name = model_name(state, model)
        lifted_by: tuple[Remedy, ...] = (Remedy(Cure.COMES_FREE, () if name == _NO_GPU else (name,)),)
        if shape.ask.level_required and _fits_apart(current, shape):
            lifted_by = (*lifted_by, Remedy(Cure.FURTHER_APART))
        # Where a level is only preferred, what is in the way is the lack of room anywhere.
        anywhere = [way for way in ways if way.level in (None, Level.FABRIC)] or ways
        told = anywhere[:1] if anywhere[0].level else anywhere
        for text in dict.fromkeys([_shortage(state, shape, way, anywhere, name) for way in told]):
            reasons.append(Reason(ReasonCode.ROOM, "placement", text, may_force, lifted_by))
        reasons += _closed(state, shape, ways, name)
        reasons += _foreign(state, ways, name)
        pinned = [number for number in _open(state, ways) if pinned_mask(state.nodes, number)]
        reasons += [pinned_reason(state, number, "fleet") for number in pinned]
        reasons += _kept(state, record, ways, name)
    return reasons


_NO_GPU = "node without GPUs"


def model_name(state: State, model: int) -> str:
    """A GPU model by its number."""
    return next((name for name, number in state.models.items() if number == model and name), _NO_GPU)


def _open(state: State, ways: Iterable[Way]) -> list[int]:
    """Nodes that take new jobs and could serve the job in one of these ways."""
    return [number for number in _members(state, ways) if not state.nodes.closed[number]]


def _members(state: State, ways: Iterable[Way]) -> list[int]:
    """Nodes that could serve the job in one of these ways, closed or not."""
    members = 0
    for way in ways:
        members |= state.nodes.kinds[way.kind].members & way.pools
    return list(each(members))


def fitting_gpus(state: State, shape: Shape, number: int) -> int:
    """How many GPUs of a node have at least what is asked of one GPU."""
    if shape.milli == MILLI:
        return state.nodes.free_mask[number].bit_count()
    out = find_barred(state.nodes, number, shape.user)
    return sum(
        [left >= shape.milli and not out >> gpu & 1 for gpu, left in enumerate(state.nodes.gpu_free[number])]
    )


def tasks_on(state: State, shape: Shape, number: int) -> int:
    """How many tasks a node could take now."""
    cpu_milli, memory_mib = room_of(state.nodes, shape, number)
    most = shape.tasks
    for want, have in (
        (shape.gpus, fitting_gpus(state, shape, number)),
        (shape.cpu_milli, cpu_milli),
        (shape.memory_mib, memory_mib),
    ):
        if want:
            most = min(most, have // want)
    return max(0, most if not shape.in_domain else min(most, _in_domains(state, shape, number)))


def _in_domains(state: State, shape: Shape, number: int) -> int:
    """How many tasks could have all of their GPUs in one NUMA domain of a node."""
    nodes = state.nodes
    return tasks_in_domains(nodes.free_mask[number], shape.gpus, nodes.kind_of[number].domain_size)


def _shortage(state: State, shape: Shape, way: Way, ways: list[Way], name: str) -> str:
    """One sentence. A job that fits on one node is compared with the best node of the model, whatever its kind."""
    if way.level is not None:
        return _level_shortage(
            state, shape, way.level, [each for each in ways if each.level is way.level], name
        )
    if way.nodes_max > way.full_nodes + (way.rest_tasks > 0):
        return _spread_shortage(state, shape, way, name)
    if way.full_nodes == 1 and not way.rest_tasks:
        alike = [other for other in ways if other.full_nodes == 1 and not other.rest_tasks]
        return _node_shortage(state, shape, _open(state, alike), name)
    return _gang_shortage(state, shape, way, name)


def _want(shape: Shape, tasks: int, name: str) -> str:
    """What `tasks` tasks ask of one node."""
    parts = []
    if shape.gpus:
        count = shape.gpus * tasks
        part = name if shape.milli == MILLI else f"{shape.milli / MILLI:g} {name}"
        parts.append(part if count == 1 and shape.milli != MILLI else f"{count} x {part}")
    if shape.cpu_milli:
        parts.append(cores_text(shape.cpu_milli * tasks))
    if shape.memory_mib:
        parts.append(memory_words(shape.memory_mib * tasks))
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts) or "a place"


def shortage_text(state: State, shape: Shape, way: Way) -> str:
    """Why one way to serve a job has no room, in a sentence."""
    ways = [other for other in shape.ways if other.model == way.model]
    text = _shortage(state, shape, way, ways, model_name(state, way.model))
    return f"{text}; {full}" if (full := full_text(state, _members(state, ways))) else text


def full_text(state: State, numbers: Iterable[int]) -> str:
    """Which of these nodes have as many attempts as they may; empty: none."""
    nodes = state.nodes
    full = [number for number in numbers if number in nodes.full and not nodes.shut(number)]
    if len(full) == 1:
        return f"node {nodes.node[full[0]].name} has {count_text(nodes.attempts_max, 'job')}, as many as one may have"
    most = f"{count_text(nodes.attempts_max, 'job')} each, as many as one may have"
    return f"{len(full)} nodes have {most}" if full else ""


def _free_in_all(state: State, shape: Shape, numbers: list[int]) -> str:
    free = [fitting_gpus(state, shape, number) for number in numbers]
    with_any = sum([count > 0 for count in free])
    if not sum(free):
        return f"none is free on {count_text(len(numbers), 'node')}"
    return f"{sum(free)} free on {count_text(with_any, 'node')}"


def _node_shortage(state: State, shape: Shape, numbers: list[int], name: str) -> str:
    nodes, tasks = state.nodes, shape.tasks
    asked = f"{_want(shape, tasks, name)} on one node"
    if not numbers:
        return f"{asked}: no node that could hold it takes new work"
    gpus = shape.gpus * tasks
    if gpus:
        best = max([fitting_gpus(state, shape, number) for number in numbers])
        if best < gpus and shape.milli != MILLI:
            if gpus == 1:
                return f"{asked}: {_best_gpu(state, shape, numbers)}"
            return f"{asked}: the best node has {count_text(best, 'such GPU')}"
        if best < gpus:
            everywhere = _free_in_all(state, shape, numbers)
            several = sum([fitting_gpus(state, shape, number) for number in numbers]) > best
            return f"{asked}: {everywhere}" + (f", but at most {best} on one node" if several else "")
        numbers = [number for number in numbers if fitting_gpus(state, shape, number) >= gpus]
    if shape.in_domain and not any([_in_domains(state, shape, number) >= tasks for number in numbers]):
        sizes = [(number, nodes.kind_of[number].domain_size) for number in numbers]
        parts = [split_domains(nodes.free_mask[number], size) for number, size in sizes]
        most = max([part.bit_count() for found in parts for part in found], default=0)
        has = f"{count_text(len(numbers), 'node')} {choose_verb(numbers, 'has', 'have')} the GPUs"
        return f"{asked}, in one NUMA domain: {has}, and at most {most} of them in one domain"
    have_gpus = (
        f"{count_text(len(numbers), 'node')} {choose_verb(numbers, 'has', 'have')} the GPUs, but "
        if gpus
        else ""
    )
    rooms = [room_of(nodes, shape, number) for number in numbers]
    reserved = not gpus and any([number in nodes.beside for number in numbers])
    beside = " beside what its pool reserves for GPUs" if reserved else ""
    most_cpu = max([cpu_milli for cpu_milli, _memory_mib in rooms])
    if most_cpu < shape.cpu_milli * tasks:
        return f"{asked}: {have_gpus}at most {cores_text(max(0, most_cpu))} free{beside}"
    most_memory = max([memory_mib for _cpu_milli, memory_mib in rooms])
    if most_memory < shape.memory_mib * tasks:
        return f"{asked}: {have_gpus}at most {memory_words(max(0, most_memory))} free{beside}"
    return f"{asked}: {have_gpus}none has all of it free at once"


def _best_gpu(state: State, shape: Shape, numbers: list[int]) -> str:
    """Why no GPU takes a share: what is free on the best one, or what else is on those with enough."""
    nodes = state.nodes
    enough = [
        (number, gpu)
        for number in numbers
        for gpu, left in enumerate(nodes.gpu_free[number])
        if left >= shape.milli
    ]
    cut = [(number, gpu) for number, gpu in enough if cut_mask(nodes, number) >> gpu & 1]
    if not enough:
        most = max([max(nodes.gpu_free[number]) for number in numbers])
        return f"the best GPU has {max(0, most) / MILLI:g} free"
    if not cut:
        one = "shares of one GPU belong to one user (mps_users)"
        return f"that much is free only beside shares of other users, and {one}"
    beside = "" if len(cut) == len(enough) else ", or beside shares of other users"
    if len(cut) == 1:
        number, gpu = cut[0]
        slices, name = layout_text(nodes.slices_used[number][gpu]), nodes.node[number].name
        free = f"that much is free only on GPU {gpu} of {name}{beside}"
        return f"{free}, and that GPU is cut into slices ({slices}){_until(state, number, gpu)}"
    return f"that much is free only on {len(cut)} GPUs that are cut into slices{beside}, and a cut GPU takes no shares"


def _until(state: State, number: int, gpu: int) -> str:
    """Until which jobs end: those that have slices of a GPU."""
    on = state.nodes.attempts_on[number].items()
    jobs = [job_id for job_id, (_end_ms, grant) in on if any([piece.gpu == gpu for piece in grant.slices])]
    labels = names_text([state.jobs[job_id].job.label for job_id in sorted(jobs)])
    if not jobs:
        return ""
    return f" until job {labels} ends" if len(jobs) == 1 else f" until jobs {labels} end"


def _gang_shortage(state: State, shape: Shape, way: Way, name: str) -> str:
    numbers = _open(state, [way])
    held = [tasks_on(state, shape, number) for number in numbers]
    share, rest = way.tasks_per_node, way.rest_tasks
    asked = f"{_want(shape, share, name)} on each of {count_text(way.full_nodes, 'node')}"
    if way.full_nodes == 1:
        asked = f"{_want(shape, share, name)} on one node"
    if rest:
        asked += f" and {_want(shape, rest, name)} on one more"
    full = sum([tasks >= share for tasks in held])
    has = f"{count_text(full, 'node')} {'has' if full == 1 else 'have'} the room"
    if rest and full >= way.full_nodes:
        has = f"{count_text(full, 'node')} can take the full share, and none is left for the rest"
    return f"{asked}: {has}; {_free_in_all(state, shape, numbers)}" if shape.gpus else f"{asked}: {has}"


def _level_shortage(state: State, shape: Shape, level: Level, ways: list[Way], name: str) -> str:
    """What the switch, rack or fabric with most room has for a gang that needs one with room for all of it."""
    asked = f"{_want(shape, shape.tasks, name)} on one {level}"
    held = [(sum([tasks_on(state, shape, number) for number in _open(state, [way])]), way) for way in ways]
    most, way = max(held, key=lambda row: row[0])
    where = state.nodes.node[lowest_bit(way.pools & state.nodes.kinds[way.kind].members)].place(level)
    if most >= shape.tasks:
        nodes = count_text(way.nodes_max, "node")
        return f"{asked}: {level} {where} has room for all of it, but not on {nodes}"
    if not shape.gpus:
        return f"{asked}: the largest free {level} has room for {most} of {count_text(shape.tasks, 'task')}"
    has, wanted = most * shape.gpus, shape.tasks * shape.gpus
    return f"{asked}: the largest free {level} has {has} of {count_text(wanted, 'GPU')}"


def _fits_apart(current: Pass, shape: Shape) -> bool:
    """Whether there is room for a gang whose nodes need not be near to each other."""
    nodes = current.state.nodes
    other = Shapes().of(replace(shape.ask, level_required=False), nodes, current.state.weights)
    return any(place_anyhow(nodes, other, way, way.pools) is not None for way in other.ways)


def _spread_shortage(state: State, shape: Shape, way: Way, name: str) -> str:
    numbers = _open(state, [way])
    held = sorted([tasks_on(state, shape, number) for number in numbers], reverse=True)[: way.nodes_max]
    most = count_text(way.nodes_max, "node")
    asked = f"{count_text(shape.tasks, 'task')} of {_want(shape, 1, name)} on at most {most}"
    return f"{asked}: the best {most} can take {sum(held)}"


def _closed(state: State, shape: Shape, ways: list[Way], name: str) -> list[Reason]:
    """Nodes that would have room for at least one task if they took new jobs."""
    nodes = state.nodes
    useful = [n for n in _members(state, ways) if nodes.closed[n] and tasks_on(state, shape, n)]
    reasons = []
    if full := full_text(state, useful):
        lifted_by = (Remedy(Cure.JOB_THERE_ENDS), Remedy(Cure.MORE_PER_NODE))
        reasons.append(Reason(ReasonCode.ROOM, "fleet", full, False, lifted_by))
    for what, numbers in (
        ("cordoned", [n for n in useful if nodes.cordoned[n] and not nodes.down[n]]),
        ("down", [n for n in useful if nodes.down[n]]),
    ):
        if numbers:
            gpus = sum([nodes.node[n].gpus for n in numbers])
            with_gpus = f" with {gpus} {name}" if gpus else ""
            text = f"{count_text(len(numbers), 'node')}{with_gpus} {choose_verb(numbers, 'is', 'are')} {what}"
            opened = (Remedy(Cure.NODES_OPEN, tuple([nodes.node[n].name for n in numbers])),)
            reasons.append(Reason(ReasonCode.ROOM, "fleet", text, False, opened))
    return reasons


def _foreign(state: State, ways: list[Way], name: str) -> list[Reason]:
    """GPUs that are used from outside the yard, and what uses them."""
    reasons = []
    for number in _open(state, ways):
        mask, user = state.nodes.foreign.get(number, (0, ""))
        if mask:
            node = state.nodes.node[number].name
            text = f"{mask.bit_count()} x {name} of {node} are used outside the yard: {user}"
            text = text.replace(" are ", " is ", 1) if mask.bit_count() == 1 else text
            reasons.append(Reason(ReasonCode.ROOM, "fleet", text, False, (Remedy(Cure.FOREIGN_ENDS),)))
    return reasons


def pinned_reason(state: State, number: int, by: str, lift: Lift | None = None) -> Reason:
    """Which GPUs of a node are pinned to slices, and take nothing else."""
    name = state.nodes.node[number].name
    rows = sorted(state.nodes.pins.get(number, {}).items())
    pinned = [f"GPU {gpu} to {layout_text(found.held)}" for gpu, found in rows if found.held]
    text = f"node {name} has GPUs pinned to slices: {', '.join(pinned)}"
    return Reason(ReasonCode.ROOM, by, text, False, (Remedy(Cure.RELEASE_LAYOUT, (name,)),), lift)


def _kept(state: State, record: JobRecord, ways: list[Way], name: str) -> list[Reason]:
    """Room that is kept for the jobs for which it was freed."""
    kinds = {way.kind for way in ways}
    reasons = []
    for job_id in sorted(state.earmarks):
        other = state.earmarks[job_id]
        if other is record or other.earmark is None:
            continue
        gpus = sum([g.gpus.bit_count() for g in other.earmark.grants if state.nodes.kind[g.node] in kinds])
        if gpus:
            text = f"{gpus} x {name} {'is' if gpus == 1 else 'are'} kept for job {other.job.label}"
            ended = (Remedy(Cure.JOBS_END, (other.job.label,)),)
            reasons.append(Reason(ReasonCode.ROOM, f"job {other.job.label}", text, False, ended))
    return reasons
