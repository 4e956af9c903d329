"""MIG slices in the books: placed by geometry, never moved, and gone when their job is."""

import random

import pytest

from gpuyard.core import State, apply, decide
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.fleet.mig_geometry import PlacedSlice, charge_of
from gpuyard.core.fleet.mig_placing import count_whole_free
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.model import DemandLearned, Mig, NodeAdded, PolicySpec, ReasonCode, Settings, Start
from gpuyard.model.mig import MIG_MODELS
from gpuyard.packing.learning import merged
from gpuyard.testing import BATCH, URGENT, ask, node, nodes, share
from harness.yard import Yard
from unit.core.test_geometry import lawful


def slices(here: Yard, start: Start) -> list[tuple[int, int, str, int]]:
    return [(grant.node, *piece) for grant in start.grants for piece in grant.slices]


def started(here: Yard, *wanted: object) -> list[Start]:
    jobs = [here.submit(each if not isinstance(each, Mig) else ask(each)) for each in wanted]  # type: ignore[arg-type]
    starts = {start.job_id: start for start in here.step().starts}
    return [starts[job] for job in jobs if job in starts]


@pytest.mark.parametrize(
    ("profile", "milli"), [("1g.18gb", 143), ("3g.71gb", 500), ("1g.10gb", 143), ("9g.999gb", 0)]
)
def test_what_a_slice_counts_against_quotas(profile: str, milli: int) -> None:
    assert milli == charge_of(profile)


def test_a_slice_is_cut_from_one_gpu_and_the_next_from_the_same() -> None:
    here = Yard("fifo", nodes(2, model="H200"))
    found = started(here, Mig(1, "1g.18gb"), Mig(1, "3g.71gb"), Mig(2, "1g.18gb"))
    assert {(0, 7)} == {piece[:2] for start in found for piece in slices(here, start)}
    assert lawful(MIG_MODELS["H200"], here.state.nodes.slices_used[0][7])
    assert [143, 500, 286] == [here.state.jobs[start.job_id].shape.gpu_milli for start in found]
    # The GPU is neither whole nor shared: a whole job and a share go elsewhere.
    whole, part = started(here, 8, share(500))
    assert ({1}, {0}) == ({g.node for g in whole.grants}, {g.node for g in part.grants})
    assert not part.grants[0].gpus & 0b1000_0000


def test_a_gpu_is_whole_again_when_its_last_slice_ends() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    one, two = started(here, Mig(1, "1g.18gb"), Mig(1, "2g.35gb"))
    waits = here.submit(1)
    assert [] == here.started(here.step())
    here.end(one.job_id)
    assert [] == here.started(here.step())
    here.end(two.job_id)
    assert [waits] == here.started(here.step())
    assert {} == here.state.nodes.slices_used


def test_no_slice_goes_where_one_is_kept_and_a_share_is_still_being_stopped() -> None:
    here = Yard("default", nodes(1, gpus=1, model="H200"))
    part = here.submit(share(250))
    here.step()
    first = here.submit(ask(Mig(1, "1g.18gb")), klass="urgent")
    assert [part] == [stop.job_id for stop in here.step().stops]
    # The GPU counts as cut for the first one's sake, and the share still runs there.
    second = here.submit(ask(Mig(1, "1g.18gb")), klass="urgent")
    assert [] == here.started(here.step())
    here.stop_confirmed(part)
    assert [first, second] == sorted(here.started(here.step()))


def test_a_share_for_which_a_slice_is_stopped_waits_until_it_is_gone() -> None:
    here = Yard("default", nodes(1, gpus=1, model="H200"))
    (cut,) = started(here, Mig(1, "1g.18gb"))
    part = here.submit(share(250), klass="urgent")
    assert [cut.job_id] == [stop.job_id for stop in here.step().stops]
    assert [] == here.started(here.step())
    here.stop_confirmed(cut.job_id)
    assert [part] == here.started(here.step())


def test_nothing_is_put_on_a_gpu_while_a_slice_is_kept_that_another_still_lies_on() -> None:
    here = Yard("default", nodes(1, gpus=1, model="H200"))
    started(here, Mig(1, "3g.71gb"), Mig(1, "3g.71gb"))
    kept = here.submit(ask(Mig(1, "3g.71gb")), klass="urgent")
    (stop,) = here.step().stops
    small = here.submit(ask(Mig(1, "1g.18gb")))
    assert [] == here.started(here.step())
    here.stop_confirmed(stop.job_id)
    assert kept in here.started(here.step())
    assert small in here.state.jobs


