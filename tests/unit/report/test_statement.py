"""A statement of one tenant and month, on a history that was planted, and the pages about money."""

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.cli.commands import reports as commands
from gpuyard.cli.line.options import PageOutput
from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.projections.waits import Waits
from gpuyard.control.refusals import NotFound
from gpuyard.core.explain.budget_use import NamedUse
from gpuyard.errors import BadInput
from gpuyard.extras import install_text
from gpuyard.ledger.units import month_days
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    MonthClosed,
    NamedBudget,
    NodeAdded,
    Outcome,
    Price,
    Settings,
    WaitLine,
    WaitsSeen,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports import cost
from gpuyard.reports.money import statement
from gpuyard.reports.money.cost_page import cost_page
from gpuyard.reports.money.statement_page import statement_page
from gpuyard.store import Submission, open_store
from gpuyard.testing.values import ask, node
from rigs.components import skip_or_fail

FIRST = month_days("2026-11")[0]
NOVEMBER = FIRST * DAY_MS
NOW_MS = NOVEMBER + 12 * DAY_MS
RULES = (
    NamedBudget("money", micro_usd=100_000_000, tenant="org/research"),
    NamedBudget("hours", gpu_ms=50 * HOUR_MS, tenant="org"),
    NamedBudget("theirs", gpu_ms=50 * HOUR_MS, tenant="org/product"),
)
WHOSE = (
    ("org/research", "ann", (("project", "vision"),)),
    ("org/research/lab", "<b>bob</b>", ()),
    ("org/product", "cid", ()),
)


