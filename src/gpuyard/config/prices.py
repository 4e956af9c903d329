"""The price book of `yard.yaml`: prices with a history, hardware that is owned, energy and people.

What is owned comes to a price of an hour: what it loses in worth, spread evenly over its years, and the people that it
takes. Energy is paid for as it is measured, with what cooling and losses add to it.
"""

from collections.abc import Collection
from fractions import Fraction
from typing import Annotated

from pydantic import PlainValidator as Plain
from pydantic import WithJsonSchema as Shown

from gpuyard import quantities as q
from gpuyard.errors import quote, suggest
from gpuyard.keys.fields import Name, YamlMapping, choice, key, required, text, whole
from gpuyard.keys.findings import Findings
from gpuyard.ledger.prices import CURRENCY, end_prices, find_faults
from gpuyard.ledger.tco import price_hour
from gpuyard.ledger.units import read_day
from gpuyard.model import Market, OwnedHardware, Price
from gpuyard.model.units import MILLI


def _day(written: str) -> int:
    try:
        return read_day(written)
    except Exception as error:
        raise ValueError(f"is a day such as 2026-11-01, not {quote(written)}") from error


def _currency(written: str) -> str:
    if written != CURRENCY:
        raise ValueError(
            f"is {CURRENCY}, in which the books are kept, not {quote(written)}: convert the prices to {CURRENCY}"
        )
    return written


def _sum(written: str) -> int:
    return q.parse_micro_usd(written, q.BUDGET_USD_MAX)


def _milli(what: str, least: int, most: int) -> Plain:
    return Plain(
        text(
            lambda written: q.parse_scaled(written, what, scale=MILLI, grain="0.001", least=least, most=most)
        )
    )


Day = Annotated[int, Plain(text(_day)), Shown({"type": "string", "format": "date"})]
Currency = Annotated[str, Plain(text(_currency)), Shown({"const": CURRENCY})]
UsdAnHour = Annotated[
    int, Plain(text(q.parse_micro_usd)), Shown({"type": "number", "minimum": 0, "maximum": q.PRICE_USD_MAX})
]
Sum = Annotated[int, Plain(text(_sum)), Shown({"type": "number", "minimum": 0, "maximum": 10**9})]
Years = Annotated[
    int,
    _milli("a number of years", MILLI // 10, 100),
    Shown({"type": "number", "minimum": 0.1, "maximum": 100}),
]
Pue = Annotated[int, _milli("a PUE", MILLI, 10), Shown({"type": "number", "minimum": 1, "maximum": 10})]


class OwnedEntry(YamlMapping):
    """Hardware that you bought: its loss in value over the years."""

    purchase: Sum = required("USD that it cost.", example=250_000)
    years: Years = required("Years over which it is written off, evenly.", example=4)
    salvage: Sum | None = key("USD that it is worth after that.", default=0)
    gpus: Annotated[int, *whole(1, q.GPUS_MAX)] | None = key("How many GPUs that bought.", default=1)
    people: Sum | None = key("USD per year for staff.", default=0)


class PriceEntry(YamlMapping):
    """The price of a GPU-hour from one day on, for the GPUs that its keys name."""

    model: Name | None = key("The GPU model that the price is for. Default: any.", example="H100")
    pool: Name | None = key("The pool that the price is for. Default: any.", example="h100")
    market: Annotated[str, *choice([each.value for each in Market], "market", "markets")] | None = key(
        "The market that the price is for. Default: any.", example="spot"
    )
    region: Name | None = key("The region that the price is for. Default: any.", example="eu-west")
    since: Day | None = key(
        "The first day, UTC. Default: the price has no first day.", example="2026-11-01", alias="from"
    )
    until: Day | None = key(
        "The first day on which the price no longer holds. Default: the price holds until the next one.",
        example="2027-01-01",
    )
    price: UsdAnHour | None = key(
        "USD per GPU-hour (per node-hour without GPUs). Default: calculated from owned.", example=1.2
    )
    owned: OwnedEntry | None = key("Instead of 'price': hardware that you bought. Default: none.")
    energy: UsdAnHour | None = key(
        "USD per kWh of measured energy, added to the price. Default: the price includes energy."
    )
    pue: Pue | None = key("kWh at the meter per kWh of a GPU (PUE), for cooling and losses.", default=1)

    def value(self) -> Price:
        """As the books have it."""
        micro_usd_h, owned = Fraction(self.price or 0), None
        if self.owned is not None:
            bought = self.owned
            owned = OwnedHardware(
                bought.purchase, bought.years, bought.salvage or 0, bought.gpus or 1, bought.people or 0
            )
            micro_usd_h = price_hour(owned)
        pue = self.pue or MILLI
        return Price(
            round(micro_usd_h), self.model or "", self.pool or "", self.market or "", self.region or "",
            self.since or 0, self.until or 0, round(Fraction((self.energy or 0) * pue, MILLI)), owned, pue,
        )  # fmt: skip


def check_prices(entries: list[PriceEntry], pools: Collection[str] | None, findings: Findings) -> None:
    """Say what is missing, below zero, beside another price for the same days, or for nothing that there is.

    `pools` is None where pools are not known before the yard has looked.
    """
    for place, entry in enumerate(entries):
        at = ("price_book", place)
        if entry.price is None and entry.owned is None:
            findings.at(at, "this entry has no price; give 'price', or 'owned' with 'purchase' and 'years'")
        elif entry.price is not None and entry.owned is not None:
            findings.at(at, "this entry has both 'price' and 'owned'; keep one of them")
        if entry.owned is not None and (entry.owned.salvage or 0) > entry.owned.purchase:
            findings.at(
                (*at, "owned"), "is worth more at its end than it was bought for; give a smaller 'salvage'"
            )
        if entry.pue is not None and entry.energy is None:
            findings.at((*at, "pue"), "needs 'energy', the price of a kWh")
        if entry.pool and pools is not None and entry.pool not in pools and not entry.until:
            text_ = f"unknown pool {quote(entry.pool)}; {suggest(entry.pool, pools, 'pools')}"
            findings.at((*at, "pool"), f"{text_}; the price of a pool that is gone has an 'until'")
    for place, said, hint in find_faults([entry.value() for entry in entries]):
        findings.at(("price_book", place), f"{said}; {hint}")


def build_prices(entries: list[PriceEntry]) -> tuple[Price, ...]:
    """The book."""
    return end_prices([entry.value() for entry in entries])
