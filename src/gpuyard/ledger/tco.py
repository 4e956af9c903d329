"""What a load that was recorded would have cost: on hardware that is owned or reserved, on demand, or on spot.

An owned or reserved GPU costs its hours whether it is used or not; what the load had beyond all of them is bought on
demand. On demand and spot cost the hours that were used; on spot some work is done again. Everything is exact until it
is shown; money is in micro-dollars.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gpuyard.model import OwnedHardware
from gpuyard.model.units import MILLI
from gpuyard.quantities import percent_change

YEAR_H = 8_766
"""Hours of a year, leap days included."""
DAY_H = 24
OWN, RESERVE, ON_DEMAND, SPOT = "own", "reserve", "on demand", "spot"
WAYS = (OWN, RESERVE, ON_DEMAND, SPOT)
LIFE_STEP_MILLI, PUE_STEP_MILLI, SCALE_PERCENT = 1000, 200, 20
"""By how much lifetimes, PUE, and prices and use are varied."""


def price_hour(owned: OwnedHardware) -> Fraction:
    """What an hour of one owned GPU costs: what it loses in worth, evenly over its years, and people."""
    lost = max(0, owned.purchase_micro_usd - owned.salvage_micro_usd)
    yearly = Fraction(lost * MILLI, owned.years_milli) + owned.people_micro_usd_y
    return yearly / YEAR_H / owned.gpus


@dataclass(frozen=True, slots=True)
class Terms:
    """What GPUs are to be had for, in micro-dollars an hour of one GPU; None: not to be had."""

    owned: OwnedHardware | None = None
    watts: int = 0
    """What an owned GPU draws while a job has it."""
    micro_usd_kwh: Fraction = Fraction(0)
    """At the meter, before PUE."""
    pue_milli: int = MILLI
    reserved: int | None = None
    on_demand: int | None = None
    spot: int | None = None
    spot_loss_percent: int = 0
    """Work that is done again after reclaims, in percent of all work."""

    @property
    def energy_h(self) -> Fraction:
        """Of one used hour of an owned GPU."""
        return Fraction(self.watts * self.pue_milli, 1000 * MILLI) * self.micro_usd_kwh

    @property
    def spot_h(self) -> Fraction | None:
        """Of one hour of work on spot, with what is done again."""
        return None if self.spot is None else Fraction(self.spot * (100 + self.spot_loss_percent), 100)

    def fixed(self, way: str) -> Fraction | None:
        """What an hour of a GPU costs whether it is used or not; None: not to be had like this."""
        if way == OWN:
            return None if self.owned is None else price_hour(self.owned)
        return None if way != RESERVE or self.reserved is None else Fraction(self.reserved)

    def used(self, way: str) -> Fraction | None:
        """What a used hour costs on top; None: not to be had like this."""
        if way in (OWN, RESERVE):
            return self.energy_h if way == OWN else Fraction(0)
        if way == SPOT:
            return self.spot_h
        return None if self.on_demand is None else Fraction(self.on_demand)


@dataclass(frozen=True, slots=True)
class Load:
    """What was had: GPU-hours of each day."""

    gpu_hours: Sequence[Fraction]

    @property
    def total(self) -> Fraction:
        """All GPU-hours."""
        return sum(self.gpu_hours, Fraction(0))

    @property
    def gpus(self) -> int:
        """GPUs that would have done for the busiest day."""
        return max([-(-hours // DAY_H) for hours in self.gpu_hours], default=0)

    def within(self, gpus: int) -> Fraction:
        """GPU-hours that so many GPUs would have taken, day by day."""
        return sum([min(hours, Fraction(gpus * DAY_H)) for hours in self.gpu_hours], Fraction(0))


def compute_cost(way: str, load: Load, terms: Terms, gpus: int) -> Fraction | None:
    """What the load would have cost like this; None: it is not to be had, or what is beyond these GPUs is not."""
    used = terms.used(way)
    if way in (ON_DEMAND, SPOT):
        return None if used is None else load.total * used
    fixed, inside = terms.fixed(way), load.within(gpus)
    if fixed is None or used is None:
        return None
    found = fixed * gpus * DAY_H * len(load.gpu_hours) + used * inside
    beyond = load.total - inside
    if not beyond:
        return found
    return None if terms.on_demand is None else found + beyond * terms.on_demand


def find_break_even(way: str, against: str, terms: Terms) -> Fraction | None:
    """The utilisation from which a fixed way is cheaper than one by the hour; None: there is none."""
    fixed, used, other = terms.fixed(way), terms.used(way), terms.used(against)
    if fixed is None or used is None or other is None or other <= used:
        return None
    return fixed / (other - used)


def list_cases(load: Load, terms: Terms) -> list[tuple[str, Load, Terms]]:
    """What is varied: prices of bought hours, the load, PUE, and the lifetime of what is owned."""
    found = []
    for sign in (-1, 1):
        factor = Fraction(100 + sign * SCALE_PERCENT, 100)
        said = percent_change(sign * SCALE_PERCENT)
        dearer = replace(
            terms,
            reserved=_times(terms.reserved, factor),
            on_demand=_times(terms.on_demand, factor),
            spot=_times(terms.spot, factor),
        )
        found.append((f"prices {said}", load, dearer))
        scaled = Load([hours * factor for hours in load.gpu_hours])
        found.append((f"load {said}", scaled, terms))
        if terms.owned is None:
            continue
        pue_milli = max(MILLI, terms.pue_milli + sign * PUE_STEP_MILLI)
        if terms.watts and pue_milli != terms.pue_milli:
            found.append((f"PUE {pue_milli / MILLI:g}", load, replace(terms, pue_milli=pue_milli)))
        years_milli = terms.owned.years_milli + sign * LIFE_STEP_MILLI
        if years_milli > 0:
            owned = replace(terms.owned, years_milli=years_milli)
            found.append((f"lifetime {years_milli / MILLI:g} years", load, replace(terms, owned=owned)))
    return found


def _times(price: int | None, factor: Fraction) -> int | None:
    return None if price is None else round(price * factor)


def find_cheapest(costs: Sequence[tuple[str, Fraction | None]]) -> str:
    """The way that costs least; empty: none is to be had."""
    known = [(each, place, way) for place, (way, each) in enumerate(costs) if each is not None]
    return min(known)[2] if known else ""
