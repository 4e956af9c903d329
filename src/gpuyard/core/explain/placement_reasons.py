"""Why the labels and taints of nodes keep a job from all of them, or from some, with numbers."""

from collections.abc import Sequence
from dataclasses import replace

from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.phrases import choose_verb, count_text, names_text
from gpuyard.core.state.state import State
from gpuyard.model import Ask, Cure, Expression, Operator, Remedy, Taint, Toleration
from gpuyard.model.placement import term_text

EVERYTHING = (Toleration(),)
"""Tolerates every taint."""
_SHOWN_MAX = 6
"""Values of a label, or labels, that a sentence names."""


def fits(state: State, ask: Ask) -> bool:
    """Whether the fleet could hold an ask if it was empty."""
    return bool(Shapes().of(ask, state.nodes, state.weights).ways)


def without_marks(state: State, ask: Ask) -> Ask:
    """The nearest ask that labels and taints do not keep from all nodes; the same, if they are not in the way."""
    if not (ask.selects or ask.features or state.nodes.marks.tainted) or fits(state, ask):
        return ask
    tolerant = replace(ask, tolerates=EVERYTHING)
    free = replace(ask, selects=(), features=())
    for other in (tolerant, free, replace(free, tolerates=EVERYTHING)):
        if fits(state, other):
            return other
    return ask


def make_unmarked(state: State, ask: Ask) -> Ask:
    """The same for an ask that the fleet could not hold either way: nodes that are added may have other labels."""
    nearest = without_marks(state, ask)
    if fits(state, nearest) or not (ask.selects or state.nodes.marks.tainted):
        return nearest
    return replace(ask, selects=(), tolerates=EVERYTHING)


def unmet_text(
    state: State, features: Sequence[tuple[str, ...]], selects: Sequence[tuple[Expression, ...]]
) -> str:
    """Which label no node has, how many have the others, and which values there are; empty: some node has all."""
    marks, nodes = state.nodes.marks, state.nodes
    total = count_text(len(nodes.node), "node")
    for group in features:
        if not any([marks.having(word) for word in group]):
            return f"none of {total} has the feature {' or '.join(group)}"
    if marks.selected(features, selects):
        return ""
    for term in selects:
        for expression in term:
            if not marks.meeting(expression):
                return f"none of {total} has the label {expression}{_instead(state, expression)}"
    wanted = dict.fromkeys([expression for term in selects for expression in term])
    counts = [_told(str(expression), marks.meeting(expression)) for expression in wanted]
    counts += [_told(" or ".join(group), marks.selected((group,), ())) for group in features]
    return f"none of {total} has all its labels together: {'; '.join(counts)}"


def _told(what: str, there: int) -> str:
    return f"{count_text(there.bit_count(), 'node')} {choose_verb(range(there.bit_count()), 'has', 'have')} {what}"


def _instead(state: State, expression: Expression) -> str:
    column = state.nodes.marks.column(expression.key)
    if not column or expression.operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return ""
    rows = sorted(column.items(), key=lambda row: (-row[1].bit_count(), row[0]))
    told = [f"{value or 'no value'} on {there.bit_count()}" for value, there in rows[:_SHOWN_MAX]]
    more = f" and {len(rows) - _SHOWN_MAX} other values" if len(rows) > _SHOWN_MAX else ""
    return f"; {expression.key} is {', '.join(told)}{more}"


def marked_reason(state: State, ask: Ask) -> tuple[str, Remedy] | None:
    """Why labels or taints keep a job from all nodes, and what would help; None: they do not."""
    other = without_marks(state, ask)
    if other == ask:
        return None
    if other.tolerates != ask.tolerates and other.selects == ask.selects and other.features == ask.features:
        taints, count = find_taints(state, ask)
        names = names_text([str(taint) for taint in taints])
        text = f"{count_text(count, 'node')} that could hold it {choose_verb(range(count), 'has', 'have')}"
        tolerate = Remedy(Cure.TOLERATE, tuple([str(taint) for taint in taints]))
        return f"{text} a taint that it does not tolerate: {names}", tolerate
    unmet = unmet_text(state, ask.features, ask.selects)
    if not unmet:
        there = state.nodes.marks.selected(ask.features, ask.selects)
        told = [term_text(term) for term in ask.selects] + [" or ".join(group) for group in ask.features]
        unmet = f"{_told(' | '.join(told), there)}, and cannot hold it"
    return unmet, Remedy(Cure.OTHER_LABELS)


def find_taints(state: State, ask: Ask) -> tuple[list[Taint], int]:
    """The taints that keep a job from nodes that could hold it, and from how many."""
    nodes, tolerant = state.nodes, Shapes().of(replace(ask, tolerates=EVERYTHING), state.nodes, state.weights)
    members = 0
    for way in tolerant.ways:
        members |= nodes.kinds[way.kind].members & way.pools
    members &= nodes.marks.closed_to(ask.tolerates)
    found: dict[Taint, None] = {}
    for number in each(members):
        found.update(dict.fromkeys(nodes.marks.closing(nodes.marks.tainted[number], ask.tolerates)))
    return sorted(found, key=str)[:_SHOWN_MAX], members.bit_count()
