"""The steps of `apply` that concern settings and fleet."""

from gpuyard.core.fleet.bits import positions
from gpuyard.core.fleet.marks import UNMARKED
from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.fleet.mig_placing import pin_flaw
from gpuyard.core.state.state import InvalidEvent, State
from gpuyard.model import (
    ConfigSet,
    DemandLearned,
    EngineSeen,
    GpusTaken,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeMarked,
    NodeUncordoned,
    NodeUp,
)


def config_set(state: State, event: ConfigSet) -> None:
    """Put settings in force."""
    state.configure(event.settings)


def node_added(state: State, event: NodeAdded) -> None:
    """A node joins."""
    key = (event.node.cluster, event.node.name)
    if key in state.node_number:
        raise InvalidEvent(f"{event}: there is a node of that name")
    model = state.model_number(event.node.gpu_model if event.node.gpus else "")
    state.node_number[key] = number = state.nodes.add(event.node, model)
    state.reserve_for_gpus(number)
    state.recompile()
    state.refit_quotas()


def node_changed(state: State, event: NodeChanged) -> None:
    """A node has different hardware, or its GPUs have a new name."""
    number, node, nodes = event.number, event.node, state.nodes
    kept = any(g.node == number for r in state.earmarks.values() if r.earmark for g in r.earmark.grants)
    before, key = nodes.node[number], (node.cluster, node.name)
    stays = bool(nodes.attempts_on[number])
    other = before.name != node.name or state.node_number.get(key, number) != number
    if other or kept or (stays and not nodes.may_rename(number, node)):
        raise InvalidEvent(f"{event}: it is another node, or something is on it")
    if before.cluster != node.cluster:
        # A cluster got another name, and its node moves with it.
        del state.node_number[before.cluster, before.name]
        state.node_number[key] = number
    model = state.model_number(node.gpu_model if node.gpus else "")
    if stays:
        nodes.rename(number, node, model)
    else:
        nodes.drop_claims(number)
        nodes.change(number, node, model)
    state.reserve_for_gpus(number)
    state.recompile()
    for job_id in sorted(nodes.attempts_on[number]):
        record = state.jobs[job_id]
        if record.grants[0].node == number:
            state.recharge(record, event.at_ms)
    state.refit_quotas()


def engine_seen(state: State, event: EngineSeen) -> None:
    """Note what the engine of a cluster cannot do."""
    state.nodes.set_lacks(event.cluster, frozenset(event.lacks))
    state.recompile()
    state.nodes.gain_room()


def node_down(state: State, event: NodeDown) -> None:
    """A node is down."""
    _check(state, event)
    state.set_down(event.node, event.why or "down")


def node_up(state: State, event: NodeUp) -> None:
    """A node is back."""
    _check(state, event)
    state.set_down(event.node, "")


def node_cordoned(state: State, event: NodeCordoned) -> None:
    """A node takes no new jobs."""
    _check(state, event)
    state.nodes.set_cordoned(event.node, event.why or "cordoned")


def node_uncordoned(state: State, event: NodeUncordoned) -> None:
    """A node takes new jobs again."""
    _check(state, event)
    state.nodes.set_cordoned(event.node, "")


def node_marked(state: State, event: NodeMarked) -> None:
    """Labels and taints of a node are set. A job that waits for a node that it may no longer have is asked again."""
    _check(state, event)
    before = UNMARKED if event.reset else state.nodes.marks.live.get(event.node, UNMARKED)
    changed = before.label(event.labels, event.unlabelled).taint(event.taints, event.untainted)
    state.nodes.mark(event.node, changed)
    state.recompile()


def gpus_taken(state: State, event: GpusTaken) -> None:
    """GPUs of a node are used outside the yard."""
    _check(state, event)
    state.nodes.set_foreign(event.node, event.gpus, event.why)


def layout_pinned(state: State, event: LayoutPinned) -> None:
    """Pin GPUs to a layout, all or none. Slices in use on them must be part of it, in the same place."""
    _check(state, event)
    layouts = {
        gpu: tuple([PlacedSlice(piece.profile, piece.start) for piece in event.slices if piece.gpu == gpu])
        for gpu in positions[event.gpus]
    }
    for gpu, held in layouts.items():
        if wrong := pin_flaw(state.nodes, event.node, gpu, held):
            raise InvalidEvent(f"{event}: {wrong}")
    for gpu, held in layouts.items():
        state.nodes.pin(event.node, gpu, Pin(held, found=event.found))


def layout_released(state: State, event: LayoutReleased) -> None:
    """GPUs are cut on demand again."""
    _check(state, event)
    for gpu in positions[event.gpus]:
        state.nodes.unpin(event.node, gpu)


def layout_made(state: State, event: LayoutMade) -> None:
    """Note what the engine said about pinned GPUs. A GPU that was released meanwhile is skipped."""
    _check(state, event)
    for gpu in positions[event.gpus]:
        state.nodes.layout_made(event.node, gpu, event.why, event.took_ms)


def demand_learned(state: State, event: DemandLearned) -> None:
    """Replace the demand to expect."""
    state.demand = event.asks
    state.demand_version += 1
    state.arrived.clear()
    state.arrivals = 0


_OfNode = (
    NodeDown
    | NodeUp
    | NodeCordoned
    | NodeUncordoned
    | NodeMarked
    | GpusTaken
    | LayoutPinned
    | LayoutReleased
    | LayoutMade
)


def _check(state: State, event: _OfNode) -> None:
    if not 0 <= event.node < len(state.nodes.node):
        raise InvalidEvent(f"{event}: there is no node {event.node}")
