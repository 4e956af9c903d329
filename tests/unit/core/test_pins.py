"""GPUs that are pinned to a layout: it stays as it is, takes nothing else, and nothing that runs is moved for it."""

import random

import pytest

from gpuyard.control.wording import remedies_text
from gpuyard.core import apply
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.layout_plan import LayoutPlan, plan_layout
from gpuyard.core.explain.why import explain_why
from gpuyard.core.fleet.mig_geometry import PlacedSlice, layout_text
from gpuyard.core.fleet.mig_placing import count_whole_free
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.core.state.state import InvalidEvent
from gpuyard.model import LayoutMade, LayoutPinned, LayoutReleased, Mig, ReleaseLayout, Settings
from gpuyard.model.mig import MIG_MODELS, Slice, read_layout
from gpuyard.testing import ask, node, nodes, share
from harness.yard import Yard
from unit.core.test_geometry import lawful
from unit.core.test_slicing import slices, started


def pin(here: Yard, layout: str, gpu: int = 0, number: int = 0) -> LayoutPlan:
    """Pin one GPU, if that can be."""
    found = plan_layout(here.state, number, gpu, read_layout(layout))
    if not found.refusal:
        pieces = tuple([Slice(gpu, *place) for place in found.held])
        here.apply(LayoutPinned(here.now_ms, number, 1 << gpu, pieces, "admin"))
    return found


def test_a_pinned_gpu_takes_slices_of_its_layout_and_nothing_else() -> None:
    here = Yard("fifo", nodes(1, gpus=2, model="H200"))
    pin(here, "2x3g.71gb")
    found = started(here, Mig(1, "3g.71gb"), Mig(1, "1g.18gb"), Mig(2, "3g.71gb"))
    assert [(0, 0, "3g.71gb", 0)] == slices(here, found[0])
    # A small one does not go where a large one is kept. Of two large ones only one is left there.
    assert [1] == [piece[1] for piece in slices(here, found[1])]
    assert [0, 1] == sorted([piece[1] for piece in slices(here, found[2])])
    waits = here.submit(1)
    assert [] == here.started(here.step())
    for start in found:
        here.end(start.job_id)
    assert [waits] == here.started(here.step())
    assert 0b10 == here.state.jobs[waits].grants[0].gpus
    assert 0 == count_whole_free(here.state.nodes)
    (part,) = [here.submit(share(250))]
    assert part not in here.started(here.step())


def test_a_job_with_a_kept_slice_of_a_pinned_gpu_starts_when_its_victim_has_stopped() -> None:
    here = Yard("default", nodes(1, gpus=1, model="H100"))
    pin(here, "7x1g.10gb")
    there = [here.submit(ask(Mig(1, "1g.10gb"))) for _ in range(7)]
    assert there == here.started(here.step())
    kept = here.submit(ask(Mig(1, "1g.10gb")), klass="urgent")
    (stop,) = here.step().stops
    assert [] == here.started(here.step())
    here.stop_confirmed(stop.job_id)
    assert [kept] == here.started(here.step())


def test_a_released_gpu_is_like_any_other() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    fresh = derived(here.state)
    pin(here, "7x1g.18gb")
    (one,) = started(here, Mig(1, "1g.18gb"))
    here.apply(LayoutReleased(here.now_ms, 0, 1, "admin"))
    assert [858] == list(here.state.nodes.gpu_free[0])
    waits = here.submit(1)
    assert [] == here.started(here.step())
    here.end(one.job_id)
    assert [waits] == here.started(here.step())
    here.end(waits)
    assert fresh["nodes"]["gpu_free"] == derived(here.state)["nodes"]["gpu_free"]
    assert {} == here.state.nodes.pins


def test_a_gpu_pinned_whole_is_never_cut() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    pin(here, "whole")
    waits, whole = here.submit(ask(Mig(1, "1g.18gb"))), here.submit(1)
    assert [whole] == here.started(here.step())
    here.end(whole)
    assert [] == here.started(here.step())
    here.apply(LayoutReleased(here.now_ms, 0, 1))
    assert [waits] == here.started(here.step())


