"""Research 60 %, product 40 %, serving on slices of 1g.5gb and 2g.10gb: statements against what really ran.

The control loop runs over a simulated engine; the world of the engine, from which no answer is made, says what ran and
when. `GPUYARD_PAGES=DIR` has the statements of the quarter written there, as pages too.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL
from gpuyard.ledger.units import month_days, read_day
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports import cost, savings
from gpuyard.reports.money import statement
from gpuyard.reports.money.cost_page import cost_page
from gpuyard.reports.money.statement_page import statement_page
from gpuyard.reports.report import Report
from gpuyard.store import open_store
from harness.three_teams import PRICE_MICRO_USD_H, Simulated, month_ms

TEAMS = ("product", "research", "serving")


def asked(readings: Any, report: Report[Any], **values: str) -> dict[str, Any]:
    """A report as its reply."""
    given = {each["name"]: "" for each in report.endpoint.parameters} | values
    table = report.build(readings, given, ALL)
    return {report.rows: list(table.rows), **table.head}


def held_against_what_ran(yard: Simulated, readings: Any, months: tuple[str, ...]) -> Counter[str]:
    """Every statement is what ran, to the slice-second and to the rounding of its entries; slice-seconds by team."""
    counted: Counter[str] = Counter()
    for month in months:
        for team in TEAMS:
            found = asked(readings, statement.REPORT, tenant=team, month=month)
            (total,) = [line for line in found["lines"] if line["part"] == "total"]
            runs = [ran for wish, ran in yard.ran() if wish.tenant == team and ran.within(*month_ms(month))]
            ran_ms = sum([ran.within(*month_ms(month)) for ran in runs])
            charged_s = total["charged_gpu_hours"] * 3600 * 7
            slice_s = round(charged_s)
            assert abs(ran_ms / 1000 - charged_s) < 0.5, f"{team} in {month}"
            owed = (2 * ran_ms * PRICE_MICRO_USD_H + 7 * HOUR_MS) // (2 * 7 * HOUR_MS)
            # An entry is rounded by itself, and there are at most as many as runs on each day.
            entries = sum([ran.ended_ms // DAY_MS - ran.started_ms // DAY_MS + 1 for ran in runs])
            assert abs(owed - found["charged_micro_usd"]) <= (entries + 1) // 2, f"{team} in {month}"
            counted[team] += slice_s
    return counted


def balanced(yard: Simulated, readings: Any, first: str, last: str) -> None:
    """All kinds of time together are eight GPUs times the time, and nobody has time that is not his."""
    found = asked(readings, cost.REPORT, by="tenant", **{"from": first, "to": last})
    whole = sum([sum([line[f"{kind}_gpu_hours"] for kind in cost.KINDS]) for line in found["lines"]])
    span_ms = min(yard.yard.now_ms, 86_400_000 * (read_day(last) + 1)) - 86_400_000 * read_day(first)
    assert whole == pytest.approx(8 * span_ms / HOUR_MS, abs=1e-4)
    assert {"", *TEAMS} == {line["tenant"] for line in found["lines"]}


def test_two_days_are_charged_to_the_slice_second(tmp_path: Path) -> None:
    with open_store(tmp_path / "yard.db") as store:
        # The last day of a month and the first of the next one.
        yard = Simulated(store, seed=3, first_day=read_day("2026-07-31"), days=2, jobs=60)
        yard.run()
        readings = yard.readings()
        seconds = held_against_what_ran(yard, readings, ("2026-07", "2026-08"))
        assert set(TEAMS) == set(seconds)
        assert {"1g.5gb", "2g.10gb", ""} == {wish.profile for wish, _ran in yard.ran()}
        balanced(yard, readings, "2026-07-31", "2026-08-01")


@pytest.mark.soak
def test_a_quarter_is_charged_to_the_slice_second(tmp_path: Path) -> None:
    first, after = read_day("2026-07-01"), month_days("2026-09")[1]
    with open_store(tmp_path / "yard.db") as store:
        yard = Simulated(store, seed=7, first_day=first, days=after - first, jobs=3_000)
        yard.closes = ("2026-07", "2026-08")
        yard.run()
        readings = yard.readings()
        months = ("2026-07", "2026-08", "2026-09")
        seconds = held_against_what_ran(yard, readings, months)
        balanced(yard, readings, "2026-07-01", "2026-09-30")
        attempts = len(yard.yard.engine.world.runs)
        print(f"{len(yard.jobs)} jobs, {attempts} attempts; slice-seconds: {dict(seconds)}")
        assert attempts > len(yard.jobs), "some were stopped for others, and ran again"
        if "GPUYARD_PAGES" in os.environ:
            _write_pages(readings, Path(os.environ["GPUYARD_PAGES"]))


@pytest.mark.soak
def test_a_planted_change_between_two_simulated_months_is_found(tmp_path: Path) -> None:
    """From November on jobs use 20 of a hundred more of what they have; all else is drawn as before."""
    first, after = month_days("2026-10")[0], month_days("2026-11")[1]
    with open_store(tmp_path / "yard.db") as store:
        yard = Simulated(store, seed=5, first_day=first, days=after - first, jobs=900)
        yard.better_ms = month_ms("2026-11")[0]
        yard.run()
        readings = yard.readings()
        readings.now_ms -= 1
        found = asked(readings, savings.REPORT, month="2026-11", baseline="2026-10")
    (waste,) = [line for line in found["lines"] if line["what"] == "wasted"]
    begins, ends = month_ms("2026-11")
    # Jobs that began in October are as they were.
    better = sum([ran.within(begins, ends) for _wish, ran in yard.ran() if ran.started_ms >= begins])
    planted = 0.20 * better / (7 * HOUR_MS)
    print(f"planted {planted:.1f} GPU-hours, found {waste['saved_gpu_hours']:.1f}")
    assert planted == pytest.approx(waste["saved_gpu_hours"], rel=0.05)


def _write_pages(readings: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for team in TEAMS:
        found = asked(readings, statement.REPORT, tenant=team, month="2026-08")
        (folder / f"{team}.json").write_text(json.dumps(found), encoding="utf-8")
        (folder / f"{team}.html").write_text(statement_page(found), encoding="utf-8")
    values = {"by": "tenant,project", "from": "2026-07-01", "to": "2026-09-30"}
    page = cost_page(lambda given: asked(readings, cost.REPORT, **given), values)
    (folder / "cost.html").write_text(page, encoding="utf-8")
