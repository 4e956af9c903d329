"""Named budgets in decisions: what counts, what is set aside, what a soft one does, and when windows turn."""

from datetime import UTC, datetime

import pytest

from gpuyard.core.explain.admission import unpayable_reason
from gpuyard.core.explain.explain import explain
from gpuyard.core.quota.budgets import Spend, make_spend, window_at
from gpuyard.core.state import dump
from gpuyard.model import (
    BudgetAction,
    ConfigSet,
    JobClass,
    NamedBudget,
    RaiseNamedBudget,
    ReasonCode,
    Settings,
    Window,
)
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI, NO_LIMIT_MS
from gpuyard.testing import nodes
from harness.machines.checked import CheckedYard
from harness.yard import Yard

S = 1000
CLASSES = (JobClass("batch", limit_ms=NO_LIMIT_MS), JobClass("low", -5, limit_ms=NO_LIMIT_MS))


def budgeted(*rules: NamedBudget, policy: str = "fifo", **fields: object) -> Yard:
    # The judge of plans counts GPU time alone.
    here = (Yard if fields else CheckedYard)(policy, nodes(1))
    set_to(here, *rules, **fields)
    return here


def set_to(here: Yard, *rules: NamedBudget, **fields: object) -> None:
    here.apply(ConfigSet(here.now_ms, Settings(classes=CLASSES, budgets=rules, **fields)))  # type: ignore[arg-type]


def spend(here: Yard, name: str) -> Spend:
    found = here.state.tenants.spend[here.state.tenants.budget_row[name]]
    assert found is not None
    return found


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("window", "days", "begins", "ends"),
    [
        (Window.WEEK, 0, "2026-11-16", "2026-11-23"),
        (Window.MONTH, 0, "2026-11-01", "2026-12-01"),
        (Window.QUARTER, 0, "2026-10-01", "2027-01-01"),
        (Window.ROLLING, 30, "2026-10-19", "2026-11-18"),
    ],
)
def test_windows_are_whole_days(window: Window, days: int, begins: str, ends: str) -> None:
    for at in ("2026-11-17T00:00:00", "2026-11-17T23:59:59"):
        assert (ms(begins), ms(ends)) == window_at(window, days, ms(at))


def test_a_budget_counts_limits_before_and_use_after() -> None:
    here = budgeted(NamedBudget("lab", 100 * S, tenant="a"))
    first = here.submit(8, tenant="a/x", limit_ms=10 * S)
    here.step()
    here.wait(5 * S)
    here.end(first)
    assert (40 * S * MILLI, 0) == (spend(here, "lab").spent, spend(here, "lab").committed)
    second = here.submit(7, tenant="a", limit_ms=10 * S)
    assert ReasonCode.BUDGET is here.code(here.step(), second)
    other = here.submit(7, tenant="ab", limit_ms=10 * S)
    assert [other] == here.started(here.step())


def test_a_budget_of_a_class_counts_no_other_class() -> None:
    here = budgeted(NamedBudget("cheap", 50 * S, klass="low"))
    low = here.submit(6, klass="low", limit_ms=10 * S)
    other = here.submit(6, limit_ms=10 * S)
    plan = here.step()
    assert (ReasonCode.BUDGET, [other]) == (here.code(plan, low), here.started(plan))


def test_nobody_else_spends_the_budget_of_a_project_by_naming_it() -> None:
    llama = (("project", "llama"),)
    here = budgeted(NamedBudget("llama", 50 * S, labels=llama, users=("ana",)), prices={"H100": 1})
    hostile = here.submit(6, limit_ms=1000 * S, labels=llama, user="eve")
    ours = here.submit(2, limit_ms=10 * S, labels=llama, user="ana")
    assert [hostile, ours] == [start.job_id for start in here.decide().starts]
    here.commit(here.decide())
    assert 20 * S * MILLI == spend(here, "llama").committed
    more = here.submit(1, limit_ms=31 * S, labels=llama, user="ana")
    state = here.state
    assert unpayable_reason(state, state.jobs[more].job.spec, 51 * S) is not None
    assert unpayable_reason(state, state.jobs[hostile].job.spec, 51 * S) is None


def test_a_budget_of_labels_counts_jobs_that_have_all_of_them() -> None:
    here = budgeted(NamedBudget("llama", 50 * S, labels=(("project", "llama"), ("team", "x"))))
    lone, both = (("project", "llama"),), (("project", "llama"), ("team", "x"), ("note", "y"))
    free = here.submit(6, limit_ms=10 * S, labels=lone)
    bound = here.submit(6, limit_ms=10 * S, labels=both)
    plan = here.step()
    assert (ReasonCode.BUDGET, [free]) == (here.code(plan, bound), here.started(plan))


def test_money_goes_by_the_price_of_the_gpus() -> None:
    """Eight GPUs at 3.60 USD an hour cost 0.008 USD a second: 20 s are 0.16 USD, and 30 s too much."""
    here = budgeted(NamedBudget("usd", micro_usd=200_000), prices={"H100": 3_600_000})
    long = here.submit(8, limit_ms=30 * S)
    short = here.submit(8, limit_ms=20 * S)
    plan = here.step()
    assert (ReasonCode.BUDGET, [short]) == (here.code(plan, long), here.started(plan))
    here.wait(10 * S)
    here.end(short)
    assert 80_000 * MILLI * HOUR_MS == spend(here, "usd").spent


