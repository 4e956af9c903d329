"""Neither too many nor too few blockers are named: with all lifts the job starts, with any one left out it does not.

Driven through anything that can happen, for every policy. A job *starts* if the plan starts it: one for which others
are told to stop only waits for them, so a right to preempt is not a start, with all lifts or without one. The judge
reads the lifts by itself, applies them to its own copies, and checks every plan made there against its own books.
"""

from dataclasses import replace

import pytest

import machine
from builders import Yard
from gpuyard.core import why
from gpuyard.core.dump import canonical, derived
from gpuyard.model import Plan, PolicySpec
from gpuyard.policies import registry
from lifted import judge
from pairs import every_pair, name_of

JOBS_MAX = 4
"""How many of the waiting jobs are asked about after each step."""


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
        told = why(self.state, self.policy, job_id, self.now_ms)
        assert before == (canonical(self.state), derived(self.state)), "asking why moved something"
        assert told is not None
        try:
            judge(self, told)
        except AssertionError as error:
            reasons = "\n".join(
                f"  {reason.code.name}: {reason.text}: {reason.lift}" for reason in told.reasons
            )
            error.add_note(f"job {job_id} of policy {self.policy.spec}:\n{reasons}")
            error.add_note("The log:\n" + "\n".join(f"  {event}" for event in self.log))
            raise


@pytest.fixture(autouse=True)
def lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's histories, with a yard that asks why."""
    monkeypatch.setattr(machine, "CheckedYard", LiftedYard)


@pytest.mark.parametrize("name", registry.PRESETS)
def test_all_lifts_and_no_fewer(name: str) -> None:
    machine.run(registry.PRESETS[name], examples=6, steps=8)


@pytest.mark.parametrize("name", ["default", "fifo"])
def test_all_lifts_and_no_fewer_where_a_pass_looks_at_few(name: str) -> None:
    machine.run(replace(registry.PRESETS[name], backfill_depth=2, depth_per_tenant=2), examples=4, steps=8)


@pytest.mark.soak
@pytest.mark.parametrize("name", registry.PRESETS)
def test_all_lifts_and_no_fewer_for_long(name: str) -> None:
    machine.run(registry.PRESETS[name], examples=150, steps=25, derandomize=False, shrink=False)


@pytest.mark.soak
@pytest.mark.parametrize("spec", every_pair(), ids=name_of)
def test_all_lifts_and_no_fewer_in_any_combination(spec: PolicySpec) -> None:
    machine.run(spec, examples=40, steps=25, derandomize=False, shrink=False)
