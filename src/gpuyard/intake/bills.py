"""Cloud bills: rows of FOCUS and of AWS's Cost and Usage Report, as csv or gzipped csv, read to the line.

A bill is read whole or not at all: a row that cannot be read is told with its line, its column and what to do. Rows
about other things than machines with GPUs are counted, and left out.
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, NamedTuple

from gpuyard.errors import BadInput, listed, quoted
from gpuyard.ledger.bills import BillLine
from gpuyard.ledger.prices import CURRENCY
from gpuyard.model.units import HOUR_MS

BROKEN_NAMED_MAX = 10
INSTANCES: dict[str, tuple[str, int]] = {
    "p3.2xlarge": ("V100", 1), "p3.8xlarge": ("V100", 4), "p3.16xlarge": ("V100", 8),
    "p3dn.24xlarge": ("V100", 8),
    "p4d.24xlarge": ("A100-40GB", 8), "p4de.24xlarge": ("A100-80GB", 8),
    "p5.4xlarge": ("H100", 1), "p5.48xlarge": ("H100", 8),
    "p5e.48xlarge": ("H200", 8), "p5en.48xlarge": ("H200", 8), "p6-b200.48xlarge": ("B200", 8),
    **{f"g4dn.{size}": ("T4", count) for size, count in (
        ("xlarge", 1), ("2xlarge", 1), ("4xlarge", 1), ("8xlarge", 1), ("16xlarge", 1), ("12xlarge", 4), ("metal", 8),
    )},
    **{f"{family}.{size}": (model, count) for family, model in (("g5", "A10"), ("g6", "L4"), ("g6e", "L40S"))
       for size, count in (("xlarge", 1), ("2xlarge", 1), ("4xlarge", 1), ("8xlarge", 1), ("16xlarge", 1),
                           ("12xlarge", 4), ("24xlarge", 4), ("48xlarge", 8))},
    "a2-highgpu-1g": ("A100-40GB", 1), "a2-highgpu-2g": ("A100-40GB", 2), "a2-highgpu-4g": ("A100-40GB", 4),
    "a2-highgpu-8g": ("A100-40GB", 8), "a2-megagpu-16g": ("A100-40GB", 16),
    "a2-ultragpu-1g": ("A100-80GB", 1), "a2-ultragpu-2g": ("A100-80GB", 2), "a2-ultragpu-4g": ("A100-80GB", 4),
    "a2-ultragpu-8g": ("A100-80GB", 8), "a3-highgpu-8g": ("H100", 8), "a3-megagpu-8g": ("H100", 8),
    "a3-ultragpu-8g": ("H200", 8), "a4-highgpu-8g": ("B200", 8),
    "Standard_ND96asr_v4": ("A100-40GB", 8), "Standard_ND96amsr_A100_v4": ("A100-80GB", 8),
    "Standard_ND96isr_H100_v5": ("H100", 8), "Standard_ND96isr_H200_v5": ("H200", 8),
    "Standard_NC24ads_A100_v4": ("A100-80GB", 1), "Standard_NC48ads_A100_v4": ("A100-80GB", 2),
    "Standard_NC96ads_A100_v4": ("A100-80GB", 4), "Standard_NC40ads_H100_v5": ("H100", 1),
    "Standard_NC80adis_H100_v5": ("H100", 2),
}  # fmt: skip
"""Machines with GPUs: their model, and how many of them."""
_LOOKS_LIKE_GPUS = re.compile(r"^(p\d|g\d|a[234]-|Standard_N[CDGV])", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9_.\-]+")
_MICRO = Decimal(1_000_000)


class Bill(NamedTuple):
    """What a file says of machines with GPUs."""

    form: str
    lines: list[BillLine]
    others: int
    """Lines about something else."""
    fees_micro_usd: int
    """Taxes, fees, credits and the like: they are about no hour of a machine."""
    unknown: tuple[str, ...]
    """Instance types that look as if they had GPUs."""


class _Broken(Exception):
    """A cell that cannot be read."""

    def __init__(self, column: str, wrong: str, hint: str) -> None:
        super().__init__(wrong)
        self.column, self.wrong, self.hint = column, wrong, hint


class _Cells:
    """One row, by column."""

    def __init__(self, line: int, values: Mapping[str, str]) -> None:
        self.line, self._values = line, values

    def text(self, *names: str) -> str:
        """The first of these columns that says something."""
        return next((value for name in names if (value := (self._values.get(name) or "").strip())), "")

    def number(self, *names: str) -> Decimal:
        """A number; an empty cell is 0."""
        name = next((each for each in names if self.text(each)), names[0])
        text = self.text(name)
        if not text:
            return Decimal(0)
        try:
            found = Decimal(text)
        except InvalidOperation:
            found = Decimal("NaN")
        if not found.is_finite():
            raise _Broken(name, f"{quoted(text)} is no number", "write it with a point, as 12.5")
        return found

    def moment_ms(self, *names: str) -> int:
        """A moment in UTC."""
        name = next((each for each in names if self.text(each)), names[0])
        text = self.text(name)
        try:
            found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            wrong = f"{quoted(text)} is no moment" if text else "it is empty"
            raise _Broken(name, wrong, "write it as 2026-11-01T00:00:00Z") from None
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)

    def usd(self, *names: str) -> None:
        """Refuse another currency than that of the books."""
        name = next((each for each in names if self.text(each)), names[0])
        if self.text(name) not in ("", CURRENCY):
            hint = f"have the cloud bill in {CURRENCY}, or convert every cost of the file"
            raise _Broken(name, f"{quoted(self.text(name))}: the books are in {CURRENCY}", hint)


class _Form(NamedTuple):
    name: str
    columns: tuple[tuple[str, ...], ...]
    """Needed ones, each with its other names."""


_CUR = _Form(
    "AWS CUR",
    (
        ("lineItem/UsageStartDate", "line_item_usage_start_date"),
        ("lineItem/UsageEndDate", "line_item_usage_end_date"),
        ("lineItem/LineItemType", "line_item_line_item_type"),
        ("lineItem/UsageType", "line_item_usage_type"),
        ("lineItem/UsageAmount", "line_item_usage_amount"),
        ("lineItem/UnblendedCost", "line_item_unblended_cost"),
    ),
)
_FOCUS = _Form(
    "FOCUS",
    (
        ("ChargePeriodStart",),
        ("ChargePeriodEnd",),
        ("ChargeCategory",),
        ("BilledCost",),
        ("ConsumedQuantity", "PricingQuantity"),
    ),
)


def read_bill(path: Path, instances: Mapping[str, tuple[str, int]] = {}) -> Bill:
    """The bill in a file; `instances` are further instance types. `BadInput` names what cannot be read."""
    known = {name.lower(): value for name, value in {**INSTANCES, **instances}.items()}
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        opened = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
            return _read(text, path, known)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}", "Name a file with a bill.") from None
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path} cannot be read: {error}", "A bill is csv in UTF-8, or that in gzip."
        ) from None


def _read(text: IO[str], path: Path, known: Mapping[str, tuple[str, int]]) -> Bill:
    rows = _rows(text, path)
    _, header = next(rows, (0, []))
    form = _form(header, path)
    read = _cur_line if form is _CUR else _focus_line
    lines: list[BillLine] = []
    broken: list[str] = []
    others, fees, unknown = 0, Decimal(0), set[str]()
    for number, values in rows:
        cells = _Cells(number, dict(zip(header, values, strict=False)))
        try:
            if len(values) != len(header):
                wrong = f"{len(values)} cells, and the first line has {len(header)}"
                raise _Broken("", wrong, "repair the row, or have the cloud write the file again")
            found, what, fee = read(cells, known)
        except _Broken as error:
            column = f", column {error.column}" if error.column else ""
            broken.append(f"line {number}{column}: {error.wrong}; {error.hint}")
            continue
        fees += fee
        if found is not None:
            lines.append(found)
        else:
            others += 1
            if what and _LOOKS_LIKE_GPUS.match(what):
                unknown.add(what)
    if broken:
        more = len(broken) - BROKEN_NAMED_MAX
        told = broken[:BROKEN_NAMED_MAX] + ([f"and {more} more"] if more > 0 else [])
        raise BadInput(f"{path} has rows that cannot be read:\n" + "\n".join(told), "Nothing was compared.")
    return Bill(form.name, lines, others, int(fees * _MICRO), tuple(sorted(unknown)))


def _rows(text: IO[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins."""
    reader, line = csv.reader(text, strict=True), 1
    try:
        for values in reader:
            if values:
                yield line, values
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, line {line}: {error}", "Repair the row; nothing was compared.") from None


