"""From a wanted layout to what happens to a GPU: which slices are kept, made and removed, or why it is not possible.

Slices in use are never moved: they must be part of the layout, and stay where they are. Idle slices are kept if the
layout has such slices, and removed if it has not.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.fleet.mig_geometry import Held, PlacedSlice, fit, layout_text
from gpuyard.core.fleet.mig_placing import pin_flaw
from gpuyard.core.phrases import names_text
from gpuyard.core.state.state import State
from gpuyard.model import Capability
from gpuyard.model.mig import MIG_MODELS, MigGeometry


class LayoutPlan(NamedTuple):
    """What a wanted layout means for one GPU."""

    gpu: int
    held: Held = ()
    """The layout, slice by slice."""
    kept: Held = ()
    made: Held = ()
    gone: Held = ()
    """Idle slices that are removed."""
    refusal: str = ""
    """Why it is not possible; empty: it is."""
    mistaken: bool = False
    """Whether the layout itself is wrong, so that waiting does not help."""


def plan_layout(state: State, number: int, gpu: int, wanted: Sequence[str], there: Held = ()) -> LayoutPlan:
    """What it takes to cut a GPU to this layout. `there` are the slices that the engine finds on it."""
    nodes = state.nodes
    node = nodes.node[number]
    geometry = MIG_MODELS.get(node.gpu_model)
    if geometry is None:
        model = f"{node.gpu_model} has no MIG" if node.gpus else "it has no GPUs"
        return LayoutPlan(gpu, refusal=f"{node.name} cannot be cut: {model}", mistaken=True)
    if not may_cut(state, number):
        text = f"{node.name} cannot be cut: cluster {node.cluster} gives whole GPUs only"
        return LayoutPlan(gpu, refusal=text, mistaken=True)
    if wrong := _impossible(geometry, wanted):
        return LayoutPlan(gpu, refusal=wrong, mistaken=True)
    used = nodes.slices_used.get(number, {}).get(gpu, ())
    left = list(wanted)
    for place in used:
        if place.profile not in left:
            users = names_text(list_jobs_on(state, number, gpu))
            return LayoutPlan(
                gpu, refusal=f"{layout_text(used)} is in use by {users}, and a slice is never moved"
            )
        left.remove(place.profile)
    held = _placed(geometry, used, tuple([place for place in there if place not in used]), left)
    if held is None:
        users = names_text(list_jobs_on(state, number, gpu))
        text = f"beside {layout_text(used)}, which {users} has, there is no place for {_listed(left)}"
        return LayoutPlan(gpu, refusal=text)
    if pin_flaw(nodes, number, gpu, held):
        _mask, outside = nodes.foreign.get(number, (0, ""))
        users = names_text(list_jobs_on(state, number, gpu)) or outside or "a job that is being stopped"
        return LayoutPlan(gpu, refusal=f"the GPU is in use by {users}")
    return LayoutPlan(
        gpu,
        held,
        kept=tuple([place for place in held if place in there or place in used]),
        made=tuple([place for place in held if place not in there and place not in used]),
        gone=tuple([place for place in there if place not in held]),
    )


def may_cut(state: State, number: int) -> bool:
    """Whether the GPUs of a node can be cut: by their model, and by what runs the jobs there."""
    nodes = state.nodes
    node = nodes.node[number]
    return node.gpu_model in MIG_MODELS and Capability.SLICES not in nodes.lacks.get(node.cluster, ())


def list_jobs_on(state: State, number: int, gpu: int) -> list[str]:
    """The jobs that hold a part of a GPU, or for which a part is kept."""
    nodes = state.nodes
    found = [
        job_id for job_id, (_end_ms, grant) in nodes.attempts_on[number].items() if grant.gpus >> gpu & 1
    ]
    for job_id, record in state.earmarks.items():
        if record.earmark and any(g.node == number and g.gpus >> gpu & 1 for g in record.earmark.grants):
            found.append(job_id)
    return [f"job {state.jobs[job_id].job.label}" for job_id in sorted(set(found)) if job_id in state.jobs]


def list_pinned(state: State, number: int) -> list[tuple[int, Pin]]:
    """The pinned GPUs of a node, in order."""
    return sorted(state.nodes.pins.get(number, {}).items())


def _impossible(geometry: MigGeometry, wanted: Sequence[str]) -> str:
    """Why no GPU of this model can have this layout; empty: it can."""
    for name in wanted:
        if geometry.profile(name) is None:
            known = ", ".join([profile.name for profile in geometry.profiles])
            return f"{geometry.model} has no profile {name}; it has {known}"
    if len(wanted) > geometry.slots:
        # The search below tries every combination: it is meant for layouts of a sensible size.
        number = max([profile.count_max for profile in geometry.profiles])
        return f"{geometry.model} cannot be cut to {len(wanted)} slices: it takes {number} at most"
    fitted = fit(geometry, (), wanted)
    if fitted.left_out:
        most, out = layout_text(fitted.held), _listed(fitted.left_out)
        return (
            f"{geometry.model} cannot be cut to {_listed(wanted)}: beside {most} there is no place for {out}"
        )
    return ""


def _placed(geometry: MigGeometry, used: Held, idle: Held, wanted: list[str]) -> Held | None:
    """Where all wanted slices go beside those in use, keeping as many idle slices as possible."""
    reused: list[PlacedSlice] = []
    left = list(wanted)
    for place in idle:
        if place.profile in left:
            left.remove(place.profile)
            reused.append(place)
    for kept in (tuple(reused), ()):
        names = list(wanted)
        for place in kept:
            names.remove(place.profile)
        fitted = fit(geometry, (*used, *kept), names)
        if not fitted.left_out:
            return fitted.held
    return None


def _listed(names: Sequence[str]) -> str:
    return layout_text([PlacedSlice(name, 0) for name in names])
