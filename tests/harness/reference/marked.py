"""Labels and taints, read once more: from the words of `docs/where-jobs-run.md`, node by node.

The core compiles them to sets of nodes. Here every question is asked of one node, with plain dictionaries.
"""

from typing import NamedTuple

from gpuyard.model import (
    Ask,
    Effect,
    Expression,
    Node,
    NodeMarked,
    NodeMarks,
    Operator,
    Settings,
    Taint,
    Toleration,
)


def _said(node: Node, settings: Settings) -> list[NodeMarks]:
    """What the file says of a node: of its cluster, then of its pool, then of the node itself."""
    about = [
        marks
        for marks in settings.marks
        if marks.cluster == node.cluster
        and (not marks.pool or marks.pool == node.pool)
        and (not marks.nodes or node.name in marks.nodes)
    ]
    return sorted(about, key=lambda marks: (bool(marks.nodes), bool(marks.pool)))


class Marked(NamedTuple):
    """What people set on a node. None: it is not there, whatever the file says."""

    labels: dict[str, str | None] = {}  # noqa: RUF012 (read, never changed)
    taints: dict[tuple[str, Effect], Taint | None] = {}  # noqa: RUF012


NOTHING = Marked()


def marked(before: Marked | None, event: NodeMarked) -> Marked:
    """What is set after an event."""
    was = NOTHING if event.reset or before is None else before
    labels = {**was.labels, **dict(event.labels), **dict.fromkeys(event.unlabelled)}
    taints = {**was.taints, **{(each.key, each.effect): each for each in event.taints}}
    return Marked(labels, {**taints, **{(each.key, each.effect): None for each in event.untainted}})


def labels_of(node: Node, settings: Settings, live: Marked | None = None) -> dict[str, str]:
    """What the histories draw of labels: a few that are there by themselves, those of the engine, those of the file."""
    found = {"gpuyard/pool": node.pool, "kubernetes.io/hostname": node.name}
    if node.gpus:
        found["nvidia.com/gpu.count"] = str(node.gpus)
    for feature in node.features:
        found[feature] = ""
    found.update(node.labels)
    for marks in _said(node, settings):
        found.update(marks.labels)
    for key, value in (live or NOTHING).labels.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def taints_of(node: Node, settings: Settings, live: Marked | None = None) -> list[Taint]:
    """One of each key and effect."""
    found = {(taint.key, taint.effect): taint for taint in node.taints}
    for marks in _said(node, settings):
        found.update({(taint.key, taint.effect): taint for taint in marks.taints})
    for mark, taint in (live or NOTHING).taints.items():
        if taint is None:
            found.pop(mark, None)
        else:
            found[mark] = taint
    return list(found.values())


def meets(labels: dict[str, str], expression: Expression) -> bool:
    """Whether labels are as an expression wants them."""
    key, values = expression.key, expression.values
    if expression.operator is Operator.EXISTS:
        return key in labels
    if expression.operator is Operator.DOES_NOT_EXIST:
        return key not in labels
    if expression.operator is Operator.IN:
        return key in labels and labels[key] in values
    if expression.operator is Operator.NOT_IN:
        return key not in labels or labels[key] not in values
    if key not in labels or not labels[key].lstrip("-").isdigit():
        return False
    if expression.operator is Operator.GT:
        return int(labels[key]) > int(values[0])
    return int(labels[key]) < int(values[0])


def puts_up_with(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration is about a taint."""
    return (
        toleration.key in ("", taint.key)
        and toleration.value in (None, taint.value)
        and toleration.effect in (None, taint.effect)
    )


def stays(ask: Ask, taint: Taint) -> bool:
    """Whether a job puts up with a taint without an end."""
    about = [each for each in ask.tolerates if puts_up_with(each, taint)]
    return bool(about) and all(each.stays_ms < 0 for each in about)


def stays_for_ms(ask: Ask, taint: Taint) -> int | None:
    """How long an attempt stays under a taint; None: as long as it likes."""
    about = [each.stays_ms for each in ask.tolerates if puts_up_with(each, taint)]
    if about and max(about) < 0:
        return None
    return min([each for each in about if each >= 0], default=0)


def admits(ask: Ask, labels: dict[str, str], taints: list[Taint]) -> bool:
    """Whether a job may start on a node with these labels and taints."""
    return (
        all(any(word in labels for word in group) for group in ask.features)
        and (not ask.selects or any(all(meets(labels, each) for each in term) for term in ask.selects))
        and all(taint.effect is Effect.PREFER_NO_SCHEDULE or stays(ask, taint) for taint in taints)
    )


def liking(ask: Ask, labels: dict[str, str], taints: list[Taint]) -> tuple[bool, int]:
    """The larger, the sooner the node is tried."""
    disliked = any(each.effect is Effect.PREFER_NO_SCHEDULE and not stays(ask, each) for each in taints)
    score = sum(weight for weight, term in ask.prefers if all(meets(labels, each) for each in term))
    return not disliked, score
