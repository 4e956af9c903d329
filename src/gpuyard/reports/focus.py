"""`yard export focus`, `GET /cost/focus`: the charges as rows of FOCUS, the format in which clouds bill.

A row is what the jobs of one owner are charged for one day at one place. What is learned later about a closed month is
a row of the open one, of the class `Correction`. Quantities have nine digits; every cost is quantity times price.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings

VERSIONS = ("1.2", "1.3")
NAME = "gpuyard"
GPU_UNIT, NODE_UNIT = "GPU-Hours", "Node-Hours"
NANO = 10**9
TAGS = "gpuyard/"
"""Before the key of a tag that a yard gives; all others are labels of jobs."""


class FocusReply(TypedDict):
    """Rows of FOCUS: texts by the names of its columns; null: not given."""

    rows: list[dict[str, str | None]]
    columns: list[str]
    """Names of all columns, in their order."""
    version: str
    from_day: str
    to_day: str


FOCUS = Endpoint(
    "GET",
    "/cost/focus",
    Action.SEE_TENANTS,
    FocusReply,
    "The charges as rows of FOCUS",
    tag="lists",
    parameters=(
        query("month", "The month: 2026-11. Default: this one, unless days are given.", maxLength=7),
        query("from", "The first day: 2026-11-01.", maxLength=10, format="date"),
        query("to", "The last day: 2026-11-30.", maxLength=10, format="date"),
        query("focus", "The version of FOCUS: 1.2 or 1.3. Default: 1.2.", maxLength=3),
    ),
    problems=(422,),
)


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """The charges of the tenants that you see, by day, place and owner."""
    from gpuyard.control.views.accounts import read_accounts  # noqa: PLC0415
    from gpuyard.errors import BadInput, quote  # noqa: PLC0415
    from gpuyard.ledger.accounts import Entry, Owner  # noqa: PLC0415
    from gpuyard.ledger.units import CHARGED, COLUMNS, day_text  # noqa: PLC0415
    from gpuyard.model.prices import BookPlace  # noqa: PLC0415

    version = values["focus"] or VERSIONS[0]
    if version not in VERSIONS:
        raise BadInput(f"{quote(version)} is not a version of FOCUS here", f"Take {' or '.join(VERSIONS)}.")
    first, after = _days(readings, values)
    books = read_accounts(readings.store, first, after, readings.now_ms)

    def made(entry: Any, place: Any, owner: Any, price: int) -> dict[str, str | None]:
        row = _row(readings.store.yard, entry, place, owner, price)
        return {**row, **_allocation(entry, owner)} if version == "1.3" else row

    rows = []
    for entry in books.entries:
        owner = books.owners.get(entry.owner)
        if owner is None or not owner.tenant or not entry.columns[CHARGED] or not sight.sees(owner.tenant):
            continue
        place = books.places[entry.place]
        rows.append(made(entry, place, owner, books.prices.price(place, entry.day)))
    nothing = made(Entry(0, 0, "", "", [0] * COLUMNS), BookPlace("", "", "", "", ""), Owner(), 0)
    return Table(
        rows,
        {
            "columns": list(nothing),
            "version": version,
            "from_day": day_text(first),
            "to_day": day_text(after - 1),
        },
    )


def _days(readings: "Readings", values: Mapping[str, Any]) -> tuple[int, int]:
    from gpuyard.errors import BadInput  # noqa: PLC0415
    from gpuyard.ledger.units import month_days  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.reports.money.days import read_days, read_month  # noqa: PLC0415

    today = readings.now_ms // DAY_MS
    if values["month"] and (values["from"] or values["to"]):
        raise BadInput("--month and --from or --to say different things", "Give the month, or the days.")
    if not (values["from"] or values["to"]):
        return month_days(read_month(values["month"], today))
    first, last = read_days(values["from"], values["to"], today)
    return first, last + 1


def decimal(value: int, digits: int) -> str:
    """A whole number of units of the last digit, as FOCUS wants numbers: no exponent, no needless zeros."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    whole, rest = divmod(value, 10**digits)
    return f"{sign}{whole}.{rest:0{digits}}".rstrip("0").rstrip(".")


def _nano_hours(time: int) -> int:
    from gpuyard.ledger.units import GPU_HOUR  # noqa: PLC0415

    return (2 * time * NANO + GPU_HOUR) // (2 * GPU_HOUR)