def _form(header: Sequence[str], path: Path) -> _Form:
    for form in (_CUR, _FOCUS):
        if any([name in header for name in form.columns[0]]):
            missing = [names[0] for names in form.columns if not any([name in header for name in names])]
            if missing:
                raise BadInput(
                    f"{path} is a bill of the form {form.name} without the columns {listed(missing)}",
                    "Have the cloud write them too.",
                )
            return form
    raise BadInput(
        f"{path} is no bill that is known here: its first line names neither ChargePeriodStart (FOCUS) nor "
        "lineItem/UsageStartDate (AWS CUR)",
        "Give a csv of FOCUS 1.x or of AWS's Cost and Usage Report, or that in gzip.",
    )


_Read = tuple[BillLine | None, str, Decimal]
"""A line about GPUs or None, the instance type, and a fee."""
_CUR_MARKETS = {"Usage": "on-demand", "DiscountedUsage": "reserved", "SavingsPlanCoveredUsage": "reserved"}
_CUR_EFFECTIVE = {
    "DiscountedUsage": ("reservation/EffectiveCost", "reservation_effective_cost"),
    "SavingsPlanCoveredUsage": (
        "savingsPlan/SavingsPlanEffectiveCost",
        "savings_plan_savings_plan_effective_cost",
    ),
}
"""Where lines of machines that were paid for in advance have what they cost."""


