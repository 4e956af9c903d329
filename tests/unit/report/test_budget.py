"""`yard budget`: what it tells, and that a tenant sees its own budgets alone."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuyard.control.access.rights import Sight
from gpuyard.control.commands.configs import _counted_before
from gpuyard.control.refusals import NotFound
from gpuyard.core.explain.budget_use import list_named_uses, list_own_uses
from gpuyard.core.explain.caps import find_caps
from gpuyard.model import Budget, ConfigSet, JobClass, NamedBudget, Settings, Tenant
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports import budget
from gpuyard.testing import nodes
from harness.yard import Yard

RULES = (
    NamedBudget("all", micro_usd=100_000_000),
    NamedBudget("lab", 100 * HOUR_MS, tenant="lab"),
    NamedBudget("shop", 50 * HOUR_MS, tenant="shop"),
)


class NoBooks:
    """A store whose books are empty."""

    def __init__(self) -> None:
        empty = SimpleNamespace(cursors=dict, between=lambda *_key: [], at=lambda *_key: {})
        self.projections = SimpleNamespace(cursors=dict, snapshot=lambda: nullcontext(empty))

    def head(self) -> int:
        return 0


@pytest.fixture
def readings() -> Any:
    here = Yard("fifo", nodes(1))
    settings = Settings(
        classes=(JobClass("batch", limit_ms=1 << 40),), budgets=RULES, prices={"H100": 2_000_000}
    )
    here.apply(ConfigSet(0, settings))
    job = here.submit(4, tenant="lab/x", limit_ms=10 * HOUR_MS, user="ana")
    here.step()
    here.now_ms += 5 * HOUR_MS
    here.end(job)
    here.submit(2, tenant="lab", limit_ms=10 * HOUR_MS, user="bob")
    here.step()
    here.now_ms += HOUR_MS
    uses = [(use, 0) for use in list_named_uses(here.state, here.now_ms)]
    return SimpleNamespace(configs=SimpleNamespace(budgets=lambda: uses), now_ms=here.now_ms, store=NoBooks())


def rows(readings: Any, sight: Sight, name: str = "") -> dict[str, Any]:
    return {row["budget"]: row for row in budget.build(readings, {"budget": name}, sight).rows}


def test_spent_set_aside_and_left_add_up(readings: Any) -> None:
    lab = rows(readings, Sight(("",)))["lab"]
    assert (100, 22, 18, 60) == (lab["amount"], lab["spent"], lab["set_aside"], lab["left"])
    assert [{"user": "ana", "spent": 20}, {"user": "bob", "spent": 2}] == lab["users"]
    usd = rows(readings, Sight(("",)), "all")["all"]
    assert (100, 44, 36) == (usd["amount"], usd["spent"], usd["set_aside"])


def test_a_tenant_sees_its_own_budgets_alone(readings: Any) -> None:
    assert {"all", "lab", "shop"} == rows(readings, Sight(("",))).keys()
    assert {"lab"} == rows(readings, Sight(("lab",))).keys()
    assert {} == rows(readings, Sight(("lab/x",)))
    with pytest.raises(NotFound, match="no budget 'shop'"):
        rows(readings, Sight(("lab",)), "shop")


def test_who_sees_no_budget_is_told_so(readings: Any) -> None:
    notes = budget.REPORT.notes
    found = list(rows(readings, Sight(("lab",))).values())
    assert notes is not None
    assert [] == notes({"budgets": found})
    assert ["no budget that you may see; `budgets` in yard.yaml has them"] == notes({"budgets": []})


def test_a_tenants_own_budget_is_shown_to_all_below_it_as_its_share_shows_it() -> None:
    here = Yard("fifo", nodes(1))
    own = Tenant("lab", budget=Budget(50 * HOUR_MS, 30 * DAY_MS))
    classes = (JobClass("batch", limit_ms=1 << 40),)
    here.apply(ConfigSet(0, Settings(classes=classes, tenants=(own,))))
    ended = here.submit(4, tenant="lab/x", limit_ms=10 * HOUR_MS, user="ana")
    here.step()
    here.now_ms += HOUR_MS
    here.end(ended)
    here.submit(2, tenant="lab", limit_ms=10 * HOUR_MS, user="bob")
    here.step()
    here.now_ms += HOUR_MS
    uses = [(use, 0) for use in list_own_uses(here.state, here.now_ms)]
    readings = SimpleNamespace(
        configs=SimpleNamespace(budgets=lambda: uses), now_ms=here.now_ms, store=NoBooks()
    )

    found = [rows(readings, Sight((place,))) for place in ("", "lab", "lab/x", "shop")]
    line, share = found[2]["lab"], find_caps(here.state, here.state.tenants.find("lab"), here.now_ms).budget

    assert [{"lab"}, {"lab"}, {"lab"}, set()] == [set(each) for each in found]
    assert share is not None
    assert (50, 6, 18, 26) == (line["amount"], line["spent"], line["set_aside"], line["left"])
    assert (share.spent_milli_ms, share.left_milli_ms) == (6_000 * HOUR_MS, 26_000 * HOUR_MS)
    assert ("every 30d", "hard", []) == (line["window"], line["action"], line["users"])


def test_the_table_is_for_people(readings: Any) -> None:
    table = budget.build(readings, {"budget": ""}, Sight(("",)))
    cells = {
        column.header: column.cell(cast(Any, table.rows[1]))
        for column in budget.REPORT.columns({"budgets": table.rows})
    }
    assert ("lab", "100.00 GPU-h", "ana, bob", "-") == tuple(
        [cells[name] for name in ("BUDGET", "AMOUNT", "SPENT BY", "ALL SPENT")]
    )


def test_a_budget_of_money_says_where_the_books_differ() -> None:
    row = {"budget": "lab", "unit": "USD", "spent": 10.0, "books": 30.0}
    assert "budget lab: it has counted $10.00, " in budget.differs(row)
    assert budget.differs(row).endswith("the books charge $30.00 at the prices in force")
    assert ["", ""] == [budget.differs({**row, "books": books}) for books in (10.1, None)]


def test_a_change_of_prices_names_the_budgets_that_keep_what_they_counted() -> None:
    rules = (NamedBudget("money", micro_usd=5_000_000), NamedBudget("hours", gpu_ms=3_600_000))
    live = Settings(budgets=rules, prices={"H100": 1})
    (note,) = _counted_before(live, replace(live, prices={"H100": 2}))
    assert note.startswith("prices change: what is spent of budget money stays counted at the earlier prices")
    assert [] == _counted_before(live, live)
    assert [] == _counted_before(replace(live, budgets=()), replace(live, prices={}))
