"""The rules of the FOCUS model that focus-validator carries, evaluated over rows as a csv has them.

Of a rule with a check the check is run. The model has none for 201 of them, which it calls dynamic: those that rows can
show are checked by functions here (`OURS`), and each of the others has its reason. No rule is skipped without one.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Found = dict[str, str | None]
SUPPORTED = {
    "ACCOUNT_NAMING_SUPPORTED",
    "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED",
    "MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED",
    "NEGOTIATED_PRICING_SUPPORTED",
    "PUBLIC_PRICE_LIST_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
    "UNIT_PRICING_SUPPORTED",
    "SUB_ACCOUNT_SUPPORTED",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED",
    "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED",
    "REGION_SUPPORTED",
    "TAGGING_SUPPORTED",
}
"""What a yard has: no commitment discounts, capacity reservations, zones or other currencies."""
LACKS = {
    "COMMITMENT_DISCOUNT_SUPPORTED": "nobody buys a commitment from a yard; a reserved pool is a price of its own",
    "CAPACITY_RESERVATION_SUPPORTED": "a promise and an earmark are no purchase, and have no charge",
    "AVAILABILITY_ZONE_SUPPORTED": "a place in the books has a region, and no zone",
    "PRICING_BILLING_CURRENCY_DIFFERENCES_SUPPORTED": "prices and charges are in the same currency, USD",
    "VIRTUAL_CURRENCY_SUPPORTED": "prices and charges are in the same currency, USD",
}
"""Why a yard has none of it. Columns that are for it alone must not be there."""
ODD = {
    "InvoiceId-C-005-C": "the model has no condition for it, and with InvoiceId-C-004-C it would forbid every row",
}
"""Rules with a check that cannot be meant."""
REASONS = {
    r"(NumericFormat|StringHandling)-A-00[12]-O|ColumnHandling-A-011-O": "there are no columns of our own",
    r"ChargeDescription-C-004-O": "it is about a schema beside the rows; a description has no fixed length",
    r"NumericFormat-A-01[23]-.": "it is about the definition of columns, which is FOCUS's",
    r"StringHandling-A-00[3456]-M": "it is about two exports over time: names are of the log, and no name is changed",
    r"ColumnHandling-A-00[24]-.": "the names of columns are FOCUS's own",
    r"ColumnHandling-A-008-M": "that the values of a category are the allowed ones is checked column by column",
    r"UnitFormat-A-00[34]-.": "GPU-Hours and Node-Hours are no units of the list, which has no GPUs",
    r"SkuMeter-C-006-O|SkuPriceId-C-009-M|SkuPriceDetails-C-01[34]-O": "it is about two exports over time",
    r"SkuPriceDetails-C-.*": "a yard gives none: the column is null",
    r"SkuPriceId-C-013-M": "the price list is price_book of yard.yaml, which is no part of the rows",
    r"InvoiceId-C-007-C|BilledCost-C-007-M|BillingCurrency-C-005-M|PricingUnit-C-009-C": "a yard writes no invoices",
    r"PricingUnit-C-008-M": "price_book of yard.yaml has USD per GPU-hour and node-hour, and is no part of the rows",
    r"BillingAccountId-C-00[45]-.": "it is about other accounts of the provider; the name of a yard is drawn at random",
    r"Tags-C-005-M|Tags-C-010-C": "labels of a job never change: that is no matter of the rows",
    r"Tags-C-0(08|09|13|15)-.": "there is one scheme of labels, all with values; docs/how-to/cost.md has the prefix",
    r"(Contracted|List)Cost-C-00[78]-C|EffectiveCost-C-009-C": "no charge is about other charges: every row is Usage",
    r"EffectiveCost-C-01[023]-C": "there are no purchases, credits or commitments: every row is Usage",
    r"ServiceName-C-00[69]-C": "there is a category that fits, Compute",
    r"PricingCategory-C-(009|011)-C": "a yard has no commitments, and no other kinds of price",
    r"CurrencyFormat-A-002-C": LACKS["VIRTUAL_CURRENCY_SUPPORTED"],
}
"""Why a rule without a check in the model has none here either; by a pattern of its name."""
FORMATS = {
    "FormatDateTime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "TypeDateTime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "FormatNumeric": r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?",
    "TypeDecimal": r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?",
    "CheckDecimalValue": r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?",
    "FormatUnit": r"[A-Za-z][A-Za-z0-9]*(-(Years|Months|Days|Hours|Minutes|Seconds))?",
    "FormatCurrency": r"[A-Z]{3}",
    "CheckNationalCurrency": r"[A-Z]{3}",
    "FormatString": r"[^\x00-\x1f]*\S[^\x00-\x1f]*",
    "TypeString": r"(?s).+",
}


def _cells(row: Found, *ends: str) -> list[str]:
    """What stands in columns whose names end like that."""
    return [text for name, text in row.items() if text is not None and name.endswith(ends)]


def _numbers(pattern: str, wanted: bool = True) -> Callable[[Found], bool]:
    found = re.compile(pattern)
    return lambda row: all([bool(found.search(text)) is wanted for text in _cells(row, *_NUMERIC)])


def _moments(pattern: str) -> Callable[[Found], bool]:
    return lambda row: all([re.fullmatch(pattern, text) for text in _cells(row, "Start", "End")])


def _objects(row: Found) -> list[dict[str, Any]]:
    return [json.loads(text) for text in _cells(row, "Tags", "Details")]


def _text(row: Found, name: str) -> str:
    return row[name] or ""


def _times(price: str, cost: str) -> Callable[[Found], bool]:
    """Whether quantity times price is the cost."""
    return lambda row: (
        row["ChargeClass"] == "Correction"
        or Decimal(_text(row, "PricingQuantity")) * Decimal(_text(row, price)) == Decimal(_text(row, cost))
    )


def _in_period(row: Found) -> bool:
    return (
        _text(row, "BillingPeriodStart") <= _text(row, "ChargePeriodStart") < _text(row, "BillingPeriodEnd")
    )


def _unique_keys(row: Found) -> bool:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(found) == len(dict(found))
        return dict(found)

    try:
        for text in _cells(row, "Tags", "Details"):
            json.loads(text, object_pairs_hook=pairs)
    except AssertionError:
        return False
    return True


def _one(first: str, second: str) -> Callable[[list[Found]], bool]:
    """Whether each of the first has one of the second."""
    return lambda rows: all(
        [
            len({row[second] for row in rows if row[first] == each}) == 1
            for each in {row[first] for row in rows}
        ]
    )


_NUMERIC = ("Cost", "Quantity", "UnitPrice")
_SPOT = "/spot/"
_DOLLARS: Callable[[Found], bool] = lambda row: row["BillingCurrency"] == "USD"  # noqa: E731
_SET: Callable[[str], Callable[[Found], bool]] = lambda name: lambda row: row[name] is not None  # noqa: E731
PREFIX = "gpuyard/"
"""Of tags that a yard gives; all others are labels of jobs."""
OURS: dict[str, Callable[[Found], bool]] = {
    "DateTimeFormat-A-001-M": _moments(r".*Z"),
    "DateTimeFormat-A-002-M": _moments(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "DateTimeFormat-A-004-M": _moments(r"[\d-]+T[\d:]+Z"),
    "DateTimeFormat-A-005-M": _moments(r".*T\d\d:\d\d:\d\dZ"),
    "DateTimeFormat-A-006-M": _moments(r".*Z"),
    "CurrencyFormat-A-001-C": lambda row: all(
        [re.fullmatch("[A-Z]{3}", text) for text in _cells(row, "Currency")]
    ),
    "NumericFormat-A-002-M": _numbers(r"^\S+$"),
    "NumericFormat-A-003-M": _numbers(r"^-?\d+(\.\d+)?(E-?\d+)?$"),
    "NumericFormat-A-004-M": _numbers("/", wanted=False),
    "NumericFormat-A-005-M": _numbers("[eE^xX]", wanted=False),
    "NumericFormat-A-006-M": _numbers(r"[eE]\+", wanted=False),
    "NumericFormat-A-007-M": _numbers(r"[*/^()=]", wanted=False),
    "NumericFormat-A-008-M": _numbers(r"^[-\d.]+$"),
    "NumericFormat-A-009-M": _numbers(r"^-?\d+(\.\d+)?$"),
    "NumericFormat-A-010-M": _numbers(r"^\+", wanted=False),
    "NumericFormat-A-011-M": _numbers(r"^-?[\d.]+$"),
    "StringHandling-A-001-M": lambda row: all(
        [text.encode("utf-8") for text in row.values() if text is not None]
    ),
    "StringHandling-A-007-M": lambda row: all([text.strip() for text in row.values() if text is not None]),
    "ColumnHandling-A-001-M": lambda row: all([re.fullmatch("([A-Z][a-z]+)+", name) for name in row]),
    "ColumnHandling-A-003-M": lambda row: all([name.isalnum() for name in row]),
    "ColumnHandling-A-005-O": lambda row: all([len(name) <= 50 for name in row]),
    "ColumnHandling-A-006-M": lambda row: all([f"{name[:-4]}Id" in row for name in row if name in _BOTH]),
    "ColumnHandling-A-010-M": lambda row: not [name for name in row if name.startswith("x_")],
    "ColumnHandling-A-012-O": lambda row: not [name for name in row if name.startswith("x_")],
    "ColumnHandling-A-013-O": lambda row: not [name for name in row if name.startswith("x_")],
    "UnitFormat-A-001-M": lambda row: all(
        [re.fullmatch("[A-Za-z]+-Hours", text) for text in _cells(row, "Unit")]
    ),
    "KeyValueFormat-A-001-M": lambda row: all([isinstance(each, dict) for each in _objects(row)]),
    "KeyValueFormat-A-002-M": _unique_keys,
    "KeyValueFormat-A-003-M": lambda row: all(
        [isinstance(each, _FLAT) for it in _objects(row) for each in it.values()]
    ),
    "KeyValueFormat-A-004-M": lambda row: (
        not [each for it in _objects(row) for each in it.values() if isinstance(each, dict | list)]
    ),
    "NullHandling-A-001-C": lambda row: "" not in row.values(),
    "NullHandling-A-002-M": lambda row: (
        not {"", "Not Applicable", "N/A", "None", "null", "-"} & set(row.values())
    ),
    "BillingPeriodStart-C-004-M": lambda row: _text(row, "BillingPeriodStart")[7:] == "-01T00:00:00Z",
    "BillingPeriodEnd-C-004-M": lambda row: (
        _text(row, "BillingPeriodEnd")[7:] == "-01T00:00:00Z"
        and row["BillingPeriodEnd"] != row["BillingPeriodStart"]
    ),
    "ChargePeriodStart-C-004-M": lambda row: _text(row, "ChargePeriodStart") < _text(row, "ChargePeriodEnd"),
    "ChargePeriodEnd-C-004-M": lambda row: _text(row, "ChargePeriodEnd")[10:] == "T00:00:00Z",
    "ChargeClass-C-003-C": lambda row: row["ChargeClass"] is None or not _in_period(row),
    "ChargeClass-C-004-C": lambda row: row["ChargeClass"] == "Correction" or _in_period(row),
    "PricingQuantity-C-009-C": _times("ContractedUnitPrice", "ContractedCost"),
    "ContractedCost-C-009-C": _times("ContractedUnitPrice", "ContractedCost"),
    "ListUnitPrice-C-009-M": _DOLLARS,
    "ContractedUnitPrice-C-010-C": _DOLLARS,
    "EffectiveCost-C-006-M": _DOLLARS,
    "BilledCost-C-006-M": _DOLLARS,
    "ContractedCost-C-005-M": _DOLLARS,
    "ListCost-C-005-M": _DOLLARS,
    "ConsumedQuantity-C-008-C": lambda row: (
        row["ConsumedQuantity"] is None or Decimal(_text(row, "ConsumedQuantity")).is_finite()
    ),
    "ResourceId-C-004-C": _SET("ResourceId"),
    "ResourceId-C-005-C": _SET("ResourceId"),
    "ResourceId-C-008-O": lambda row: _text(row, "ResourceId").startswith(f"{row['BillingAccountId']}/"),
    "ResourceName-C-004-C": _SET("ResourceId"),
    "ResourceName-C-005-C": _SET("ResourceName"),
    "ResourceName-C-006-C": lambda row: row["ResourceName"] != row["ResourceId"],
    "SkuId-C-011-C": lambda row: row["SkuId"] is not None and row["ServiceName"] is not None,
    "SkuPriceId-C-012-C": lambda row: row["SkuPriceId"] is not None and row["ServiceName"] is not None,
    "PricingCategory-C-008-C": lambda row: (
        _SPOT in _text(row, "SkuPriceId") or row["PricingCategory"] == "Standard"
    ),
    "PricingCategory-C-010-C": lambda row: (
        _SPOT not in _text(row, "SkuPriceId") or row["PricingCategory"] == "Dynamic"
    ),
    "SubAccountId-C-004-C": _SET("SubAccountId"),
    "SubAccountId-C-005-C": _SET("SubAccountId"),
    "RegionId-C-004-C": lambda row: (
        (row["RegionId"] is None) is _text(row, "SkuPriceId").split("/")[2].startswith("-")
    ),
    "Tags-C-004-M": lambda row: {f"{PREFIX}user", f"{PREFIX}class"} <= set(json.loads(_text(row, "Tags"))),
    "Tags-C-006-M": lambda row: None not in json.loads(_text(row, "Tags")).values(),
    "Tags-C-012-M": lambda row: not {"user", "class"} & set(json.loads(_text(row, "Tags"))),
    "Tags-C-016-C": lambda row: (
        {key for key in json.loads(_text(row, "Tags")) if key.startswith(PREFIX)}
        <= {f"{PREFIX}user", f"{PREFIX}class"}
    ),
    "Tags-C-017-M": lambda row: (
        {key for key in json.loads(_text(row, "Tags")) if key.startswith(PREFIX)}
        <= {f"{PREFIX}user", f"{PREFIX}class"}
    ),
}
"""Checks of one row, for rules that the model has none for."""
OVER_ALL: dict[str, Callable[[list[Found]], bool]] = {
    "ResourceId-C-007-M": _one("ResourceId", "BillingAccountId"),
    "SkuId-C-008-M": _one("ResourceId", "SkuId"),
    "SkuId-C-009-M": lambda rows: all(["/" not in _text(row, "SkuId") for row in rows]),
    "SkuId-C-010-M": lambda rows: (
        len({row["SkuId"] for row in rows}) == len({_text(row, "ResourceId").split("/")[3] for row in rows})
    ),
    "SkuPriceId-C-010-M": _one("SkuPriceId", "SkuId"),
    "SkuPriceId-C-014-C": _one("SkuPriceId", "ListUnitPrice"),
    "SkuPriceId-C-015-C": _one("SkuPriceId", "ContractedUnitPrice"),
    "SubAccountType-C-006-M": lambda rows: {"Tenant"} == {row["SubAccountType"] for row in rows},
    "BillingAccountType-C-006-M": lambda rows: {"Yard"} == {row["BillingAccountType"] for row in rows},
}
"""Checks of all rows together."""
_FLAT = str | int | float | bool | None
_BOTH = ("BillingAccountName", "RegionName", "ResourceName", "SubAccountName")


class Rules:
    """The rules, evaluated over rows as a csv has them."""

    def __init__(self, rules: dict[str, Any], rows: list[Found]) -> None:
        self.rules = rules
        self.rows = rows
        self.columns = set(rows[0])
        self.skipped: dict[str, str] = {}
        self._known: dict[str, bool] = {}
        presence = [rule for rule in rules.values() if rule["Function"] == "Presence"]
        self._apart = {rule["Reference"] for rule in presence} - {
            rule["Reference"] for rule in presence if SUPPORTED.issuperset(rule["ApplicabilityCriteria"])
        }
        """Columns that are only there for what a yard does not have."""

    def holds(self, name: str) -> bool:
        """Whether every row obeys a rule; one that is skipped is noted with its reason, and holds."""
        if name not in self._known:
            self._known[name] = True
            self._known[name] = self._judged(name)
        return self._known[name]

    def _judged(self, name: str) -> bool:
        rule = self.rules[name]
        criteria = rule["ValidationCriteria"]
        lacks = sorted(set(rule["ApplicabilityCriteria"]) - SUPPORTED)
        why = ODD.get(name, "")
        if rule["Type"] == "Dynamic":
            why = next((why for pattern, why in REASONS.items() if re.fullmatch(pattern, name)), "")
        if lacks:
            why = "; ".join([LACKS[each] for each in lacks])
        elif rule["Reference"] in self._apart:
            why = f"{rule['Reference']} is for what a yard does not have"
            if rule["Reference"] in self.columns:
                return False
        elif criteria["Keyword"] == "MAY":
            why = "it allows something, and demands nothing"
        elif name in OURS:
            return all([OURS[name](row) for row in self.rows])
        elif name in OVER_ALL:
            return OVER_ALL[name](self.rows)
        if why:
            self.skipped[name] = why
            return True
        assert rule["Type"] != "Dynamic", (
            f"{name} has neither a check nor a reason: {criteria['MustSatisfy']}"
        )
        wanted, condition = criteria["Requirement"], criteria["Condition"]
        if wanted["CheckFunction"] == "CheckDistinctCount":
            pairs = {(row[wanted["ColumnAName"]], row[wanted["ColumnBName"]]) for row in self.rows}
            count = Counter([first for first, _second in pairs if first is not None])
            return set(count.values()) <= {wanted["ExpectedCount"]}
        return all(
            self.check(wanted, row) for row in self.rows if not condition or self.check(condition, row)
        )

    def check(self, wanted: dict[str, Any], row: Found) -> bool:
        """One check of one row."""
        if "CheckFunction" not in wanted:
            # A few conditions of the model are written as `{"AND": …}`.
            (items,) = wanted.values()
            return all(self.check(each, row) for each in (items if isinstance(items, list) else [items]))
        function, column = wanted["CheckFunction"], wanted.get("ColumnName", "")
        if function in ("AND", "OR"):
            each = [self.check(item, row) for item in wanted["Items"]]
            return all(each) if function == "AND" else any(each)
        if function == "CheckModelRule":
            return self.holds(wanted["ModelRuleId"])
        if function == "ColumnPresent":
            return column in self.columns
        if "ColumnAName" in wanted:
            first, second = row.get(wanted["ColumnAName"]), row.get(wanted["ColumnBName"])
            if function == "ColumnByColumnEqualsColumnValue":
                result = row[wanted["ResultColumnName"]]
                return None in (first, second, result) or Decimal(first or 0) * Decimal(
                    second or 0
                ) == Decimal(result or 0)
            assert function in ("CheckSameValue", "CheckNotSameValue"), function
            return (first == second) is (function == "CheckSameValue")
        return self._value(function, row.get(column), wanted.get("Value"))

    def _value(self, function: str, value: str | None, wanted: Any) -> bool:
        if function in ("CheckValue", "CheckNotValue"):
            same = value == wanted or (
                isinstance(wanted, int) and value is not None and Decimal(value) == wanted
            )
            return same is (function == "CheckValue")
        if value is None:
            return True
        if function == "CheckGreaterOrEqualThanValue":
            return Decimal(value) >= wanted
        if function == "FormatKeyValue":
            return all(isinstance(text, str) for text in json.loads(value).values())
        return re.fullmatch(FORMATS[function], value) is not None
