"""What the present queue and settings lead to: GPU by GPU, and for the sizes of slices that are waited for."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from gpuyard.control.access.rights import Sight
from gpuyard.control.views.explanations import mask_reason
from gpuyard.core import Policy, State, explain
from gpuyard.core.explain.layout_plan import list_jobs_on
from gpuyard.core.fleet.mig_geometry import Held, PlacedSlice, fit, layout_text
from gpuyard.core.fleet.mig_placing import count_spare_whole, place_slices
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import count_text, names_text
from gpuyard.model import ReasonCode
from gpuyard.model.mig import MIG_MODELS, Slice
from gpuyard.model.units import MILLI
from gpuyard.wire.replies.fleet import MigGpuReply, MigWaitingReply

_NAMES_TRIED_MAX = 8
"""Slices that are looked at for the layout of the next GPU: no model takes more than seven."""


def gpu_rows(state: State, number: int, there: Sequence[Slice]) -> list[MigGpuReply]:
    """Each GPU of a node that can be cut: what is on it, and what the yard will do with that."""
    node = state.nodes.node[number]
    if node.gpu_model not in MIG_MODELS:
        return []
    rows: list[MigGpuReply] = []
    for gpu in range(node.gpus):
        used = state.nodes.slices_used.get(number, {}).get(gpu, ())
        idle = tuple(
            [
                PlacedSlice(*piece[1:])
                for piece in there
                if piece.gpu == gpu and PlacedSlice(*piece[1:]) not in used
            ]
        )
        rows.append(
            {
                "node": node.name,
                "gpu": gpu,
                "now": layout_text([*used, *idle]),
                "layout": "",
                "refused": False,
                "steps": [],
                "why": _fortune(state, number, gpu, used, idle),
            }
        )
    return rows


def _fortune(state: State, number: int, gpu: int, used: Held, idle: Held) -> str:
    """What becomes of one GPU as things stand."""
    nodes = state.nodes
    pin = nodes.pins.get(number, {}).get(gpu)
    if pin is not None:
        what = "stays whole" if not pin.held else f"pinned to {layout_text(pin.held)}"
        how = "" if pin.made else f"; not made yet: {pin.why}" if pin.why else "; being made"
        return f"{what} until `yard mig release`{how}"
    if nodes.foreign.get(number, (0, ""))[0] >> gpu & 1:
        return "used outside the yard: left alone"
    if used:
        said = f"{layout_text(used)} in use by {names_text(list_jobs_on(state, number, gpu))}, never moved"
        return said + (
            f"; {layout_text(idle)} idle, used again or taken away when in the way" if idle else ""
        )
    free = nodes.gpu_free[number][gpu]
    if free < MILLI:
        jobs = names_text(list_jobs_on(state, number, gpu))
        return f"whole, in use by {jobs}" if free <= 0 else f"shared by {jobs}: not cut while it is"
    if idle:
        return (
            "its slices are idle: used again, or made whole for a job that asks for that, or after a minute"
        )
    if count_spare_whole(nodes) <= 0:
        return f"whole and free; not cut, as whole_gpus keeps {count_text(nodes.whole_reserve, 'GPU')} whole"
    return "whole and free; cut when a slice is asked for that fits nowhere else"


def waiting_rows(
    state: State, policy: Policy, now_ms: int, sight: Sight
) -> tuple[list[MigWaitingReply], list[str]]:
    """The sizes that are waited for, with what keeps the first of each, and how the next GPU would be cut."""
    waits = [
        record
        for _id, record in sorted(state.jobs.items())
        if record.phase is None and record.shape.profile and record.id not in state.deferred
    ]
    rows: list[MigWaitingReply] = []
    for profile, group in groupby(
        sorted(waits, key=lambda r: (r.shape.profile, r.id)), lambda r: r.shape.profile
    ):
        records = list(group)
        first = records[0]
        seen = sight.sees(first.job.spec.tenant)
        rows.append(
            {
                "profile": profile,
                "jobs": len(records),
                "slices": sum([record.shape.slices for record in records]),
                "first": first.job.label if seen else str(first.id),
                "why": _kept_from(state, policy, first, now_ms, sight) if seen else "it is another tenant's",
            }
        )
    return rows, _next_layouts(waits)


def _kept_from(state: State, policy: Policy, record: JobRecord, now_ms: int, sight: Sight) -> str:
    """Why the first job that waits for a size has none. The state is a copy and may be changed."""
    found = explain(state, policy, record.id, now_ms)
    reasons = [mask_reason(reason, sight) for reason in (found.reasons if found else ())]
    other = [reason.text for reason in reasons if reason.code is not ReasonCode.ROOM]
    if other:
        return other[0]
    nodes, shape = state.nodes, record.shape
    with nodes.none_kept_whole():
        able = [place_slices(nodes, shape, way, way.pools) for way in shape.ways]
    if any(able):
        return f"a GPU is free, and whole_gpus keeps {count_text(nodes.whole_reserve, 'GPU')} whole"
    pins = sum([len(row) for row in nodes.pins.values()])
    beside = f"; {count_text(pins, 'GPU')} pinned to other layouts" if pins else ""
    return f"no GPU has a place for {shape.slices} x {shape.profile} beside what runs{beside}"


def _next_layouts(waits: Sequence[JobRecord]) -> list[str]:
    """How the next GPU that becomes free would be cut, by model."""
    notes = []
    names = [record.shape.profile for record in waits for _ in range(record.shape.slices)][:_NAMES_TRIED_MAX]
    for model, geometry in sorted(MIG_MODELS.items()):
        able = [name for name in names if geometry.profile(name)]
        if able and Counter(able).total():
            held = fit(geometry, (), able).held
            notes.append(f"the next {model} that becomes free would be cut to {layout_text(held)}")
    return notes
