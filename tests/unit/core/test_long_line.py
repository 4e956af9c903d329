"""A line that is too long to try things out on: what is left of it, and what the answer says."""

import pytest

from gpuyard.core import explain_why
from gpuyard.core.explain.long_line import LeftOutJobs, shorten
from gpuyard.core.explain.what_if import Trial
from gpuyard.core.jobs.queue import count_ahead, walk_in_order
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.model import (
    After,
    AfterKind,
    EndJobs,
    Job,
    JobHeld,
    JobSpec,
    JobSubmitted,
    LeaveLine,
)
from gpuyard.model.units import HOUR_MS
from gpuyard.testing import ask, nodes, tenant
from harness.yard import Yard

MOST = 40


def crowded(policy: str = "default") -> tuple[Yard, list[int]]:
    """One node that is taken, and a hundred jobs of three tenants that wait, some set aside; those in line."""
    yard = Yard(policy, nodes(1), tenants=[tenant("a", limit=8), tenant("b"), tenant("c")])
    first = yard.submit(8, tenant="a", limit_ms=HOUR_MS)
    yard.step()
    waiting = [yard.submit(8, tenant="a", limit_ms=HOUR_MS) for _ in range(80)]
    waiting += [yard.submit(1 + number % 3, tenant="bc"[number % 2]) for number in range(20)]
    held = yard.submit(1, tenant="c")
    yard.apply(JobHeld(yard.now_ms, held))
    for number in range(5):
        after = (After(AfterKind.COMPLETED, waiting[3] if number % 2 else first),)
        spec = JobSpec("b", ask(1), after=after)
        yard.apply(JobSubmitted(yard.now_ms, Job(held + 1 + number, spec, yard.now_ms)))
    return yard, waiting


@pytest.mark.parametrize("policy", ["default", "fifo", "conservative"])
def test_what_is_left_is_a_state_like_any_other(policy: str) -> None:
    yard, waiting = crowded(policy)
    for job_id in (waiting[60], waiting[85], max(yard.state.jobs), max(yard.state.jobs) - 1):
        state = load(dump(yard.state))
        state.reindex(yard.policy.order)
        line = [record.id for record in walk_in_order(state.queue)]
        record = state.jobs[job_id]
        before = count_ahead(state.queue, record) if job_id in line else len(line)
        cut = shorten(state, record, MOST)
        left = [record.id for record in walk_in_order(state.queue)]

        assert len(yard.state.jobs) - len(state.jobs) == cut.left_out > 0
        assert MOST + 1 >= len(state.jobs)
        assert [each for each in line if each in left] == left, "the order stays"
        assert line[:10] == left[:10], "the front is there"
        assert before - len([each for each in left if each in line[:before]]) == cut.ahead
        again = load(dump(state))
        again.reindex(yard.policy.order)
        assert (canonical(again), derived(again)) == (canonical(state), derived(state))
        if record.pending:
            (after,) = record.pending
            assert after.job_id in state.jobs
        # Those that wait for a job that ends are not all there any more.
        trial = Trial(state, yard.policy, job_id, yard.now_ms)
        trial.lift([EndJobs(tuple(state.running))])
        assert trial.decide().starts


def test_a_line_that_is_short_enough_stays_as_it_is() -> None:
    yard = Yard("default", nodes(1))
    ids = [yard.submit(8) for _ in range(MOST + 1)]
    yard.step()
    before = canonical(yard.state), derived(yard.state)
    assert LeftOutJobs() == shorten(yard.state, yard.state.jobs[ids[-1]], MOST)
    assert before == (canonical(yard.state), derived(yard.state))


def test_the_answer_says_that_others_were_left_out() -> None:
    yard, waiting = crowded("fifo")
    before = canonical(yard.state), derived(yard.state)
    whole = explain_why(yard.state, yard.policy, waiting[70], yard.now_ms)
    assert before == (canonical(yard.state), derived(yard.state)), "only a state of one's own is spoilt"
    cut = explain_why(
        load(dump(yard.state)), yard.policy, waiting[70], yard.now_ms, spoilt=True, looked_at_max=MOST
    )
    near = explain_why(
        load(dump(yard.state)), yard.policy, waiting[5], yard.now_ms, spoilt=True, looked_at_max=MOST
    )

    assert whole is not None
    assert cut is not None
    assert near is not None
    assert (0, True, True, True) == (whole.left_out, whole.judged, cut.judged, near.judged)
    assert cut.left_out == near.left_out == len(yard.state.jobs) - MOST - 1
    assert [reason.code for reason in whole.reasons] == [reason.code for reason in cut.reasons]
    (all_of_them,) = [reason for reason in whole.reasons if isinstance(reason.lift, LeaveLine)]
    (some,) = [reason for reason in cut.reasons if isinstance(reason.lift, LeaveLine)]
    (before_near,) = [reason for reason in near.reasons if isinstance(reason.lift, LeaveLine)]
    assert all_of_them.text.startswith("70 jobs come before it")
    assert some.text.startswith("at least ")
    assert before_near.text.startswith("5 jobs come before it"), "nobody ahead of it was left out"
    assert whole.ahead == cut.ahead == 70