@pytest.mark.parametrize("policy", ["fifo", "default", "conservative"])
def test_who_may_not_cut_a_free_gpu_does_not_keep_it_from_others(policy: str) -> None:
    """It is kept whole, by a pin or as the reserve: who waits for a slice is promised nothing there."""
    for whole_gpus in (0, 1):
        here = Yard(policy, nodes(1, gpus=1, model="H200"), settings=Settings(whole_gpus=whole_gpus))
        if not whole_gpus:
            pin(here, "whole")
        for limit_ms in (0, 5000):
            here.submit(ask(Mig(1, "1g.18gb")), limit_ms=limit_ms)
        whole = here.submit(1)
        assert [whole] == here.started(here.step())


def test_what_runs_is_part_of_the_layout_where_it_is_or_it_is_refused() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    (one,) = started(here, Mig(1, "2g.35gb"))
    ((_node, _gpu, _profile, start),) = slices(here, one)
    assert "2g.35gb is in use by job 1" in pin(here, "7x1g.18gb").refusal
    assert "beside 2g.35gb, which job 1 has, there is no place for" in pin(
        here, "4g.71gb+2g.35gb"
    ).refusal or (PlacedSlice("2g.35gb", start) in here.state.nodes.pins[0][0].held)
    assert PlacedSlice("2g.35gb", start) in pin(here, "2g.35gb+3x1g.18gb").held
    with pytest.raises(InvalidEvent, match="in use there"):
        apply(here.state, LayoutPinned(here.now_ms, 0, 1, (Slice(0, "7g.141gb", 0),)))
    other = Yard("fifo", nodes(1, gpus=1, model="H200"))
    started(other, 1)
    assert "the GPU is in use by job 1" == pin(other, "7x1g.18gb").refusal


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ("8x1g.18gb", "H200 cannot be cut to 8x1g.18gb: beside 7x1g.18gb there is no place for 1g.18gb"),
        ("2x4g.71gb", "beside 4g.71gb there is no place for 4g.71gb"),
        ("7x1g.10gb", "H200 has no profile 1g.10gb; it has 1g.18gb"),
        ("+".join(["99x1g.18gb"] * 18), "H200 cannot be cut to 1782 slices: it takes 7 at most"),
    ],
)
def test_what_the_model_cannot_be_cut_to_is_refused_by_name(layout: str, says: str) -> None:
    found = plan_layout(Yard("fifo", nodes(1, model="H200")).state, 0, 0, read_layout(layout))
    assert found.mistaken
    assert says in found.refusal


def test_a_layout_that_one_gpu_cannot_have_is_pinned_on_none() -> None:
    here = Yard("fifo", nodes(1, gpus=2, model="H200"))
    before = derived(here.state)
    with pytest.raises(InvalidEvent, match="cannot begin"):
        apply(here.state, LayoutPinned(0, 0, 0b11, (Slice(0, "7g.141gb", 0), Slice(1, "7g.141gb", 3))))
    assert ({}, before) == (here.state.nodes.pins, derived(here.state))


def test_idle_slices_are_kept_where_the_layout_has_such() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    there = (PlacedSlice("1g.18gb", 0), PlacedSlice("3g.71gb", 4))
    found = plan_layout(here.state, 0, 0, read_layout("3g.71gb+2x2g.35gb"), there)
    assert (PlacedSlice("3g.71gb", 4),) == found.kept
    assert (PlacedSlice("1g.18gb", 0),) == found.gone
    assert {"2g.35gb"} == {place.profile for place in found.made}
    assert lawful(MIG_MODELS["H200"], found.held)