@pytest.mark.parametrize(
    ("wanted", "gpus", "code"),
    [
        # Of this size an A100-40GB takes four and an H100 seven: what counts is the GPU that is there.
        (Mig(7, "1g.10gb"), 1, ReasonCode.STARTED),
        (Mig(8, "1g.10gb"), 1, ReasonCode.NEVER_FITS),
        (Mig(8, "1g.10gb"), 2, ReasonCode.STARTED),
        # Three of this size go on a GPU, and the same number on each: five want five GPUs.
        (Mig(5, "2g.20gb"), 4, ReasonCode.NEVER_FITS),
        (Mig(5, "2g.20gb"), 5, ReasonCode.STARTED),
    ],
)
def test_who_could_never_start_is_told_so(wanted: Mig, gpus: int, code: ReasonCode) -> None:
    here = Yard("fifo", nodes(1, gpus=gpus, model="H100"))
    job = here.submit(ask(wanted))
    assert code == here.code(here.step(), job)
    told = impossible_reason(here.state, here.state.jobs[job].job.spec)
    assert (told is None) == (code is ReasonCode.STARTED)
    if told is not None:
        takes = "the same number on each GPU, which takes"
        assert takes in told.text
        assert f"the largest node has {gpus}" in told.text


def test_slices_do_not_go_on_a_shared_gpu() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    (part,) = started(here, share(250))
    waits = here.submit(ask(Mig(1, "1g.18gb")))
    assert [] == here.started(here.step())
    here.end(part.job_id)
    assert [waits] == here.started(here.step())


def test_who_waits_for_a_whole_gpu_is_promised_one_that_is_cut() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    job = here.submit(ask(Mig(1, "1g.18gb")), limit_ms=50_000)
    assert [job] == here.started(here.step())
    waits = here.submit(1, limit_ms=1000)
    assert [] == here.started(here.step())
    assert 50_000 == estimate(here.state, here.policy, here.now_ms, here.state.jobs[waits]).at_ms
    # A slice that would still be there then is not cut in between; one that is over by then is.
    late, early = (
        here.submit(ask(Mig(1, "1g.18gb")), limit_ms=60_000),
        here.submit(ask(Mig(1, "1g.18gb")), limit_ms=9000),
    )
    assert [early] == here.started(here.step())
    assert late in here.state.jobs


def test_enough_gpus_stay_whole() -> None:
    here = Yard("fifo", nodes(1, gpus=4, model="H200"), settings=Settings(whole_gpus=3))
    found = started(here, *[Mig(1, "3g.71gb")] * 4)
    assert 2 == len(found)
    assert {3} == {piece[1] for start in found for piece in slices(here, start)}
    assert 3 == count_whole_free(here.state.nodes)


@pytest.mark.parametrize("slices_of", [1, 2])
@pytest.mark.parametrize("placement", ["best-fit", "pack"])
def test_by_force_a_gpu_of_its_victims_is_cut_and_none_of_the_reserve(placement: str, slices_of: int) -> None:
    policy = PolicySpec("class", order=("class",), preemption=("class",), placement=placement)
    keeps = Settings(classes=(BATCH, URGENT), whole_gpus=1)
    here = Yard(policy, nodes(1, gpus=3, model="H200"), settings=keeps)
    here.submit(1)
    here.submit(1)
    assert 2 == len(here.step().starts)
    # A GPU is free, and it is the one that stays whole. One victim's GPU is enough: nobody is stopped to refill it.
    urgent = here.submit(ask(Mig(slices_of, "1g.18gb")), klass="urgent")
    plan = here.step()
    assert 1 == len(plan.stops)
    assert [] == here.started(plan)
    gone = plan.stops[0].job_id
    held = here.state.jobs[gone].grants[0].gpus
    assert held == plan.earmarks[0].grants[0].gpus
    here.stop_confirmed(gone)
    # Its victim goes on with the one that was kept for such.
    assert [urgent, gone] == here.started(here.step())


def test_what_is_kept_by_force_makes_no_room_for_others_before_it_is_free() -> None:
    keeps = Settings(classes=(BATCH, URGENT), whole_gpus=2)
    here = Yard("class", nodes(1, gpus=4, model="H200"), settings=keeps)
    here.submit(1)
    here.step()
    # Three are free, one may be cut: the second GPU is that of the victim, and nothing else is cut meanwhile.
    here.submit(ask(Mig(2, "4g.71gb")), klass="urgent")
    plan = here.step()
    assert 1 == len(plan.stops)
    other = here.submit(ask(Mig(2, "3g.71gb")), klass="urgent")
    assert other not in here.started(here.step())
    assert 2 == count_whole_free(here.state.nodes)


