"""`yard cost tco`, `GET /cost/tco`: what the recorded load would have cost owned, reserved, on demand or on spot.

The load is what jobs had, day by day, as the books have it. Prices are those of the price book unless they are given;
what is not to be had for any price stays empty and says what to give. The formulas are in `ledger/tco.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from gpuyard.quantities import count_digits, hour_rate_text, parse_scaled, percent_text, usd_text
from gpuyard.reports.report import Flag, Report
from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Action, Endpoint, query

if TYPE_CHECKING:
    from fractions import Fraction

    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings
    from gpuyard.control.views.accounts import Accounts
    from gpuyard.ledger.tco import Load, Terms
    from gpuyard.model import OwnedHardware, Price


class TcoLine(TypedDict):
    """One way to have the GPUs. Null: not available, or meaningless for this way."""

    way: str
    gpus: int | None
    """That would be owned or reserved all the time."""
    utilisation_percent: float | None
    """How much of them the load would have taken."""
    micro_usd: int | None
    """What the load would have cost."""
    micro_usd_gpu_hour: int | None
    """That by a GPU-hour of the load."""
    break_even_percent: float | None
    """The utilisation from which this is cheaper than on demand; above 100: never."""
    break_even_spot_percent: float | None
    """The same against spot."""
    cheapest: bool
    lacks: str
    """What is missing, where it cannot be told."""


class TcoCase(TypedDict):
    """What all ways would have cost if one input were different."""

    case: str
    own_micro_usd: int | None
    reserve_micro_usd: int | None
    on_demand_micro_usd: int | None
    spot_micro_usd: int | None
    cheapest: str


class TcoInput(TypedDict):
    """The inputs of the calculation."""

    what: str
    value: str
    source: str
    """`given`, `price_book`, `measured`, `list price`, or where else it comes from."""


class TcoReply(TypedDict):
    """The ways side by side. Without sight of the whole yard they cover the jobs of the tenants that you see."""

    lines: list[TcoLine]
    cases: list[TcoCase]
    inputs: list[TcoInput]
    model: str
    models: list[str]
    """All GPU models that had a load, the most first."""
    from_day: str
    to_day: str
    gpu_hours: float
    currency: str


def _usd(name: str, text: str) -> Any:
    return query(name, text, maxLength=20)


TCO = Endpoint(
    "GET",
    "/cost/tco",
    Action.SEE_TENANTS,
    TcoReply,
    "What the recorded load would have cost owned, reserved, on demand or on spot",
    tag="lists",
    parameters=(
        query("model", "The GPU model. Default: the one with the largest load.", maxLength=100),
        query("from", "The first day: 2026-11-01. Default: 90 days before the last.", maxLength=10, format="date"),
        query("to", "The last day: 2026-11-30. Default: yesterday, UTC.", maxLength=10, format="date"),
        query(
            "gpus", "How many GPUs are owned or reserved. Default: enough for the busiest day.", "integer",
            minimum=1, maximum=1_000_000,
        ),
        _usd("purchase", "USD to buy one GPU, with its part of the machine. Default: price_book."),
        _usd("years", "Years over which a GPU is written off, such as 4. Default: price_book."),
        _usd("salvage", "USD that a GPU is worth after that. Default: price_book, else 0."),
        _usd("people", "USD per year and GPU for staff. Default: price_book, else 0."),
        _usd("energy", "USD per kWh. Default: price_book, else 0."),
        _usd("pue", "kWh at the meter per kWh of a GPU (PUE), such as 1.3. Default: price_book, else 1."),
        query(
            "watts", "Power that a GPU draws while a job has it. Default: as measured.", "integer",
            minimum=0, maximum=100_000,
        ),
        _usd("reserved", "USD per reserved GPU-hour. Default: price_book, or a pool of this market."),
        _usd("on_demand", "USD per GPU-hour on demand. Default: price_book, a pool, else the list price."),
        _usd("spot", "USD per GPU-hour on spot. Default: price_book, or a pool of this market."),
        query(
            "spot_loss", "Work that is repeated on spot after reclaims, in percent. Default: 0.", "integer",
            minimum=0, maximum=1000,
        ),
    ),
    problems=(422,),
)  # fmt: skip
DAYS = 90
DAYS_MAX = 3_660


def build(readings: "Readings", values: Mapping[str, Any], sight: "Sight") -> Table:
    """The load of the tenants that you see, and what it would have cost owned, reserved, on demand and on spot."""
    from gpuyard.control.views.accounts import read_accounts  # noqa: PLC0415
    from gpuyard.errors import BadInput, quote  # noqa: PLC0415
    from gpuyard.ledger.prices import CURRENCY  # noqa: PLC0415
    from gpuyard.ledger.tco import WAYS, compute_cost, find_break_even, find_cheapest, list_cases  # noqa: PLC0415
    from gpuyard.ledger.units import day_text  # noqa: PLC0415
    from gpuyard.model.units import DAY_MS  # noqa: PLC0415
    from gpuyard.reports.money.days import read_days  # noqa: PLC0415

    today = readings.now_ms // DAY_MS
    to = values["to"] or (day_text(today - 1) if (values["from"] or "") < day_text(today) else "")
    first, last = read_days(values["from"], to, today, back=DAYS - 1)
    if last > today:
        raise BadInput(
            f"{day_text(last)} is still to come: today is {day_text(today)}, UTC",
            "Give --to a day up to today.",
        )
    if last - first >= DAYS_MAX:
        raise BadInput(f"these are more than {DAYS_MAX:,} days", "Give --from a day that is nearer to --to.")
    books = read_accounts(readings.store, first, last + 1, readings.now_ms)
    loads = _loads(books, sight, first, last)
    models = sorted(loads, key=lambda name: (-loads[name].total, name))
    model = values["model"] or (models[0] if models else "")
    model = next((name for name in models if name.lower() == model.lower()), model)
    if model not in loads:
        days = f"from {day_text(first)} to {day_text(last)}, UTC"
        there = "Give --from and --to days on which jobs ran."
        if models:
            there = f"Jobs had: {', '.join(models)}."
        elif any([not place.model for place in books.places.values()]):
            there = (
                "On nodes without GPUs there is none to own or to rent: `yard cost` has what their jobs cost."
            )
        raise BadInput(f"no job had a GPU{f' of the model {quote(model)}' if model else ''} {days}", there)
    load = loads[model]
    terms, inputs = _terms(values, books, model, last)
    gpus = values["gpus"] or load.gpus
    costs = [(way, compute_cost(way, load, terms, gpus)) for way in WAYS]
    best = find_cheapest(costs)
    rows = [
        _line(
            way,
            found,
            load,
            terms,
            gpus,
            (find_break_even(way, "on demand", terms), find_break_even(way, "spot", terms)),
            best,
        )
        for way, found in costs
    ]
    varied = []
    for case, its_load, its_terms in list_cases(load, terms):
        found = [(way, compute_cost(way, its_load, its_terms, gpus)) for way in WAYS]
        micro = {
            f"{way.replace(' ', '_')}_micro_usd": None if each is None else round(each) for way, each in found
        }
        varied.append({"case": case, **micro, "cheapest": find_cheapest(found)})
    head = {
        "cases": varied,
        "inputs": inputs,
        "model": model,
        "models": models,
        "from_day": day_text(first),
        "to_day": day_text(last),
        "gpu_hours": round(float(load.total), 6),
        "currency": CURRENCY,
    }
    return Table(rows, head)


def _loads(books: "Accounts", sight: "Sight", first: int, last: int) -> dict[str, "Load"]:
    """By GPU model, what jobs had on each day."""
    from fractions import Fraction  # noqa: PLC0415

    from gpuyard.ledger.tco import Load  # noqa: PLC0415
    from gpuyard.ledger.units import GPU_HOUR, STARTING, UNMEASURED, USED, WASTED  # noqa: PLC0415

    days: dict[str, list[int]] = {}
    for entry in books.entries:
        owner, model = books.owners.get(entry.owner), books.places[entry.place].model
        if owner is None or not owner.tenant or not model or not sight.sees(owner.tenant):
            continue
        had = sum([entry.columns[kind] for kind in (USED, WASTED, UNMEASURED, STARTING)])
        if first <= entry.day <= last:
            days.setdefault(model, [0] * (last - first + 1))[entry.day - first] += had
    return {
        model: Load([Fraction(max(0, time), GPU_HOUR) for time in times])
        for model, times in days.items()
        if any(times)
    }


class _Given:
    """Values of options, and what is said of where each came from."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.inputs: list[TcoInput] = []

    def money(self, name: str, otherwise: int | None, source: str) -> int | None:
        """Micro-dollars."""
        return self._read(name, otherwise, source, 1_000_000, 10**9, hour_rate_text)

    def milli(self, name: str, otherwise: int | None, source: str, least: int) -> int | None:
        """Thousandths."""
        return self._read(name, otherwise, source, 1000, 100, lambda milli: f"{milli / 1000:g}", least)

    def _read(
        self, name: str, otherwise: int | None, source: str, scale: int, most: int, text: Callable[[int], str],
        least: int = 0,
    ) -> int | None:  # fmt: skip
        from gpuyard.errors import BadInput  # noqa: PLC0415

        found, written = otherwise, self._values[name]
        if written:
            try:
                found, source = (
                    parse_scaled(
                        written,
                        "a number",
                        scale=scale,
                        grain=f"1/{scale}",
                        least=least,
                        most=most,
                    ),
                    "given",
                )
            except ValueError as error:
                option = f"--{name.replace('_', '-')}"
                raise BadInput(f"{option} {error}", f"Write a plain number: {option} 2.50.") from None
        if found is not None:
            self.inputs.append({"what": name, "value": text(found), "source": source})
        return found

    def whole(self, name: str, otherwise: int, source: str) -> int:
        """A whole number."""
        given = self._values[name]
        found, source = (otherwise, source) if given is None else (int(given), "given")
        self.inputs.append({"what": name, "value": str(found), "source": source})
        return found