def test_layouts_are_read_and_written() -> None:
    for text in ("7x1g.18gb", "3g.71gb+2x2g.35gb", "1g.18gb+me", "2g.35gb+2x1g.18gb+1g.18gb+me", "whole"):
        assert text == layout_text([PlacedSlice(name, 0) for name in read_layout(text)])
    assert ("1g.18gb",) * 2 + ("2g.35gb",) == read_layout(" 2 x 1g.18gb, 2g.35gb ")
    for text in ("", "1g", "0x1g.18gb", "7x1g.18gb+", "whole+1g.18gb"):
        with pytest.raises(ValueError, match=r"layout|leave it out"):
            read_layout(text)


def test_what_the_engine_says_of_a_pin_is_kept() -> None:
    here = Yard("fifo", nodes(1, gpus=2, model="H200"))
    pin(here, "7g.141gb", 0)
    here.apply(LayoutMade(here.now_ms, 0, 0b11, "the driver is gone"))
    assert (False, "the driver is gone", 0) == here.state.nodes.pins[0][0][1:4]
    here.apply(LayoutMade(here.now_ms, 0, 0b1, took_ms=400))
    assert (True, "", 400) == here.state.nodes.pins[0][0][1:4]
    assert canonical(here.state) == canonical(load(dump(here.state)))


def test_why_names_the_pin_and_its_release_helps() -> None:
    here = Yard("default", nodes(1, gpus=1, model="H200"))
    pin(here, "7x1g.18gb")
    waits = here.submit(1)
    here.step()
    found = explain_why(here.state, here.policy, waits, here.now_ms)
    (reason,) = found.reasons
    assert "GPU 0 to 7x1g.18gb" in reason.text
    assert ReleaseLayout(0, "h200-0") == reason.lift
    assert "yard mig release --node h200-0" == remedies_text(reason.lifted_by)


def test_when_a_slice_of_a_pinned_gpu_is_handed_on_is_told() -> None:
    here = Yard("default", nodes(1, gpus=1, model="H200"))
    pin(here, "2x3g.71gb")
    for limit_ms in (50_000, 70_000):
        here.submit(ask(Mig(1, "3g.71gb")), limit_ms=limit_ms)
    here.step()
    waits = [here.submit(ask(Mig(1, "3g.71gb")), limit_ms=30_000) for _ in range(3)]
    both = here.submit(ask(Mig(2, "3g.71gb")), limit_ms=1000)
    other = here.submit(ask(Mig(1, "1g.18gb")), limit_ms=1000)
    here.step()
    told = [estimate(here.state, here.policy, 0, here.state.jobs[job]) for job in (*waits, both, other)]
    assert [50_000, 70_000, 80_000, None, None] == [each.at_ms for each in told]
    assert "when job 1 hands on its slice of a pinned GPU as promised" == told[0].how
    assert "when they are free cannot be told" in told[3].how
    assert "does not come free" in told[4].how


@pytest.mark.parametrize("policy", ["fifo", "strict-fifo", "default", "conservative", "sjf"])
def test_nobody_gets_a_slice_of_a_pinned_gpu_later_than_told(policy: str) -> None:
    """Whole jobs, shares and others with slices come along; everything runs as long as it may."""
    asked = 0
    for seed in range(20):
        rng = random.Random(seed)
        here = Yard(policy, nodes(2, gpus=2, model="H200"))
        for number, gpu in ((0, 0), (1, 0), (1, 1), (0, 1))[: 3 + seed % 2]:
            pin(here, rng.choice(["2x3g.71gb", "3g.71gb+2x2g.35gb"]), gpu, number)
        for _ in range(14):
            wanted = [ask(Mig(1, "3g.71gb"))] * 3 + [ask(Mig(1, "2g.35gb")), ask(Mig(2, "2g.35gb")), ask(1)]
            here.submit(rng.choice(wanted), limit_ms=rng.randrange(1, 20) * 1000)
        here.step()
        told = {}
        for job_id, record in here.state.jobs.items():
            found = estimate(here.state, here.policy, here.now_ms, record)
            if "pinned GPU" in found.how and found.at_ms is not None:
                told[job_id] = found.at_ms
        asked += len(told)
        for _ in range(30):
            if not here.state.running:
                break
            here.now_ms = min(record.end_ms for record in here.state.running.values())
            for job_id in [j for j, r in here.state.running.items() if r.end_ms == here.now_ms]:
                here.end(job_id)
            for job_id in here.started(here.step()):
                assert here.now_ms <= told.pop(job_id, here.now_ms), f"seed {seed}, job {job_id}"
    assert asked > 5


