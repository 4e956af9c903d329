"""Nobody waits for nothing, over whole GPUs, shares and slices, driven through anything that can happen.

1. Whoever is promised a time can use what is kept: once all that is due by then has ended, the job starts. 2. What is
told of the start of a job that waits never lies in the past, and never is now: it would have started.
"""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from gpuyard.core import apply, decide, dump, explain, load
from gpuyard.model import (
    Ask,
    AttemptEnded,
    JobCancelled,
    JobSpec,
    Mig,
    Milli,
    Node,
    Outcome,
    Plan,
    ReasonCode,
    Reservation,
    Settings,
    Ticked,
    Whole,
)
from gpuyard.policies import registry
from harness.machines import machine, pin_machine
from harness.machines import strategies as some
from harness.yard import Yard

UNCAPPED = {"backfill_depth": 1_000_000, "depth_per_tenant": 1_000_000}
REAL_MS = 1000 * 86_400_000
"""A promise later than this waits for something that has no time limit."""


class WaitingYard(Yard):
    """Looks at everyone who waits after each plan was carried out."""

    def step(self) -> Plan:
        """Decide, commit, and look."""
        plan = super().step()
        again = self.decide()
        if not again.starts and not again.stops:
            for reservation in again.reservations[:1]:
                self._can_be_used(reservation)
            for job_id, record in sorted(self.state.jobs.items()):
                if record.phase is None:
                    told = explain(self.state, self.policy, job_id, self.now_ms)
                    assert told is not None
                    later = told.start_ms is None or told.start_ms > self.now_ms
                    assert later, f"job {job_id} waits at {self.now_ms}: {told.start_ms}, {told.how}, {told}"
        return plan

    def cut(self) -> None:
        """Restarts are another test's."""

    def _can_be_used(self, reservation: Reservation) -> None:
        """The first promise is made from what runs alone: nobody else need start or end for it."""
        if self.state.earmarks or reservation.at_ms - self.now_ms > REAL_MS:
            return
        then = load(dump(self.state))
        at_ms = reservation.at_ms
        ends = sorted([(max(r.end_ms, self.now_ms + 1), job_id) for job_id, r in then.running.items()])
        for end_ms, job_id in ends:
            if end_ms <= at_ms:
                attempt = then.running[job_id].attempt
                apply(then, AttemptEnded(end_ms, job_id, attempt, Outcome.COMPLETED))
        for job_id, record in sorted(then.jobs.items()):
            if record.phase is None and job_id != reservation.job_id:
                apply(then, JobCancelled(at_ms, job_id))
        apply(then, Ticked(at_ms))
        plan = decide(then, self.policy, at_ms)
        late = [
            r.end_ms <= self.now_ms or r.end_ms - self.now_ms > REAL_MS for r in self.state.running.values()
        ]
        if any(late) and ReasonCode.BUDGET in plan.codes:
            # An attempt that is overdue, or suspended, uses more than its limit allows, and none knows how much.
            return
        assert [reservation.job_id] == self.started(plan), f"{reservation} cannot be used then: {plan}"


slices = st.builds(Mig, st.just(1), st.sampled_from(("1g.10gb", "2g.20gb", "3g.40gb", "1g.10gb")))
shares = st.builds(
    Milli, st.sampled_from((1, 1, 2)), st.sampled_from((250, 500, 700)), st.sampled_from(("", "ann", "bob"))
)
requests = st.one_of(slices, shares, shares, st.builds(Whole, st.sampled_from((1, 1, 2))))


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """Parts of GPUs in both forms, some of them one user's own, and whole GPUs."""
    return Ask(draw(requests), cpu_milli=draw(st.sampled_from((0, 0, 0, 1000))))


class PartsMachine(machine.YardMachine):
    """Few GPUs, and all ways to have a part of one."""

    @initialize(
        fleet=pin_machine.fleets(),
        config=some.settings(),
        ruled=st.sampled_from((False, False, True)),
        specs=st.lists(some.specs(asks()), min_size=3, max_size=7),
        queue=st.lists(st.tuples(machine.picks, some.limits_ms), min_size=2, max_size=8),
    )
    def begin(  # type: ignore[override]
        self,
        fleet: list[Node],
        config: Settings,
        ruled: bool,
        specs: list[JobSpec],
        queue: list[tuple[int, int]],
    ) -> None:
        """A small yard with some jobs."""
        super().begin(fleet, config if ruled else replace(config, tenants=()), specs, queue)


@pytest.mark.parametrize("name", registry.PRESETS)
def test_a_promise_can_be_used_and_no_start_is_told_in_the_past(name: str) -> None:
    spec = replace(registry.PRESETS[name], **UNCAPPED)
    for base in (PartsMachine, machine.YardMachine, pin_machine.PinMachine):
        machine.run(spec, examples=6, steps=12, shrink=False, base=base, kind=WaitingYard)
