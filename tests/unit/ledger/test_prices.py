"""The price book: the most exact price goes first, and what cannot be meant is refused."""

import pytest

from gpuyard.ledger.accounts import Entry, Owner, Prices, sum_entries
from gpuyard.ledger.prices import end_prices, find_faults
from gpuyard.ledger.units import CHARGED, COLUMNS, ENERGY, FLEET, GPU_HOUR, NOBODY, read_day
from gpuyard.model import CATALOGUE, Price
from gpuyard.model.prices import BookPlace, PriceBook

DAY = read_day("2026-11-16")
SPOT = BookPlace("west", "cheap", "H100", "spot", "eu")


def test_the_most_exact_price_goes_first_and_the_list_price_last() -> None:
    book = [Price(1, pool="cheap"), Price(2, region="eu"), Price(3, market="spot"), Price(4, model="H100")]

    found = [PriceBook(end_prices(book[first:]), {"H100": 5}).price(SPOT, DAY) for first in range(5)]

    assert [1, 2, 3, 4, 5] == found
    assert CATALOGUE["H100"].list_price_micro_usd_h == PriceBook().price(SPOT, DAY)
    assert PriceBook().price(SPOT._replace(model="Z1"), DAY) is None


def test_a_price_holds_from_its_day_until_the_next_one_of_its_kind() -> None:
    book = PriceBook(
        end_prices([Price(20, model="H100", from_day=DAY), Price(10, model="H100", from_day=DAY - 5)])
    )

    found = [book.price(SPOT, DAY + day) for day in (-6, -5, -1, 0, 9)]

    assert [CATALOGUE["H100"].list_price_micro_usd_h, 10, 10, 20, 20] == found


@pytest.mark.parametrize(
    ("prices", "place", "said"),
    [
        ([Price(1), Price(-1, model="T4")], 1, "of model T4 is below zero"),
        ([Price(1, from_day=9, until_day=9)], 0, "ends on 1970-01-10, before it begins"),
        (
            [Price(2, pool="a", from_day=8), Price(1, pool="a", from_day=3, until_day=9)],
            0,
            "of pool a overlap",
        ),
        ([Price(1, from_day=3), Price(2, from_day=3)], 1, "of everything overlap from 1970-01-04 on"),
    ],
)
def test_prices_that_cannot_be_meant_are_named_with_what_to_do(
    prices: list[Price], place: int, said: str
) -> None:
    ((at, text, hint),) = find_faults(prices)

    assert place == at
    assert said in text
    assert hint


def test_measured_energy_is_charged_on_top_and_is_part_of_the_cost_of_the_fleet() -> None:
    # 2 kWh at 0.30 USD, and 10 GPU-hours at 1 USD.
    columns = [0] * COLUMNS
    columns[CHARGED], columns[FLEET], columns[ENERGY] = 10 * GPU_HOUR, 24 * GPU_HOUR, 2 * 3_600_000_000
    book = PriceBook([Price(1_000_000, micro_usd_kwh=300_000)])

    (line,) = sum_entries([Entry(DAY, DAY, "p", "o", columns)], ["model"], {"p": SPOT}, {}, Prices(book))

    assert [10_600_000, 14_000_000] == [line.charged, line.fleet - line.charged]
    assert 7_200_000_000 == line.energy_mj


def test_what_is_charged_for_an_entry_does_not_move_with_the_idle_rest() -> None:
    # A third of a micro-dollar more or less of idle time beside a job that has ended.
    third, owners = GPU_HOUR // 3, {"o": Owner("org", "ada", "batch")}
    found = []
    for idle in range(4):
        job, nobody = [0] * COLUMNS, [0] * COLUMNS
        job[CHARGED], nobody[FLEET] = 4 * third, 7 * third + idle * third
        entries = [Entry(DAY, DAY, "p", "o", job), Entry(DAY, DAY, "p", NOBODY, nobody)]
        lines = sum_entries(
            entries, ["tenant"], {"p": SPOT}, owners, Prices(PriceBook([Price(1)])), whole=True
        )
        found.append([(line.charged, line.rest) for line in lines])
        assert sum([line.fleet for line in lines]) == sum([line.charged + line.rest for line in lines])

    assert [[(0, rest), (1, 0)] for rest in (1, 2, 2, 2)] == found
