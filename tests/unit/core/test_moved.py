"""A waiting job that an administrator moves to the top comes before all others, under every order."""

import pytest

from gpuyard.core import explain_why
from gpuyard.core.jobs.queue import count_ahead, walk_in_order
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import JobHeld, JobReleased, Requested, Verb
from gpuyard.policies import registry
from gpuyard.testing import nodes, tenant
from harness.yard import Yard


def line(here: Yard) -> list[int]:
    if here.state.queue.order is not here.policy.order:
        here.state.reindex(here.policy.order)
    return [record.id for record in walk_in_order(here.state.queue)]


@pytest.mark.parametrize("name", registry.PRESETS)
def test_whoever_is_moved_comes_first_until_it_starts(name: str) -> None:
    """Before a higher class, a less served tenant, an older job and a shorter one; the last moved first of all."""
    here = Yard(name, nodes(1), [tenant("a", 9), tenant("b", 1)])
    first = here.submit(8, tenant="b", klass="urgent", limit_ms=10_000)
    here.step()
    here.now_ms = 1
    others = [here.submit(8, tenant="a", klass="urgent", limit_ms=1000 * (1 + n)) for n in range(3)]
    low = here.submit(8, tenant="b", limit_ms=90_000)
    lower = here.submit(8, tenant="b", limit_ms=95_000)
    before = line(here)
    for job_id in (low, lower):
        here.apply(Requested(1, job_id, Verb.TOP, "root"))
    assert [lower, low] == line(here)[:2]
    assert [job_id for job_id in before if job_id in others] == line(here)[2:]
    assert 1 == count_ahead(here.state.queue, here.state.jobs[low])
    again = load(dump(here.state))
    assert canonical(here.state) == canonical(again)
    assert (2, "root") == (again.jobs[lower].boost, again.jobs[low].moved_by)
    here.apply(Requested(1, lower, Verb.BACK, "root"))
    assert [low] == line(here)[:1]
    here.end(first)
    assert [low] == here.started(here.step())
    assert 0 == here.state.jobs[low].boost


def test_a_job_that_was_moved_still_heeds_quotas_and_holds() -> None:
    here = Yard("default", nodes(1), [tenant("a", limit=2)])
    job, held = here.submit(4, tenant="a"), here.submit(1)
    here.apply(JobHeld(0, held))
    for each in (held, job):
        here.apply(Requested(0, each, Verb.TOP, "root"))
    assert [] == here.started(here.step())
    told = explain_why(here.state, here.policy, job, 0)
    assert told is not None
    assert "over its limit" in told.reasons[0].text
    here.apply(JobReleased(0, held))
    assert [held] == here.started(here.step())
