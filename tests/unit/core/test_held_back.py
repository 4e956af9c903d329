"""What others hold back (a guarantee that is not lent): when it lets a job start, and what is promised to the job."""

import pytest

from gpuyard.core import explain
from gpuyard.model import NodeDown, NodeUp, PolicySpec, ReasonCode
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


def _half_down(name: str = "default", *, users: str = "b") -> Yard:
    """Eight GPUs that are up, eight that are down with a job on all of them, and x that keeps four for itself."""
    here = Yard(name, nodes(2), [HOLDER])
    assert [1] == here.started((here.submit(8, tenant=users, limit_ms=10_000), here.step())[1])
    here.apply(NodeDown(here.now_ms, here.state.running[1].grants[0].node, "no answer"))
    return here


@pytest.mark.parametrize("name", registry.PRESETS)
def test_what_runs_on_nodes_that_are_down_takes_nothing_from_those_that_are_up(name: str) -> None:
    here = _half_down(name)
    beside, above = here.submit(4, tenant="b"), here.submit(1, tenant="b")
    plan = here.step()
    assert [beside] == here.started(plan)
    assert ReasonCode.HELD_BACK is here.code(plan, above)
    told = explain(here.state, here.policy, above, here.now_ms)
    assert told is not None
    assert "8 of 8 GPUs that are up are in use or held back" in str(told)
    # What x holds back is there for x, and x alone.
    own = here.submit(4, tenant="x")
    assert [own] == here.started(here.step())


@pytest.mark.parametrize("name", registry.PRESETS)
def test_a_node_that_comes_back_brings_room_for_what_it_runs(name: str) -> None:
    here = _half_down(name)
    beside = here.submit(4, tenant="b")
    assert [beside] == here.started(here.step())
    here.apply(NodeUp(here.now_ms, here.state.running[1].grants[0].node))
    waits = here.submit(1, tenant="b")
    assert ReasonCode.HELD_BACK is here.code(here.step(), waits)
    here.end(beside)
    assert [waits] == here.started(here.step())


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_tenant_keeps_what_it_holds_back_though_its_own_job_is_on_a_node_that_is_down(
    comes_back: bool,
) -> None:
    """A job that is lost can start again at once: nobody was let into the GPUs that its tenant does not lend."""
    here = _half_down(users="x")
    other, above = here.submit(4, tenant="b"), here.submit(1, tenant="b")
    assert [other] == here.started(here.step())
    told = explain(here.state, here.policy, above, here.now_ms)
    assert told is not None
    assert "x (4, uses 0)" in str(told)
    if comes_back:
        here.apply(NodeUp(here.now_ms, here.state.running[1].grants[0].node))
        # x claims what it uses, which is more than it holds back.
        assert [above] == here.started(here.step())
    else:
        here.end(1)
        own = here.submit(4, tenant="x")
        assert [own] == here.started(here.step())


@pytest.mark.parametrize("name", BACKFILLS)
def test_nothing_is_promised_for_the_end_of_a_job_on_a_node_that_is_down(name: str) -> None:
    here = _half_down(name)
    here.now_ms = 1
    first = here.submit(4, tenant="b", limit_ms=20_000)
    assert [first] == here.started(here.step())
    large = here.submit(2, tenant="b", limit_ms=10_000)
    plan = here.step()
    assert [(large, 20_001)] == [(each.job_id, each.at_ms) for each in plan.reservations]
