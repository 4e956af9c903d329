"""A tenant's money, and what its jobs did with GPUs, is seen by the tenant and those above it alone: every report."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.fleet import Fleet
from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.projections.waits import Waits
from gpuyard.control.refusals import NotFound
from gpuyard.core.explain.budget_use import list_named_uses
from gpuyard.errors import BadInput
from gpuyard.ledger.units import month_days, read_day
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    NamedBudget,
    NodeAdded,
    Outcome,
    Settings,
    WaitCause,
    WaitsSeen,
)
from gpuyard.model.events import WaitLine
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports import budget, cost, efficiency, focus, registry, savings, usage, waits
from gpuyard.reports.money import statement, tco
from gpuyard.store import Submission, open_store
from gpuyard.testing import nodes
from gpuyard.testing.values import ask, node
from harness.yard import Yard

DAY = 20_769
"""2026-11-12."""
BEGIN_MS = DAY * DAY_MS
HOURS = {"research": 1, "research/vision": 2, "product": 4}
"""What the job of each tenant holds a GPU for: any sum of them tells which ones it has."""
USERS = {"research": "rosa", "research/vision": "vito", "product": "paul"}
PRICE = 1_000_000
SIGHTS = {
    "everybody's": (ALL, {*HOURS}),
    "research": (Sight(("research",)), {"research", "research/vision"}),
    "vision": (Sight(("research/vision",)), {"research/vision"}),
    "product": (Sight(("product",)), {"product"}),
    "a user": (Sight(("product/paul",)), set[str]()),
    "none": (Sight(()), set[str]()),
}


class Planted:
    """A store, with rows of the history beside it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.history = SimpleNamespace(ran_between=self._ran)
        self.tries = SimpleNamespace(between=lambda *_between: [])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _ran(self, *_between: int) -> list[tuple[Any, ...]]:
        detail = json.dumps({"grants": [{"node": 0}]})
        times = [(tenant, BEGIN_MS + hours * HOUR_MS) for tenant, hours in HOURS.items()]
        return [
            (1 + at, tenant, USERS[tenant], 1000, BEGIN_MS, BEGIN_MS, end_ms, detail)
            for at, (tenant, end_ms) in enumerate(times)
        ]


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A job of each tenant on a GPU of its own, for its hours; as many hours had been waited for."""
    with open_store(Path(tmp_path_factory.mktemp("sight")) / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        here = node("n", gpus=4)
        store.append([ConfigSet(BEGIN_MS, Settings(prices={"H100": PRICE})), NodeAdded(BEGIN_MS, here)])

        def submitted(first_id: int) -> list[Event]:
            return [
                JobSubmitted(
                    BEGIN_MS, Job(first_id + at, JobSpec(tenant, ask(1), user=USERS[tenant]), BEGIN_MS)
                )
                for at, tenant in enumerate(HOURS)
            ]

        store.submit([Submission(submitted, len(HOURS))], BEGIN_MS)
        for at in range(len(HOURS)):
            grants = (Grant(0, 1 << at, 1000, 0, 0, 1),)
            store.append([AttemptStarted(BEGIN_MS, 1 + at, 1, grants), AttemptConfirmed(BEGIN_MS, 1 + at, 1)])
        for at, hours in enumerate(HOURS.values()):
            store.append([AttemptEnded(BEGIN_MS + hours * HOUR_MS, 1 + at, 1, Outcome.COMPLETED)])
        lines = tuple(
            [
                WaitLine(tenant, "main", 1000, WaitCause.QUOTA.value, hours * HOUR_MS, hours * HOUR_MS)
                for tenant, hours in HOURS.items()
            ]
        )
        store.append([WaitsSeen(BEGIN_MS + 5 * HOUR_MS, BEGIN_MS, BEGIN_MS + HOUR_MS, lines)])
        filler = Filler(store, [Ledger(), Waits(), Fleet()], lambda: BEGIN_MS)
        while filler.step(lease.epoch):
            pass
        assert {} == filler.errors
        model = SimpleNamespace(nodes=[here], jobs=SimpleNamespace(values=list))
        yield SimpleNamespace(
            store=Planted(store),
            now_ms=BEGIN_MS + 6 * HOUR_MS,
            model=model,
            configs=SimpleNamespace(budgets=_budgets, tenants=lambda _sight: []),
        )


def _budgets() -> list[tuple[Any, int]]:
    """A budget of each tenant, of which its hours are spent."""
    here = Yard("fifo", nodes(1))
    rules = tuple([NamedBudget(tenant.replace("/", "-"), 100 * HOUR_MS, tenant=tenant) for tenant in HOURS])
    here.apply(ConfigSet(0, Settings(budgets=(*rules, NamedBudget("everything", 100 * HOUR_MS)))))
    for tenant, hours in HOURS.items():
        job = here.submit(1, tenant=tenant, limit_ms=10 * HOUR_MS, user=USERS[tenant])
        here.step()
        here.now_ms += hours * HOUR_MS
        here.end(job)
    return [(use, 0) for use in list_named_uses(here.state, here.now_ms)]


Told = Callable[[Any, Sight], tuple[Any, float]]
"""What a report tells, and the hours of jobs that can be read off it."""


def _cost(readings: Any, sight: Sight) -> tuple[Any, float]:
    table = cost.build(readings, {"by": "tenant,user", "from": "", "to": ""}, sight)
    return [table.rows, table.head], table.head["charged_micro_usd"] / PRICE


def _focus(readings: Any, sight: Sight) -> tuple[Any, float]:
    table = focus.build(readings, {"month": "", "from": "", "to": "", "focus": ""}, sight)
    return [table.rows, table.head], sum([float(row["BilledCost"]) for row in table.rows])


def _savings(readings: Any, sight: Sight) -> tuple[Any, float]:
    table = savings.build(readings, {"month": "", "baseline": ""}, sight)
    (spend,) = [row for row in table.rows if row["what"] == "spend"]
    if sight.whole:
        # With sight of the whole yard it is the fleet that is compared.
        return [table.rows, table.head], sum(HOURS.values())
    return [table.rows, table.head], spend["micro_usd"] / PRICE


def _waits(readings: Any, sight: Sight) -> tuple[Any, float]:
    table = waits.build(readings, {"by": "tenant,reason", "from": "", "to": "", "sizes": ""}, sight)
    return [table.rows, table.head], table.head["gpu_hours"]


def _usage(readings: Any, sight: Sight) -> tuple[Any, float]:
    table = usage.build(readings, {"from_ms": BEGIN_MS, "until_ms": BEGIN_MS + DAY_MS // 4}, sight)
    return [table.rows, table.head], sum([row["gpu_ms"] for row in table.rows]) / HOUR_MS


def _budget(readings: Any, sight: Sight) -> tuple[Any, float]:
    table = budget.build(readings, {"budget": ""}, sight)
    own = [row for row in table.rows if row["tenant"] and not row["budget"].startswith("everything")]
    # What a tenant spends counts in the budget of the one above it, too.
    above = [row for row in own if row["tenant"] == "research"]
    return table.rows, sum([row["spent"] for row in own]) - sum([HOURS["research/vision"] for _row in above])


def _statement(readings: Any, sight: Sight) -> tuple[Any, float]:
    """All statements that there are; one of another tenant is refused as if there were none."""
    told: list[Any] = []
    hours = 0.0
    for tenant in HOURS:
        try:
            table = statement.build(readings, {"tenant": tenant, "month": ""}, sight)
        except NotFound as refused:
            told.append(refused.message)
            continue
        told.append([table.rows, table.head])
        below = [each for each in HOURS if each.startswith(f"{tenant}/")]
        hours += table.head["charged_micro_usd"] / PRICE - sum([HOURS[each] for each in below])
    return told, hours


def _tco(readings: Any, sight: Sight) -> tuple[Any, float]:
    values = dict.fromkeys([each["name"] for each in tco.REPORT.endpoint.parameters], "")
    values |= {"gpus": None, "watts": None, "spot_loss": None, "to": "2026-11-12", "from": "2026-11-12"}
    try:
        table = tco.build(readings, values, sight)
    except BadInput as refused:
        return refused.message, 0.0
    return [table.rows, table.head], table.head["gpu_hours"]


REPORTS: dict[str, Told] = {
    "budget": _budget,
    "cost": _cost,
    "focus": _focus,
    "savings": _savings,
    "statement": _statement,
    "tco": _tco,
    "usage": _usage,
    "waits": _waits,
}
"""Those that tell of money, or of GPU time by tenant; a new one has to be here."""
ELSEWHERE = {"audit", "doctor", "duties", "efficiency", "gpus", "nodes", "tenants", "topology"}
"""Those that do not: what they show is held in `tests/unit/api`."""


def test_every_report_is_here_or_tells_of_no_money() -> None:
    assert {*registry.OURS} == REPORTS.keys() | ELSEWHERE


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("who", SIGHTS)
def test_a_tenants_money_is_seen_by_it_and_those_above(readings: Any, who: str, report: str) -> None:
    sight, seen = SIGHTS[who]
    told, hours = REPORTS[report](readings, sight)
    text = json.dumps(told)
    hidden = [USERS[tenant] for tenant in HOURS if tenant not in seen]
    assert [] == [user for user in hidden if user in text]
    assert sum([HOURS[tenant] for tenant in seen]) == round(hours, 3)


def test_the_whole_fleet_is_seen_with_sight_of_the_whole_yard(readings: Any) -> None:
    for who, (sight, _seen) in SIGHTS.items():
        (_rows, head), _hours = _cost(readings, sight)
        assert (who == "everybody's") == (head["fleet_micro_usd"] is not None)
        assert (who == "everybody's") == (head["not_charged_micro_usd"] is not None)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "9999-12-31", "20261101", "2026-W46-1", "٢٠٢٦-11-01", "2026-13-01", ""]
)
def test_a_day_that_no_books_can_have_is_no_day(text: str) -> None:
    with pytest.raises(BadInput, match="is not a day"):
        read_day(text)
    with pytest.raises(BadInput, match="is not a month"):
        month_days(text[:7])


@pytest.mark.parametrize("key", ["", "a b", "a\x1b[31m", "a\nb", "-a", "x" * 64])
def test_what_cannot_be_the_key_of_a_label_is_refused(readings: Any, key: str) -> None:
    with pytest.raises(BadInput, match="is not a key of a label"):
        cost.build(readings, {"by": f"label:{key}", "from": "", "to": ""}, ALL)


def test_costs_of_too_many_days_are_refused_and_so_is_a_gpu_that_gains_by_use(readings: Any) -> None:
    given = {each["name"]: "" for each in tco.REPORT.endpoint.parameters} | {"gpus": 0}
    with pytest.raises(BadInput, match="more than 3,660 days"):
        tco.build(readings, {**given, "from": "1990-01-01"}, ALL)


def test_a_report_without_rows_has_names_of_columns() -> None:
    assert ("BilledCost",) == focus.REPORT.fields({"rows": [], "columns": ["BilledCost"]})
    asked = cost.REPORT.fields({"lines": [], "by": ["month", "label:tenant", "pool"]})
    assert ("month", "labels", "pool", "used_gpu_hours") == asked[:4]
    assert "tenant" not in asked
    shown = cost.REPORT.columns({"lines": [], "by": ["label:tenant", "tenant"]})
    assert ["LABEL:TENANT", "TENANT", "USED"] == [column.header for column in shown][:3]


def test_a_tenant_that_is_not_there_is_refused_alike(readings: Any) -> None:
    """By the statement, and by what jobs used."""
    known = [{"tenant": tenant} for tenant in HOURS]
    asked: Any = SimpleNamespace(
        store=readings.store,
        now_ms=readings.now_ms,
        configs=SimpleNamespace(tenants=lambda sight: [row for row in known if sight.knows(row["tenant"])]),
        views=SimpleNamespace(jobs=lambda *_wanted: ([], None)),
    )
    sight = SIGHTS["research"][0]
    for report in (statement, efficiency):
        values = {each["name"]: "" for each in report.REPORT.endpoint.parameters}
        for wanted, known_as in (
            ("reserch", "did you mean 'research'"),
            ("product", "known tenants: research"),
        ):
            with pytest.raises(NotFound, match=f"^there is no tenant '{wanted}'; {known_as}"):
                report.REPORT.build(asked, {**values, "tenant": wanted, "month": "2026-11"}, sight)
    assert [] == efficiency.REPORT.build(asked, {**values, "tenant": "research/vision"}, sight).rows
