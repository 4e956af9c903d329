"""The state machine on GPUs that can be cut: slices by demand, layouts that are pinned and released, and the reserve.

Layouts are pinned in two ways. As people do it: what is wanted goes through `layout_plan`, and its answer is judged,
also a refusal. And as an event that anyone might have written, lawful or not: the fold takes it if and only if the
judge does.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from gpuyard.core import apply
from gpuyard.core.explain.layout_plan import plan_layout
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.core.state.dump import derived, dump, load
from gpuyard.core.state.state import InvalidEvent
from gpuyard.model import (
    Ask,
    Capability,
    ConfigSet,
    JobSpec,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    Mig,
    Milli,
    Node,
    Settings,
    Whole,
)
from gpuyard.model.mig import MIG_MODELS, Slice
from harness.machines import strategies as some
from harness.machines.machine import YardMachine, picks
from harness.reference.cutting import Piece, can_be_laid, unlawful
from harness.reference.judge import Room, pin_wrong

MODELS = ("H100", "H100", "H100", "H100", "A100-40GB", "A30", "bespoke")
"""Two models have a `1g.10gb`, and not the same one; one has no MIG."""
SIZES = ("1g.10gb", "2g.20gb", "1g.10gb", "3g.40gb", "1g.10gb")
OTHER_SIZES = ("7g.80gb", "1g.20gb", "4g.40gb", "1g.10gb+me", "1g.6gb", "2g.12gb", "1g.5gb")


@st.composite
def fleets(draw: st.DrawFn) -> list[Node]:
    """Two or three small nodes, mostly alike."""
    shape = draw(some.node_shapes())
    found = []
    for number in range(draw(st.integers(2, 3))):
        gpus = draw(st.sampled_from((1, 2, 2, 3)))
        model = draw(st.sampled_from(MODELS))
        plain = replace(shape, cluster="main", gpus=gpus, gpu_model=model, nvlink_group_size=0)
        found.append(some.named(plain, number))
    return found


def slices(names: tuple[str, ...]) -> st.SearchStrategy[Mig]:
    """Slices of some size: mostly one, and not always as many as go on GPUs evenly."""
    return st.builds(Mig, st.sampled_from((1, 1, 1, 1, 2, 3, 5)), st.sampled_from(names))


requests = st.one_of(
    slices(SIZES),
    slices(SIZES),
    slices(SIZES + OTHER_SIZES),
    st.builds(Whole, st.sampled_from((1, 1, 2))),
    st.builds(Milli, st.just(1), st.sampled_from((250, 500))),
)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """Mostly slices, and those who are in their way."""
    request = draw(requests)
    fussy = draw(st.integers(0, 9))
    return Ask(
        request,
        draw(st.sampled_from((1, 1, 2))) if isinstance(request, Whole) else 1,
        cpu_milli=draw(st.sampled_from((0, 0, 0, 1000))),
        models=("H100",) if fussy == 9 else (),
        on_nodes=("n0",) if fussy == 8 else (),
    )


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """Sometimes a few GPUs stay whole."""
    plain = draw(some.settings())
    tenants = plain.tenants if draw(st.integers(0, 2)) == 0 else ()
    return replace(plain, tenants=tenants, whole_gpus=draw(st.sampled_from((0, 0, 0, 1, 2, 3))))


def wanted_layouts(model: str) -> st.SearchStrategy[list[str]]:
    """Profiles for a GPU: one size so often, several sizes, or whole."""
    geometry = MIG_MODELS.get(model, MIG_MODELS["H100"])
    names = [profile.name for profile in geometry.profiles]
    alike = [[p.name] * count for p in geometry.profiles for count in {1, p.count_max, p.count_max + 1}]
    mixed = st.lists(st.sampled_from([*names, names[0], names[0]]), min_size=1, max_size=5)
    return st.one_of(
        st.sampled_from([[names[0]] * 3, *alike]), st.sampled_from(alike), mixed, mixed, st.just([])
    )


class PinMachine(YardMachine):
    """What happens where GPUs are cut."""

    @initialize(
        fleet=fleets(),
        config=settings(),
        specs=st.lists(some.specs(asks()), min_size=3, max_size=7),
        queue=st.lists(st.tuples(picks, some.limits_ms), min_size=2, max_size=8),
        kept=st.lists(st.tuples(picks, picks, wanted_layouts("H100")), max_size=3),
    )
    def begin(  # type: ignore[override]
        self,
        fleet: list[Node],
        config: Settings,
        specs: list[JobSpec],
        queue: list[tuple[int, int]],
        kept: list[tuple[int, int, list[str]]],
    ) -> None:
        """A yard with some jobs, and some layouts that are pinned before they come."""
        self.yard = self.kind(self.spec, fleet, settings=config)
        self.last_id = 0
        self.specs = specs
        for pick, which, wanted in kept:
            self._pin_as_wanted(*self._gpu(pick, which), wanted, ())
        for pick, limit_ms in queue:
            self._submit(pick, limit_ms)
        self.yard.step()

    def _gpu(self, pick: int, which: int) -> tuple[int, int]:
        """Some GPU of some node that has any; GPU 0 of node 0 if none has."""
        able = [number for number, node in enumerate(self.yard.books.nodes) if node.gpus]
        number = able[pick % len(able)] if able else 0
        return number, which % max(1, self.yard.books.nodes[number].gpus)

    @rule(config=settings())
    def configure(self, config: Settings) -> None:
        """As ever, with another reserve."""
        self.yard.apply(ConfigSet(self.now(), config))
        self.yard.step()

    @rule(spec=some.specs(asks()))
    def another_ask(self, spec: JobSpec) -> None:
        """Something new is asked for."""
        self.specs.append(spec)
        self._submit(len(self.specs) - 1, 10_000)
        self.yard.step()

    @rule(pick=picks, which=picks, data=st.data(), idle=st.booleans())
    def pin_as_wanted(self, pick: int, which: int, data: st.DataObject, idle: bool) -> None:
        """Somebody wants a layout on a GPU, whatever runs there."""
        number, gpu = self._gpu(pick, which)
        rows = self.yard.state.nodes.slices_idle
        resting = [(at, on) for at, row in sorted(rows.items()) for on in sorted(row)]
        there: tuple[PlacedSlice, ...] = ()
        if idle and resting:
            # What the engine finds there: what is in use, and what was once.
            number, gpu = resting[pick % len(resting)]
            there = (*rows[number][gpu], *self.yard.state.nodes.slices_used.get(number, {}).get(gpu, ()))
        wanted = data.draw(wanted_layouts(self.yard.books.nodes[number].gpu_model))
        self._pin_as_wanted(number, gpu, wanted, there)
        self.yard.step()

    @precondition(lambda self: hasattr(self, "yard") and any(self.yard.state.nodes.slices_used.values()))
    @rule(pick=picks, more=st.lists(picks, max_size=2), fewer=st.booleans())
    def pin_beside(self, pick: int, more: list[int], fewer: bool) -> None:
        """Somebody wants what runs on a GPU to be its layout, with some slices more or one fewer."""
        rows = self.yard.state.nodes.slices_used
        at = [(number, gpu) for number, row in sorted(rows.items()) for gpu in sorted(row) if row[gpu]]
        number, gpu = at[pick % len(at)]
        profiles = MIG_MODELS[self.yard.books.nodes[number].gpu_model].profiles
        wanted = [place.profile for place in rows[number][gpu]]
        del wanted[len(wanted) - fewer :]
        wanted += [profiles[each % len(profiles)].name for each in more]
        self._pin_as_wanted(number, gpu, wanted, ())
        self.yard.step()

    def _pin_as_wanted(
        self, number: int, gpu: int, wanted: list[str], there: tuple[PlacedSlice, ...]
    ) -> None:
        books = self.yard.books
        model = books.nodes[number].gpu_model
        room = Room(books, books.grants(earmarks=True))
        used = room.slices_on(number, gpu)
        told = plan_layout(self.yard.state, number, gpu, wanted, there)
        left = Counter(wanted)
        left.subtract(name for name, _start in used)
        able = model in MIG_MODELS and Capability.SLICES not in books.lacks.get(
            books.nodes[number].cluster, ()
        )
        could = (
            able
            and min(left.values(), default=0) >= 0
            and can_be_laid(model, used, sorted(left.elements()))
            and (not wanted or room.only_slices(number, gpu))
        )
        assert could != bool(told.refusal), f"{wanted} beside {used} on {model}: {told}"
        mistaken = not able or not can_be_laid(model, (), wanted)
        assert mistaken == told.mistaken, f"{wanted} on {model}: {told}"
        if told.refusal:
            return
        held = [tuple(place) for place in told.held]
        assert Counter(wanted) == Counter(name for name, _start in held), f"{wanted}: {told}"
        assert set(used) <= set(held), f"{used} are in use: {told}"
        assert not unlawful(model, held), f"{model}: {told}"
        assert set(told.kept) == set(told.held) & {*there, *[PlacedSlice(*piece) for piece in used]}
        assert set(told.made) == set(told.held) - set(told.kept)
        assert set(told.gone) == set(there) - set(told.held)
        self._pin(number, 1 << gpu, [Slice(gpu, *place) for place in told.held])

    def _pin(self, number: int, mask: int, pieces: list[Slice]) -> None:
        """Write it to the log; it must be taken, and nothing that runs may have moved."""
        before = {job_id: record.grants for job_id, record in self.yard.state.running.items()}
        self.yard.apply(LayoutPinned(self.now(), number, mask, tuple(pieces), "admin"))
        assert before == {job_id: record.grants for job_id, record in self.yard.state.running.items()}

    @rule(pick=picks, which=picks, count=st.integers(1, 7), size=picks, jobs=st.integers(1, 3))
    def pin_for_some(self, pick: int, which: int, count: int, size: int, jobs: int) -> None:
        """A GPU is pinned to slices of one size, and jobs come that want such."""
        number, gpu = self._gpu(pick, which)
        geometry = MIG_MODELS.get(self.yard.books.nodes[number].gpu_model, MIG_MODELS["H100"])
        profile = geometry.profiles[size % len(geometry.profiles)]
        self._pin_as_wanted(number, gpu, [profile.name] * min(count, profile.count_max), ())
        self.specs.append(JobSpec("a/x", Ask(Mig(1 + count % 2, profile.name))))
        for _ in range(jobs):
            self._submit(len(self.specs) - 1, 10_000)
        self.yard.step()

    @rule(pick=picks, which=st.lists(picks, min_size=1, max_size=2), data=st.data())
    def pin_as_written(self, pick: int, which: list[int], data: st.DataObject) -> None:
        """Any event of that kind: one that cannot be is refused whole, and changes nothing."""
        number, _gpu = self._gpu(pick, 0)
        node = self.yard.books.nodes[number]
        gpus = sorted(
            {each % (node.gpus + 1) for each in which}
            if which[0] == 40
            else {each % max(1, node.gpus) for each in which}
        )
        pieces: list[Slice] = []
        for gpu in gpus:
            pieces += [Slice(gpu, *piece) for piece in data.draw(self._any_pieces(number, gpu))]
        wrong = [
            text
            for gpu in gpus
            if (
                text := pin_wrong(
                    self.yard.books, number, gpu, [(p.profile, p.start) for p in pieces if p.gpu == gpu]
                )
            )
        ]
        mask = sum(1 << gpu for gpu in gpus)
        if not wrong:
            self._pin(number, mask, pieces)
        else:
            copy = load(dump(self.yard.state))
            before = dump(copy)["nodes"], derived(copy)["nodes"]
            with pytest.raises(InvalidEvent):
                apply(copy, LayoutPinned(self.now(), number, mask, tuple(pieces)))
            assert before == (dump(copy)["nodes"], derived(copy)["nodes"]), "half of it was done"
        self.yard.step()

    def _any_pieces(self, number: int, gpu: int) -> st.SearchStrategy[list[Piece]]:
        """What is in use, and more, not always where it may lie."""
        books = self.yard.books
        geometry = MIG_MODELS.get(books.nodes[number].gpu_model, MIG_MODELS["H100"])
        used = Room(books, books.grants(earmarks=True)).slices_on(number, gpu)
        able = [(profile.name, start) for profile in geometry.profiles for start in profile.starts]
        odd = [("1g.10gb", 9), ("9g.99gb", 0)]
        some_more = st.lists(st.sampled_from(able + odd if len(used) > 3 else able), max_size=3)
        return st.tuples(st.sampled_from((used, used, [])), some_more).map(
            lambda parts: [*parts[0], *parts[1]]
        )

    @precondition(lambda self: hasattr(self, "yard") and bool(self.yard.books.pins))
    @rule(pick=picks, all_of_it=st.booleans())
    def release(self, pick: int, all_of_it: bool) -> None:
        """A GPU is cut by demand again, or all of a node, pinned or not; what runs there runs on."""
        at = sorted(self.yard.books.pins)
        number, gpu = at[pick % len(at)]
        mask = (1 << self.yard.books.nodes[number].gpus) - 1 if all_of_it else 1 << gpu
        self.yard.apply(LayoutReleased(self.now(), number, mask, "admin"))
        self.yard.step()

    @rule(pick=picks, which=picks, why=st.sampled_from(("", "", "the driver is gone")))
    def engine_says(self, pick: int, which: int, why: str) -> None:
        """Made, or not; perhaps of a GPU that was released meanwhile."""
        at = sorted(self.yard.books.pins)
        number, gpu = at[which % len(at)] if at and pick < 30 else self._gpu(pick, which)
        self.yard.apply(LayoutMade(self.now(), number, 1 << gpu, why, 40))
        self.yard.step()
