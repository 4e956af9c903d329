"""From a layout that somebody wants to what becomes of a GPU: what is kept, made and taken away, or why it cannot be.

Nothing that runs is moved: a slice in use must be part of the layout, and stays where it is. Slices that nobody uses
are kept where the layout has such, and are taken away where it has not.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.fleet.mig_geometry import Held, Place, fit, layout_text
from gpuyard.core.fleet.mig_placing import pin_flaw
from gpuyard.core.phrases import names_text
from gpuyard.core.state.state import State
from gpuyard.model.mig import MOLDS, Mold


class Fate(NamedTuple):
    """What a wanted layout means to one GPU."""

    gpu: int
    held: Held = ()
    """The layout, slice by slice."""
    kept: Held = ()
    made: Held = ()
    gone: Held = ()
    """Idle slices that are taken away."""
    refusal: str = ""
    """Why it cannot be; empty: it can."""
    mistaken: bool = False
    """Whether the layout itself is wrong: no waiting helps."""


def fate(state: State, number: int, gpu: int, wanted: Sequence[str], there: Held = ()) -> Fate:
    """What it takes to cut a GPU to this layout. `there` are the slices that the engine finds on it."""
    nodes = state.nodes
    node = nodes.node[number]
    mold = MOLDS.get(node.gpu_model)
    if mold is None:
        model = f"{node.gpu_model} has no MIG" if node.gpus else "it has no GPUs"
        return Fate(gpu, refusal=f"{node.name} cannot be cut: {model}", mistaken=True)
    if wrong := _impossible(mold, wanted):
        return Fate(gpu, refusal=wrong, mistaken=True)
    used = nodes.cut.get(number, {}).get(gpu, ())
    left = list(wanted)
    for place in used:
        if place.profile not in left:
            who = names_text(who_is_on(state, number, gpu))
            return Fate(gpu, refusal=f"{layout_text(used)} is in use by {who}, and a slice is never moved")
        left.remove(place.profile)
    held = _placed(mold, used, tuple([place for place in there if place not in used]), left)
    if held is None:
        who = names_text(who_is_on(state, number, gpu))
        text = f"beside {layout_text(used)}, which {who} has, there is no place for {_listed(left)}"
        return Fate(gpu, refusal=text)
    if pin_flaw(nodes, number, gpu, held):
        _mask, outside = nodes.foreign.get(number, (0, ""))
        who = names_text(who_is_on(state, number, gpu)) or outside or "a job that is being stopped"
        return Fate(gpu, refusal=f"the GPU is in use by {who}")
    return Fate(
        gpu,
        held,
        kept=tuple([place for place in held if place in there or place in used]),
        made=tuple([place for place in held if place not in there and place not in used]),
        gone=tuple([place for place in there if place not in held]),
    )


def who_is_on(state: State, number: int, gpu: int) -> list[str]:
    """The jobs that hold a part of a GPU, or for which a part is kept."""
    nodes = state.nodes
    found = [job_id for job_id, (_end_ms, grant) in nodes.on[number].items() if grant.gpus >> gpu & 1]
    for job_id, record in state.earmarks.items():
        if record.earmark and any(g.node == number and g.gpus >> gpu & 1 for g in record.earmark.grants):
            found.append(job_id)
    return [f"job {state.jobs[job_id].job.label}" for job_id in sorted(set(found)) if job_id in state.jobs]


def pinned(state: State, number: int) -> list[tuple[int, Pin]]:
    """The pinned GPUs of a node, in order."""
    return sorted(state.nodes.pins.get(number, {}).items())


def _impossible(mold: Mold, wanted: Sequence[str]) -> str:
    """Why no GPU of this model can have this layout; empty: one can."""
    for name in wanted:
        if mold.profile(name) is None:
            known = ", ".join([profile.name for profile in mold.profiles])
            return f"{mold.model} has no profile {name}; it has {known}"
    if len(wanted) > mold.slots:
        # Every way is tried below: that is for layouts that somebody could mean.
        number = max([profile.count_max for profile in mold.profiles])
        return f"{mold.model} cannot be cut to {len(wanted)} slices: it takes {number} at most"
    fitted = fit(mold, (), wanted)
    if fitted.left_out:
        most, out = layout_text(fitted.held), _listed(fitted.left_out)
        return f"{mold.model} cannot be cut to {_listed(wanted)}: beside {most} there is no place for {out}"
    return ""


def _placed(mold: Mold, used: Held, idle: Held, wanted: list[str]) -> Held | None:
    """Where everything wanted goes beside what is in use, with as many of the idle slices as can stay."""
    reused: list[Place] = []
    left = list(wanted)
    for place in idle:
        if place.profile in left:
            left.remove(place.profile)
            reused.append(place)
    for kept in (tuple(reused), ()):
        names = list(wanted)
        for place in kept:
            names.remove(place.profile)
        fitted = fit(mold, (*used, *kept), names)
        if not fitted.left_out:
            return fitted.held
    return None


def _listed(names: Sequence[str]) -> str:
    return layout_text([Place(name, 0) for name in names])
