"""How GPUs are cut, what a layout would mean to them, and layouts pinned and released: by people, over the replica.

What is in use is known from the replica, what lies idle on a GPU from the engine. Nothing is cut here: a pin is written
to the log, and the loop sees to it (`LayoutKeeper`).
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.clusters import Clusters
from gpuyard.control.refusals import Forbidden, Impossible, Unacceptable
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.labels import find_node
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.control.views.demand import gpu_rows, waiting_rows
from gpuyard.core import State, dump, load
from gpuyard.core.explain.layout_plan import LayoutPlan, list_pinned, may_cut, plan_layout
from gpuyard.core.fleet.mig_book import Pin
from gpuyard.core.fleet.mig_geometry import Held, PlacedSlice, layout_text
from gpuyard.core.fleet.mig_placing import count_whole_free
from gpuyard.core.phrases import count_text
from gpuyard.engines.contract import EngineError
from gpuyard.model import LayoutPinned, LayoutReleased, Node
from gpuyard.model.mig import MIG_MODELS, Slice, read_layout
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.fleet import (
    MigGpuReply,
    MigNodeReply,
    MigPlanReply,
    MigReply,
    PinnedReply,
    PinReply,
    ReleasedReply,
)

There = Callable[[Node], tuple[Slice, ...]]
"""Slices that the engine of a node finds there."""


class WantedLayout(NamedTuple):
    """A layout for some GPUs of a node."""

    layout: str
    gpus: tuple[int, ...] | None = None
    """None: all."""


class LayoutRequests:
    """What people may know and want about slices."""

    def __init__(
        self, replica: Replica, committer: Committer, clusters: Clusters, now_ms: Callable[[], int]
    ) -> None:
        self._replica = replica
        self._committer = committer
        self._clusters = clusters
        self._now_ms = now_ms

    # -- looking -------------------------------------------------------------------------------------------------

    def view(self) -> MigReply:
        """Every GPU that can be cut: its slices, in use and idle, and what it is pinned to."""
        there = self._there()
        with self._replica.lock:
            self._replica.catch_up()
            state = self._replica.state
            able = [n for n, node in enumerate(state.nodes.node) if node.gpus and may_cut(state, n)]
            return {"whole_gpus": state.settings.whole_gpus, "nodes": [_node(state, n, there) for n in able]}

    def plan(self, name: str, wanted: Sequence[WantedLayout], sight: Sight = ALL) -> MigPlanReply:
        """What these layouts would do to each GPU of a node; without any, what the queue leads to everywhere."""
        there = self._there()
        with self._replica.lock:
            self._replica.catch_up()
            plain, policy = dump(self._replica.state), self._replica.policy
            now_ms = max(self._now_ms(), self._replica.state.now_ms)
        state = load(plain)
        state.reindex(policy.order)
        if not wanted:
            numbers = [_number(state, name)] if name else list(range(len(state.nodes.node)))
            rows = [row for number in numbers for row in gpu_rows(state, number, _of(state, number, there))]
            waiting, notes = waiting_rows(state, policy, now_ms, sight)
            return {"gpus": rows, "waiting": waiting, "notes": notes}
        number = _number(state, name)
        plans = [plan_layout(state, number, gpu, names, _on(state, number, gpu, there))
                 for gpu, names in _by_gpu(state, number, wanted).items()]  # fmt: skip
        notes = _reserve_note(state, number, plans)
        return {
            "gpus": [_plan_row(state, number, each, there) for each in plans],
            "waiting": [],
            "notes": notes,
        }

    def _there(self) -> There:
        found: dict[tuple[str, str], tuple[Slice, ...]] = {}
        # A single engine has every node, whatever the cluster was called when the node was seen first.
        alone = len(self._clusters) == 1
        for cluster, engine in self._clusters.items():
            try:
                found |= {("" if alone else cluster, name): each for name, each in engine.cuts().items()}
            except EngineError:
                # What lies idle there is not known for the moment; what is in use is in the replica.
                continue
        return lambda node: found.get(("" if alone else node.cluster, node.name), ())

    # -- pinning -------------------------------------------------------------------------------------------------

    def pin(self, person: Person, name: str, wanted: Sequence[WantedLayout]) -> "Future[PinnedReply]":
        """Let GPUs of a node keep layouts: all that are named, or none."""
        _check(person)
        there = self._there()

        def make(draft: Draft) -> PinnedReply:
            state = draft.state
            number = _number(state, name)
            by_gpu = _by_gpu(state, number, wanted)
            _hands_off(state, number, by_gpu)
            plans = [
                plan_layout(state, number, g, names, _on(state, number, g, there))
                for g, names in by_gpu.items()
            ]
            _refuse(state.nodes.node[number].name, plans)
            new = [each for each in plans if not _same(state, number, each)]
            if new:
                gpus = sum([1 << each.gpu for each in new])
                pieces = tuple([Slice(each.gpu, *place) for each in new for place in each.held])
                now_ms = max(self._now_ms(), state.now_ms)
                draft.add(LayoutPinned(now_ms, number, gpus, pieces, person.signature))
            return {"node": name, "gpus": [_pin_view(gpu, pin) for gpu, pin in list_pinned(state, number)]}

        return self._committer.write(make)

    def release(self, person: Person, name: str, gpus: tuple[int, ...] | None) -> "Future[ReleasedReply]":
        """Let GPUs be cut by demand again. Their slices stay until they are idle and in the way, or rest."""
        _check(person)

        def make(draft: Draft) -> ReleasedReply:
            state = draft.state
            number = _number(state, name)
            there = dict(list_pinned(state, number))
            chosen = _checked_gpus(state, number, gpus) if gpus is not None else tuple(there)
            _hands_off(state, number, chosen)
            mask = sum([1 << gpu for gpu in chosen if gpu in there])
            if mask:
                now_ms = max(self._now_ms(), state.now_ms)
                draft.add(LayoutReleased(now_ms, number, mask, person.signature))
            return {"node": name, "released": [gpu for gpu in chosen if mask >> gpu & 1]}

        return self._committer.write(make)


def _check(person: Person) -> None:
    if not person.may(Action.MANAGE_NODES, ""):
        raise Forbidden(f"{person.name} may not say how GPUs are cut", "Ask the owner of the yard, or root.")


def _hands_off(state: State, number: int, gpus: Iterable[int]) -> None:
    """GPUs whose settings the owner of the machine keeps are cut by the owner alone."""
    pins = state.nodes.pins.get(number, {})
    left = [str(gpu) for gpu in sorted(gpus) if gpu in pins and pins[gpu].found]
    if left:
        raise Impossible(
            f"GPU {', '.join(left)} of {state.nodes.node[number].name} stays cut as it was found: "
            "yard.yaml says `card_settings: leave`",
            "Cut it with nvidia-smi, which the yard then sees, or take that line out and start the yard again.",
        )


def _number(state: State, name: str) -> int:
    return find_node(state, name)


def _checked_gpus(state: State, number: int, gpus: Sequence[int]) -> tuple[int, ...]:
    node = state.nodes.node[number]
    for gpu in gpus:
        if not 0 <= gpu < node.gpus:
            last = f"its GPUs are 0 to {node.gpus - 1}" if node.gpus else "it has none"
            raise Unacceptable(f"{node.name} has no GPU {gpu}: {last}")
    return tuple(sorted(set(gpus)))


def _by_gpu(state: State, number: int, wanted: Sequence[WantedLayout]) -> dict[int, tuple[str, ...]]:
    """The profiles that each GPU is to have; a later layout stands against an earlier one."""
    found: dict[int, tuple[str, ...]] = {}
    for each in wanted:
        try:
            names = read_layout(each.layout)
        except ValueError as error:
            raise Unacceptable(str(error)) from None
        gpus = range(state.nodes.node[number].gpus) if each.gpus is None else each.gpus
        found.update(dict.fromkeys(_checked_gpus(state, number, list(gpus)), names))
    if not found:
        raise Unacceptable(f"{state.nodes.node[number].name} has no GPUs to cut")
    return dict(sorted(found.items()))


def _refuse(node: str, plans: Sequence[LayoutPlan]) -> None:
    """Nothing is done by halves: one GPU that cannot be cut so stands against all."""
    refused = [each for each in plans if each.refusal]
    if not refused:
        return
    if refused[0].mistaken:
        raise Unacceptable(refused[0].refusal)
    text = "; ".join([f"GPU {each.gpu}: {each.refusal}" for each in refused])
    others = [str(each.gpu) for each in plans if not each.refusal]
    hint = f"Wait for what runs there (`yard drain {node}` lets nothing new start)"
    raise Impossible(text, hint + (f", or name the others: --gpu {','.join(others)}." if others else "."))


def _same(state: State, number: int, found: LayoutPlan) -> bool:
    before = state.nodes.pins.get(number, {}).get(found.gpu)
    return before is not None and set(before.held) == set(found.held)


def _reserve_note(state: State, number: int, plans: Sequence[LayoutPlan]) -> list[str]:
    """A person's request counts more than `whole_gpus`; the answer says that fewer GPUs stay whole."""
    free = state.nodes.free_mask[number]
    lost = sum([free >> each.gpu & 1 for each in plans if each.held and not each.refusal])
    left, reserve = count_whole_free(state.nodes) - lost, state.settings.whole_gpus
    if lost and left < reserve:
        return [f"it leaves {count_text(left, 'whole GPU')} free, and whole_gpus is {reserve}"]
    return []


