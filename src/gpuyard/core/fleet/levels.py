"""How near to each other the nodes of a gang are: switches, racks and, outermost, fabrics.

A gang is always on one fabric. Within it, it goes on the fewest switches, then the fewest racks. A job may name a
level: it is then served by one way for each switch, rack or fabric that could hold it, so that whatever is asked about
a way (room, promises, victims, reasons) is asked about one such place.
"""

from collections.abc import Iterable, Iterator

from gpuyard.core.fleet.bits import lowest_bit
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape
from gpuyard.model import Grant, Level

SWITCH, RACK, FABRIC = Level


def split_by_level(kind: Kind, level: Level, among: int) -> list[int]:
    """The nodes of a kind by switch, rack or fabric: never two fabrics together; -1: all of the kind are together."""
    members = kind.members & among
    fabrics = [there & members for there in kind.domains[FABRIC].values() if there & members]
    if level is not FABRIC:
        domains = list(kind.domains[level].values())
        return [there & fabric for fabric in fabrics for there in domains if there & fabric]
    return fabrics if len(fabrics) > 1 else [among]


def places_for(shape: Shape, kind: Kind, among: int) -> Iterator[tuple[int, Level | None, int]]:
    """The sets of nodes of a kind, each by itself, that a job may be served on, as (rank, level, nodes).

    Lower ranks are tried first. The level is that of which a set is one switch, rack or fabric.
    """
    ask = shape.ask
    if shape.tasks == 1:
        yield 0, None, among
        return
    near = [] if ask.level is None else split_by_level(kind, ask.level, among)
    yield from [(0, ask.level, there) for there in near]
    if not (ask.level and ask.level_required):
        rest = split_by_level(kind, FABRIC, among)
        apart = FABRIC if len(rest) > 1 else None
        yield from [(int(ask.level is not None), apart, there) for there in rest if there not in near]


def near(members: int, wanted: int, kind: Kind) -> int:
    """Of nodes with room, those to take: 1. of the switch with the fewest that suffice; 2. of such a rack, from the
    switch with the most on; 3. of the racks with the most, from the switch with the most on."""
    switch = _tightest(members, wanted, kind.domains[SWITCH])
    if switch:
        return switch
    racks = kind.domains[RACK]
    if len(racks) > 1:
        members = _tightest(members, wanted, racks) or _largest(members, wanted, racks)
    return _largest(members, wanted, kind.domains[SWITCH])


def _tightest(members: int, wanted: int, domains: dict[str, int]) -> int:
    """The nodes of the domain with the fewest that suffice; 0: none has enough."""
    enough = [
        ((members & there).bit_count(), name, members & there)
        for name, there in domains.items()
        if (members & there).bit_count() >= wanted
    ]
    return min(enough)[2] if enough else 0


def _largest(members: int, wanted: int, domains: dict[str, int]) -> int:
    """The nodes of the domains with the most, as many domains as are needed."""
    rows = [((members & there).bit_count(), name, members & there) for name, there in domains.items()]
    found = 0
    for count, _name, there in sorted(rows, key=lambda row: (-row[0], row[1])):
        found |= there
        wanted -= count
        if wanted <= 0:
            break
    return found


def nearest_first(chosen: int, kind: Kind) -> list[int]:
    """Sets of nodes in which to look for one more beside those chosen: on their switches, in their racks, elsewhere."""
    found, tried = [], 0
    for level in (SWITCH, RACK):
        beside = 0
        for there in kind.domains[level].values():
            if there & chosen:
                beside |= there
        found.append(beside & ~tried)
        tried |= beside
    return [*found, ~tried]


def in_order(nodes: Nodes, kind: Kind, grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Grants in the order of the fabric, so that tasks with near ranks are near: by rack, by switch, by node."""
    if len(kind.domains[SWITCH]) == 1:
        return tuple(grants)

    def place(grant: Grant) -> tuple[int, int, int]:
        node = nodes.node[grant.node]
        racks, switches = kind.domains[RACK], kind.domains[SWITCH]
        return lowest_bit(racks[node.rack]), lowest_bit(switches[node.switch]), grant.node

    return tuple(sorted(grants, key=place))
