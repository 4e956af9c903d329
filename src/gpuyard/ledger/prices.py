"""The price book: what an hour of a GPU costs on a day, by model, pool, market and region.

A price holds for whole UTC days, so an entry of the time book has one price, and a price that is set for days of an
open month holds for what was booked on them already. Which of several holds is said in `model/prices.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from gpuyard.ledger.units import day_text
from gpuyard.model import Price

CURRENCY = "USD"


def find_faults(prices: Sequence[Price]) -> list[tuple[int, str, str]]:
    """What cannot be meant: the place of the price, what is wrong with it, and what to do."""
    found = []
    by_what: dict[tuple[str, ...], list[int]] = {}
    for place, price in enumerate(prices):
        if price.micro_usd_h < 0 or price.micro_usd_kwh < 0:
            found.append((place, f"the price {price_text(price)} is below zero", "give a price of 0 or more"))
        if price.until_day and price.until_day <= price.from_day:
            said = f"the price {price_text(price)} ends on {day_text(price.until_day)}, before it begins"
            found.append((place, said, "give an 'until' after its 'from', or leave 'until' out"))
        by_what.setdefault(_what(price), []).append(place)
    for same in by_what.values():
        same.sort(key=lambda at: (prices[at].from_day, prices[at].until_day, at))
        for first, second in pairwise(same):
            before, after = prices[first], prices[second]
            if before.from_day == after.from_day or before.until_day > after.from_day:
                begins = day_text(after.from_day)
                hint = f"end the earlier one with 'until: {begins}', or remove one of them"
                found.append((second, f"two prices {price_text(after)} overlap from {begins} on", hint))
    return sorted(found)


def end_prices(prices: Iterable[Price]) -> tuple[Price, ...]:
    """Prices of which each that has no end ends where the next one of its kind begins."""
    by_what: dict[tuple[str, ...], list[Price]] = {}
    for price in prices:
        by_what.setdefault(_what(price), []).append(price)
    kept = []
    for same in by_what.values():
        same.sort(key=lambda each: each.from_day)
        for price, later in zip_longest(same, same[1:]):
            until = price.until_day or (later.from_day if later else 0)
            kept.append(replace(price, until_day=until))
    return tuple(kept)


def _what(price: Price) -> tuple[str, ...]:
    return price.model, price.pool, price.market, price.region


def price_text(price: Price) -> str:
    """What a price is for."""
    named = (("model", price.model), ("pool", price.pool), ("market", price.market), ("region", price.region))
    what = ", ".join([f"{kind} {text}" for kind, text in named if text])
    return f"of {what}" if what else "of everything"
