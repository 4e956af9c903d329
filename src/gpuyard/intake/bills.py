"""Cloud bills: rows of FOCUS and of AWS's Cost and Usage Report, as csv or gzipped csv, read to the line.

A bill is read whole or not at all: a row that cannot be read is told with its line, its column and what to do. Rows
about other things than machines with GPUs are counted, and left out.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from gpuyard.errors import BadInput, names_text, quote
from gpuyard.ledger.bills import BillLine
from gpuyard.ledger.prices import CURRENCY
from gpuyard.model.units import DAY_MS, HOUR_MS

BROKEN_NAMED_MAX = 10
ROW_BYTES_MAX = 1 << 20
NUMBER_MAX = Decimal(10**12)
SPAN_DAYS_MAX = 400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = (datetime(2201, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
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
    **{f"{family}.{size}": (model, count) for family, model in (("g7", "RTX-PRO-4500"), ("g7e", "RTX-PRO-6000"))
       for size, count in (("2xlarge", 1), ("4xlarge", 1), ("8xlarge", 1), ("12xlarge", 2), ("24xlarge", 4),
                           ("48xlarge", 8))},
    "gpu_1x_a6000": ("RTX-A6000", 1), "gpu_2x_a6000": ("RTX-A6000", 2), "gpu_4x_a6000": ("RTX-A6000", 4),
    "gpu_1x_rtx6000": ("RTX-6000", 1),
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
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_NUMBER_CHARACTERS_MAX = 100
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


def read_number(text: str) -> tuple[Decimal, str, str]:
    """A number, exactly as it is written; or 0, what is wrong with it, and what to do."""
    if len(text) > _NUMBER_CHARACTERS_MAX or not _NUMBER.fullmatch(text):
        return Decimal(0), f"{quote(text)} is not a number", "write it with a point, as 12.5"
    found = Decimal(text)
    if abs(found) > NUMBER_MAX:
        return Decimal(0), f"{quote(text)} is more than {NUMBER_MAX:,}", "repair the number"
    return found, "", ""


def read_moment(text: str) -> tuple[int, str, str]:
    """A moment in UTC, in ms; or 0, what is wrong with it, and what to do."""
    try:
        if not text.isascii():
            raise ValueError(text)
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        wrong = f"{quote(text)} is not a moment" if text else "it is empty"
        return 0, wrong, "write it as 2026-11-01T00:00:00Z"
    at_ms = ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= at_ms < _LATEST_MS:
        return 0, f"{quote(text)} is before 1970 or after 2200", "repair the moment"
    return at_ms, "", ""


class _Cells:
    """One row, by column; what is wrong with its cells is gathered."""

    def __init__(self, line: int, values: Mapping[str, str]) -> None:
        self.line, self._values = line, values
        self.broken: dict[str, str] = {}
        """By column: what is wrong, and what to do."""

    def text(self, *names: str) -> str:
        """The first of these columns that says something."""
        return next((value for name in names if (value := (self._values.get(name) or "").strip())), "")

    def number(self, *names: str, needed: bool = False) -> Decimal:
        """A number; an empty cell is 0, unless one is needed."""
        name = self.column(*names)
        text = self.text(name)
        found, wrong, hint = read_number(text) if text else (Decimal(0), "", "")
        if not text and needed:
            wrong, hint = "it is empty", "write a number, 0 if there was none"
        if wrong:
            self.refuse(name, wrong, hint)
        return found

    def moment_ms(self, *names: str) -> int:
        """A moment in UTC."""
        name = self.column(*names)
        found, wrong, hint = read_moment(self.text(name))
        if wrong:
            self.refuse(name, wrong, hint)
        return found

    def usd(self, *names: str) -> None:
        """Refuse another currency than that of the books."""
        name = self.column(*names)
        text = self.text(name)
        if text not in ("", CURRENCY):
            hint = f"have the cloud bill in {CURRENCY}, or convert every cost of the file"
            self.refuse(name, f"{quote(text)}: the books are in {CURRENCY}", hint)

    def refuse(self, column: str, wrong: str, hint: str) -> None:
        """Note what is wrong with a cell, or with the row where `column` is empty."""
        self.broken.setdefault(column, f"{wrong}; {hint}")

    def told(self) -> str:
        """What is wrong with the row, on one line."""
        parts = [
            f", column {column}: {said}" if column else f": {said}" for column, said in self.broken.items()
        ]
        return f"line {self.line}" + ";".join(parts).replace(";, column", "; column")

    def column(self, *names: str) -> str:
        """The first of these columns that says something; else the first that is there."""
        there = [name for name in names if name in self._values] or names
        return next((name for name in there if self.text(name)), there[0])


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
            if file.peek(2)[:2] != b"\x1f\x8b":
                return _read(file, path, known)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read(unpacked, path, known)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise BadInput(f"{path} is a gzip file that is damaged or cut off", "Fetch the file again.") from None
    except IsADirectoryError:
        raise BadInput(
            f"{path} is a directory", "Name one file in it, the csv or csv.gz of the bill."
        ) from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}", "Name a file with a bill.") from None


def _read(file: io.BufferedReader | gzip.GzipFile, path: Path, known: Mapping[str, tuple[str, int]]) -> Bill:
    rows = _rows(file, path)
    at, header = next(rows, (0, []))
    form = _form(header, at, path)
    read = _cur_line if form is _CUR else _focus_line
    lines: list[BillLine] = []
    told: list[str] = []
    broken, others, fees, unknown = 0, 0, Decimal(0), set[str]()
    for number, values in rows:
        cells = _Cells(number, dict(zip(header, values, strict=False)))
        found, what, fee = None, "", Decimal(0)
        if len(values) != len(header):
            wrong = f"{len(values)} cells, and the first line has {len(header)}"
            cells.refuse("", wrong, "repair the row, or have the cloud write the file again")
        else:
            found, what, fee = read(cells, known)
        if cells.broken:
            broken += 1
            if broken <= BROKEN_NAMED_MAX:
                told.append(f"{path}, {cells.told()}")
            continue
        fees += fee
        if found is not None:
            lines.append(found)
        else:
            others += 1
            if what and _LOOKS_LIKE_GPUS.match(what):
                unknown.add(what)
    if broken:
        raise broken_rows_error(told, broken)
    if not lines and not others:
        raise BadInput(f"{path} has a heading and no line below it", "Export the bill again from the cloud.")
    return Bill(form.name, lines, others, int(fees * _MICRO), tuple(sorted(unknown)))


def broken_rows_error(told: Sequence[str], count: int) -> BadInput:
    """What is said of a file with rows that cannot be read, of which the first are told."""
    more = f"{count - len(told):,} more rows cannot be read. " if count > len(told) else ""
    return BadInput("\n".join(told), f"{more}Nothing was compared.", problem_count=count)


class _Lines:
    """The lines of a file as text; none is read further than a row may be long."""

    def __init__(self, file: io.BufferedReader | gzip.GzipFile, path: Path) -> None:
        self._file, self._path = file, path
        self._line = 0
        self.row_bytes = 0
        """Of the row that is being read, which may have several lines."""

    def __iter__(self) -> Iterator[str]:
        while found := self._file.readline(ROW_BYTES_MAX - self.row_bytes + 1):
            self._line += 1
            self.row_bytes += len(found)
            if self._line == 1:
                found = self._first(found)
            if self.row_bytes > ROW_BYTES_MAX:
                raise self._refused("the row is longer than 1 MiB", "A bill is csv, a charge a line.")
            try:
                yield found.decode()
            except UnicodeDecodeError:
                raise self._refused("it is not text in UTF-8", "Save it as csv in UTF-8.") from None

    def _first(self, heading: bytes) -> bytes:
        """The heading without a mark of its encoding, of which some programs write one."""
        if heading.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in heading[:2]:
            raise BadInput(f"{self._path} is text in UTF-16", "Save it as csv in UTF-8.")
        for mark, name in ((b";", "semicolons"), (b"\t", "tabs")):
            if mark in heading and b"," not in heading:
                hint = "Save it as csv with commas between them."
                raise BadInput(f"{self._path} has {name} between its cells", hint)
        return heading.removeprefix(codecs.BOM_UTF8)

    def _refused(self, wrong: str, hint: str) -> BadInput:
        return BadInput(f"{self._path}, line {self._line}: {wrong}", hint)


def _rows(file: io.BufferedReader | gzip.GzipFile, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins."""
    lines = _Lines(file, path)
    reader, line = csv.reader(lines, strict=True), 1
    try:
        for values in reader:
            lines.row_bytes = 0
            if values:
                yield line, values
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, line {line}: {error}", "Repair the row; nothing was compared.") from None