# -- rows ----------------------------------------------------------------------------------------------------------


def _of(state: State, number: int, there: There) -> tuple[Slice, ...]:
    return there(state.nodes.node[number])


def _on(state: State, number: int, gpu: int, there: There) -> Held:
    return tuple(
        [PlacedSlice(piece.profile, piece.start) for piece in _of(state, number, there) if piece.gpu == gpu]
    )


def _pin_view(gpu: int, pin: Pin) -> PinReply:
    return {
        "gpu": gpu,
        "layout": layout_text(pin.held),
        "made": pin.made,
        "why": pin.why,
        "took_ms": pin.took_ms,
        "slices": [(place.profile, place.start) for place in pin.held],
    }


def _node(state: State, number: int, there: There) -> MigNodeReply:
    node, nodes = state.nodes.node[number], state.nodes
    used: dict[Slice, str] = {}
    for job_id, (_end_ms, grant) in nodes.attempts_on[number].items():
        if job_id in state.jobs:
            used.update(dict.fromkeys(grant.slices, state.jobs[job_id].job.label))
    # What the engine does not show yet is about to be made.
    pieces = sorted({*_of(state, number, there), *used}, key=lambda piece: (piece.gpu, piece.start))
    geometry = MIG_MODELS.get(node.gpu_model)
    return {
        "node": node.name,
        "cluster": node.cluster,
        "gpu_model": node.gpu_model,
        "gpus": node.gpus,
        "slots": geometry.slots if geometry else 0,
        "sizes": {each.name: each.memory for each in geometry.profiles} if geometry else {},
        "slices": [(piece.gpu, piece.profile, piece.start, used.get(piece, "")) for piece in pieces],
        "pins": [_pin_view(gpu, pin) for gpu, pin in list_pinned(state, number)],
    }


def _plan_row(state: State, number: int, found: LayoutPlan, there: There) -> MigGpuReply:
    used = state.nodes.slices_used.get(number, {}).get(found.gpu, ())
    now = {*_on(state, number, found.gpu, there), *used}
    steps = [
        *[("keep", place, "in use" if place in used else "there already") for place in found.kept],
        *[("take away", place, "idle, and not in the layout") for place in found.gone],
        *[("make", place, "") for place in found.made],
    ]
    why = found.refusal or ("as it is already" if not (found.gone or found.made) else "")
    return {
        "node": state.nodes.node[number].name,
        "gpu": found.gpu,
        "now": layout_text(now),
        "layout": layout_text(found.held) if not found.refusal else "",
        "refused": bool(found.refusal),
        "steps": [
            {"do": word, "profile": p.profile, "start": p.start, "why": text} for word, p, text in steps
        ],
        "why": why,
    }
