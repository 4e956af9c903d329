"""The price book: what an hour of a GPU costs on a day, by model, pool, market and region.

A price holds for whole UTC days, so an entry of the time book has one price, and a price that is set for days of an
open month holds for what was booked on them already. Which of several holds is said in `model/prices.py`.
"""

from collections.abc import Iterable
from itertools import pairwise

from gpuyard.errors import BadInput, quoted
from gpuyard.ledger.units import day_text
from gpuyard.model import Price

CURRENCY = "USD"


def checked(prices: Iterable[Price]) -> tuple[Price, ...]:
    """Prices of which none is below zero, empty or beside another for the same days; `BadInput` says what is wrong."""
    by_what: dict[tuple[str, str, str, str], list[Price]] = {}
    for price in prices:
        if price.micro_usd_h < 0:
            raise BadInput(f"the price {told(price)} is below zero", "Give a price of 0 or more.")
        if price.until_day and price.until_day <= price.from_day:
            raise BadInput(
                f"the price {told(price)} ends on {day_text(price.until_day)}, before it begins",
                "Give an 'until' after its 'from', or leave 'until' out.",
            )
        by_what.setdefault((price.model, price.pool, price.market, price.region), []).append(price)
    kept = []
    for same in by_what.values():
        same.sort(key=lambda each: (each.from_day, each.until_day, each.micro_usd_h))
        for before, after in pairwise(same):
            if before.from_day == after.from_day or before.until_day > after.from_day:
                raise BadInput(
                    f"two prices {told(after)} overlap from {day_text(after.from_day)} on",
                    f"End the earlier one with 'until: {day_text(after.from_day)}', or remove one of them.",
                )
        # A price without an end holds until the next one of its kind.
        for place, price in enumerate(same):
            later = same[place + 1].from_day if place + 1 < len(same) else 0
            until = price.until_day or later
            kept.append(
                Price(
                    price.micro_usd_h,
                    price.model,
                    price.pool,
                    price.market,
                    price.region,
                    price.from_day,
                    until,
                )
            )
    return tuple(kept)


def check_currency(currency: str) -> None:
    """Money is in US dollars: the books add it up."""
    if currency != CURRENCY:
        raise BadInput(
            f"prices in {quoted(currency)}: the books are kept in {CURRENCY}",
            f"Convert the prices to {CURRENCY}.",
        )


def told(price: Price) -> str:
    """What a price is for."""
    named = (("model", price.model), ("pool", price.pool), ("market", price.market), ("region", price.region))
    what = ", ".join([f"{kind} {text}" for kind, text in named if text])
    return f"of {what}" if what else "of everything"