LAYOUTS = (
    "7x1g.18gb",
    "2x3g.71gb",
    "3g.71gb+2x2g.35gb",
    "whole",
    "2x2g.20gb+3g.40gb",
    "4x1g.6gb",
    "7g.141gb",
)


@pytest.mark.parametrize("policy", ["fifo", "default", "conservative", "fgd", "pack"])
@pytest.mark.parametrize("seed", range(5))
def test_streams_of_jobs_and_pins_keep_to_geometry_pins_and_reserve(policy: str, seed: int) -> None:
    """Jobs of all kinds come and go while GPUs are pinned and released. Nothing that runs moves; a pinned GPU has
    slices of its layout and nothing else; what is cut by demand leaves the reserve whole."""
    rng = random.Random(seed)
    fleet = [node(f"n{n}", gpus=2, model=rng.choice(["H200", "H100", "A30"])) for n in range(3)]
    reserve = rng.randrange(3)
    here = Yard(policy, fleet, settings=Settings(whole_gpus=reserve))
    where: dict[int, object] = {}
    names = sorted({profile.name for geometry in MIG_MODELS.values() for profile in geometry.profiles})
    pinned = refused = 0
    for _ in range(60):
        here.now_ms += rng.randrange(1, 5000)
        for _job in range(rng.randrange(3)):
            wanted = rng.choice([ask(Mig(rng.choice([1, 1, 1, 2]), rng.choice(names))), ask(1), share(400)])
            here.submit(wanted, limit_ms=rng.randrange(1000, 90_000))
        for job_id in sorted(here.state.running):
            if rng.random() < 0.25:
                where.pop(job_id, None)
                here.end(job_id)
        number, gpu = rng.randrange(3), rng.randrange(2)
        if rng.random() < 0.4:
            found = pin(here, rng.choice(LAYOUTS), gpu, number)
            pinned, refused = pinned + (not found.refusal), refused + bool(found.refusal)
        elif rng.random() < 0.3:
            here.apply(LayoutReleased(here.now_ms, number, 1 << gpu))
        before = {(n, g) for n, row in here.state.nodes.slices_used.items() for g in row}
        here.step()
        state = here.state
        for job_id, record in state.running.items():
            assert where.setdefault(job_id, record.grants) == record.grants
        held: dict[tuple[int, int], list[PlacedSlice]] = {}
        for record in state.running.values():
            for grant in record.grants:
                for piece in grant.slices:
                    held.setdefault((grant.node, piece.gpu), []).append(
                        PlacedSlice(piece.profile, piece.start)
                    )
                for at, found_pin in state.nodes.pins.get(grant.node, {}).items():
                    if grant.gpus >> at & 1 and found_pin.held:
                        assert grant.slices
        for (at, on), places in held.items():
            assert lawful(MIG_MODELS[state.nodes.node[at].gpu_model], tuple(places))
            if (found_pin_ := state.nodes.pins.get(at, {}).get(on)) is not None:
                assert set(places) <= set(found_pin_.held)
        new = {(n, g) for n, row in state.nodes.slices_used.items() for g in row} - before
        if any(g not in state.nodes.pins.get(n, {}) for n, g in new):
            # Whole GPUs that went to others in the same pass count as still there when this one was cut.
            grants = [g for start in here.plans[-1].starts for g in start.grants if not g.slices]
            whole = sum([g.gpus.bit_count() for g in grants])
            assert count_whole_free(state.nodes) + whole >= reserve
        again = load(dump(state))
        again.reindex(here.policy.order)
        assert canonical(state) == canonical(again)
        assert derived(state) == derived(again)
    assert pinned
    assert refused
