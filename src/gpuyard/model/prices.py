"""Prices that hold on a day, by model, pool, market and region: the one lookup, for decisions and for the books.

Of several that fit, the one that names the pool goes before one that names the region, then the market, then the
model; then come the prices by model alone, and at last the list price.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuyard.model.catalogue import CATALOGUE
from gpuyard.model.serialise import Plain, from_plain
from gpuyard.model.settings import Price, Settings


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
        self._found: dict[tuple[BookPlace, int], tuple[int | None, int]] = {}

    @classmethod
    def in_force(cls, settings: Settings) -> "PriceBook":
        """The prices of settings."""
        listed = {model.name: model.list_price_micro_usd_h for model in settings.gpu_models}
        return cls(settings.price_book, settings.prices, listed)

    @classmethod
    def of(cls, row: Plain) -> "PriceBook":
        """From what the books kept of the settings."""
        row = row or {}
        prices = from_plain(tuple[Price, ...], row.get("book", []))
        return cls(prices, row.get("models", {}), row.get("list", {}))

    def price(self, place: BookPlace, day: int) -> int | None:
        """Micro-dollars for an hour of a GPU; None: nobody gave a price."""
        return self.rate(place, day)[0]

    def rate(self, place: BookPlace, day: int) -> tuple[int | None, int]:
        """Micro-dollars for an hour of a GPU (None: nobody gave a price), and for a measured kWh on top."""
        key = (place, day)
        found = self._found.get(key)
        if found is None:
            fits = next((each for each in self._prices if _fits(each, place, day)), None)
            if fits is not None:
                found = (fits.micro_usd_h, fits.micro_usd_kwh)
            else:
                found = (self._models.get(place.model) if place.model else 0, 0)
            self._found[key] = found
        return found

    def offers(self, model: str, day: int) -> list[Price]:
        """Prices that hold for a model on a day, wherever it stands, the most exact first."""
        return [each for each in self._prices if each.model in ("", model) and _holds(each, day)]

    def listed(self, model: str) -> int | None:
        """The price of a model by its name alone: that under `prices`, else its list price."""
        return self._models.get(model)


def hold_prices(settings: Settings, day: int) -> Settings:
    """Settings in which the prices of one day hold for ever: for clocks that are not the calendar's."""
    book = [
        # Of two that fit alike the later one goes first.
        replace(each, from_day=each.from_day - day, until_day=0)
        for each in settings.price_book
        if _holds(each, day)
    ]
    return replace(settings, price_book=tuple(book))


def _holds(price: Price, day: int) -> bool:
    return price.from_day <= day and (not price.until_day or day < price.until_day)


def _exactness(price: Price) -> tuple[bool, bool, bool, bool, int, int]:
    named = (bool(price.pool), bool(price.region), bool(price.market), bool(price.model))
    return *named, price.from_day, price.micro_usd_h


def _fits(price: Price, place: BookPlace, day: int) -> bool:
    return (
        _holds(price, day)
        and price.model in ("", place.model)
        and price.pool in ("", place.pool, f"{place.cluster}/{place.pool}")
        and price.market in ("", place.market)
        and price.region in ("", place.region)
    )
