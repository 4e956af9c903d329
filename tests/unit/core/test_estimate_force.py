"""A job that may have others stopped for it is told when: not before they have had their minimum run time."""

from gpuyard.core import explain
from gpuyard.model import JobClass, Quota, Settings, Tenant
from gpuyard.model.units import HOUR_MS, MINUTE_MS, SECOND_MS
from gpuyard.testing import nodes
from harness.yard import Yard

MIN_RUN_MS, GRACE_MS = 5 * MINUTE_MS, 30 * SECOND_MS


def borrowed(*gpus: int) -> Yard:
    """All GPUs are lent out to `b`, one job after the other, and `a` wants its own back."""
    tenants = (Tenant("a", 1, Quota(guarantee={"total": 4000})), Tenant("b"))
    klass = JobClass("batch", min_run_ms=MIN_RUN_MS, grace_ms=GRACE_MS)
    yard = Yard("default", nodes(1), settings=Settings(tenants=tenants, classes=(klass,)))
    for count in gpus:
        yard.submit(count, tenant="b", limit_ms=24 * HOUR_MS)
        yard.step()
        yard.now_ms += MINUTE_MS
    return yard


def told(yard: Yard, job_id: int) -> tuple[int | None, str]:
    found = explain(yard.state, yard.policy, job_id, yard.now_ms)
    assert found is not None
    return found.start_ms, found.how


def test_it_is_told_who_is_stopped_for_it_and_when_and_that_is_what_happens() -> None:
    yard = borrowed(8)
    job = yard.submit(4, tenant="a", limit_ms=HOUR_MS)

    text = "job 1 is stopped for it in 4 min, once it has had its minimum run time, with 30 s to end"
    assert (MIN_RUN_MS + GRACE_MS, text) == told(yard, job)

    yard.now_ms = MIN_RUN_MS - 1
    assert () == yard.step().stops
    yard.now_ms = MIN_RUN_MS
    assert [1] == [stop.job_id for stop in yard.step().stops]


def test_of_several_the_time_counts_at_which_enough_may_be_stopped() -> None:
    yard = borrowed(2, 2, 2, 2)
    job = yard.submit(4, tenant="a", limit_ms=HOUR_MS)

    yard.step()
    remembered = yard.state.idle_plan
    at_ms, how = told(yard, job)

    assert remembered is yard.state.idle_plan, "what was found for then is not an answer for now"
    assert MINUTE_MS + MIN_RUN_MS + GRACE_MS == at_ms
    assert "jobs 1 and 2 are stopped for it in 2 min, once they have had their minimum run time" in how


def test_who_has_no_right_to_it_waits_for_the_end() -> None:
    yard = borrowed(8)
    job = yard.submit(4, tenant="b", limit_ms=HOUR_MS)
    assert 24 * HOUR_MS == told(yard, job)[0]