@pytest.mark.parametrize(
    ("model", "profile", "says"),
    [("H200", "9g.999gb", "profiles"), ("T4", "1g.18gb", "H200"), ("H100", "1g.18gb", "1g.10gb")],
)
def test_what_no_gpu_here_can_be_cut_to_never_starts(model: str, profile: str, says: str) -> None:
    here = Yard("fifo", nodes(1, model=model))
    job = here.submit(ask(Mig(1, profile)))
    assert [] == here.started(here.step())
    assert () == here.state.jobs[job].shape.ways


def cuts(here: Yard, *, earmarks: bool) -> dict[tuple[int, int], list[PlacedSlice]]:
    """By node and GPU, the slices that run, and those that are kept for someone."""
    found: dict[tuple[int, int], list[PlacedSlice]] = {}
    for record in here.state.jobs.values():
        kept = record.earmark.grants if earmarks and record.earmark else ()
        for grant in (*record.grants, *kept):
            for piece in grant.slices:
                found.setdefault((grant.node, piece.gpu), []).append(PlacedSlice(piece.profile, piece.start))
    return found


@pytest.mark.parametrize("policy", ["fifo", "default", "conservative", "fgd"])
@pytest.mark.parametrize("seed", range(6))
def test_streams_of_slices_keep_to_the_geometry(policy: str, seed: int) -> None:
    """Random slices, shares and whole jobs come and go; no layout is unlawful, nothing that runs moves."""
    rng = random.Random(seed)
    fleet = [node(f"n{n}", gpus=2, model=rng.choice(["H200", "H100", "A30"])) for n in range(3)]
    here = Yard(policy, fleet)
    where: dict[int, object] = {}
    names = sorted({profile.name for geometry in MIG_MODELS.values() for profile in geometry.profiles})
    for _ in range(60):
        here.now_ms += rng.randrange(1, 5000)
        for _job in range(rng.randrange(3)):
            wanted = rng.choice([ask(Mig(rng.choice([1, 1, 1, 2]), rng.choice(names))), ask(1), share(400)])
            here.submit(wanted, limit_ms=rng.randrange(1000, 90_000), klass=rng.choice(["", "urgent"]))
        if rng.random() < 0.15:
            came = [(shape.ask, count) for shape, count in here.state.arrived.items()]
            here.apply(DemandLearned(here.now_ms, merged(here.state.demand, came)))
        for job_id in sorted(here.state.running):
            if rng.random() < 0.2:
                where.pop(job_id, None)
                here.end(job_id)
        here.step()
        for job_id, record in here.state.running.items():
            assert where.setdefault(job_id, record.grants) == record.grants
        ran, kept = cuts(here, earmarks=False), cuts(here, earmarks=True)
        for (number, _gpu), held in ran.items():
            assert lawful(MIG_MODELS[here.state.nodes.node[number].gpu_model], tuple(held))
        booked = {
            (number, gpu): list(held)
            for number, row in here.state.nodes.slices_used.items()
            for gpu, held in row.items()
        }
        assert {place: sorted(held) for place, held in kept.items()} == {
            p: sorted(h) for p, h in booked.items()
        }
        again = load(dump(here.state))
        again.reindex(here.policy.order)
        assert canonical(here.state) == canonical(again)
        assert derived(here.state) == derived(again)
        assert decide(again, here.policy, here.now_ms) == decide(here.state, here.policy, here.now_ms)


def test_the_log_tells_the_slices() -> None:
    here = Yard("fifo", nodes(1, model="H200"))
    started(here, Mig(1, "2g.35gb"))
    state = State()
    for event in here.log:
        apply(state, event)
    assert canonical(here.state) == canonical(state)
    assert isinstance(here.log[1], NodeAdded)


def test_the_whole_gpu_as_one_slice_is_cut_like_any_other() -> None:
    here = Yard("fifo", nodes(1, gpus=1, model="H200"))
    (whole,) = started(here, Mig(1, "7g.141gb"))
    assert {0: {0: (PlacedSlice("7g.141gb", 0),)}} == here.state.nodes.slices_used
    waits = here.submit(1)
    assert [] == here.started(here.step())
    here.end(whole.job_id)
    assert {} == here.state.nodes.slices_used
    assert [waits] == here.started(here.step())
