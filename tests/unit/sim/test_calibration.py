"""Estimates are held against what happened, and only against what is known by then."""

from gpuyard.model.units import HOUR_MS
from gpuyard.sim.calibration import FIRST, SCORES_MIN, GivenEstimate, Track


def told(track: Track, count: int, factor_percent: int) -> None:
    """So many estimates of an hour, each of which took so many percent of it."""
    for job_id in range(1, count + 1):
        track.give(job_id, GivenEstimate(0, {50: HOUR_MS // 2, 90: HOUR_MS}))
        track.started(job_id, HOUR_MS * factor_percent // 100)


def test_it_begins_with_the_first_stretch() -> None:
    track = Track()
    told(track, SCORES_MIN - 1, 300)

    assert FIRST[90] == track.stretch(90, 0)
    assert SCORES_MIN - 1 == track.count


def test_estimates_that_were_too_short_stretch_the_next() -> None:
    track = Track()
    told(track, 50, 200)

    assert 1900 < track.stretch(90, 10 * HOUR_MS) <= 2000
    assert 1.9 * HOUR_MS < track.stretched(90, HOUR_MS, 10 * HOUR_MS) <= 2 * HOUR_MS


def test_estimates_that_were_too_long_do_not_shorten_it_below_the_first() -> None:
    track = Track()
    told(track, 50, 20)

    assert FIRST[90] == track.stretch(90, 10 * HOUR_MS)


def test_who_still_waits_and_should_not_counts_as_far_as_it_is_late() -> None:
    track = Track()
    told(track, 40, 100)
    for job_id in range(100, 120):
        track.give(job_id, GivenEstimate(0, {50: HOUR_MS // 2, 90: HOUR_MS}))

    assert FIRST[90] == track.stretch(90, HOUR_MS)
    assert 2900 < track.stretch(90, 3 * HOUR_MS) <= 3000


def test_only_the_first_estimate_of_a_job_counts() -> None:
    track = Track()
    track.give(1, GivenEstimate(0, {50: HOUR_MS // 2, 90: HOUR_MS}))
    track.give(1, GivenEstimate(5 * HOUR_MS, {50: 1, 90: 1}))
    track.started(1, HOUR_MS)
    track.started(1, 9 * HOUR_MS)

    assert 1 == track.count


def test_a_job_that_never_started_teaches_nothing() -> None:
    track = Track()
    track.give(1, GivenEstimate(0, {50: HOUR_MS // 2, 90: HOUR_MS}))
    track.gone(1)

    assert () == track.open
    assert 0 == track.count


def test_even_odds_go_both_ways() -> None:
    longer, shorter = Track(), Track()
    told(longer, 50, 75)
    told(shorter, 50, 35)

    assert 1000 == Track().stretch(50, 0)
    assert 1450 < longer.stretch(50, 10 * HOUR_MS) < 1500
    assert 690 < shorter.stretch(50, 10 * HOUR_MS) < 750


def test_a_start_at_once_stays_one() -> None:
    assert 0 == Track().stretched(90, 0, 0)
