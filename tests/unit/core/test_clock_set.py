"""A clock that is set ahead: nothing that runs has run for the time that never was."""

from gpuyard.core.explain.budget_use import list_named_uses
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import (
    CheckpointSeen,
    ClockSet,
    ConfigSet,
    JobClass,
    JobContinued,
    JobSuspended,
    NamedBudget,
    Settings,
)
from gpuyard.model.units import HOUR_MS, MILLI, MINUTE_MS, NO_LIMIT_MS
from gpuyard.testing import nodes
from harness.machines.checked import CheckedYard

START_MS = 480_000 * HOUR_MS
RULES = (NamedBudget("lab", 100 * HOUR_MS, tenant="a"),)
CONFIG = Settings(classes=(JobClass("batch", limit_ms=NO_LIMIT_MS),), budgets=RULES, half_life_ms=1 << 50)


def yard() -> CheckedYard:
    here = CheckedYard("fair", nodes(1))
    here.now_ms = START_MS
    here.apply(ConfigSet(START_MS, CONFIG))
    return here


def set_ahead(here: CheckedYard, by_ms: int) -> None:
    here.now_ms += by_ms
    here.apply(ClockSet(here.now_ms, by_ms))


def used(here: CheckedYard) -> int:
    """What the fair share counts for the tenant, once the period is over."""
    here.wait(10 * MINUTE_MS)
    here.tick()
    tenants = here.state.tenants
    number = tenants.find("a")
    return tenants.usage[number] + tenants.accrued[number]


def test_shares_and_budgets_count_what_ran_whatever_became_of_the_clock() -> None:
    found = []
    for by_ms in (0, HOUR_MS, 24 * HOUR_MS):
        here = yard()
        job_id = here.submit(8, tenant="a", limit_ms=10 * HOUR_MS)
        here.step()
        here.wait(20 * MINUTE_MS)
        if by_ms:
            set_ahead(here, by_ms)
        here.wait(10 * MINUTE_MS)
        record = here.state.jobs[job_id]
        assert 30 * MINUTE_MS == here.now_ms - record.started_ms
        assert 10 * HOUR_MS == record.end_ms - record.started_ms
        assert by_ms == record.delayed_ms
        (use,) = list_named_uses(here.state, here.now_ms)
        assert 8 * MILLI * 30 * MINUTE_MS == use.spent
        here.end(job_id)
        spend = here.state.tenants.spend[here.state.tenants.budget_row["lab"]]
        assert spend is not None
        assert (8 * MILLI * 30 * MINUTE_MS, 0) == (spend.spent, spend.committed)
        found.append(used(here))
    # Each period rounds down.
    assert max(found) - min(found) < 10_000 < min(found)


def test_a_suspended_job_and_a_checkpoint_keep_their_age() -> None:
    here = yard()
    job_id = here.submit(1, tenant="a", limit_ms=HOUR_MS)
    here.step()
    record = here.state.jobs[job_id]
    here.wait(MINUTE_MS)
    here.apply(CheckpointSeen(here.now_ms, job_id, 1, here.now_ms))
    here.apply(JobSuspended(here.now_ms, job_id))
    set_ahead(here, HOUR_MS)
    assert MINUTE_MS == record.checkpoint_ms - record.started_ms
    here.wait(MINUTE_MS)
    here.apply(JobContinued(here.now_ms, job_id))
    assert HOUR_MS + MINUTE_MS == record.end_ms - record.started_ms

    again = load(dump(here.state))
    assert canonical(here.state) == canonical(again)
    assert (HOUR_MS, HOUR_MS) == (again.jobs[job_id].delayed_ms, again.skipped_ms)
