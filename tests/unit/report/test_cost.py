"""What GPU time cost, on a history that was planted: two tenants, a node without a job, and who sees what of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.errors import BadInput
from gpuyard.ledger.accounts import DIMENSIONS
from gpuyard.ledger.units import CATEGORIES
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
    NodeAdded,
    Outcome,
    Price,
    Settings,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports.cost import KINDS, REPORT, BooksLine, build
from gpuyard.reports.table import Table
from gpuyard.store import Submission, open_store
from gpuyard.testing.values import ask, node

DAY = 20_769
"""2026-11-12."""
BEGIN_MS = DAY * DAY_MS


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Ann of research has 2 GPUs for 10 h, Bob of product 1 GPU of another model from the same hour on, still."""

    def submitted(first_id: int) -> list[Event]:
        whose = (
            ("org/research", "ann", (("project", "vision"), ("stage", "eval"))),
            ("org/product", "bob", ()),
        )
        return [
            JobSubmitted(BEGIN_MS, Job(first_id + i, spec, BEGIN_MS))
            for i, (tenant, user, labels) in enumerate(whose)
            for spec in [JobSpec(tenant, ask(1), user=user, labels=labels)]
        ]

    path = Path(tmp_path_factory.mktemp("cost")) / "yard.db"
    with open_store(path) as store:
        lease = store.elect("test")
        assert lease is not None
        prices = (Price(2_000_000, "H100", from_day=DAY), Price(3_000_000, "H100", from_day=DAY + 1))
        store.append(
            [
                ConfigSet(BEGIN_MS, Settings(prices={"A100-80GB": 1_000_000}, price_book=prices)),
                NodeAdded(BEGIN_MS, node("h", gpus=4)),
                NodeAdded(BEGIN_MS, node("a", gpus=2, model="A100-80GB")),
            ]
        )
        store.submit([Submission(submitted, 2)], BEGIN_MS)
        store.append(
            [
                AttemptStarted(BEGIN_MS, 1, 1, (Grant(0, 0b11, 1000, 0, 0, 1),)),
                AttemptConfirmed(BEGIN_MS, 1, 1),
                AttemptStarted(BEGIN_MS, 2, 1, (Grant(1, 0b1, 1000, 0, 0, 1),)),
                AttemptConfirmed(BEGIN_MS, 2, 1),
                AttemptEnded(BEGIN_MS + 10 * HOUR_MS, 1, 1, Outcome.COMPLETED),
            ]
        )
        filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
        while filler.step(lease.epoch):
            pass
        yield SimpleNamespace(store=store, now_ms=BEGIN_MS + 30 * HOUR_MS)


def cost(readings: Any, by: str = "", first: str = "", last: str = "", sight: Sight = ALL) -> Table:
    return build(readings, {"by": by, "from": first, "to": last}, sight)


def lines(table: Table) -> dict[tuple[str, ...], tuple[float, int]]:
    """GPU-hours and dollars by what they are about."""
    by = table.head["by"]
    return {
        tuple([row[name] for name in by]): (
            sum([row[f"{kind}_gpu_hours"] for kind in KINDS]),
            row["charged_micro_usd"] // 1_000_000,
        )
        for row in table.rows
    }


def test_the_lines_add_up_to_the_fleet(readings: Any) -> None:
    found = cost(readings)
    # Of 6 GPUs in 30 h, research had 20 GPU-hours and product 30.
    assert {("",): (130, 0), ("org/product",): (30, 30), ("org/research",): (20, 40)} == lines(found)
    head = found.head
    # Four H100 for 24 h at 2 USD and for 6 h at 3 USD; two A100 for 30 h at 1 USD.
    assert 4 * (24 * 2 + 6 * 3) + 2 * 30 == head["fleet_micro_usd"] / 1_000_000
    assert head["fleet_micro_usd"] == head["charged_micro_usd"] + head["not_charged_micro_usd"]
    assert ("2026-11-01", "2026-11-13") == (head["from_day"], head["to_day"])