def _cur_line(cells: _Cells, known: Mapping[str, tuple[str, int]]) -> _Read:
    cells.usd("lineItem/CurrencyCode", "line_item_currency_code")
    kind = cells.text("lineItem/LineItemType", "line_item_line_item_type")
    plain = cells.number("lineItem/UnblendedCost", "line_item_unblended_cost")
    market = _CUR_MARKETS.get(kind)
    if market is None:
        return None, "", plain
    usage = cells.text("lineItem/UsageType", "line_item_usage_type")
    boxes, _, of_usage = usage.partition(":")
    what = cells.text("product/instanceType", "product_instance_type") or of_usage
    if not boxes.endswith(("BoxUsage", "SpotUsage", "DedicatedUsage", "HeavyUsage")):
        return None, "", Decimal(0)
    if what.lower() not in known:
        return None, what, Decimal(0)
    cost = cells.number(*_CUR_EFFECTIVE.get(kind, ()), "lineItem/UnblendedCost", "line_item_unblended_cost")
    line = _line(
        cells,
        known[what.lower()],
        what,
        "spot" if boxes.endswith("SpotUsage") else market,
        cells.text("product/regionCode", "product/region", "product_region_code", "product_region"),
        cells.text("lineItem/ResourceId", "line_item_resource_id"),
        ("lineItem/UsageStartDate", "line_item_usage_start_date"),
        ("lineItem/UsageEndDate", "line_item_usage_end_date"),
        cells.number("lineItem/UsageAmount", "line_item_usage_amount"),
        cost,
    )
    return line, what, Decimal(0)


_FOCUS_MARKETS = {"Dynamic": "spot", "Committed": "reserved"}


def _focus_line(cells: _Cells, known: Mapping[str, tuple[str, int]]) -> _Read:
    cells.usd("BillingCurrency")
    cost = cells.number("EffectiveCost", "BilledCost")
    if cells.text("ChargeCategory") != "Usage":
        return None, "", cells.number("BilledCost")
    what = _focus_type(cells, known)
    unit = cells.text("ConsumedUnit", "PricingUnit").lower()
    if what.lower() not in known:
        return None, what, Decimal(0)
    if unit and "hour" not in unit and unit not in ("hrs", "h"):
        return None, "", Decimal(0)
    category = cells.text("PricingCategory")
    line = _line(
        cells,
        known[what.lower()],
        what,
        _FOCUS_MARKETS.get(category, "on-demand"),
        cells.text("RegionId", "Region", "RegionName"),
        cells.text("ResourceId"),
        ("ChargePeriodStart",),
        ("ChargePeriodEnd",),
        cells.number("ConsumedQuantity", "PricingQuantity"),
        cost,
    )
    return line, what, Decimal(0)


def _focus_type(cells: _Cells, known: Mapping[str, tuple[str, int]]) -> str:
    """The instance type: FOCUS 1.2 has a place for it; before, a cloud wrote it somewhere into the row."""
    details = cells.text("SkuPriceDetails", "x_SkuDetails")
    if details:
        try:
            found = json.loads(details)
        except ValueError:
            raise _Broken("SkuPriceDetails", "it is no JSON", "repair it, or empty the cell") from None
        if isinstance(found, dict) and found.get("InstanceType"):
            return str(found["InstanceType"])
    named = cells.text("x_InstanceType", "x_SkuInstanceType")
    if named:
        return named
    words = [
        word
        for column in ("SkuMeter", "ChargeDescription", "SkuId", "ResourceName")
        for word in _WORD.findall(cells.text(column))
    ]
    return next((word for word in words if word.strip(".").lower() in known), "").strip(".")


def _line(
    cells: _Cells,
    machine: tuple[str, int],
    what: str,
    market: str,
    region: str,
    resource: str,
    start: tuple[str, ...],
    end: tuple[str, ...],
    hours: Decimal,
    cost: Decimal,
) -> BillLine:
    from_ms, until_ms = cells.moment_ms(*start), cells.moment_ms(*end)
    if until_ms <= from_ms:
        raise _Broken(end[0], "the time ends before it begins", "repair the two moments")
    model, gpus = machine
    machine_ms = int((hours * HOUR_MS).to_integral_value())
    micro_usd = int((cost * _MICRO).to_integral_value())
    return BillLine(
        cells.line, resource, what, model, gpus, market, region, from_ms, until_ms, machine_ms, micro_usd
    )
