"""Money as people read it. Amounts are micro-dollars until they are shown, and here alone they become texts."""

from collections.abc import Iterable

CENTS, FINE = 2, 4
"""Digits after the point."""
_DOLLAR = 1_000_000


def digits(amounts: Iterable[int | None]) -> int:
    """Digits for amounts that stand in one table or sentence: cents; finer where one is below a dollar and no cents.

    So all of them have as many, and what adds up is seen to add up.
    """
    odd = [each for each in amounts if each and abs(each) < _DOLLAR and each % 10_000]
    return FINE if odd else CENTS


def usd(micro: int, places: int = 0, *, up: bool = False) -> str:
    """`$1,234.50`, `-$0.0043`, rounded to the nearest, or `up`; `places`: digits, 0 for those of this amount alone."""
    places = places or digits([micro])
    unit = _DOLLAR // 10**places
    whole = -(-micro // unit) if up else (2 * abs(micro) + unit) // (2 * unit) * (-1 if micro < 0 else 1)
    sign, whole = ("-", -whole) if whole < 0 else ("", whole)
    return f"{sign}${whole // 10**places:,}.{whole % 10**places:0{places}}"


def rate_usd(micro: int) -> str:
    """The price of an hour or a kWh: `$2.50`, `$0.0125`; all its digits, two at least."""
    whole, rest = divmod(micro, _DOLLAR)
    return f"${whole:,}.{f'{rest:06}'.rstrip('0').ljust(2, '0')}"
