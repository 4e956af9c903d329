"""A yard that checks every invariant at every step."""

import json
from dataclasses import replace

from gpuyard.core import State, apply, decide
from gpuyard.core.schedule.decide import rehearse
from gpuyard.core.state.dump import derived, dump, load
from gpuyard.model import Event, Plan, ReasonCode
from harness.reference.books import Books
from harness.reference.invariants import (
    check_capacity,
    check_fair_first,
    check_gangs,
    check_pins,
    check_plan,
    check_totals,
    check_usage,
)
from harness.yard import Yard


class CheckedYard(Yard):
    """Drives the core like `Yard`, and beside it a twin that was cut off from its past."""

    twin: State | None = None

    def apply(self, event: Event) -> None:
        """Fold, and let the twin fold too."""
        super().apply(event)
        if self.twin is not None:
            apply(self.twin, event)

    def step(self) -> Plan:
        """As ever; what goes wrong is reported with the log that leads to it."""
        try:
            return super().step()
        except Exception as error:
            error.add_note("The log:\n" + "\n".join(f"  {event}" for event in self.log))
            raise

    def cut(self) -> None:
        """Forget everything but the dump: from here on the twin goes by that."""
        self.twin = load(json.loads(json.dumps(dump(self.state))))

    def decide(self) -> Plan:
        """Decide on the state, on one rebuilt from its dump and on the twin; they must agree, and nothing may move.

        A whole pass agrees too: so every short cut of `decide` is held equal to the long way.
        """
        state, policy, now_ms = self.state, self.policy, self.now_ms
        self.books.now_ms = now_ms
        if state.queue.order is not policy.order:
            state.reindex(policy.order)
        before, tables = dump(state), derived(state)
        rebuilt = load(json.loads(json.dumps(before)))
        rebuilt.reindex(policy.order)
        assert before == dump(rebuilt), "a dump of a loaded state differs from the one it was loaded from"
        assert tables == derived(rebuilt), "what is derived differs when it is worked out from nothing"
        check_totals(self.books, tables)
        check_usage(self.books, before)
        check_pins(self.books, before)
        plan = decide(state, policy, now_ms)
        assert before == dump(state), "deciding changed the state"
        assert tables == derived(state), "deciding changed what is derived"
        same(plan, decide(state, policy, now_ms), "deciding again")
        same(plan, decide(rebuilt, policy, now_ms), "deciding on the state rebuilt from its dump")
        same(plan, rehearse(rebuilt, policy, now_ms, lambda: None), "a whole pass without short cuts")
        if self.twin is not None:
            same(plan, decide(self.twin, policy, now_ms), "deciding on the state cut off from its past")
        check_plan(self.books, policy.spec, plan, now_ms)
        check_fair_first(self.books, policy.spec, plan, before)
        return plan

    def commit(self, plan: Plan) -> None:
        """Commit; then nothing may be held twice, and nothing is left to start."""
        super().commit(plan)
        check_capacity(self.books)
        check_gangs(self.books)
        if self._settles():
            again = decide(self.state, self.policy, self.now_ms)
            # A promise may move to other nodes when a short job starts beside it, and a job whose quota is kept may
            # lack something else when another job of its user has started: a job that was refused for the sake of
            # these, and one behind it that asks for the same, may start then. A job that has just started without
            # a minimum run time may be preempted at once by a rule that its order ignores. What a budget has left
            # counts without what is promised of it: where the promise is another now, so is what is left.
            kept = {ReasonCode.RESERVATION, ReasonCode.QUOTA_AHEAD}
            if plan.reservations != again.reservations:
                kept.add(ReasonCode.BUDGET)
            asks = {
                self.state.jobs[job_id].job.spec.ask
                for job_id, code in zip(plan.examined, plan.codes, strict=True)
                if code in kept
            }
            more = [start for start in again.starts if self.state.jobs[start.job_id].job.spec.ask not in asks]
            assert not more or again.stops, f"the same moment starts more: {more}"

    def _settles(self) -> bool:
        """Whether one pass starts all that can start: it looks at everyone, and a start moves nobody's turn.

        With fair share it does: who was refused for the sake of a promise may be ahead of it by now.
        """
        spec = self.policy.spec
        uncapped = min(spec.backfill_depth, spec.depth_per_tenant) >= 1000
        return uncapped and ("fair" not in spec.order or spec.backfill == "none")


def same(plan: Plan, other: Plan, what: str) -> None:
    """Two plans are equal in everything, or the parts that differ are named."""
    differ = [
        f"{name}: {mine} against {theirs}"
        for name, mine, theirs in zip(Plan._fields, plan, other, strict=True)
        if mine != theirs
    ]
    assert not differ, f"{what} gives another plan: {'; '.join(differ)}"


def replayed(log: list[Event]) -> State:
    """The state that a log amounts to."""
    state = State()
    for event in log:
        apply(state, event)
    return state


__all__ = ["Books", "CheckedYard", "replace", "replayed"]
