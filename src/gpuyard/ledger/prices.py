"""The price book: what an hour of a GPU costs on a day, by model, pool, market and region.

A price holds for whole UTC days, so an entry of the time book has one price, and a price that is set for days of an
open month holds for what was booked on them already. Of several that fit, the one that names the pool goes before one
that names the region, then the market, then the model; then come the prices by model alone, and at last the list price.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuyard.errors import BadInput, quoted
from gpuyard.ledger.units import day_text
from gpuyard.model import CATALOGUE, Price
from gpuyard.model.serialise import Plain, from_plain

CURRENCY = "USD"


class BookPlace(NamedTuple):
    """Where time was spent, as far as prices and reports tell places apart."""

    cluster: str
    pool: str
    model: str
    market: str
    region: str


class PriceBook:
    """Prices in force, now or when a month was closed."""

    def __init__(
        self,
        prices: Sequence[Price] = (),
        models: Mapping[str, int] | None = None,
        listed: Mapping[str, int] | None = None,
    ) -> None:
        self._prices = sorted(prices, key=_exactness, reverse=True)
        known = {name: model.list_price_micro_usd_h for name, model in CATALOGUE.items()}
        self._models = {**known, **(listed or {}), **(models or {})}
        self._found: dict[tuple[BookPlace, int], int | None] = {}

    @classmethod
    def of(cls, row: Plain) -> "PriceBook":
        """From what the books kept of the settings."""
        row = row or {}
        prices = from_plain(tuple[Price, ...], row.get("book", []))
        return cls(prices, row.get("models", {}), row.get("list", {}))

    def price(self, place: BookPlace, day: int) -> int | None:
        """Micro-dollars for an hour of a GPU; None: nobody gave a price."""
        key = (place, day)
        if key not in self._found:
            fits = [each.micro_usd_h for each in self._prices if _fits(each, place, day)]
            other = self._models.get(place.model) if place.model else 0
            self._found[key] = fits[0] if fits else other
        return self._found[key]


def _exactness(price: Price) -> tuple[bool, bool, bool, bool, int, int]:
    named = (bool(price.pool), bool(price.region), bool(price.market), bool(price.model))
    return *named, price.from_day, price.micro_usd_h


def _fits(price: Price, place: BookPlace, day: int) -> bool:
    return (
        price.from_day <= day
        and (not price.until_day or day < price.until_day)
        and price.model in ("", place.model)
        and price.pool in ("", place.pool, f"{place.cluster}/{place.pool}")
        and price.market in ("", place.market)
        and price.region in ("", place.region)
    )


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