def _form(header: Sequence[str], line: int, path: Path) -> _Form:
    if not header:
        raise BadInput(f"{path} is empty", "Export the bill again from the cloud, or fetch it again.")
    twice = [name for name, count in Counter(header).items() if name and count > 1]
    if twice:
        raise BadInput(
            f"{path}, line {line}, column {names_text(twice)}: the name occurs twice", "Leave one of them."
        )
    for form in (_CUR, _FOCUS):
        if any([name in header for name in form.columns[0]]):
            missing = [names[0] for names in form.columns if not any([name in header for name in names])]
            if missing:
                raise BadInput(
                    f"{path} is a bill of the form {form.name} without the columns {names_text(missing)}",
                    "Export the bill from the cloud with these columns.",
                )
            return form
    raise BadInput(
        f"{path} is not a bill of a known form: its first line names neither ChargePeriodStart (FOCUS) nor "
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
    costs = (*_CUR_EFFECTIVE.get(kind, ()), "lineItem/UnblendedCost", "line_item_unblended_cost")
    cost = cells.number(*costs, needed=True)
    line = _line(
        cells,
        known[what.lower()],
        what,
        "spot" if boxes.endswith("SpotUsage") else market,
        cells.text("product/regionCode", "product/region", "product_region_code", "product_region"),
        cells.text("lineItem/ResourceId", "line_item_resource_id"),
        ("lineItem/UsageStartDate", "line_item_usage_start_date"),
        ("lineItem/UsageEndDate", "line_item_usage_end_date"),
        cells.number("lineItem/UsageAmount", "line_item_usage_amount", needed=True),
        cost,
    )
    return line, what, Decimal(0)


_FOCUS_MARKETS = {"Dynamic": "spot", "Committed": "reserved"}


def _focus_line(cells: _Cells, known: Mapping[str, tuple[str, int]]) -> _Read:
    cells.usd("BillingCurrency")
    cells.number("EffectiveCost", "BilledCost")
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
        cells.number("ConsumedQuantity", "PricingQuantity", needed=True),
        cells.number("EffectiveCost", "BilledCost", needed=True),
    )
    return line, what, Decimal(0)


def _focus_type(cells: _Cells, known: Mapping[str, tuple[str, int]]) -> str:
    """The instance type: FOCUS 1.2 has a place for it; before, a cloud wrote it somewhere into the row."""
    details = cells.text("SkuPriceDetails", "x_SkuDetails")
    if details:
        try:
            found = json.loads(details)
        except (ValueError, RecursionError):
            name = "SkuPriceDetails" if cells.text("SkuPriceDetails") else "x_SkuDetails"
            cells.refuse(name, "it is no JSON", "repair it, or empty the cell")
            return ""
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
    if not {*start, *end} & {*cells.broken}:
        column = cells.column(*end)
        if until_ms <= from_ms:
            cells.refuse(column, "the time ends before it begins", "repair the two moments")
        elif until_ms - from_ms > SPAN_DAYS_MAX * DAY_MS:
            cells.refuse(column, f"the line spans more than {SPAN_DAYS_MAX} days", "repair the two moments")
    model, gpus = machine
    machine_ms = int((hours * HOUR_MS).to_integral_value())
    micro_usd = int((cost * _MICRO).to_integral_value())
    return BillLine(
        cells.line, resource, what, model, gpus, market, region, from_ms, until_ms, machine_ms, micro_usd
    )