def _row(yard: str, entry: Any, place: Any, owner: Any, price: int) -> dict[str, str | None]:
    import json  # noqa: PLC0415

    from gpuyard.ledger.prices import CURRENCY  # noqa: PLC0415
    from gpuyard.ledger.units import (  # noqa: PLC0415
        CHARGED,
        STARTING,
        UNMEASURED,
        USED,
        WASTED,
        day_text,
        month_days,
        month_of,
    )

    columns = entry.columns
    quantity = _nano_hours(columns[CHARGED])
    cost, unit_price = decimal(quantity * price, 15), decimal(price, 6)
    held = _nano_hours(sum([columns[each] for each in (USED, WASTED, UNMEASURED, STARTING)]))
    unit = GPU_UNIT if place.model else NODE_UNIT
    begins, ends = month_days(month_of(entry.learned))
    model = place.model or "node"
    tags = {
        # A label that looks like one of ours is told apart from it.
        **{f"label:{key}" if key.startswith(TAGS) else key: text for key, text in owner.labels.items()},
        f"{TAGS}user": owner.user,
        f"{TAGS}class": owner.klass,
    }

    def at(day: int) -> str:
        return f"{day_text(day)}T00:00:00Z"

    return {
        "BilledCost": cost,
        "BillingAccountId": yard,
        "BillingAccountName": f"yard {yard}",
        "BillingAccountType": "Yard",
        "BillingCurrency": CURRENCY,
        "BillingPeriodEnd": at(ends),
        "BillingPeriodStart": at(begins),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if entry.learned != entry.day else None,
        "ChargeDescription": f"{model} in pool {place.pool} of cluster {place.cluster}, {place.market}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": at(entry.day + 1),
        "ChargePeriodStart": at(entry.day),
        "ConsumedQuantity": decimal(held, 9),
        "ConsumedUnit": GPU_UNIT,
        "ContractedCost": cost,
        "ContractedUnitPrice": unit_price,
        "EffectiveCost": cost,
        "InvoiceId": None,
        "InvoiceIssuerName": NAME,
        "ListCost": cost,
        "ListUnitPrice": unit_price,
        "PricingCategory": "Dynamic" if place.market == "spot" else "Standard",
        "PricingQuantity": decimal(quantity, 9),
        "PricingUnit": unit,
        "ProviderName": NAME,
        "PublisherName": NAME,
        **_resource(yard, place, price),
        "SubAccountId": owner.tenant,
        "SubAccountName": owner.tenant,
        "SubAccountType": "Tenant",
        "Tags": json.dumps({key: text for key, text in sorted(tags.items()) if text}),
    }


def _resource(yard: str, place: Any, price: int) -> dict[str, str | None]:
    """What was used, and what of the price list it is."""
    model = place.model or "node"
    # What it is, whatever it costs; the price is that of a market in a region.
    priced = "/".join([model, place.market, place.region or "-", str(price)])
    return {
        "RegionId": place.region or None,
        "RegionName": place.region or None,
        "ResourceId": f"{yard}/{place.cluster}/{place.pool}/{model}",
        "ResourceName": place.pool,
        "ResourceType": "GPU pool" if place.model else "Node pool",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU time",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": model,
        "SkuMeter": "GPU time" if place.model else "Node time",
        "SkuPriceDetails": None,
        "SkuPriceId": priced,
    }


def _allocation(entry: Any, owner: Any) -> dict[str, str | None]:
    """The columns of version 1.3 that say how a shared resource was divided: each job pays its largest part of it."""
    import json  # noqa: PLC0415

    from gpuyard.ledger.units import CHARGED  # noqa: PLC0415

    element = {
        "AllocatedRatio": "1",
        "UsageUnit": GPU_UNIT,
        "UsageQuantity": decimal(_nano_hours(entry.columns[CHARGED]), 9),
    }
    return {
        "AllocatedMethodDetails": json.dumps({"Elements": [element]}),
        "AllocatedMethodId": "dominant-resource",
        "AllocatedResourceId": f"{owner.tenant}/{owner.user}",
        "AllocatedResourceName": owner.user or owner.tenant,
        "AllocatedTags": json.dumps(dict(sorted(owner.labels.items()))) if owner.labels else None,
        "HostProviderName": NAME,
        "ServiceProviderName": NAME,
    }


def _column(name: str) -> Column:
    return Column(name, lambda row: row[name] or "-", right=name.endswith(("Quantity", "Cost")))


_COLUMNS = [
    _column(name)
    for name in ("ChargePeriodStart", "SubAccountId", "ResourceId", "PricingQuantity", "BilledCost")
]


def _notes(reply: Row) -> list[str]:
    from gpuyard.errors import count_text  # noqa: PLC0415

    count = len(reply["rows"])
    return [
        f"FOCUS {reply['version']}, {reply['from_day']} to {reply['to_day']}, UTC: {count_text(count, 'charge')}"
    ]


REPORT: "Report[FocusReply]" = Report(
    "focus",
    FOCUS,
    build,
    _COLUMNS,
    rows="rows",
    help="Write the charges in FOCUS, the billing format of clouds.",
    more_help=(
        "There is one row for each day, tenant, user, class, set of labels and pool, as csv. A "
        "correction of a closed month is a row of the class Correction. You see only your own tenants."
    ),
    flags=[
        Flag("month", ("--month",)),
        Flag("from", ("--from",)),
        Flag("to", ("--to",)),
        Flag("focus", ("--focus",)),
    ],
    notes=_notes,
    wakes=False,
)
