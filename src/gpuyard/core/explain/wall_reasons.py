"""Why the pools that could hold a job do not take it: which wall keeps it out of each, and what would let it in."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.fleet.walls import in_place, missed_kinds, named_kinds
from gpuyard.core.phrases import count_text, names_text
from gpuyard.core.state.state import State
from gpuyard.model import Cure, JobSpec, OpenPools, Reason, ReasonCode, Remedy
from gpuyard.model.units import MILLI, NO_LIMIT_MS
from gpuyard.model.walls import Askers, Wall
from gpuyard.quantities import span_words

_KINDS = {
    "tenants": ("tenant", "tenants"),
    "users": ("user", "users"),
    "groups": ("people in group", "people in groups"),
    "classes": ("class", "classes"),
}
"""What is said of each kind of asker, for one name and for several."""


class _Closed(NamedTuple):
    """A pool that could hold the job, and why it does not take it."""

    place: str
    why: str
    by_time: bool
    """Whether its time limit is all that keeps the job out."""


def wall_reason(state: State, spec: JobSpec, shape: Shape, limit_ms: int) -> Reason:
    """Why a job with this time limit may enter no pool that could hold it."""
    ways = state.ways_without_walls(shape)
    closed = list(_closed(state, spec, shape, ways, limit_ms))
    text = "; ".join([each.why for each in closed])
    places = tuple([each.place for each in closed])
    lifted_by = (*_changes(state, shape, closed), Remedy(Cure.OPEN_POOL, _names(state, places)))
    by = names_text(_names(state, places))
    return Reason(ReasonCode.WALL, by, text, False, lifted_by, OpenPools(places))


def _closed(
    state: State, spec: JobSpec, shape: Shape, ways: Sequence[Way], limit_ms: int
) -> Iterator[_Closed]:
    nodes = state.nodes
    for place, wall in sorted(state.settings.walls.items()):
        there = in_place(nodes, place)
        fewest = [
            way.full_nodes + (way.rest_tasks > 0)
            for way in ways
            if nodes.kinds[way.kind].members & way.pools & there
        ]
        if not fewest:
            continue
        theirs, sizes = list(_about_askers(state, spec, wall)), list(_about_size(shape, wall, min(fewest)))
        late = [_about_time(wall, limit_ms)] if 0 < wall.time_limit_ms < limit_ms else []
        if whole := [*theirs, *sizes, *late]:
            name = _names(state, (place,))[0]
            yield _Closed(place, f"pool {name} takes {', and '.join(whole)}", bool(late) and len(whole) == 1)


def _about_askers(state: State, spec: JobSpec, wall: Wall) -> Iterator[str]:
    asker = state.asker_of(spec)
    hit = named_kinds(wall.deny, asker)
    for kind in hit:
        yield f"no jobs of {_named(wall.deny, kind)}"
    missed = missed_kinds(wall.allow, asker)
    if missed:
        yield "only jobs of " + " by ".join([_named(wall.allow, kind) for kind in missed])


def _named(askers: Askers, kind: str) -> str:
    names: tuple[str, ...] = getattr(askers, kind)
    return f"{_KINDS[kind][len(names) > 1]} {names_text(names)}"


def _about_size(shape: Shape, wall: Wall, fewest: int) -> Iterator[str]:
    if shape.gpu_milli < wall.min_gpu_milli:
        least = count_text(-(-wall.min_gpu_milli // MILLI), "GPU")
        yield f"only jobs with at least {least}"
    if 0 < wall.max_nodes_per_job < fewest:
        most = count_text(wall.max_nodes_per_job, "node")
        yield f"only jobs on at most {most} (this one needs {fewest})"


def _about_time(wall: Wall, limit_ms: int) -> str:
    has = "has no time limit" if limit_ms >= NO_LIMIT_MS else f"may run for {span_words(limit_ms)}"
    return f"only jobs of at most {span_words(wall.time_limit_ms)} (this one {has})"


def _changes(state: State, shape: Shape, closed: Iterable[_Closed]) -> Iterator[Remedy]:
    """What of the job itself would let it in."""
    walls = state.settings.walls
    times = [walls[each.place].time_limit_ms for each in closed if each.by_time]
    if times:
        yield Remedy(Cure.LESS_TIME, (), max(times))
    if shape.ask.pools and (open_to := state.open_pools(shape)):
        yield Remedy(Cure.OTHER_POOL, open_to)


def _names(state: State, places: Iterable[str]) -> tuple[str, ...]:
    """Pools as people know them: with their cluster where another one has a pool of that name."""
    found = []
    for place in places:
        pool = place.partition("/")[2]
        alike = state.nodes.by_pool.get(pool, 0) & ~in_place(state.nodes, place)
        found.append(place if alike else pool)
    return tuple(found)