def test_by_any_dimensions_and_for_some_days(readings: Any) -> None:
    by_user = lines(cost(readings, "user,model", "2026-11-12", "2026-11-12"))
    assert {
        ("", "A100-80GB"): (24, 0),
        ("", "H100"): (76, 0),
        ("ann", "H100"): (20, 40),
        ("bob", "A100-80GB"): (24, 24),
    } == by_user
    # Whatever it is summed up by, both columns together are the cost of the fleet.
    for by in ("model", "user,model", "day", "project", "label:stage,tenant", "month,market"):
        rows = cost(readings, by).rows
        both = [row["charged_micro_usd"] + row["not_charged_micro_usd"] for row in rows]
        assert 324_000_000 == sum(both)
    found = cost(readings, "model")
    assert [28_000_000 + 2_000_000, 264_000_000 - 40_000_000] == [
        row["not_charged_micro_usd"] for row in found.rows
    ]
    assert {("2026-11-12",): (144, 64), ("2026-11-13",): (36, 6)} == lines(cost(readings, "day"))
    assert {} == lines(cost(readings, "day", "2026-10-01", "2026-10-31"))


def test_a_tenants_money_is_seen_by_the_tenant_and_those_above_it_alone(readings: Any) -> None:
    mine = cost(readings, "tenant", sight=Sight(("org/research",)))
    assert {("org/research",): (20, 40)} == lines(mine)
    assert (None, None) == (mine.head["fleet_micro_usd"], mine.head["not_charged_micro_usd"])
    assert [None] == [row["not_charged_micro_usd"] for row in mine.rows]
    # By another dimension too: nothing of another tenant is in any sum.
    assert {("H100",): (20, 40)} == lines(cost(readings, "model", sight=Sight(("org/research",))))
    assert {("org/product",), ("org/research",)} == lines(cost(readings, sight=Sight(("org",)))).keys()
    assert {} == lines(cost(readings, "day", sight=Sight(("org/other", "org/res"))))


@pytest.mark.parametrize(
    ("by", "first", "last", "wrong"),
    [
        ("tenat", "", "", "'tenat' is not a dimension; did you mean 'tenant'?"),
        ("", "12.11.2026", "", "'12.11.2026' is not a day"),
        ("", "2026-11-13", "2026-11-12", "2026-11-13, is after the last one, 2026-11-12"),
    ],
)
def test_bad_input_is_told(readings: Any, by: str, first: str, last: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        cost(readings, by, first, last)


def test_the_kinds_of_time_are_those_of_the_books() -> None:
    assert sorted(CATEGORIES) == sorted(KINDS)
    assert {*DIMENSIONS, "labels"} == BooksLine.__optional_keys__


def test_projects_and_labels_are_dimensions(readings: Any) -> None:
    assert {("",): (160, 30), ("vision",): (20, 40)} == lines(cost(readings, "project"))
    found = cost(readings, "label:stage,tenant")
    told = [(row["labels"], row["tenant"], row["charged_micro_usd"]) for row in found.rows]
    assert [
        ({"stage": ""}, "", 0),
        ({"stage": ""}, "org/product", 30_000_000),
        ({"stage": "eval"}, "org/research", 40_000_000),
    ] == told
    cells = [
        [column.cell(row) for column in REPORT.columns({"lines": found.rows, **found.head})][:2]
        for row in found.rows
    ]
    assert [["(none)", "(no job)"], ["(none)", "org/product"], ["eval", "org/research"]] == cells


def test_the_table_says_how_it_balances(readings: Any) -> None:
    found = cost(readings, "tenant")
    cells = [
        [column.cell(row) for column in REPORT.columns({"lines": found.rows, **found.head})]
        for row in found.rows
    ]
    assert ["(no job)", "org/product", "org/research"] == [line[0] for line in cells]
    assert ["$0.00", "$30.00", "$40.00"] == [line[-2] for line in cells]
    assert ["$254.00", "-", "-"] == [line[-1] for line in cells]
    (note,) = REPORT.notes({"lines": found.rows, **found.head})
    assert "$70.00 charged + $254.00 not charged = $324.00, the cost of the fleet" in note
