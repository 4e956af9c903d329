"""Neither too many nor too few blockers are named: with all lifts the job starts, with any one left out it does not.

Driven through anything that can happen, for every policy. A job *starts* if the plan starts it: one for which others
are told to stop only waits for them, so a right to preempt is not a start, with all lifts or without one. The judge
reads the lifts by itself, applies them to its own copies, and checks every plan made there against its own books.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpuyard.core import Explanation, apply, explain_why
from gpuyard.core.state.dump import canonical, derived
from gpuyard.model import After, AfterKind, Event, GpusTaken, Job, JobSubmitted, Outcome, Plan, PolicySpec
from gpuyard.policies import registry
from harness.machines import machine
from harness.machines import strategies as some
from harness.machines.pairs import every_pair, name_of
from harness.reference.lifted import judge
from harness.yard import Yard

# Nothing is shrunk: each example asks and judges a hundred times, and a log of a dozen events reads well as it is.

JOBS_MAX = 4
"""How many of the waiting jobs are asked about after each step."""


@contextmanager
def noted(yard: Yard, told: Explanation) -> Iterator[None]:
    """What goes wrong is reported with what was told and the log that leads to it."""
    try:
        yield
    except AssertionError as error:
        reasons = "\n".join(f"  {reason.code.name}: {reason.text}: {reason.lift}" for reason in told.reasons)
        error.add_note(f"job {told.job_id} of policy {yard.policy.spec}:\n{reasons}")
        error.add_note("The log:\n" + "\n".join(f"  {event}" for event in yard.log))
        raise


class LiftedYard(Yard):
    """Asks why of some waiting jobs after every step."""

    asked = 0

    def step(self) -> Plan:
        """Decide and commit; then ask."""
        plan = super().step()
        waiting = [live.job.id for live in self.books.jobs.values() if live.attempt is None]
        for at in range(min(JOBS_MAX, len(waiting))):
            # Some from the front and some from anywhere: another job each time.
            LiftedYard.asked += 1
            job_id = waiting[at // 2 if at % 2 == 0 else (LiftedYard.asked * 7) % len(waiting)]
            self._check(job_id)
        return plan

    def cut(self) -> None:
        """Whether a restart changes anything is asked elsewhere."""

    def _check(self, job_id: int) -> None:
        before = canonical(self.state), derived(self.state)
        told = explain_why(self.state, self.policy, job_id, self.now_ms)
        assert before == (canonical(self.state), derived(self.state)), "asking why moved something"
        assert told is not None
        with noted(self, told):
            judge(self, told)


@pytest.mark.parametrize("name", registry.PRESETS)
def test_all_lifts_and_no_fewer(name: str) -> None:
    machine.run(registry.PRESETS[name], examples=3, steps=8, shrink=False, kind=LiftedYard)


@pytest.mark.parametrize("name", ["default", "fifo"])
def test_all_lifts_and_no_fewer_where_a_pass_looks_at_few(name: str) -> None:
    machine.run(
        replace(registry.PRESETS[name], backfill_depth=2, depth_per_tenant=2),
        examples=3,
        steps=8,
        shrink=False,
        kind=LiftedYard,
    )


class BareYard(Yard):
    """Without the judge's books, which know no dependencies and nobody outside the yard."""

    def apply(self, event: Event) -> None:
        """Fold an event."""
        self.log.append(event)
        apply(self.state, event)


@st.composite
def bare_yards(draw: st.DrawFn) -> BareYard:
    """Some jobs that run and some that wait, for each other too; GPUs used by others; some jobs that have ended."""
    spec = registry.PRESETS[draw(st.sampled_from(sorted(registry.PRESETS)))]
    yard = BareYard(spec, draw(some.fleets()), settings=draw(some.settings()))
    for job_id in range(1, draw(st.integers(4, 12))):
        spec_ = draw(some.specs())
        if job_id > 1 and draw(st.booleans()):
            kinds = st.builds(
                After, st.sampled_from(AfterKind), st.integers(1, job_id - 1), st.just(0), st.just(0)
            )
            after = draw(st.lists(kinds, min_size=1, max_size=3, unique_by=lambda each: each.job_id))
            spec_ = replace(spec_, after=tuple(after), after_one=draw(st.booleans()))
        begin_ms = draw(st.sampled_from((0, 0, 0, 5000)))
        job = Job(job_id, spec_, 0, draw(some.limits_ms), 0, begin_ms)
        yard.apply(JobSubmitted(0, job))
        if draw(st.integers(0, 3)) == 3:
            yard.step()
        if draw(st.integers(0, 5)) == 5 and yard.running():
            yard.end(
                draw(st.sampled_from(yard.running())),
                draw(st.sampled_from((Outcome.COMPLETED, Outcome.FAILED))),
            )
    for number, node in enumerate(yard.state.nodes.node):
        if node.gpus and draw(st.booleans()):
            yard.apply(GpusTaken(0, number, draw(st.integers(0, (1 << node.gpus) - 1)), "pid 7"))
    yard.step()
    return yard


def check_bare(yard: BareYard) -> None:
    """Every job that waits."""
    for job_id in [job_id for job_id, record in yard.state.jobs.items() if record.phase is None]:
        told = explain_why(yard.state, yard.policy, job_id, yard.now_ms)
        assert told is not None
        with noted(yard, told):
            judge(yard, told, books=False)


@given(bare_yards())
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_all_lifts_and_no_fewer_with_dependencies_and_others_on_the_gpus(yard: BareYard) -> None:
    check_bare(yard)


@pytest.mark.soak
@given(bare_yards())
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_lifts_and_no_fewer_with_dependencies_for_long(yard: BareYard) -> None:
    check_bare(yard)


@pytest.mark.soak
@pytest.mark.parametrize("name", registry.PRESETS)
def test_all_lifts_and_no_fewer_for_long(name: str) -> None:
    machine.run(
        registry.PRESETS[name], examples=50, steps=25, derandomize=False, shrink=False, kind=LiftedYard
    )


@pytest.mark.soak
@pytest.mark.parametrize("spec", every_pair(), ids=name_of)
def test_all_lifts_and_no_fewer_in_any_combination(spec: PolicySpec) -> None:
    machine.run(spec, examples=15, steps=25, derandomize=False, shrink=False, kind=LiftedYard)
