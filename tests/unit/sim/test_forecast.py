"""Runs forward: by the policy's own decisions, from a state that stays as it is."""

from random import Random

import pytest

from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import JobHeld, JobSpec
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.sim.forecast import Past, Runs, find_quantile, forecast, freeze, thaw
from gpuyard.sim.forward import Forward
from gpuyard.sim.pastjobs import Arrivals, PastJob, RunTimes
from gpuyard.testing import ask, nodes, tenant
from harness.yard import Yard

SPEC = JobSpec("t", ask(8))
TEN_MINUTES = [PastJob(0, SPEC, 8000, HOUR_MS, 10 * MINUTE_MS)] * 30


def full(policy: str = "fifo") -> Yard:
    """One node, taken since four minutes, with a second job in line and time limits of an hour."""
    yard = Yard(policy, nodes(1), now_ms=20 * DAY_MS)
    yard.submit(8, limit_ms=HOUR_MS)
    yard.step()
    yard.submit(8, limit_ms=HOUR_MS)
    yard.now_ms += 4 * MINUTE_MS
    return yard


def ahead(yard: Yard, job_id: int, past: list[PastJob], runs: int = 9, seed: int = 1) -> Runs:
    return forecast(
        yard.state, yard.policy, yard.now_ms, [job_id], Past.of(past, yard.now_ms), seed, runs=runs
    )


def test_a_job_starts_when_those_before_it_have_run_as_jobs_do() -> None:
    yard = full()
    last = yard.submit(8, limit_ms=HOUR_MS)

    assert [16 * MINUTE_MS] * 9 == ahead(yard, last, TEN_MINUTES).waits_ms[last]


def test_without_a_past_everything_takes_its_limit() -> None:
    assert [56 * MINUTE_MS] * 9 == ahead(full(), 2, []).waits_ms[2]


def test_the_state_is_left_as_it_is_and_the_same_seed_gives_the_same() -> None:
    yard = full("default")
    past = [PastJob(0, SPEC, 8000, HOUR_MS, minutes * MINUTE_MS) for minutes in range(5, 50)]
    before = canonical(yard.state)

    found = ahead(yard, 2, past)

    assert before == canonical(yard.state)
    assert found == ahead(yard, 2, past)
    assert found != ahead(yard, 2, past, seed=2)


def test_jobs_that_will_come_and_go_first_are_reckoned_with() -> None:
    yard = full("class")
    now_ms = yard.now_ms
    urgent = JobSpec("t", ask(8), "urgent")
    coming = [PastJob(now_ms - DAY_MS + MINUTE_MS, urgent, 8000, HOUR_MS, 40 * MINUTE_MS)]
    # A day is known only if something older is.
    coming.append(PastJob(now_ms - 2 * DAY_MS, JobSpec("t", ask(1)), 1000, HOUR_MS, MINUTE_MS))

    alone = ahead(yard, 2, TEN_MINUTES, 20).wait_ms(2, 90)
    crowded = ahead(yard, 2, TEN_MINUTES + coming, 20).wait_ms(2, 90)

    assert 6 * MINUTE_MS == alone
    assert crowded is not None
    assert crowded > 40 * MINUTE_MS


def test_a_job_that_may_take_room_back_starts_when_the_grace_is_over() -> None:
    teams = [tenant("a", guarantee=8), tenant("b", guarantee=0)]
    yard = Yard("fair", nodes(1), teams)
    yard.submit(8, tenant="b", limit_ms=DAY_MS)
    yard.step()
    yard.now_ms += HOUR_MS
    mine = yard.submit(8, tenant="a", limit_ms=HOUR_MS)

    assert [1000] * 9 == ahead(yard, mine, []).waits_ms[mine]


def test_a_job_on_hold_does_not_start() -> None:
    yard = full()
    yard.apply(JobHeld(yard.now_ms, 2))

    found = ahead(yard, 2, TEN_MINUTES)

    assert [] == found.waits_ms[2]
    assert None is found.wait_ms(2, 50)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_thawed_state_is_the_frozen_one(preset: str) -> None:
    yard = full(preset)
    yard.submit(3, limit_ms=HOUR_MS)
    yard.decide()

    copy = thaw(freeze(yard.state))

    assert canonical(yard.state) == canonical(copy)
    mine = Forward(copy, yard.policy, yard.now_ms, *Past.of(TEN_MINUTES, yard.now_ms), Random(3))
    loaded = load(dump(yard.state))
    theirs = Forward(loaded, yard.policy, yard.now_ms, *Past.of(TEN_MINUTES, yard.now_ms), Random(3))
    assert theirs.run([2, 3], yard.now_ms + DAY_MS) == mine.run([2, 3], yard.now_ms + DAY_MS)
    assert canonical(loaded) == canonical(copy)


def test_a_run_that_is_cut_off_does_not_count() -> None:
    yard = full()
    yard.apply(JobHeld(yard.now_ms, 2))
    busy = [PastJob(yard.now_ms - DAY_MS + i * 1000, SPEC, 8000, HOUR_MS, 500) for i in range(5000)]
    busy.append(PastJob(yard.now_ms - 2 * DAY_MS, SPEC, 8000, HOUR_MS, 500))

    past = Past.of(busy, yard.now_ms)
    found = forecast(yard.state, yard.policy, yard.now_ms, [2], past, 1, enough=lambda: True)

    assert 0 == found.runs


def test_the_quantile_is_that_of_a_new_value() -> None:
    assert 9 == find_quantile(range(1, 10), 90, 9)
    assert 18 == find_quantile(range(1, 20), 90, 19)
    assert None is find_quantile(range(1, 9), 90, 9)
    assert None is find_quantile([], 50, 0)


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("seed", range(3))
def test_a_crowded_yard_runs_forward_under_every_policy(preset: str, seed: int) -> None:
    draw = Random(seed)
    teams = [tenant("a", guarantee=16), tenant("b", guarantee=0, limit=24), tenant("c", weight=3)]
    yard = Yard(preset, nodes(4), teams, now_ms=20 * DAY_MS)
    past = []
    for _ in range(120):
        size, who = draw.choice((1, 1, 2, 4, 8, 16)), draw.choice("abc")
        wanted = ask(min(size, 8), tasks=max(1, size // 8))
        fields = {"limit_ms": draw.randint(1, 300) * MINUTE_MS, "checkpoint_ms": draw.choice((0, MINUTE_MS))}
        klass = draw.choice(("batch", "batch", "urgent"))
        job_id = yard.submit(wanted, tenant=who, klass=klass, **fields)
        record = yard.state.jobs[job_id]
        run_ms = record.limit_ms // draw.randint(1, 4)
        past.append(PastJob(yard.now_ms, record.job.spec, size * 1000, record.limit_ms, run_ms))
        yard.step()
        yard.wait(draw.randint(1, 5) * MINUTE_MS)
        for running in draw.sample(yard.running(), min(1, len(yard.running()))):
            if running not in yard.state.leaving and draw.random() < 0.3:
                yard.end(running)
    waiting = sorted(record.id for record in yard.state.jobs.values() if not record.grants)
    assert waiting

    # Nobody new: more come here than the yard can serve, and the line would grow for fourteen days.
    quiet = Past(RunTimes(past), Arrivals((), yard.now_ms))
    found = forecast(load(dump(yard.state)), yard.policy, yard.now_ms, waiting, quiet, seed, runs=2)

    assert 2 == found.runs
    assert all(0 <= wait_ms for waits in found.waits_ms.values() for wait_ms in waits)
    assert any(found.waits_ms.values())