def _terms(
    values: Mapping[str, Any], books: "Accounts", model: str, day: int
) -> tuple["Terms", list[TcoInput]]:
    """What GPUs of a model are to be had for: as given, else as the price book has it."""
    from fractions import Fraction  # noqa: PLC0415

    from gpuyard.ledger.tco import Terms  # noqa: PLC0415

    given, book = _Given(values), books.prices.now
    bought = next((each for each in book.offers(model, day) if each.owned is not None), None)
    owned = _owned(given, bought)
    pue_milli = (
        given.milli("pue", bought.pue_milli if bought else 1000, "price_book" if bought else "default", 1000)
        or 1000
    )
    a_kwh = Fraction(bought.micro_usd_kwh * 1000, bought.pue_milli) if bought else Fraction(0)
    energy = given.money("energy", round(a_kwh), "price_book" if bought else "default")
    watts = _watts(books, model)
    return (
        Terms(
            owned,
            given.whole("watts", watts, "measured" if watts else "not measured"),
            Fraction(energy or 0),
            pue_milli,
            given.money("reserved", *_market(books, model, "reserved", day)),
            given.money("on_demand", *_market(books, model, "on-demand", day)),
            given.money("spot", *_market(books, model, "spot", day)),
            given.whole("spot_loss", 0, "default"),
        ),
        given.inputs,
    )


