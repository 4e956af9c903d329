"""What budgets have spent is the integral over all attempts, whatever happened, and survives a dump."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from gpuyard.core.explain.budget_use import find_reached, list_named_uses
from gpuyard.core.quota.budgets import Spend, window_at
from gpuyard.core.state import dump
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    BudgetAction,
    ConfigSet,
    Event,
    JobClass,
    JobSpec,
    JobSubmitted,
    NamedBudget,
    Node,
    Settings,
    Ticked,
    Window,
)
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI
from gpuyard.policies import registry
from gpuyard.testing import nodes
from harness.machines import machine
from harness.machines import strategies as some
from harness.yard import Yard

PRICE = 3_600_000
CLASSES = (JobClass("batch", limit_ms=90 * HOUR_MS), JobClass("low", -5, limit_ms=90 * HOUR_MS))
RULES = (
    NamedBudget("week", 900 * HOUR_MS, tenant="a", window=Window.WEEK),
    NamedBudget("month", micro_usd=4_000 * PRICE, window=Window.MONTH),
    NamedBudget("days", 700 * HOUR_MS, klass="low", window=Window.ROLLING, days=3),
    NamedBudget(
        "soft", 400 * HOUR_MS, labels=(("project", "x"),), window=Window.QUARTER, action=BudgetAction.SOFT
    ),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("submit", "submit", "end", "wait")),
        st.integers(1, 8),
        st.sampled_from(("a", "a/u", "b")),
        st.sampled_from(("batch", "low")),
        st.booleans(),
        st.integers(1, 80 * HOUR_MS),
    ),
    min_size=5,
    max_size=40,
)


def _about(rule: NamedBudget, log: list[Event], job_id: int) -> bool:
    (job,) = [each.job for each in log if isinstance(each, JobSubmitted) and each.job.id == job_id]
    spec = job.spec
    tenant = f"{spec.tenant}/".startswith(f"{rule.tenant}/") or not rule.tenant
    return tenant and rule.klass in ("", spec.klass) and set(rule.labels) <= set(spec.labels)


def _integral(rule: NamedBudget, log: list[Event], now_ms: int, running: bool) -> dict[str, int]:
    """What each user spent in the window of now, attempt by attempt: GPU-ms x milli, or times the price."""
    from_ms = window_at(rule.window, rule.days, now_ms)[0]
    ends = {(each.job_id, each.attempt): each.at_ms for each in log if isinstance(each, AttemptEnded)}
    found: dict[str, int] = {}
    for start in [each for each in log if isinstance(each, AttemptStarted)]:
        end_ms = ends.get((start.job_id, start.attempt), now_ms if running else 0)
        ran_ms = end_ms - max(start.at_ms, from_ms)
        if ran_ms > 0 and _about(rule, log, start.job_id):
            (job,) = [e.job for e in log if isinstance(e, JobSubmitted) and e.job.id == start.job_id]
            milli = sum(grant.gpus.bit_count() for grant in start.grants) * MILLI
            user = job.spec.user
            found[user] = found.get(user, 0) + ran_ms * milli * (PRICE if rule.micro_usd else 1)
    return found


def _spend(here: Yard, rule: NamedBudget) -> Spend:
    found = here.state.tenants.spend[here.state.tenants.budget_row[rule.name]]
    assert found is not None
    return found


@given(STEPS)
def test_what_is_spent_is_the_integral_over_all_attempts(
    steps: list[tuple[str, int, str, str, bool, int]],
) -> None:
    here = Yard("fifo", nodes(2))
    settings = Settings(classes=CLASSES, budgets=RULES, prices={"H100": PRICE}, period_ms=DAY_MS)
    here.apply(ConfigSet(0, settings))
    for verb, gpus, tenant, klass, labelled, ms in steps:
        if verb == "submit":
            labels = (("project", "x"),) if labelled else ()
            user = tenant[-1] if tenant != "b" else ""
            here.submit(gpus, tenant=tenant, klass=klass, limit_ms=ms, labels=labels, user=user)
        elif verb == "end" and here.running():
            here.end(here.running()[gpus % len(here.running())])
        else:
            here.now_ms += ms
            # Nobody outlives a limit.
            due = {job: here.state.jobs[job].end_ms for job in here.running()}
            here.now_ms = min([here.now_ms, *due.values()])
            for job in [job for job, end_ms in due.items() if end_ms <= here.now_ms]:
                here.end(job)
            here.apply(Ticked(here.now_ms))
        here.step()
        for state in (here.state, dump.load(dump.dump(here.state))):
            for use in list_named_uses(state, here.now_ms):
                spend = state.tenants.spend[state.tenants.budget_row[use.rule.name]]
                assert spend is not None
                assert sum(_integral(use.rule, here.log, here.now_ms, running=False).values()) == spend.spent
                by_user = {user: part for user, part in use.by_user if part}
                assert _integral(use.rule, here.log, here.now_ms, running=True) == by_user
                assert use.left >= spend.left, "what is set aside covers what may still be spent"
                if use.rule.action is BudgetAction.HARD:
                    assert spend.left >= 0, f"{use.rule.name} is overdrawn by {-spend.left}"
        for event in find_reached(here.state, here.now_ms):
            here.apply(event)
        assert [] == find_reached(here.state, here.now_ms), "told once"


class BudgetMachine(machine.YardMachine):
    """Anything that can happen, under named budgets that warn, soften and stop, and that change."""

    @initialize(
        fleet=some.fleets(),
        config=some.budgeted_settings(),
        specs=st.lists(some.specs(), min_size=3, max_size=7),
        queue=st.lists(st.tuples(machine.picks, some.limits_ms), min_size=2, max_size=8),
    )
    def begin(
        self, fleet: list[Node], config: Settings, specs: list[JobSpec], queue: list[tuple[int, int]]
    ) -> None:
        """A small yard with some jobs."""
        super().begin(fleet, config, specs, queue)

    @rule(config=some.budgeted_settings())
    def configure(self, config: Settings) -> None:
        """Other budgets, and all else."""
        super().configure(config)


@pytest.mark.parametrize("name", ["default", "fair"])
def test_every_invariant_holds_under_random_budgets(name: str) -> None:
    spec = replace(registry.PRESETS[name], backfill_depth=1_000_000, depth_per_tenant=1_000_000)
    machine.run(spec, examples=6, steps=20, shrink=False, base=BudgetMachine)
