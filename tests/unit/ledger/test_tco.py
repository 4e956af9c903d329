"""Owning, reserving, on demand and spot: against numbers that were reckoned by hand."""

from fractions import Fraction

import pytest

from gpuyard.ledger.tco import (
    Load,
    Terms,
    compute_cost,
    find_break_even,
    find_cheapest,
    list_cases,
    price_hour,
)
from gpuyard.model import OwnedHardware

USD = 1_000_000
OWNED = OwnedHardware(35_064 * USD, 4000, 0, 1, 8_766 * USD)
"""35,064 $ over 4 years of 8,766 h is 1 $ an hour; 8,766 $ a year for people is another."""
TERMS = Terms(
    OWNED, watts=500, micro_usd_kwh=Fraction(USD // 5), pue_milli=1500, reserved=3 * USD, on_demand=5 * USD,
    spot=2 * USD, spot_loss_percent=10,
)  # fmt: skip
LOAD = Load([Fraction(24), Fraction(72), Fraction(60), Fraction(0)])
"""Four days with 1, 3, 2.5 and no GPUs in use."""


def test_an_hour_of_what_is_owned() -> None:
    assert 2 * USD == price_hour(OWNED)
    # Eight GPUs for 250,000 $, worth 20,000 $ after 4 years, 8,000 $ a year for people: 65,500 $ a year.
    eight = OwnedHardware(250_000 * USD, 4000, 20_000 * USD, 8, 8_000 * USD)
    assert Fraction(65_500 * USD, 8_766 * 8) == price_hour(eight)


def test_energy_is_watts_times_pue_times_the_price() -> None:
    # 0.5 kW x 1.5 x 0.20 $.
    assert Fraction(15 * USD, 100) == TERMS.energy_h


def test_each_way_for_enough_gpus() -> None:
    assert 3 == LOAD.gpus
    # 3 GPUs x 96 h x 2 $ = 576 $, and 156 GPU-hours x 0.15 $ = 23.40 $.
    assert Fraction(59_940 * USD, 100) == compute_cost("own", LOAD, TERMS, 3)
    assert 3 * 96 * 3 * USD == compute_cost("reserve", LOAD, TERMS, 3)
    assert 156 * 5 * USD == compute_cost("on demand", LOAD, TERMS, 3)
    # 156 h and a tenth done again, at 2 $.
    assert Fraction(3432 * USD, 10) == compute_cost("spot", LOAD, TERMS, 3)


def test_what_is_beyond_the_gpus_is_bought_on_demand() -> None:
    # With 2 GPUs: 24 + 48 + 48 inside, 24 + 12 beyond.
    assert 2 * 96 * 3 * USD + 36 * 5 * USD == compute_cost("reserve", LOAD, TERMS, 2)
    own = 2 * 96 * 2 * USD + 120 * Fraction(15 * USD, 100) + 36 * 5 * USD
    assert own == compute_cost("own", LOAD, TERMS, 2)
    assert compute_cost("reserve", LOAD, Terms(reserved=USD), 2) is None
    assert compute_cost("reserve", LOAD, Terms(reserved=USD), 3) == 3 * 96 * USD
    assert [None] * 3 == [
        compute_cost(way, LOAD, Terms(reserved=USD), 3) for way in ("own", "on demand", "spot")
    ]


def test_break_even_is_the_utilisation_at_which_both_cost_the_same() -> None:
    # 2 $ / (5 $ - 0.15 $), 3 $ / 5 $; against spot at 2.20 $ owning pays at 97.6 %, reserving never.
    assert Fraction(200, 485) == find_break_even("own", "on demand", TERMS)
    assert Fraction(3, 5) == find_break_even("reserve", "on demand", TERMS)
    assert Fraction(200, 205) == find_break_even("own", "spot", TERMS)
    assert Fraction(300, 220) == find_break_even("reserve", "spot", TERMS)
    assert find_break_even("own", "spot", Terms(OWNED, 500, Fraction(50 * USD), 1000, spot=USD)) is None
    for way in ("own", "reserve"):
        at = find_break_even(way, "on demand", TERMS)
        assert at is not None
        even = Load([24 * at])
        assert compute_cost(way, even, TERMS, 1) == compute_cost("on demand", even, TERMS, 1)


def test_what_is_varied_and_the_cheapest() -> None:
    found = {case: (load, terms) for case, load, terms in list_cases(LOAD, TERMS)}
    assert [
        "prices -20 %", "load -20 %", "PUE 1.3", "lifetime 3 years",
        "prices +20 %", "load +20 %", "PUE 1.7", "lifetime 5 years",
    ] == list(found)  # fmt: skip
    assert 156 * 4 * USD == compute_cost("on demand", *found["prices -20 %"], 3)
    assert Fraction(156 * 12, 10) * 5 * USD == compute_cost("on demand", *found["load +20 %"], 3)
    # Over 3 years: 4/3 $ + 1 $ an hour.
    dearer = compute_cost("own", *found["lifetime 3 years"], 3)
    assert 3 * 96 * Fraction(7 * USD, 3) + 156 * Fraction(15 * USD, 100) == dearer
    # 0.5 kW x 1.7 x 0.20 $.
    assert 576 * USD + 156 * Fraction(17 * USD, 100) == compute_cost("own", *found["PUE 1.7"], 3)
    costs = [(way, compute_cost(way, LOAD, TERMS, 3)) for way in ("own", "reserve", "on demand", "spot")]
    assert "spot" == find_cheapest(costs)
    assert "" == find_cheapest([("own", None)])
    assert ["prices -20 %", "load -20 %", "prices +20 %", "load +20 %"] == [
        case for case, _load, _terms in list_cases(LOAD, Terms(spot=USD))
    ]


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_a_price_of_nothing_costs_nothing(gpus: int) -> None:
    free = Terms(OwnedHardware(0, 1000), reserved=0, on_demand=0, spot=0)
    assert [0] * 4 == [compute_cost(way, LOAD, free, gpus) for way in ("own", "reserve", "on demand", "spot")]
