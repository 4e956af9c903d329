"""`yard cost reconcile`: a cloud's bill beside the books."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, ColumnsOption, Option, Output, OutputOption
from gpuyard.errors import BadInput, names_text, quote

if TYPE_CHECKING:
    from gpuyard.intake.bills import Bill
    from gpuyard.ledger.bills import BillLine, Finding, Place, Sums

DIFFERS = 1
"""The exit code where bill and books differ; 2: the bill cannot be read."""
SHOWN_MAX = 200
"""Differences in a table; the forms for programs have all."""
GPUS_MAX = 1024


def reconcile(
    bill: Annotated[
        Path, Argument(metavar="BILL", help="A csv file of FOCUS 1.x or AWS CUR, plain or gzipped.")
    ],
    from_day: Annotated[
        str, Option("--from", metavar="DAY", help="The first day: 2026-11-01, 7d. Default: the bill's.")
    ] = "",
    to_day: Annotated[
        str, Option("--to", metavar="DAY", help="The last day: 2026-11-30, yesterday. Default: the bill's.")
    ] = "",
    tolerance: Annotated[
        float,
        Option(
            "--tolerance",
            metavar="PERCENT",
            help="Accept sums that differ by at most PERCENT.",
            min=0.0,
            max=100.0,
        ),
    ] = 0.1,
    instance: Annotated[
        list[str] | None,
        Option(
            "--instance",
            metavar="TYPE=MODEL:GPUS",
            help="An instance type that the catalogue lacks, as in p9.48xlarge=X100:8; may be repeated.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
) -> int:
    """Compare a cloud's bill with the books: GPU time and cost by day, GPU model, market and region.

    Each difference comes with the lines of the bill that cause it: a duplicate line, a line with another price or less
    time than its neighbours, hours of a machine that have no line. The command changes nothing. You need sight of the
    whole yard.

    \b
    Exit codes: 0: they agree, 1: they differ, 2: the bill cannot be read.
    \b
    Example:
      yard cost reconcile november.csv.gz --tolerance 0.5
    """
    from gpuyard.cli.line.times import book_days
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.intake.bills import read_bill
    from gpuyard.ledger.bills import compare_bill
    from gpuyard.ledger.units import day_text

    found = read_bill(bill, dict([_instance(each) for each in instance or ()]))
    if not found.lines:
        known = f"; not known: {names_text(found.unknown)}" if found.unknown else ""
        raise BadInput(f"{bill} has no line for a machine with GPUs{known}", "Name its types by --instance.")
    from_day, to_day = book_days(from_day, to_day)
    first, last, inside = _days(bill, found.lines, from_day, to_day)
    books, regions = _books(day_text(first), day_text(last))
    lines = found.lines if regions else [line._replace(region="") for line in found.lines]
    differ = compare_bill(lines, books, (first, last + 1), round(10 * tolerance))
    shown = differ[:SHOWN_MAX] if output in (Output.TABLE, Output.WIDE) else differ
    print_records([_row(each) for each in shown], _columns(), output, fields=_FIELDS, wanted=columns)
    if len(differ) > len(shown):
        text = f"{len(differ) - len(shown):,} more differences are not shown; -o csv or -o json has all"
        print_notice(text, before="note: ", style="bold")
    span = f"{day_text(first)} to {day_text(last)}, UTC"
    print_notice(_sum_up(found.form, inside, differ, span), before="note: ", style="bold")
    _tell_left_out(found, regions)
    return DIFFERS if differ else 0


def _days(bill: Path, lines: "Sequence[BillLine]", from_day: str, to_day: str) -> tuple[int, int, int]:
    """The first day, the last one, and how many lines of the bill are about them."""
    from gpuyard.ledger.units import day_text, read_day
    from gpuyard.model.units import DAY_MS

    first = read_day(from_day) if from_day else min([line.from_ms for line in lines]) // DAY_MS
    last = read_day(to_day) if to_day else max([line.until_ms - 1 for line in lines]) // DAY_MS
    if from_day and to_day and first > last:
        raise BadInput("the first day is after the last one", "Give a --from that is not after --to.")
    from_ms, until_ms = first * DAY_MS, (last + 1) * DAY_MS
    inside = len([line for line in lines if line.from_ms < until_ms and line.until_ms > from_ms])
    if first > last or not inside:
        span = " ".join([f"from {from_day}" if from_day else "", f"to {to_day}" if to_day else ""]).strip()
        begin = day_text(min([line.from_ms for line in lines]) // DAY_MS)
        end = day_text(max([line.until_ms - 1 for line in lines]) // DAY_MS)
        hint = f"Its lines are from {begin} to {end}, UTC: give --from and --to days of these."
        raise BadInput(f"{bill} has no line for a machine with GPUs {span}", hint)
    return first, last, inside


def _tell_left_out(found: "Bill", regions: bool) -> None:
    """Notes on what was not compared."""
    from gpuyard.cli.terminal.streams import print_notice

    if not regions:
        print_notice("the pools have no region: regions are not compared", before="note: ", style="bold")
    if found.others:
        from gpuyard.quantities import usd_text

        fees = usd_text(found.fees_micro_usd)
        text = f"{found.others:,} lines are about no machine with GPUs"
        print_notice(f"{text}; taxes, fees and credits among them: {fees}", before="note: ", style="bold")
    if found.unknown:
        text = f"not known here: {names_text(found.unknown)}; --instance TYPE=MODEL:GPUS says what they have"
        print_notice(text, before="note: ", style="bold")


def _sum_up(form: str, lines: int, differ: "Sequence[Finding]", span: str) -> str:
    what = "the bill and the books agree" if not differ else f"differences: {len(differ)}"
    return f"{span}: {lines:,} lines of {form} about machines with GPUs; {what}"


def _instance(text: str) -> tuple[str, tuple[str, int]]:
    name, _, rest = text.partition("=")
    model, _, count = rest.rpartition(":")
    digits = count.isascii() and count.isdecimal() and len(count) <= len(str(GPUS_MAX))
    if not (name and model and digits and 1 <= int(count) <= GPUS_MAX):
        hint = f"Write it as p9.48xlarge=X100:8, with 1 to {GPUS_MAX} GPUs."
        raise BadInput(f"--instance {quote(text)} names no machine", hint)
    return name, (model, int(count))


def _books(from_day: str, to_day: str) -> "tuple[dict[Place, Sums], bool]":
    """GPU time and cost of the fleet in the books, and whether all of it has a region."""
    from gpuyard.ledger.bills import Sums
    from gpuyard.ledger.units import read_day
    from gpuyard.model.units import HOUR_MS
    from gpuyard.reports import registry
    from gpuyard.reports.money.lines import KINDS

    asked = {"by": "day,model,market,region", "from": from_day, "to": to_day}
    with open_client() as yard:
        reply: Mapping[str, Any] = yard.report(registry.load_own_report("cost"), **asked)
    if reply["fleet_micro_usd"] is None:
        raise BadInput("a bill covers the whole yard, but you see only a part of it", "Ask an administrator.")
    lines = [line for line in reply["lines"] if line["model"]]
    regions = all([line["region"] for line in lines])
    found: dict[Place, Sums] = {}
    for line in lines:
        place = (read_day(line["day"]), line["model"], line["market"], line["region"] if regions else "")
        before = found.get(place, Sums())
        gpu_ms = round(sum([line[f"{kind}_gpu_hours"] for kind in KINDS]) * HOUR_MS)
        found[place] = Sums(before.gpu_ms + gpu_ms, before.micro_usd + line["fleet_micro_usd"])
    return found, regions


_FIELDS = (
    "lines", "day", "model", "market", "region", "bill_gpu_hours", "books_gpu_hours", "bill_micro_usd",
    "books_micro_usd", "said",
)  # fmt: skip


def _row(each: "Finding") -> Mapping[str, Any]:
    from gpuyard.ledger.units import day_text
    from gpuyard.model.units import HOUR_MS

    return {
        "lines": list(each.lines),
        "day": day_text(each.day),
        "model": each.model,
        "market": each.market,
        "region": each.region,
        "bill_gpu_hours": round(each.bill.gpu_ms / HOUR_MS, 6),
        "books_gpu_hours": round(each.books.gpu_ms / HOUR_MS, 6),
        "bill_micro_usd": each.bill.micro_usd,
        "books_micro_usd": each.books.micro_usd,
        "said": each.said,
    }


def _columns() -> list[Any]:
    from gpuyard.quantities import usd_text
    from gpuyard.tables import Column

    return [
        Column("LINE", lambda row: _numbers(row["lines"]), right=True),
        Column("DAY", lambda row: row["day"]),
        Column("MODEL", lambda row: row["model"]),
        Column("MARKET", lambda row: row["market"]),
        Column("REGION", lambda row: row["region"] or "-", wide=True),
        Column("BILL GPU-H", lambda row: f"{row['bill_gpu_hours']:,.2f}", right=True),
        Column("BOOKS GPU-H", lambda row: f"{row['books_gpu_hours']:,.2f}", right=True),
        Column("BILL", lambda row: usd_text(row["bill_micro_usd"]), right=True),
        Column("BOOKS", lambda row: usd_text(row["books_micro_usd"]), right=True),
        Column("WHAT", lambda row: row["said"]),
    ]


def _numbers(lines: Sequence[int]) -> str:
    """Line numbers, those that follow each other together: 2-25, 40."""
    parts: list[list[int]] = []
    for number in sorted(set(lines)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join([f"{low}-{high}" if low < high else str(low) for low, high in parts]) or "-"
