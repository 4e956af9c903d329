"""What others hold back (a guarantee that is not lent): when it lets a job start, and what is promised to the job."""

import pytest

from gpuyard.core import explain
from gpuyard.model import PolicySpec, ReasonCode
from gpuyard.policies import registry
from gpuyard.testing import nodes, tenant
from harness.yard import Yard

BACKFILLS = [name for name, spec in registry.PRESETS.items() if spec.backfill != "none"]
HOLDER = tenant("x", guarantee=4, lend=0)


@pytest.mark.parametrize("name", registry.PRESETS)
def test_a_job_that_waits_for_room_is_told_when_though_a_tenant_lends_not_all(name: str) -> None:
    here = Yard(name, nodes(1), [tenant("x", guarantee=4, lend=2)])
    here.submit(6, tenant="b", limit_ms=10_000)
    here.step()
    waits = here.submit(6, tenant="b", limit_ms=10_000)
    here.step()
    told = explain(here.state, here.policy, waits, here.now_ms)
    assert told is not None
    assert (10_000, "when job 1 ends as promised") == (told.start_ms, told.how)


@pytest.mark.parametrize("name", BACKFILLS)
def test_a_job_at_the_head_that_is_held_back_is_promised_when_enough_has_ended(name: str) -> None:
    """It has room from the first, and x holds it back: whoever is let past must not put it off for ever."""
    here = Yard(name, nodes(1), [HOLDER])
    first = [here.submit(1, tenant="b", limit_ms=10_000) for _ in range(3)]
    assert first == here.started(here.step())
    here.now_ms = 1
    large = here.submit(4, tenant="b", limit_ms=10_000)
    assert ReasonCode.HELD_BACK is here.code(here.step(), large)
    longer = here.submit(1, tenant="b", limit_ms=20_000)
    shorter = here.submit(1, tenant="b", limit_ms=9000)
    plan = here.step()
    # The shortest first, where the order is so: what is over in time is let past either way.
    assert [shorter] == here.started(plan)
    assert (large, 10_000) == (plan.reservations[0].job_id, plan.reservations[0].at_ms)
    told = explain(here.state, here.policy, large, here.now_ms)
    assert told is not None
    assert 10_000 == told.start_ms
    here.now_ms = 10_000
    for job_id in (*first, shorter):
        here.end(job_id)
    assert large in here.started(here.step())
    assert longer in here.state.jobs


def test_what_others_hold_back_for_good_is_promised_to_nobody() -> None:
    here = Yard("default", nodes(1), [HOLDER])
    large = here.submit(6, tenant="b", limit_ms=10_000)
    small = here.submit(2, tenant="b", limit_ms=20_000)
    plan = here.step()
    assert ([small], ()) == (here.started(plan), plan.reservations)
    told = explain(here.state, here.policy, large, here.now_ms)
    assert told is not None
    assert told.start_ms is None
    assert "others hold back so much" in told.how


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_the_tenant_that_holds_back_gets_its_own(backfill: str) -> None:
    """Jobs of two tenants ask for the same, and what is said of one is not said of the other."""
    here = Yard(PolicySpec("plain", order=("fifo",), backfill=backfill), nodes(1), [HOLDER])
    other = here.submit(4, tenant="b")
    here.step()
    waits, own = here.submit(4, tenant="b"), here.submit(4, tenant="x")
    assert other in here.state.running
    assert [own] == here.started(here.step())
    assert waits in here.state.jobs