def history() -> list[Event]:
    """Ann's job runs 10 h on the last day of October and 20 h in November with 2 GPUs, of which 15 h are measured.
    Bob's takes 4 h of one GPU, at the price of the 10th. October is closed on the 3rd, and on the 4th it is learned
    what Ann's job did in October. Cid's job is another tenant's."""
    october, spans = NOVEMBER - 10 * HOUR_MS, ((NOVEMBER, NOVEMBER + 15 * HOUR_MS),)
    late = ((october, NOVEMBER),)
    tenth = NOVEMBER + 9 * DAY_MS
    return [
        AttemptStarted(october, 1, 1, (Grant(0, 0b11, 1000, 0, 0, 1),)),
        AttemptConfirmed(october, 1, 1),
        AttemptStarted(october, 3, 1, (Grant(0, 0b100, 1000, 0, 0, 1),)),
        AttemptConfirmed(october, 3, 1),
        AttemptMeasured(
            spans[0][1], 1, 1, *spans[0], 30 * HOUR_MS, 30 * HOUR_MS, 18 * HOUR_MS, spans=spans
        ),
        AttemptEnded(NOVEMBER + 20 * HOUR_MS, 1, 1, Outcome.COMPLETED),
        WaitsSeen(
            NOVEMBER + 21 * HOUR_MS, NOVEMBER + 20 * HOUR_MS, NOVEMBER + 21 * HOUR_MS,
            (
                WaitLine("org/research", "", 2000, "quota", 6 * HOUR_MS, 3 * HOUR_MS),
                WaitLine("org/product", "", 1000, "hold", HOUR_MS, HOUR_MS),
            ),
        ),
        MonthClosed(NOVEMBER + 2 * DAY_MS, "2026-10"),
        AttemptMeasured(
            NOVEMBER + 3 * DAY_MS, 1, 1, *late[0], 20 * HOUR_MS, 20 * HOUR_MS, 20 * HOUR_MS, spans=late
        ),
        AttemptStarted(tenth, 2, 1, (Grant(0, 0b1000, 1000, 0, 0, 1),)),
        AttemptConfirmed(tenth, 2, 1),
        AttemptEnded(tenth + 4 * HOUR_MS, 2, 1, Outcome.COMPLETED),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def submitted(first_id: int) -> list[Event]:
        return [
            JobSubmitted(
                NOVEMBER - DAY_MS, Job(first_id + i, JobSpec(tenant, ask(1), user=user, labels=labels), 0)
            )
            for i, (tenant, user, labels) in enumerate(WHOSE)
        ]

    with open_store(Path(tmp_path_factory.mktemp("statement")) / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        prices = (Price(2_000_000, "H100"), Price(3_000_000, "H100", from_day=FIRST + 9))
        began_ms = NOVEMBER - DAY_MS
        store.append(
            [
                ConfigSet(began_ms, Settings(price_book=prices)),
                NodeAdded(began_ms, node("h", gpus=4, pool="h100")),
            ]
        )
        store.submit([Submission(submitted, len(WHOSE))], began_ms)
        store.append(history())
        filler = Filler(store, [Ledger(), Waits()], lambda: NOW_MS)
        while filler.step(lease.epoch):
            pass
        assert {} == filler.errors
        uses = [NamedUse(rule, (rule.micro_usd or rule.gpu_ms) * unit, 0, 0, NOVEMBER, NOW_MS, (), ()) for rule in RULES
                for unit in [3_600_000 * 1000 if rule.micro_usd else 1000]]  # fmt: skip
        configs = SimpleNamespace(budgets=lambda: [(use, 80) for use in uses], tenants=lambda _sight: [])
        yield SimpleNamespace(store=store, now_ms=NOW_MS, configs=configs)


def reply(readings: Any, tenant: str = "org/research", month: str = "", sight: Sight = ALL) -> dict[str, Any]:
    table = statement.build(readings, {"tenant": tenant, "month": month}, sight)
    return {"lines": list(table.rows), **table.head}


def part(found: dict[str, Any], name: str) -> dict[str, tuple[float, int]]:
    """GPU-hours that are charged, and dollars, by line."""
    return {
        line["name"]: (line["charged_gpu_hours"], line["charged_micro_usd"] // 1_000_000)
        for line in found["lines"]
        if line["part"] == name
    }


def test_every_part_adds_up_to_the_total(readings: Any) -> None:
    found = reply(readings)
    assert {"": (44, 92)} == part(found, "total")
    assert {"org/research": (40, 80), "org/research/lab": (4, 12)} == part(found, "tenant")
    assert {"ann": (40, 80), "<b>bob</b>": (4, 12)} == part(found, "user")
    assert {"vision": (40, 80), "": (4, 12)} == part(found, "project")
    assert {"2026-11-01": (40, 80), "2026-11-10": (4, 12), "2026-11-04": (0, 0)} == part(found, "day")
    prices = [
        (line["name"], line["price_micro_usd_h"], line["charged_gpu_hours"])
        for line in found["lines"]
        if line["part"] == "price"
    ]
    assert [("H100 in h100, reserved", 2_000_000, 40), ("H100 in h100, reserved", 3_000_000, 4)] == prices
    for kind in statement.KINDS:
        sums = dict.fromkeys(statement.PARTS, 0.0)
        for line in found["lines"]:
            sums[line["part"]] += line[f"{kind}_gpu_hours"]
        assert {sums["total"]} == {round(sums[name], 6) for name in statement.PARTS if name != "correction"}


def test_what_is_learned_about_a_closed_month_is_a_correction_of_the_open_one(readings: Any) -> None:
    found = reply(readings)
    (line,) = [line for line in found["lines"] if line["part"] == "correction"]
    assert "2026-10-31, learned 2026-11-04" == line["name"]
    assert (20, -20, 0) == (line["used_gpu_hours"], line["unmeasured_gpu_hours"], line["charged_micro_usd"])
    october = reply(readings, month="2026-10")
    assert (True, 40_000_000) == (october["closed"], october["charged_micro_usd"])
    assert {"2026-10-31": (20, 40)} == part(october, "day")
    assert (False, "2026-10", 40_000_000) == (
        found["closed"],
        found["before"]["month"],
        found["before"]["charged_micro_usd"],
    )


def test_waste_waits_and_budgets_are_the_tenants_own(readings: Any) -> None:
    found = reply(readings)
    total = found["lines"][0]
    assert (12, 24_000_000) == (total["wasted_gpu_hours"], total["wasted_micro_usd"])
    assert [{"reason": "quota", "gpu_hours": 6.0, "job_hours": 3.0}] == found["waits"]
    assert [("money", 92.0), ("hours", 44.0)] == [
        (budget["budget"], budget["spent_in_month"]) for budget in found["budgets"]
    ]
    assert [100.0, 50.0] == [budget["left"] for budget in found["budgets"]]
    past = reply(readings, month="2026-10")
    assert [(None, None), (None, None)] == [(each["left"], each["renews_ms"]) for each in past["budgets"]]


def test_a_tenants_statement_is_for_the_tenant_and_those_above_it(readings: Any) -> None:
    mine = Sight(("org/research",))
    assert 92_000_000 == reply(readings, "", sight=mine)["charged_micro_usd"]
    assert ["money"] == [budget["budget"] for budget in reply(readings, "", sight=mine)["budgets"]]
    assert 12_000_000 == reply(readings, "org/research/lab", sight=mine)["charged_micro_usd"]
    for tenant in ("org", "org/product", "org/res", "nope"):
        with pytest.raises(NotFound, match=f"no tenant '{tenant}'; .*org/research"):
            reply(readings, tenant, sight=mine)
    # Three GPUs from October 31 on, and Bob's: what no job had is in no statement.
    assert 92_000_000 + 2_000_000 * 9 * 24 + 3_000_000 * 3 * 24 == reply(readings, "org")["charged_micro_usd"]


@pytest.mark.parametrize(
    ("tenant", "month", "wrong"),
    [
        ("", "", "a statement is of one tenant"),
        ("org", "november", "is not a month"),
        ("org", "2027-01", "2027-01 has not begun"),
    ],
)
def test_bad_input_is_told(readings: Any, tenant: str, month: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        reply(readings, tenant, month)


def test_the_table_says_it_in_words(readings: Any) -> None:
    found = reply(readings)
    names = [statement.named(line) for line in found["lines"]]
    assert {"", "(none)", "H100 in h100, reserved: $3.00 an hour"} < set(names)
    first, waits, *budgets = statement.REPORT.notes(found)
    assert (
        "org/research, 2026-11-01 to 2026-11-13, UTC, open: $92.00 charged, $24.00 of it for wasted time"
        in first
    )
    assert "GPU-hours waited for: quota 6.00" == waits
    assert [
        "budget money of $100.00 a month (hard): $92.00 of it in this month by the books; "
        "$100.00 left now, as the budget counts",
        "budget hours of 50.00 GPU-hours a month (hard): 44.00 GPU-hours of it in this month; "
        "50.00 GPU-hours left now, as the budget counts",
    ] == budgets


def test_the_page_of_a_statement_escapes_names_and_runs_nothing(readings: Any) -> None:
    page = statement_page(json.loads(json.dumps(reply(readings))))
    assert "&lt;b&gt;bob&lt;/b&gt;" in page
    assert "<b>bob" not in page
    assert "<script" not in page
    assert "script-src" not in page
    assert "default-src &#x27;none&#x27;" in page
    for said in (
        "org/research, November 2026",
        "$92.00",
        "2026-10-31, learned 2026-11-04",
        "H100 in h100, reserved",
    ):
        assert said in page, said
    assert statement_page(reply(readings, month="2026-10")).startswith("<!doctype html>")
    assert not re.findall(r'(?:src|href)="', page)


@pytest.mark.parametrize(("passed_h", "booked"), [(0.5, False), (9, True)])
def test_what_a_running_job_does_is_not_booked_yet_before_nobody_measured_it(
    tmp_path: Path, passed_h: float, booked: bool
) -> None:
    """A job that is watched is in the books after some minutes; if nobody told of it for an hour, nobody will."""

    def submitted(first_id: int) -> list[Event]:
        return [JobSubmitted(NOVEMBER, Job(first_id, JobSpec("org", ask(1), user="ann"), NOVEMBER))]

    with open_store(tmp_path / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        store.append(
            [
                ConfigSet(NOVEMBER, Settings(price_book=(Price(2_000_000, "H100"),))),
                NodeAdded(NOVEMBER, node("h")),
            ]
        )
        store.submit([Submission(submitted, 1)], NOVEMBER)
        store.append(
            [
                AttemptStarted(NOVEMBER, 1, 1, (Grant(0, 0b1, 1000, 0, 0, 1),)),
                AttemptConfirmed(NOVEMBER, 1, 1),
            ]
        )
        filler = Filler(store, [Ledger()], lambda: NOVEMBER)
        while filler.step(lease.epoch):
            pass
        configs = SimpleNamespace(budgets=list, tenants=lambda _sight: [])
        here = SimpleNamespace(store=store, now_ms=NOVEMBER + int(passed_h * HOUR_MS), configs=configs)
        costs, month = cost.build(here, {"by": "", "from": "", "to": ""}, ALL), reply(here, "org", "2026-11")

    told = [cost.REPORT.notes({"lines": costs.rows, **costs.head}), statement.REPORT.notes(month)]
    said = f"not booked yet: what running jobs did with {passed_h:.2f} of the unmeasured GPU-hours"
    assert [not booked] * 2 == [any([said in note for note in notes]) for notes in told], told
    page = statement_page(month)
    assert [not booked, booked] == [
        f"What its jobs did with their GPUs {words}." in page
        for words in ("is not booked yet", "was measured by nobody")
    ]


def test_the_page_of_costs_draws_days_and_months(readings: Any) -> None:
    def asked(values: Any) -> dict[str, Any]:
        table = cost.build(readings, {"by": "", "from": "", "to": "", **values}, ALL)
        return {"lines": list(table.rows), **table.head}

    page = cost_page(asked, {"by": "tenant,label:project", "from": "2026-10-31"})
    assert "31 Oct, org/research: $40<" in page
    assert "org/research, vision" in page
    assert "<script" not in page
    assert "Oct 2026, charged: " in cost_page(asked, {"by": "month", "from": "2026-01-01"})
    assert "Nothing was charged" in cost_page(asked, {"by": "user", "from": "2026-01-01", "to": "2026-01-31"})


# -- the command -------------------------------------------------------------------------------------------------------


def run(answering_yard: Any, found: dict[str, Any], **options: Any) -> None:
    """The command `yard cost statement`, with a yard that answers this."""
    answering_yard({statement.REPORT.endpoint: found})
    values = {"tenant": "org/research", "month": "", "output": PageOutput.TABLE, **options}
    commands.command(statement.REPORT)(**values)


def test_a_page_is_printed_once_and_whole(
    readings: Any, answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reply(readings)
    run(answering_yard, found, output=PageOutput.HTML)
    assert statement_page(found) == capsys.readouterr().out
    for option in ({"columns": "name"}, {"watch": 2}):
        with pytest.raises(BadInput, match="a page shows all of a report, once"):
            run(answering_yard, found, output=PageOutput.HTML, **option)


def test_a_document_is_the_whole_reply_and_csv_its_lines(
    readings: Any, answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reply(readings)
    run(answering_yard, found, output=PageOutput.JSON)
    assert found == json.loads(capsys.readouterr().out)
    run(answering_yard, found, output=PageOutput.CSV, columns="part,name,charged_micro_usd")
    assert ["part,name,charged_micro_usd", "total,,92000000"] == capsys.readouterr().out.splitlines()[:2]


def test_parquet_says_what_it_needs(
    readings: Any, answering_yard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match="needs pyarrow") as refused:
        run(answering_yard, reply(readings), output=PageOutput.PARQUET)
    assert install_text("parquet") in refused.value.hint


def test_parquet_has_the_lines(readings: Any, answering_yard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        skip_or_fail("pyarrow is not installed: run make setup")
        raise
    found, out = reply(readings), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    run(answering_yard, found, output=PageOutput.PARQUET)
    assert found["lines"] == parquet.read_table(io.BytesIO(out.getvalue())).to_pylist()
