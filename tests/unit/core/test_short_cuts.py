"""Each short cut of `decide`, on a yard that compares every plan with a whole pass (`CheckedYard.decide`)."""

import re

import pytest

from gpuyard.core.schedule import decide as module
from gpuyard.core.schedule.decide import decide
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.victims import VictimOrder
from gpuyard.model import Ask, ReasonCode
from gpuyard.testing import ask, nodes, tenant
from harness.machines.checked import CheckedYard

S = 1000


def test_the_only_waiting_job_starts_without_a_pass() -> None:
    here = CheckedYard("fifo", nodes(2))
    job = here.submit(2)
    plan = here.decide()
    assert [job] == here.started(plan)
    assert module._alone(here.state, here.policy, here.state.jobs[job]) == plan


def test_the_only_waiting_job_without_room_gets_a_pass() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(8, limit_ms=10 * S)
    here.step()
    job = here.submit(1)
    assert module._alone(here.state, here.policy, here.state.jobs[job]) is None
    plan = here.step()
    assert ReasonCode.ROOM is here.code(plan, job)
    assert here.state.idle_plan is not None


def test_a_full_cluster_is_seen_at_once() -> None:
    """No waiting job might have room: the first is named, and no promise is worked out."""
    here = CheckedYard("fifo", nodes(1))
    here.submit(8)
    here.step()
    first, _second, _third = here.submit(8), here.submit(4), here.submit(1)
    plan = here.step()
    assert ((first,), bytes([ReasonCode.ROOM]), 3) == (plan.examined, plan.codes, plan.waiting)
    assert here.state.idle_plan is not None


def test_jobs_that_might_fit_are_examined_behind_the_first() -> None:
    """The first job has no room; of the others, those that end before its promise start."""
    here = CheckedYard("fifo", nodes(1))
    here.submit(6, limit_ms=10 * S)
    here.step()
    first, long, short = (
        here.submit(8, limit_ms=S),
        here.submit(2, limit_ms=60 * S),
        here.submit(1, limit_ms=S),
    )
    plan = here.step()
    assert [short] == here.started(plan)
    assert ReasonCode.ROOM is here.code(plan, first)
    assert ReasonCode.RESERVATION is here.code(plan, long)


def test_a_plan_that_decided_nothing_stands_until_something_changes() -> None:
    here = CheckedYard("fair", nodes(1))
    running = here.submit(8, limit_ms=60 * S)
    here.step()
    waiting = [here.submit(8, limit_ms=S), here.submit(8, limit_ms=2 * S)]
    assert here.step().empty
    last = here.state.idle_plan
    here.now_ms += S
    assert here.decide().empty
    assert last is here.state.idle_plan
    here.end(running)
    assert waiting[:1] == here.started(here.step())


def test_an_arrival_that_cannot_start_leaves_the_last_plan() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(8, limit_ms=60 * S)
    here.step()
    here.submit(8, limit_ms=S)
    here.submit(8, limit_ms=S)
    here.step()
    last = here.state.idle_plan
    here.submit(8, limit_ms=S)
    assert 3 == here.decide().waiting
    assert last is here.state.idle_plan


def test_an_arrival_that_goes_first_gets_a_new_plan() -> None:
    here = CheckedYard("sjf", nodes(1))
    here.submit(8, limit_ms=60 * S)
    here.step()
    here.submit(8, limit_ms=20 * S)
    here.submit(8, limit_ms=30 * S)
    here.step()
    shortest = here.submit(8, limit_ms=S)
    assert (shortest,) == here.decide().examined


def test_a_way_without_room_is_remembered_until_there_may_be_more() -> None:
    here = CheckedYard("sjf", nodes(1))
    running = here.submit(5, limit_ms=60 * S)
    here.step()
    waiting = here.submit(4, limit_ms=S)
    here.step()
    (way,) = here.state.jobs[waiting].shape.ways
    assert here.state.no_room[way.index] == here.state.nodes.room_generation
    here.end(running)
    assert here.state.no_room[way.index] != here.state.nodes.room_generation
    assert [waiting] == here.started(here.step())


def test_one_job_of_a_stream_answers_for_all() -> None:
    here = CheckedYard("sjf", nodes(1))
    here.submit(5, limit_ms=60 * S)
    here.step()
    alike = [here.submit(4, limit_ms=S) for _ in range(5)]
    plan = here.step()
    assert alike[:1] == [job for job in plan.examined if job in alike]
    other = here.submit(2, limit_ms=S)
    assert [other] == here.started(here.step()), "a job of another stream is examined by itself"


def test_jobs_behind_a_promise_are_dropped_if_they_have_no_room() -> None:
    """With classes there is no sifting: the pass drops them once the first job that lacks room has a promise."""
    here = CheckedYard("class", nodes(1))
    here.submit(6, limit_ms=10 * S)
    here.step()
    first, _wide, short = here.submit(8, limit_ms=S), here.submit(4, limit_ms=S), here.submit(1, limit_ms=S)
    plan = here.step()
    assert [short] == here.started(plan)
    assert (first, short) == plan.examined


def test_the_cheapest_victims_are_found_without_a_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    here = CheckedYard("class", nodes(6))
    victims = []
    for _ in range(6):
        victims.append(here.submit(8, limit_ms=600 * S))
        here.step()
        here.now_ms += S
    looked: list[int] = []
    real = VictimOrder._look_at
    monkeypatch.setattr(VictimOrder, "_look_at", lambda order, node: (looked.append(node), real(order, node)))
    urgent = here.submit(4, klass="urgent", limit_ms=S)
    plan = decide(here.state, here.policy, here.now_ms)
    assert ([victims[-1]], [urgent]) == ([s.job_id for s in plan.stops], [e.job_id for e in plan.earmarks])
    assert len(looked) <= 2
    assert plan == here.decide()


@pytest.mark.parametrize(("wanted", "limit"), [(ask(8), 8), (ask(8, tasks=3), 24)], ids=["quota", "nodes"])
def test_no_victim_is_tried_where_none_would_help(
    monkeypatch: pytest.MonkeyPatch, wanted: Ask, limit: int
) -> None:
    """The tenant's limit is used up by jobs that may not be stopped; or these are on too many of the nodes."""
    here = CheckedYard("class", nodes(4), [tenant("mine", limit=limit), tenant("yours")])
    for klass, whose in (("urgent", "mine"), ("urgent", "yours"), ("batch", "yours"), ("batch", "yours")):
        here.submit(8, klass=klass, tenant=whose, limit_ms=60 * S)
    here.step()
    here.now_ms += S
    tried: list[int] = []
    real = Pass.draft_stop
    monkeypatch.setattr(
        Pass, "draft_stop", lambda made, victim: (tried.append(victim.id), real(made, victim))
    )
    here.submit(wanted, klass="urgent", tenant="mine", limit_ms=S)
    assert not here.decide().stops
    assert not tried


def test_the_table_of_short_cuts_names_these_tests() -> None:
    named = re.findall(r"`(test_\w+)…?`", module.__doc__ or "")
    here = [name for name in globals() if name.startswith("test_")]
    assert len(named) == 10
    assert [] == [name for name in named if not any(each.startswith(name) for each in here)]