def test_a_new_price_counts_for_what_runs() -> None:
    here = budgeted(NamedBudget("usd", micro_usd=10_000_000), prices={"H100": 3_600_000})
    here.submit(1, limit_ms=20 * S)
    here.step()
    before = spend(here, "usd").committed
    set_to(here, NamedBudget("usd", micro_usd=10_000_000), prices={"H100": 7_200_000})
    assert 2 * before == spend(here, "usd").committed


def test_without_a_time_limit_a_job_cannot_be_counted() -> None:
    here = budgeted(NamedBudget("lab", 100 * S))
    job = here.submit(1)
    assert ReasonCode.NO_TIME_LIMIT is here.code(here.step(), job)
    reason = unpayable_reason(here.state, here.state.jobs[job].job.spec, NO_LIMIT_MS)
    assert reason is not None
    assert "the budget lab counts this job, and a job without a time limit" in reason.text


def test_a_job_says_which_budget_it_waits_for_and_what_would_help() -> None:
    here = budgeted(NamedBudget("lab", 100 * S * 3600))
    here.submit(8, limit_ms=11 * S * 3600)
    here.step()
    job = here.submit(2, limit_ms=10 * S * 3600)
    told = explain(here.state, here.policy, job, here.now_ms)
    assert told is not None
    (reason,) = [each for each in told.reasons if each.code is ReasonCode.BUDGET]
    assert reason.text == (
        "the budget lab is 100 GPU-hours: 0 spent, 88 set aside for what runs or is promised room, and this job may "
        "take 20; it renews in 31 d"
    )
    assert RaiseNamedBudget("lab", 108 * S * 3600) == reason.lift


def test_what_is_promised_room_has_its_cost_set_aside() -> None:
    """40 of 100 run until 10 s, then a job of 50 has its room: of the 10 that are left, a job of 20 gets nothing."""
    here = budgeted(NamedBudget("lab", 100 * S))
    here.submit(4, limit_ms=10 * S)
    here.step()
    here.submit(5, limit_ms=10 * S)
    greedy = here.submit(4, limit_ms=5 * S)
    modest = here.submit(2, limit_ms=5 * S)
    plan = here.step()
    assert (ReasonCode.BUDGET, [modest]) == (here.code(plan, greedy), here.started(plan))


@pytest.mark.parametrize("policy", ["fifo", "fair", "default", "conservative"])
def test_jobs_over_a_soft_budget_go_behind_all_others(policy: str) -> None:
    rule = NamedBudget("lab", 10 * S, tenant="a", action=BudgetAction.SOFT)
    here = budgeted(rule, policy=policy)
    first = here.submit(8, tenant="a", limit_ms=10 * S)
    assert [first] == here.started(here.step()), "nothing is spent yet"
    over = here.submit(8, tenant="a", limit_ms=10 * S)
    within = here.submit(8, tenant="b", limit_ms=10 * S)
    here.wait(10 * S)
    here.end(first)
    here.step()
    assert [within] == here.running()
    here.wait(10 * S)
    here.end(within)
    here.step()
    assert [over] == here.running(), "nobody else wants the room"


def test_a_warning_budget_stops_nobody() -> None:
    here = budgeted(NamedBudget("lab", 10 * S, action=BudgetAction.WARN))
    job = here.submit(8)
    assert [job] == here.started(here.step())


def test_a_budget_below_what_is_spent_lets_nobody_start_and_stops_nobody() -> None:
    here = budgeted(NamedBudget("lab", 100 * S))
    first = here.submit(4, limit_ms=20 * S)
    here.step()
    set_to(here, NamedBudget("lab", 10 * S))
    second = here.submit(1, limit_ms=S)
    assert ReasonCode.BUDGET is here.code(here.step(), second)
    assert [first] == here.running()


def test_what_was_spent_survives_a_dump_and_new_settings() -> None:
    here = budgeted(NamedBudget("lab", 100 * S), NamedBudget("days", 100 * S, window=Window.ROLLING, days=3))
    job = here.submit(4, limit_ms=20 * S)
    here.step()
    here.wait(10 * S)
    here.end(job)
    set_to(here, NamedBudget("lab", 50 * S), NamedBudget("days", 60 * S, window=Window.ROLLING, days=3))
    again = dump.load(dump.dump(here.state))
    for state in (here.state, again):
        for name in ("lab", "days"):
            found = state.tenants.spend[state.tenants.budget_row[name]]
            assert found is not None
            assert 40 * S * MILLI == found.spent
    assert dump.canonical(here.state) == dump.canonical(again)


def test_dumps_without_budgets_are_as_they_were() -> None:
    plain = dump.dump(Yard("fifo", nodes(1)).state)
    assert "budgets" not in plain
    assert "budgets" not in plain["settings"]


def test_a_window_that_rolls_drops_its_oldest_day() -> None:
    found = make_spend(NamedBudget("days", 10**9, window=Window.ROLLING, days=2))
    found.open(10 * DAY_MS)
    found.pay(MILLI, 8 * DAY_MS, 10 * DAY_MS + HOUR_MS)
    assert MILLI * (DAY_MS + HOUR_MS) == found.spent, "the eighth day is not in the window"
    found.open(11 * DAY_MS)
    assert MILLI * HOUR_MS == found.spent
    found.open(12 * DAY_MS)
    assert 0 == found.spent
