"""The price book: the most exact price goes first, and what cannot be meant is refused."""

import pytest

from gpuyard.errors import BadInput
from gpuyard.ledger.accounts import micro_usd
from gpuyard.ledger.prices import check_currency, checked
from gpuyard.ledger.units import GPU_HOUR, read_day
from gpuyard.model import CATALOGUE, Price
from gpuyard.model.prices import BookPlace, PriceBook

DAY = read_day("2026-11-16")
SPOT = BookPlace("west", "cheap", "H100", "spot", "eu")


def test_the_most_exact_price_goes_first_and_the_list_price_last() -> None:
    book = [Price(1, pool="cheap"), Price(2, region="eu"), Price(3, market="spot"), Price(4, model="H100")]

    found = [PriceBook(checked(book[first:]), {"H100": 5}).price(SPOT, DAY) for first in range(5)]

    assert [1, 2, 3, 4, 5] == found
    assert CATALOGUE["H100"].list_price_micro_usd_h == PriceBook().price(SPOT, DAY)
    assert PriceBook().price(SPOT._replace(model="Z1"), DAY) is None


def test_a_price_holds_from_its_day_until_the_next_one_of_its_kind() -> None:
    book = PriceBook(
        checked([Price(20, model="H100", from_day=DAY), Price(10, model="H100", from_day=DAY - 5)])
    )

    found = [book.price(SPOT, DAY + day) for day in (-6, -5, -1, 0, 9)]

    assert [CATALOGUE["H100"].list_price_micro_usd_h, 10, 10, 20, 20] == found


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ([Price(-1, model="T4")], "of model T4 is below zero"),
        ([Price(1, from_day=9, until_day=9)], "ends on 1970-01-10, before it begins"),
        ([Price(1, pool="a", from_day=3, until_day=9), Price(2, pool="a", from_day=8)], "of pool a overlap"),
        ([Price(1, from_day=3), Price(2, from_day=3)], "of everything overlap from 1970-01-04 on"),
    ],
)
def test_prices_that_cannot_be_meant_are_refused_with_what_to_do(prices: list[Price], said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        checked(prices)

    assert refused.value.hint


def test_another_currency_is_refused() -> None:
    with pytest.raises(BadInput, match="prices in 'EUR'"):
        check_currency("EUR")


def test_rounded_lines_add_up_to_the_rounded_total() -> None:
    third = GPU_HOUR // 3

    assert [1, 0, 0] == micro_usd([third, third, third])
    assert [0, 2, -1] == micro_usd([third, 2 * GPU_HOUR - 1, -GPU_HOUR])