def _owned(given: _Given, bought: "Price | None") -> "OwnedHardware | None":
    """What is bought, for one GPU."""
    from gpuyard.errors import BadInput  # noqa: PLC0415
    from gpuyard.model import OwnedHardware  # noqa: PLC0415

    there = bought.owned if bought is not None else None
    each = there.gpus if there else 1
    purchase = given.money("purchase", there.purchase_micro_usd // each if there else None, "price_book")
    years = given.milli("years", there.years_milli if there else None, "price_book", 100)
    salvage = given.money(
        "salvage", there.salvage_micro_usd // each if there else 0, "price_book" if there else "default"
    )
    people = given.money(
        "people", there.people_micro_usd_y // each if there else 0, "price_book" if there else "default"
    )
    if purchase is None or years is None:
        return None
    if (salvage or 0) > purchase:
        raise BadInput("it is worth more at its end than it was bought for", "Give a smaller --salvage.")
    return OwnedHardware(purchase, years, salvage or 0, 1, people or 0)


def _watts(books: "Accounts", model: str) -> int:
    """What GPUs of a model drew on average while jobs had them and were measured; 0: nobody measured that."""
    from gpuyard.ledger.units import ENERGY, GPU_HOUR, USED, WASTED  # noqa: PLC0415

    energy_mj = time = 0
    for entry in books.entries:
        if books.places[entry.place].model == model and entry.columns[ENERGY]:
            energy_mj += entry.columns[ENERGY]
            time += entry.columns[USED] + entry.columns[WASTED]
    return round(energy_mj * GPU_HOUR / (time * 3_600_000)) if time else 0


def _market(books: "Accounts", model: str, market: str, day: int) -> tuple[int | None, str]:
    """Micro-dollars for an hour on a market, and where that is from.

    A price that names no market holds for all of them: it is what the books charge in pools of this market, and where
    there is no such pool, what a reserved GPU or one on demand costs. Nobody sells spot at such a price.
    """
    book = books.prices.now
    named = [each for each in book.offers(model, day) if each.market == market and each.owned is None]
    if named:
        return named[0].micro_usd_h, "price_book"
    for place in sorted(set(books.places.values())):
        if place.model == model and place.market == market:
            fits = [
                each
                for each in book.offers(model, day)
                if each.pool in (place.pool, f"{place.cluster}/{place.pool}")
            ]
            if fits and fits[0].owned is None:
                return fits[0].micro_usd_h, f"pool {place.pool}"
    anywhere = [each for each in book.offers(model, day) if not (each.market or each.pool or each.region)]
    if anywhere and anywhere[0].owned is None and (market != "spot" or _has_pool(books, model, market)):
        return anywhere[0].micro_usd_h, "price_book"
    return (book.listed(model), "list price") if market == "on-demand" else (None, "")


def _has_pool(books: "Accounts", model: str, market: str) -> bool:
    return any([(place.model, place.market) == (model, market) for place in books.places.values()])


def _line(
    way: str,
    cost: "Fraction | None",
    load: "Load",
    terms: "Terms",
    gpus: int,
    even: tuple["Fraction | None", "Fraction | None"],
    best: str,
) -> TcoLine:
    from gpuyard.ledger.tco import DAY_H, OWN, RESERVE  # noqa: PLC0415

    fixed = way in (OWN, RESERVE)
    percent = [None if each is None else round(float(100 * each), 2) for each in even]
    return {
        "way": way,
        "gpus": gpus if fixed else None,
        "utilisation_percent": round(float(100 * load.within(gpus) / (gpus * DAY_H * len(load.gpu_hours))), 2)
        if fixed
        else None,
        "micro_usd": None if cost is None else round(cost),
        "micro_usd_gpu_hour": None if cost is None else round(cost / load.total),
        "break_even_percent": percent[0] if fixed else None,
        "break_even_spot_percent": percent[1] if fixed else None,
        "cheapest": way == best,
        "lacks": _lacks(way, terms) if cost is None else "",
    }


def _lacks(way: str, terms: "Terms") -> str:
    """What to give, so that this way can be told."""
    if way == "own" and terms.owned is None:
        return "no owned hardware in price_book: give --purchase and --years"
    if way == "reserve" and terms.reserved is None:
        return "no price of reserved GPUs in price_book: give --reserved"
    if way == "spot":
        return "no price of spot GPUs in price_book: give --spot"
    return "no price on demand in price_book: give --on-demand"


def _money(rows: Sequence[Row], key: str) -> Callable[[Row], str]:
    places = count_digits([row[key] for row in rows])
    return lambda row: "-" if row[key] is None else usd_text(row[key], places)


def _percent(key: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[key] is None else percent_text(row[key], 1)


def _columns(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("WAY", lambda row: row["way"]),
        Column("GPUS", lambda row: "-" if row["gpus"] is None else str(row["gpus"]), right=True),
        Column("UTILISATION", _percent("utilisation_percent"), right=True),
        Column("COST", _money(rows, "micro_usd"), right=True),
        Column("A GPU-HOUR", _money(rows, "micro_usd_gpu_hour"), right=True),
        Column("CHEAPER THAN ON DEMAND FROM", _even(rows, "on demand", "break_even_percent"), right=True),
        Column("THAN SPOT FROM", _even(rows, "spot", "break_even_spot_percent"), right=True, wide=True),
        Column("NOTE", lambda row: row["lacks"] or ("cheapest" if row["cheapest"] else "")),
    ]


def _even(rows: Sequence[Row], against: str, key: str) -> Callable[[Row], str]:
    """From which use a fixed way is cheaper; `never`: not even if it is always used."""
    there = any([row["way"] == against and row["micro_usd"] is not None for row in rows])

    def cell(row: Row) -> str:
        if row["gpus"] is None or row["micro_usd"] is None or not there:
            return "-"
        return "never" if row[key] is None or row[key] > 100 else percent_text(row[key], 1)

    return cell


def _notes(reply: Row) -> list[str]:
    inputs = ", ".join([f"{each['what']} {each['value']} ({each['source']})" for each in reply["inputs"]])
    found = [
        f"{reply['model']}, {reply['from_day']} to {reply['to_day']}, UTC: {reply['gpu_hours']:,.2f} "
        f"GPU-hours of jobs",
        f"reckoned with: {inputs}",
    ]
    for case in reply["cases"]:
        ways = [
            (way, case[f"{way.replace(' ', '_')}_micro_usd"])
            for way in ("own", "reserve", "on demand", "spot")
        ]
        places = count_digits([micro for _way, micro in ways])
        costs = ", ".join([f"{way} {usd_text(micro, places)}" for way, micro in ways if micro is not None])
        found.append(f"{case['case']}: {costs}; cheapest: {case['cheapest'] or 'none'}")
    others = [name for name in reply["models"] if name != reply["model"]]
    return [*found, *([f"other models had a load too: {', '.join(others)}; give --model"] if others else [])]


_FLAGS: Sequence[Flag] = [
    Flag(name, (f"--{name.replace('_', '-')}",))
    for name in (
        "model", "from", "to", "gpus", "purchase", "years", "salvage", "people", "energy", "pue", "watts", "reserved",
        "on_demand", "spot", "spot_loss",
    )
]  # fmt: skip

REPORT: "Report[TcoReply]" = Report(
    "tco",
    TCO,
    build,
    _columns,
    rows="lines",
    help="Compare what the recorded load would have cost owned, reserved, on demand and on spot.",
    more_help=(
        "Owned and reserved GPUs cost the same whether they are used or not, and load beyond them is "
        "bought on demand; the break-even is the utilisation above which they are cheaper. Prices come from "
        "price_book unless you give others. The notes say what changes with prices, the load, PUE and the lifetime."
    ),
    flags=_FLAGS,
    notes=_notes,
    wakes=False,
    whole=True,
)
