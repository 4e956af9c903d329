"""Labels and taints of nodes: from where they come, which of them hold, and the sets of nodes that have them.

What holds is settled here and nowhere else. For labels, from the weakest: 1. what follows from the node and its pool
(`derived_labels`); 2. what its engine says, features among it; 3. the configuration; 4. what people set live, until it
is reset. For taints the same without the first.

A pass never looks at labels: an ask is compiled to a set of nodes when it is first seen (`ways`), and the values of one
label are sets of nodes that are made when an ask first names it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuyard.model import CATALOGUE, Market, Node, Settings
from gpuyard.model.placement import (
    FOR_GOOD,
    Effect,
    Expression,
    NodeMarks,
    Operator,
    Taint,
    Term,
    Toleration,
    is_tolerated,
    stays_ms,
)

HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
ACCELERATOR = "accelerator"
PRODUCT = "nvidia.com/gpu.product"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
POOL, CLUSTER = "gpuyard/pool", "gpuyard/cluster"

_SPOT = (
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
_NO_SPOT = (
    ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
    ("kubernetes.azure.com/scalesetpriority", "regular"),
)
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_ARM = ("GH200", "GB200", "GB300")
"""GPUs that are on one module with an Arm processor."""


class LiveMarks(NamedTuple):
    """What people set on a node: it holds until it is reset."""

    labels: tuple[tuple[str, str | None], ...] = ()
    """None: the node has no such label, whatever the configuration says."""
    taints: tuple[tuple[Taint, bool], ...] = ()
    """By key and effect; False: it has none of them, whatever the configuration says."""

    def label(self, changes: Iterable[tuple[str, str]], gone: Iterable[str]) -> "LiveMarks":
        """With these labels set, and those removed."""
        found: dict[str, str | None] = {**dict(self.labels), **dict(changes), **dict.fromkeys(gone)}
        return self._replace(labels=tuple(sorted(found.items())))

    def taint(self, changes: Iterable[Taint], gone: Iterable[Taint]) -> "LiveMarks":
        """With these taints set, and those removed."""
        found = {_mark_of(taint): (taint, there) for taint, there in self.taints}
        found |= {_mark_of(taint): (taint, True) for taint in changes}
        found |= {_mark_of(taint): (taint, False) for taint in gone}
        return self._replace(taints=tuple([found[mark] for mark in sorted(found)]))


UNMARKED = LiveMarks()
"""Nobody has set anything."""
_Mark = tuple[str, str]
"""Key and effect of a taint."""


def _mark_of(taint: Taint) -> _Mark:
    return taint.key, taint.effect.value


def derived_labels(node: Node, settings: Settings) -> dict[str, str]:
    """The labels that every GPU cluster has, as far as they follow from what is known of a node."""
    at = f"{node.cluster}/{node.pool}"
    found = {
        HOSTNAME: node.name,
        "kubernetes.io/os": "linux",
        ARCH: "arm64" if node.gpu_model.startswith(_ARM) else "amd64",
        POOL: node.pool,
        CLUSTER: node.cluster,
    }
    if region := settings.regions.get(at):
        found |= {REGION: region, ZONE: region}
    market = settings.markets.get(at, Market.RESERVED.value)
    found |= dict(_SPOT if market == Market.SPOT.value else _NO_SPOT)
    found[_CAPACITY_TYPE] = market
    if node.gpus:
        found |= {PRODUCT: node.gpu_model, "nvidia.com/gpu.count": str(node.gpus)}
        own = {model.name: model for model in settings.gpu_models}
        if model := own.get(node.gpu_model) or CATALOGUE.get(node.gpu_model):
            found["nvidia.com/gpu.memory"] = str(model.memory_mib)
    return found


class Marks:
    """Labels and taints of all nodes, by number."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._settings = Settings()
        self.live: dict[int, LiveMarks] = {}
        self.since_ms: dict[tuple[int, str], int] = {}
        """By node and key: since when there has been a taint that stops attempts."""
        self._by_pool: dict[tuple[str, str], list[NodeMarks]] = {}
        self._told: set[int] = set()
        """Nodes of which the engine says that they have taints."""
        self._clear()

    def _clear(self) -> None:
        self._accelerators: bool | None = None
        self._labels: dict[int, dict[str, str]] = {}
        self._columns: dict[str, dict[str, int]] = {}
        self._tainted: dict[int, tuple[Taint, ...]] | None = None

    def note(self, number: int, node: Node) -> None:
        """A node joined, or is another one than before; `renew` follows."""
        if node.taints:
            self._told.add(number)
        else:
            self._told.discard(number)

    def set_live(self, number: int, live: LiveMarks) -> None:
        """What people set on a node, all of it; `renew` follows."""
        self.live.pop(number, None)
        if live != UNMARKED:
            self.live[number] = live

    def renew(self, settings: Settings, now_ms: int) -> None:
        """Settle everything again, after a change of the nodes, of the settings or of what is set live."""
        self._settings = settings
        self._by_pool = {}
        for marks in settings.marks:
            self._by_pool.setdefault((marks.cluster, marks.pool), []).append(marks)
        self._clear()
        self.since_ms = {
            (number, taint.key): self.since_ms.get((number, taint.key), now_ms)
            for number, taints in self.tainted.items()
            for taint in taints
            if taint.effect is Effect.NO_EXECUTE
        }

    def resume(self, since_ms: dict[tuple[int, str], int]) -> None:
        """Taints count from where they were, as a dump says; `renew` follows."""
        self.since_ms = since_ms

    def skip(self, by_ms: int) -> None:
        """The clock was set ahead: taints go on counting from where they were."""
        self.since_ms = {place: since_ms + by_ms for place, since_ms in self.since_ms.items()}

    def _configured(self, node: Node) -> list[NodeMarks]:
        """What the configuration says of a node, the strongest last."""
        found = [
            marks
            for at in ((node.cluster, ""), (node.cluster, node.pool))
            for marks in self._by_pool.get(at, ())
            if not marks.nodes or node.name in marks.nodes
        ]
        return sorted(found, key=lambda marks: bool(marks.nodes)) if len(found) > 1 else found

    # -- labels ------------------------------------------------------------------------------------------------

    def labels(self, number: int) -> Mapping[str, str]:
        """The labels of a node."""
        found = self._labels.get(number)
        if found is None:
            found = self._labels[number] = self.configured_labels(number)
            for key, value in self.live.get(number, UNMARKED).labels:
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
        return found

    def configured_labels(self, number: int) -> dict[str, str]:
        """The labels of a node without what was set live."""
        node = self._nodes[number]
        found = self.derived(number)
        found |= dict.fromkeys(node.features, "")
        found |= dict(node.labels)
        for marks in self._configured(node):
            found |= dict(marks.labels)
        return found

    def derived(self, number: int) -> dict[str, str]:
        """The labels that a node has by itself; where people label nodes as accelerated, only these are."""
        node = self._nodes[number]
        found = derived_labels(node, self._settings)
        if node.gpus and not self._names_accelerators():
            found[ACCELERATOR] = "nvidia"
        return found

    def _names_accelerators(self) -> bool:
        """Whether anybody labelled a node as one with an accelerator."""
        if self._accelerators is None:
            given = [
                *[node.labels for node in self._nodes],
                *[marks.labels for marks in self._settings.marks],
                *[live.labels for live in self.live.values()],
            ]
            self._accelerators = any([dict(labels).get(ACCELERATOR) is not None for labels in given])
        return self._accelerators

    def own_labels(self, number: int) -> dict[str, str]:
        """The labels of a node beyond those that every node has by itself."""
        derived = self.derived(number)
        return {key: value for key, value in self.labels(number).items() if derived.get(key) != value}

    def column(self, key: str) -> Mapping[str, int]:
        """The nodes that have a label, by its value."""
        found = self._columns.get(key)
        if found is None:
            numbers: dict[str, list[int]] = {}
            for number in range(len(self._nodes)):
                value = self.labels(number).get(key)
                if value is not None:
                    numbers.setdefault(value, []).append(number)
            found = self._columns[key] = {
                value: set_of(there, len(self._nodes)) for value, there in numbers.items()
            }
        return found

    def keys(self) -> list[str]:
        """The keys of all labels that a node has."""
        return sorted({key for number in range(len(self._nodes)) for key in self.labels(number)})

    def own_keys(self) -> list[str]:
        """The keys of all labels that a node has beyond those that every node has by itself."""
        return sorted({key for number in range(len(self._nodes)) for key in self.own_labels(number)})

    def having(self, key: str) -> int:
        """The nodes that have a label, whatever its value."""
        found = 0
        for there in self.column(key).values():
            found |= there
        return found

    def meeting(self, expression: Expression) -> int:
        """The nodes that meet an expression."""
        found = 0
        for value, there in self.column(expression.key).items():
            if expression.holds(value):
                found |= there
        if expression.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
            found |= self._all & ~self.having(expression.key)
        return found

    @property
    def _all(self) -> int:
        return (1 << len(self._nodes)) - 1

    def meeting_all(self, term: Term) -> int:
        """The nodes that meet every expression of a term."""
        found = self._all
        for expression in term:
            found &= self.meeting(expression)
        return found

    def selected(self, features: Sequence[tuple[str, ...]], selects: Sequence[Term]) -> int:
        """The nodes with one feature of each group that meet one of the alternatives; -1: all nodes do."""
        found = -1
        for group in features:
            one = 0
            for word in group:
                one |= self.having(word)
            found &= one
        if selects:
            one = 0
            for term in selects:
                one |= self.meeting_all(term)
            found &= one
        return found

    def open_to(
        self, features: Sequence[tuple[str, ...]], selects: Sequence[Term], tolerates: Sequence[Toleration]
    ) -> int:
        """The nodes that a job with these selections and tolerations may have; -1: all."""
        found = self.selected(features, selects) if features or selects else -1
        return found & ~self.closed_to(tolerates) if self.tainted else found

    # -- taints ------------------------------------------------------------------------------------------------

    @property
    def tainted(self) -> Mapping[int, tuple[Taint, ...]]:
        """The taints that hold, by node; nodes without any are missing."""
        found = self._tainted
        if found is None:
            found = {}
            if self.live or any([marks.taints for marks in self._settings.marks]):
                numbers: Iterable[int] = range(len(self._nodes))
            else:
                numbers = sorted(self._told)
            for number in numbers:
                if taints := self._taints(number):
                    found[number] = taints
            self._tainted = found
        return found

    def _taints(self, number: int) -> tuple[Taint, ...]:
        found = {_mark_of(taint): taint for taint in self.configured_taints(number)}
        for taint, there in self.live.get(number, UNMARKED).taints:
            if there:
                found[_mark_of(taint)] = taint
            else:
                found.pop(_mark_of(taint), None)
        return tuple([found[mark] for mark in sorted(found)])

    def configured_taints(self, number: int) -> tuple[Taint, ...]:
        """The taints of a node without what was set live, one of each key and effect."""
        node = self._nodes[number]
        found = {_mark_of(taint): taint for taint in node.taints}
        for marks in self._configured(node):
            found |= {_mark_of(taint): taint for taint in marks.taints}
        return tuple([found[mark] for mark in sorted(found)])

    def closed_to(self, tolerates: Sequence[Toleration]) -> int:
        """The nodes on which no attempt with these tolerations may start."""
        found = 0
        for number, taints in self.tainted.items():
            if self.closing(taints, tolerates):
                found |= 1 << number
        return found

    @staticmethod
    def closing(taints: Iterable[Taint], tolerates: Sequence[Toleration]) -> tuple[Taint, ...]:
        """Those taints that keep attempts with these tolerations from starting."""
        return tuple(
            [
                taint
                for taint in taints
                if taint.effect is not Effect.PREFER_NO_SCHEDULE and not is_tolerated(tolerates, taint)
            ]
        )

    def tiers(
        self, prefers: Sequence[tuple[int, Term]], tolerates: Sequence[Toleration], among: int
    ) -> tuple[int, ...]:
        """Sets of nodes in the order in which they are tried, each with those before it; all of `among` is not told.

        1. the fewest taints that ask to prefer other nodes; 2. the highest sum of preferences.
        """
        disliked = [
            number
            for number, taints in self.tainted.items()
            if any([_dislikes(taint, tolerates) for taint in taints])
        ]
        if not prefers and not disliked:
            return ()
        among &= self._all
        scores: dict[int, int] = {0: among}
        for weight, term in prefers:
            better = self.meeting_all(term) & among
            moved: dict[int, int] = {}
            for score, there in scores.items():
                for to, part in ((score, there & ~better), (score + weight, there & better)):
                    if part:
                        moved[to] = moved.get(to, 0) | part
            scores = moved
        last = set_of(disliked, len(self._nodes)) & among
        found, so_far = [], 0
        for part in (~last, last):
            for score in sorted(scores, reverse=True):
                if there := scores[score] & part:
                    so_far |= there
                    found.append(so_far)
        return tuple(found[:-1])

    def leaving_ms(self, number: int, tolerates: Sequence[Toleration], started_ms: int) -> int | None:
        """When an attempt on a node has to be stopped for a taint there; None: it may stay."""
        found = None
        for taint in self.tainted.get(number, ()):
            if taint.effect is Effect.NO_EXECUTE:
                span = stays_ms(tolerates, taint)
                if span != FOR_GOOD:
                    at_ms = max(self.since_ms[number, taint.key], started_ms) + span
                    found = at_ms if found is None else min(found, at_ms)
        return found


def _dislikes(taint: Taint, tolerates: Sequence[Toleration]) -> bool:
    return taint.effect is Effect.PREFER_NO_SCHEDULE and not is_tolerated(tolerates, taint)


def set_of(numbers: Iterable[int], size: int) -> int:
    """Some of `size` numbers as a set. Bit by bit, each would cost a copy of the whole."""
    found = bytearray(size // 8 + 1)
    for number in numbers:
        found[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(found, "little")
