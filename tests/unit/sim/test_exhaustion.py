"""The forecast of when a budget is spent: its band holds, is narrow, and beats last week's rate carried on."""

from random import Random

from gpuyard.model.units import DAY_MS
from gpuyard.sim.exhaustion import estimate_exhaustion

QUARTER = 91
HISTORY = 28
ASKED_ON = 30
"""The day of the quarter on which the forecast is made."""
BUDGET = 60 * 1_000_000


def days_of(seed: int) -> list[tuple[int, int]]:
    """What is spent day by day: less on weekends, and each day up to half more or less than the mean."""
    random = Random(seed)
    found = []
    for day in range(20_000, 20_000 + HISTORY + QUARTER):
        mean = 450_000 if (day + 3) % 7 >= 5 else 1_100_000
        found.append((day, int(mean * random.uniform(0.5, 1.5))))
    return found


def spent_at(days: list[tuple[int, int]], left: int) -> int:
    for day, spent in days:
        if spent >= left:
            return day * DAY_MS + left * DAY_MS // spent
        left -= spent
    raise AssertionError("the budget of the scenario is spent within its window")


def pinball(guess: int, part: int, truth: int) -> float:
    return (truth - guess) * part / 100 if truth >= guess else (guess - truth) * (100 - part) / 100


def test_the_band_holds_is_narrow_and_beats_last_week_carried_on() -> None:
    within, widest, ours, naive = 0, 0, 0.0, 0.0
    for seed in range(20):
        days = days_of(seed)
        past, ahead = days[: HISTORY + ASKED_ON], days[HISTORY + ASKED_ON :]
        left = BUDGET - sum(spent for _day, spent in past[HISTORY:])
        now_ms, until_ms = ahead[0][0] * DAY_MS, (days[-1][0] + 1) * DAY_MS
        truth = spent_at(ahead, left)
        found = estimate_exhaustion(past, left, now_ms, until_ms, seed)
        assert found is not None
        guesses = [found.p5_ms or until_ms, found.p50_ms or until_ms, found.p95_ms or until_ms]
        within += guesses[0] <= truth <= guesses[2]
        widest = max(widest, guesses[2] - guesses[0])
        carried_on = now_ms + left * 7 * DAY_MS // sum(spent for _day, spent in past[-7:])
        ours += sum(pinball(g, part, truth) for g, part in zip(guesses, (5, 50, 95), strict=True))
        naive += sum(pinball(carried_on, part, truth) for part in (5, 50, 95))
    print(
        f"{within} of 20 within the band, the widest {widest * 100 / (QUARTER * DAY_MS):.1f} % of the window; "
        f"pinball loss {ours / 60 / DAY_MS:.2f} days, last week carried on {naive / 60 / DAY_MS:.2f}"
    )
    assert 17 <= within <= 20
    assert widest * 100 <= 25 * QUARTER * DAY_MS
    assert ours < naive


def test_nothing_known_says_nothing_and_nothing_left_says_now() -> None:
    assert estimate_exhaustion([], 5, 100 * DAY_MS, 120 * DAY_MS, 1) is None
    found = estimate_exhaustion([(99, 5)], 0, 100 * DAY_MS, 120 * DAY_MS, 1)
    assert found is not None
    assert (100 * DAY_MS, 100) == (found.p50_ms, found.certain)
    late = estimate_exhaustion([(99, 5)], 10**9, 100 * DAY_MS, 120 * DAY_MS, 1)
    assert late is not None
    assert (None, 0) == (late.p5_ms, late.certain)
