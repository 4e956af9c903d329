"""What is drawn from the past: the nearest group that has enough, never what has passed already."""

from dataclasses import replace
from random import Random

from gpuyard.model import JobSpec
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, NO_LIMIT_MS
from gpuyard.sim.pastjobs import BLOCK_MS, LEVELS, Arrivals, PastJob, RunTimes
from gpuyard.testing import ask

ANA = JobSpec("t", ask(1), user="ana")
BO = JobSpec("t", ask(1), user="bo")


def ran(spec: JobSpec, run_ms: int, limit_ms: int = HOUR_MS, gpu_milli: int = 1000) -> PastJob:
    return PastJob(0, spec, gpu_milli, limit_ms, run_ms)


def draws(times: RunTimes, spec: JobSpec, limit_ms: int = HOUR_MS, ran_ms: int = 0) -> set[int]:
    random = Random(0)
    return {times.draw(spec, 1000, limit_ms, ran_ms, random) for _ in range(300)}


def test_a_job_is_like_those_of_its_own_user_if_there_are_enough() -> None:
    times = RunTimes([ran(ANA, 10 * MINUTE_MS)] * 30 + [ran(BO, 50 * MINUTE_MS)] * 30)

    assert {10 * MINUTE_MS} == draws(times, ANA)
    assert LEVELS[1] == LEVELS[times.level(ANA, 1000, HOUR_MS)]


def test_a_job_is_like_those_of_its_own_name_even_if_they_are_few() -> None:
    train = replace(ANA, name="train")
    times = RunTimes([ran(ANA, 10 * MINUTE_MS)] * 30 + [ran(train, 40 * MINUTE_MS)] * 5)

    assert {40 * MINUTE_MS} == draws(times, train)
    assert 0 == times.level(train, 1000, HOUR_MS)
    assert {10 * MINUTE_MS, 40 * MINUTE_MS} == draws(times, replace(ANA, name="new"))


def test_where_these_are_too_few_it_is_like_those_of_everyone() -> None:
    times = RunTimes([ran(ANA, 10 * MINUTE_MS)] * 5 + [ran(BO, 50 * MINUTE_MS)] * 30)

    assert {10 * MINUTE_MS, 50 * MINUTE_MS} == draws(times, ANA)
    assert 3 == times.level(ANA, 1000, HOUR_MS)


def test_limits_are_compared_by_the_part_that_was_used() -> None:
    times = RunTimes([ran(ANA, HOUR_MS // 4)] * 30)

    # An hour and 50 minutes are in one group of limits.
    assert {50 * MINUTE_MS // 4} == draws(times, ANA, limit_ms=50 * MINUTE_MS)


def test_a_job_that_has_run_so_long_runs_longer() -> None:
    times = RunTimes([ran(ANA, minutes * MINUTE_MS) for minutes in range(1, 60)])

    found = draws(times, ANA, ran_ms=30 * MINUTE_MS)

    assert 30 * MINUTE_MS < min(found)
    assert max(found) <= HOUR_MS


def test_what_nobody_ever_did_takes_the_whole_limit_or_as_long_again() -> None:
    times = RunTimes([ran(ANA, MINUTE_MS)] * 30)

    assert {HOUR_MS} == draws(times, ANA, ran_ms=2 * MINUTE_MS)
    assert {2 * DAY_MS + HOUR_MS} == draws(times, ANA, limit_ms=NO_LIMIT_MS, ran_ms=DAY_MS)
    assert {HOUR_MS} == draws(RunTimes([]), ANA)


def test_a_job_that_has_not_ended_says_nothing_about_run_times() -> None:
    assert 0 == RunTimes([ran(ANA, -1)]).count


def test_the_mean_run_time_is_that_of_the_group() -> None:
    times = RunTimes([ran(ANA, 10 * MINUTE_MS)] * 15 + [ran(ANA, 30 * MINUTE_MS)] * 15)

    assert (20 * MINUTE_MS, 1) == times.middle(ANA, 1000, HOUR_MS)
    assert -1 == RunTimes([]).middle(ANA, 1000, HOUR_MS)[0]


def test_arrivals_come_again_at_the_same_time_of_day() -> None:
    now_ms = 10 * DAY_MS + 9 * HOUR_MS
    # One job a day, at ten.
    jobs = [PastJob(day * DAY_MS + 10 * HOUR_MS, ANA, 1000, HOUR_MS, MINUTE_MS) for day in range(10)]
    arrivals = Arrivals(jobs, now_ms)

    for number in range(12):
        found = arrivals.block(now_ms, number, Random(number))
        expected = [10 * DAY_MS + 10 * HOUR_MS] if number == 0 else [11 * DAY_MS + 10 * HOUR_MS]
        assert (expected if number in (0, 6) else []) == [at_ms for at_ms, _job in found]


def test_where_less_than_a_day_is_known_what_came_lately_comes_again() -> None:
    now_ms = 10 * HOUR_MS
    jobs = [PastJob(now_ms - minutes * MINUTE_MS, ANA, 1000, HOUR_MS, -1) for minutes in range(120, 0, -30)]

    found = Arrivals(jobs, now_ms).block(now_ms, 0, Random(0))

    assert 8 == len(found)
    assert all(now_ms <= at_ms < now_ms + BLOCK_MS for at_ms, _job in found)


def test_a_past_of_minutes_says_nothing_about_what_comes() -> None:
    assert [] == Arrivals([PastJob(0, ANA, 1000, HOUR_MS, -1)], MINUTE_MS).block(MINUTE_MS, 0, Random(0))
