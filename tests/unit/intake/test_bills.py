"""Cloud bills beside the books: a planted difference is named to the line, and a broken row is told with its line."""

import csv
import gzip
import io
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.intake.bills import read_bill
from gpuyard.ledger.bills import Finding, Place, Sums, compare_bill
from gpuyard.ledger.units import read_day
from gpuyard.model.units import DAY_MS, HOUR_MS

FIRST = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = (read_day("2026-11-01"), read_day("2026-11-03"))
CUR = (
    "identity/LineItemId", "bill/BillingPeriodStartDate", "lineItem/LineItemType", "lineItem/UsageStartDate",
    "lineItem/UsageEndDate", "lineItem/ProductCode", "lineItem/UsageType", "lineItem/ResourceId",
    "lineItem/UsageAmount", "lineItem/CurrencyCode", "lineItem/UnblendedCost", "product/instanceType",
    "product/regionCode", "reservation/EffectiveCost",
)  # fmt: skip
Row = dict[str, str]


def stamp(hours: float) -> str:
    return (FIRST + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def cur_rows() -> list[Row]:
    """Two machines on demand and a spot one over two days, an hour a line, and what else is in such a bill."""
    machines = (
        ("i-0aaa", "BoxUsage", "21.95"),
        ("i-0bbb", "BoxUsage", "21.95"),
        ("i-0ccc", "SpotUsage", "7.5"),
    )
    rows = [
        {
            "identity/LineItemId": f"{machine}-{hour}",
            "lineItem/LineItemType": "Usage",
            "lineItem/UsageStartDate": stamp(hour),
            "lineItem/UsageEndDate": stamp(hour + 1),
            "lineItem/ProductCode": "AmazonEC2",
            "lineItem/UsageType": f"EUC1-{kind}:p4d.24xlarge",
            "lineItem/ResourceId": machine,
            "lineItem/UsageAmount": "1.0",
            "lineItem/CurrencyCode": "USD",
            "lineItem/UnblendedCost": price,
            "product/instanceType": "p4d.24xlarge",
            "product/regionCode": "eu-central-1",
        }
        for hour in range(48)
        for machine, kind, price in machines
    ]
    storage = {**rows[0], "lineItem/UsageType": "EUC1-TimedStorage-ByteHrs", "product/instanceType": ""}
    tax = {**rows[0], "lineItem/LineItemType": "Tax", "lineItem/UnblendedCost": "120.50"}
    return [*rows, storage, tax]


def cur_books() -> dict[Place, Sums]:
    """What the yard has of the same three nodes."""
    day = 24 * 8 * HOUR_MS
    found = {}
    for at in range(*DAYS):
        found[at, "A100-40GB", "on-demand", "eu-central-1"] = Sums(2 * day, 2 * 24 * 21_950_000)
        found[at, "A100-40GB", "spot", "eu-central-1"] = Sums(day, 24 * 7_500_000)
    return found


def written(rows: list[Row], columns: tuple[str, ...] = CUR) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def told(path: Path, rows: list[Row], books: dict[Place, Sums] | None = None) -> list[Finding]:
    path.write_text(written(rows))
    return compare_bill(read_bill(path).lines, cur_books() if books is None else books, DAYS, 1)


@pytest.fixture
def bill(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def test_a_bill_that_is_right_has_no_difference(bill: Path) -> None:
    assert [] == told(bill, cur_rows())
    read = read_bill(bill)
    assert ("AWS CUR", 144, 2, 120_500_000, ()) == (read.form, len(read.lines), *read[2:])
    packed = bill.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(bill.read_bytes()))
    assert read == read_bill(packed)


def _price(rows: list[Row]) -> None:
    rows[30]["lineItem/UnblendedCost"] = "32.77"


def _less(rows: list[Row]) -> None:
    rows[30] |= {"lineItem/UsageAmount": "0.5", "lineItem/UnblendedCost": "10.975"}


def _missing(rows: list[Row]) -> None:
    del rows[30]


def _twice(rows: list[Row]) -> None:
    rows.insert(40, dict(rows[30]))


@pytest.mark.parametrize(
    ("plant", "lines", "said"),
    [
        (_price, (32,), "$32.77 an hour of p4d.24xlarge; the other lines have $21.95"),
        (_less, (32,), "i-0aaa has 0.5 h of 1 h; most lines have all of their time"),
        (
            _missing,
            (29,),
            "i-0aaa has no line from 2026-11-01 10:00 to 2026-11-01 11:00: between lines 29 and 34",
        ),
        (_twice, (42,), "i-0aaa is billed twice for this time: line 32 has it"),
    ],
)
def test_a_planted_difference_is_named_to_the_line(
    bill: Path, plant: Callable[[list[Row]], None], lines: tuple[int, ...], said: str
) -> None:
    rows = cur_rows()
    plant(rows)
    (found,) = told(bill, rows)
    assert (DAYS[0], "A100-40GB", "on-demand", "eu-central-1", lines, said) == (*found[:4], *found[6:])
    assert found.bill != found.books


def test_three_on_one_day_are_all_named(bill: Path) -> None:
    rows = cur_rows()
    rows[6]["lineItem/UnblendedCost"] = "1"
    rows.insert(60, dict(rows[30]))
    del rows[33]
    found = told(bill, rows)
    assert [(8,), (32,), (61,)] == sorted([each.lines for each in found])
    assert {"an hour", "no line", "twice"} == {
        word for word in ("an hour", "no line", "twice") for each in found if word in each.said
    }


def test_what_only_one_of_the_two_has(bill: Path) -> None:
    books = cur_books()
    books[DAYS[0], "H100", "on-demand", "eu-central-1"] = Sums(HOUR_MS, 5)
    del books[DAYS[1] - 1, "A100-40GB", "spot", "eu-central-1"]
    found = told(bill, cur_rows(), books)
    assert [
        ("H100", (), "the bill has no line about these GPUs"),
        ("A100-40GB", 24, "the books have no such GPUs on that day"),
    ] == [(each.model, len(each.lines) or (), each.said) for each in found]


def test_a_machine_that_was_stopped_for_an_hour_is_no_difference(bill: Path) -> None:
    rows, books = cur_rows(), cur_books()
    del rows[30]
    place = (DAYS[0], "A100-40GB", "on-demand", "eu-central-1")
    books[place] = Sums(books[place].gpu_ms - 8 * HOUR_MS, books[place].micro_usd - 21_950_000)
    assert [] == told(bill, rows, books)


def test_machines_that_were_paid_for_in_advance_are_reserved(bill: Path) -> None:
    rows = cur_rows()[:1]
    rows[0] |= {
        "lineItem/LineItemType": "DiscountedUsage", "lineItem/UnblendedCost": "0", "reservation/EffectiveCost": "13",
    }  # fmt: skip
    bill.write_text(written(rows))
    (line,) = read_bill(bill).lines
    assert ("reserved", 13_000_000) == (line.market, line.micro_usd)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("lineItem/UsageAmount", "1,0", "column lineItem/UsageAmount: '1,0' is not a number"),
        ("lineItem/UnblendedCost", "NaN", "column lineItem/UnblendedCost: 'NaN' is not a number"),
        (
            "lineItem/UsageStartDate",
            "yesterday",
            "column lineItem/UsageStartDate: 'yesterday' is not a moment",
        ),
        *[
            (f"lineItem/{column}", value, f"column lineItem/{column}: {value!r} is {wrong}")
            for column in ("UsageAmount", "UnblendedCost")
            for value, wrong in (
                ("1e400", "more than 1,000,000,000,000"),
                ("-1e300", "more than"),
                ("1e9999", "not a number"),
                ("9_8", "not a number"),
                ("\u0661\u0662", "not a number"),
                ("Infinity", "not a number"),
            )
        ],
        ("lineItem/UsageAmount", "", "column lineItem/UsageAmount: it is empty"),
        ("lineItem/UnblendedCost", " ", "column lineItem/UnblendedCost: it is empty"),
        *[
            (f"lineItem/Usage{which}Date", value, f"{value!r} is before 1970 or after 2200")
            for which in ("Start", "End")
            for value in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-05:00", "1969-12-31T23:59:59Z")
        ],
        (
            "lineItem/UsageStartDate",
            "2025-09-01T00:00:00Z",
            "column lineItem/UsageEndDate: the line spans more than 400",
        ),
        ("lineItem/UsageEndDate", "", "column lineItem/UsageEndDate: it is empty"),
        ("lineItem/UsageEndDate", "2026-10-01T00:00:00Z", "the time ends before it begins"),
        ("lineItem/CurrencyCode", "EUR", "column lineItem/CurrencyCode: 'EUR': the books are in USD"),
    ],
)
def test_a_broken_row_is_told_with_line_and_column(bill: Path, column: str, value: str, said: str) -> None:
    rows = cur_rows()
    rows[16][column] = value
    bill.write_text(written(rows))
    before = bill.read_bytes()
    with pytest.raises(BadInput) as refused:
        read_bill(bill)
    assert 2 == refused.value.exit_code
    assert (
        f"line 18, {said}" in refused.value.message
        or f"line 18, column {column}: {said}" in refused.value.message
    )
    assert "Nothing was compared." == refused.value.hint
    assert before == bill.read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "is not a bill of a known form"),
        ("", "bill.csv is empty"),
        (written([]), "has a heading and no line below it"),
        ('"ChargePeriodStart";"BilledCost"\n', "has semicolons between its cells"),
        (written(cur_rows()).replace(",", ";"), "has semicolons between its cells"),
        (
            written(cur_rows()).replace("product/regionCode", "lineItem/UsageAmount"),
            "line 1, column lineItem/UsageAmount: the name occurs twice",
        ),
        ("ChargePeriodStart,BilledCost\n", "FOCUS without the columns ChargePeriodEnd, ChargeCategory"),
        (written(cur_rows()) + "Usage,1\n", "line 148: 2 cells, and the first line has 14"),
        (written(cur_rows()) + '"Usage\n', "line 148: unexpected end of data"),
    ],
)
def test_a_file_that_is_no_bill_is_refused(bill: Path, text: str, said: str) -> None:
    bill.write_text(text)
    with pytest.raises(BadInput, match=said):
        read_bill(bill)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_bill(tmp_path / "none.csv")
    bad = tmp_path / "bad.csv"
    whole = written(cur_rows())
    packed = gzip.compress(whole.encode())
    for data, said in (
        (whole.encode("utf-16"), "bad.csv is text in UTF-16"),
        (whole.encode("utf-16-be"), "bad.csv is text in UTF-16"),
        (gzip.compress(whole.encode("utf-16")), "bad.csv is text in UTF-16"),
        (whole.encode() + b"\xe4\n", "line 148: it is not text in UTF-8"),
        (packed[:-20], "damaged or cut off"),
        (packed[:60] + bytes(40) + packed[100:], "damaged or cut off"),
        (b"\x1f\x8bxyz", "damaged or cut off"),
    ):
        bad.write_bytes(data)
        with pytest.raises(BadInput, match=said) as refused:
            read_bill(bad)
        assert refused.value.hint
    with pytest.raises(BadInput, match="is a directory"):
        read_bill(tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_row_without_an_end_is_refused_before_it_is_read(
    bill: Path, pack: Callable[[bytes], bytes]
) -> None:
    start = written(cur_rows()).encode()
    for row in (b"x" * (16 << 20), b'"a\nb",' * (1 << 20)):
        bill.write_bytes(pack(start + row))
        tracemalloc.start()
        try:
            with pytest.raises(BadInput, match="the row is longer than 1 MiB"):
                read_bill(bill)
            assert tracemalloc.get_traced_memory()[1] < 12 << 20
        finally:
            tracemalloc.stop()


def test_every_bad_cell_of_a_row_is_one_problem(bill: Path) -> None:
    rows = cur_rows()
    rows[0] |= {"lineItem/UsageAmount": "one", "lineItem/UsageEndDate": "soon"}
    bill.write_text(written(rows))
    with pytest.raises(BadInput) as refused:
        read_bill(bill)
    (line,) = refused.value.message.splitlines()
    assert "line 2, column lineItem/UsageAmount: 'one'" in line
    assert "; column lineItem/UsageEndDate: 'soon' is not a moment" in line


def test_details_nested_without_end_are_no_json(bill: Path) -> None:
    row = {"ChargeCategory": "Usage", "SkuPriceDetails": "[" * 100_000}
    bill.write_text(written([row], FOCUS))
    with pytest.raises(BadInput, match="line 2, column SkuPriceDetails: it is no JSON"):
        read_bill(bill)


FOCUS = (
    "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "BilledCost", "EffectiveCost", "BillingCurrency",
    "ConsumedQuantity", "ConsumedUnit", "PricingCategory", "RegionId", "ResourceId", "SkuPriceDetails", "SkuMeter",
)  # fmt: skip


def test_rows_of_focus(bill: Path) -> None:
    usage = {
        "ChargePeriodStart": stamp(0), "ChargePeriodEnd": stamp(48), "ChargeCategory": "Usage", "BilledCost": "100",
        "EffectiveCost": "96", "BillingCurrency": "USD", "ConsumedQuantity": "48", "ConsumedUnit": "Hours",
        "PricingCategory": "Committed", "RegionId": "eu", "ResourceId": "vm-1",
        "SkuPriceDetails": '{"InstanceType": "a3-highgpu-8g", "GpuCount": 8}',
    }  # fmt: skip
    spot = {
        **usage,
        "PricingCategory": "Dynamic",
        "SkuPriceDetails": "",
        "SkuMeter": "Spot p5.48xlarge, Linux",
    }
    fee = {**usage, "ChargeCategory": "Tax", "BilledCost": "7"}
    other = {**usage, "SkuPriceDetails": '{"InstanceType": "p9.metal"}'}
    bill.write_text(written([usage, spot, fee, other], FOCUS))
    read = read_bill(bill)
    assert ("FOCUS", 2, 7_000_000, ("p9.metal",)) == (read.form, *read[2:])
    assert [("H100", "reserved", 96_000_000), ("H100", "spot", 96_000_000)] == [
        (line.model, line.market, line.micro_usd) for line in read.lines
    ]
    assert 3 == len(read_bill(bill, {"p9.metal": ("X", 2)}).lines)
    # A line of two days counts on both.
    books = {
        (day, "H100", market, "eu"): Sums(24 * 8 * HOUR_MS, 48_000_000)
        for day in range(*DAYS)
        for market in ("reserved", "spot")
    }
    assert [] == compare_bill(read.lines, books, DAYS, 0)
    assert DAY_MS * 8 == next(iter(books.values())).gpu_ms
