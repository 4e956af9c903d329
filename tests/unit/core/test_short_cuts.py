"""Each short cut of `decide`, on a yard that compares every plan with a whole pass (`CheckedYard.decide`)."""

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.core.fleet.nodes import Nodes
from gpuyard.core.fleet.shapes import Shape, Way
from gpuyard.core.schedule import decide as module
from gpuyard.core.schedule.decide import decide
from gpuyard.core.schedule.held_profile import HeldAt
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.reserve import READY, Looked
from gpuyard.core.schedule.victims import VictimOrder
from gpuyard.model import Ask, Grant, JobCancelled, NodeCordoned, ReasonCode, Reservation
from gpuyard.testing import ask, nodes, tenant
from harness.machines.checked import CheckedYard

S = 1000


def test_the_only_waiting_job_starts_without_a_pass() -> None:
    here = CheckedYard("fifo", nodes(2))
    job = here.submit(2)
    plan = here.decide()
    assert [job] == here.started(plan)
    assert module._alone(here.state, here.policy, here.state.jobs[job], here.now_ms) == plan


def test_the_only_waiting_job_without_room_gets_a_pass() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(8, limit_ms=10 * S)
    here.step()
    job = here.submit(1)
    assert module._alone(here.state, here.policy, here.state.jobs[job], here.now_ms) is None
    plan = here.step()
    assert ReasonCode.ROOM is here.code(plan, job)
    assert here.state.idle_plan is not None


@pytest.mark.parametrize("name", ["fifo", "sjf", "class", "fair", "default", "strict-fifo"])
def test_a_full_cluster_is_seen_at_once(name: str) -> None:
    """No waiting job might have room: the first is named, and no promise is worked out."""
    here = CheckedYard(name, nodes(1))
    here.submit(8)
    here.step()
    first, _second, _third = here.submit(8), here.submit(4), here.submit(1)
    plan = here.decide()
    assert ((first,), bytes([ReasonCode.ROOM]), 3) == (plan.examined, plan.codes, plan.waiting)
    assert here.state.idle_plan is not None
    assert (here.state.jobs[first], []) == module._sift(here.state, here.policy, here.now_ms)


def test_a_job_that_may_force_its_room_is_not_passed_over() -> None:
    """The first job has no room and no right to any; behind it, another tenant takes back its guarantee."""
    here = CheckedYard("default", nodes(1), [tenant("a"), tenant("b", guarantee=4), tenant("c")])
    here.submit(8, tenant="c", limit_ms=600 * S)
    here.step()
    here.now_ms += S
    first, owner, _third = (
        here.submit(count, tenant=whose) for count, whose in ((8, "a"), (4, "b"), (1, "c"))
    )
    sifted = module._sift(here.state, here.policy, here.now_ms)
    assert sifted is not None
    assert here.state.jobs[first] is sifted[0]
    plan = here.decide()
    assert ((first, owner), bytes([ReasonCode.ROOM, ReasonCode.EARMARK])) == (plan.examined, plan.codes)


def test_a_first_job_that_waits_for_quota_is_not_sifted() -> None:
    here = CheckedYard("default", nodes(1), [tenant("a", limit=4), tenant("b")])
    here.submit(4, tenant="a", limit_ms=600 * S)
    here.submit(4, tenant="b", limit_ms=600 * S)
    here.step()
    lacks, _others = here.submit(2, tenant="a"), here.submit(2, tenant="b")
    plan = here.decide()
    assert (lacks, ReasonCode.LIMIT) == (plan.examined[0], plan.codes[0])
    assert module._sift(here.state, here.policy, here.now_ms) is None


def test_tenants_behind_the_first_job_take_turns() -> None:
    """What might start behind the first job is examined in fair order, and a start changes whose turn it is."""
    here = CheckedYard("default", nodes(2), [tenant("a"), tenant("b"), tenant("c")])
    here.submit(ask(6, tasks=2), tenant="c", limit_ms=20 * S)
    here.step()
    here.now_ms += S
    first = here.submit(8, tenant="a", limit_ms=S)
    ones = [here.submit(1, tenant=whose, limit_ms=S) for whose in ("b", "b", "c", "b")]
    plan = here.decide()
    assert first == plan.examined[0]
    assert {*ones} == {*here.started(plan)}


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


def test_a_plan_that_decided_nothing_ends_when_room_would_come_later_than_quota() -> None:
    """An attempt that outlasts its time puts off the first job's room, not its quota: then it is promised a time."""
    here = CheckedYard("deadline", nodes(2), [tenant("lab", max_gpus_per_user=4000)])
    here.submit(4, tenant="lab", user="bob", limit_ms=30 * S)
    here.submit(4, limit_ms=10 * S)
    here.step()
    here.apply(NodeCordoned(0, 1, "mended"))
    first = here.submit(4, tenant="lab", user="bob", limit_ms=S)
    here.submit(ask(1, on_nodes=("h100-1",)), limit_ms=S)
    assert not here.step().reservations
    last = here.state.idle_plan
    here.now_ms = 30 * S - 2
    here.decide()
    assert last is here.state.idle_plan
    here.now_ms += 1
    assert (Reservation(first, 30 * S),) == here.decide().reservations


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
    """With a node closed there is no sifting: the pass drops them once the first job without room has a promise."""
    here = CheckedYard("class", nodes(2))
    here.apply(NodeCordoned(here.now_ms, 1, "drain"))
    here.submit(6, limit_ms=10 * S)
    here.step()
    first, _wide, short = here.submit(8, limit_ms=S), here.submit(4, limit_ms=S), here.submit(1, limit_ms=S)
    plan = here.step()
    assert [short] == here.started(plan)
    assert (first, short) == plan.examined


def test_a_promise_looks_at_few_nodes() -> None:
    """A job that also wants cores: nodes are looked at in the order in which they have the GPUs."""
    here = CheckedYard("fifo", nodes(8))
    for number in range(8):
        here.submit(ask(8 if number < 7 else 7, cpu_milli=1000), limit_ms=(60 + number) * S)
    here.step()
    head = here.state.jobs[here.submit(ask(4, 2, cpu_milli=30_000), limit_ms=S)]
    here.submit(1, limit_ms=90 * S)
    plan = here.decide()
    assert [(head.id, 60 * S)] == [(each.job_id, each.at_ms) for each in plan.reservations]
    (way,) = head.shape.ways
    assert looked_at(here, way.index, way.tasks_per_node) == [0]


def looked_at(here: CheckedYard, way: int, tasks: int) -> list[int]:
    """The nodes of which it is known when they have the room for so many tasks."""
    kept = here.state.caches.get(READY)
    assert kept is not None
    times = kept[way, tasks, 0]
    assert isinstance(times, Looked)
    return list(times.refresh(here.state.nodes))


def test_a_promise_looks_at_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tenant holds its GPUs back: the other is promised the time at which enough of its own jobs have ended."""
    here = CheckedYard("default", nodes(8), [tenant("mine", guarantee=32, lend=0), tenant("yours")])
    for number in range(32):
        here.submit(1, tenant="yours", limit_ms=(60 + number) * S)
    here.step()
    head = here.submit(8, tenant="yours", limit_ms=S)
    asked: list[int] = []
    real = HeldAt.__init__
    monkeypatch.setattr(
        HeldAt,
        "__init__",
        lambda held, state, now_ms, started, at_ms: (
            asked.append(at_ms),
            real(held, state, now_ms, started, at_ms),
        )[1],
    )
    plan = decide(here.state, here.policy, here.now_ms)
    assert [(head, 67 * S)] == [(each.job_id, each.at_ms) for each in plan.reservations]
    assert len(asked) < 24
    assert plan == here.decide()


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


def test_room_is_searched_for_once_in_a_turn() -> None:
    """Whether there is any room comes before quotas, and the room itself after them: nothing happens in between."""
    here = CheckedYard("default", nodes(1), [tenant("a", limit=8), tenant("b", limit=8)])
    here.submit(6, tenant="b", limit_ms=10 * S)
    here.step()
    here.submit(8, tenant="a", limit_ms=S)
    short = here.submit(1, tenant="a", limit_ms=S)
    searched: list[Way] = []
    place = here.policy.place

    def counted(nodes: Nodes, shape: Shape, way: Way, among: int) -> tuple[Grant, ...] | None:
        searched.append(way)
        return place(nodes, shape, way, among)

    policy = replace(here.policy, place=counted)
    plan = decide(here.state, policy, here.now_ms)
    assert [short] == here.started(plan)
    (way,) = here.state.jobs[short].shape.ways
    assert [way] == searched
    assert plan == here.decide()


def test_one_refusal_behind_quota_answers_for_longer_jobs() -> None:
    """A job of the stream that ends before the quota is there is examined, and starts."""
    here = CheckedYard("default", nodes(2), [tenant("a", limit=5), tenant("b")])
    here.submit(4, tenant="a", limit_ms=60 * S)
    here.step()
    here.now_ms += S
    here.submit(5, tenant="a", limit_ms=S)
    longer = [here.submit(1, tenant="a", limit_ms=many * S) for many in (90, 70, 80)]
    short = here.submit(1, tenant="a", limit_ms=9 * S)
    looked: list[Shape] = []

    def counted(_nodes: Nodes, shape: Shape) -> Iterable[Way]:
        looked.append(shape)
        return shape.ways

    plan = decide(here.state, replace(here.policy, rank=counted), here.now_ms)
    assert [5, 1, 1] == [shape.gpus for shape in looked]
    assert [short] == here.started(plan)
    assert [ReasonCode.QUOTA_AHEAD] * 3 == [here.code(plan, job) for job in longer]
    assert plan == here.decide()


def test_a_stream_without_a_short_job_is_closed_at_once() -> None:
    """The shortest job of a stream decides, also after it has gone or another has come."""
    here = CheckedYard("fifo", nodes(1))
    here.submit(6, limit_ms=10 * S)
    here.step()
    here.submit(8, limit_ms=S)
    longer = [here.submit(1, limit_ms=many * S) for many in (90, 30, 60)]
    assert sorted(here.state.queue._least.values()) == [S, 30 * S]
    assert [longer[0]] == [job for job in here.decide().examined if job in longer]
    here.apply(JobCancelled(here.now_ms, longer[1]))
    assert [] == here.started(here.decide())
    short = here.submit(1, limit_ms=5 * S)
    assert [short] == here.started(here.decide())


@pytest.mark.parametrize("name", ["default", "fair", "class", "srtf"])
def test_a_rule_says_up_to_which_ask_it_applies(name: str) -> None:
    """As it answers for each size by itself: a tenant below its guarantee, one without, and one that borrows."""
    here = CheckedYard(
        name, nodes(4), [tenant("a", guarantee=12), tenant("b"), tenant("c", guarantee=4), tenant("a/x")]
    )
    here.submit(4, tenant="a/x", limit_ms=600 * S)
    here.submit(8, tenant="c", limit_ms=600 * S)
    here.step()
    here.now_ms += S
    waiting = [
        here.state.jobs[here.submit(size, tenant=whose, klass=klass, limit_ms=S)]
        for whose in ("a/x", "b", "c")
        for klass in ("batch", "urgent")
        for size in (1, 2, 4, 8)
    ]
    said = set()
    for record in waiting:
        for rule in here.policy.rules:
            answer = rule.applies(here.state, record, here.now_ms)
            assert answer is (record.shape.gpu_milli <= rule.within(here.state, record, here.now_ms))
            said.add(answer)
    assert said == {False, True} or name == "srtf"


def test_the_table_of_short_cuts_names_these_tests() -> None:
    # From the source: a compiled module has no text of its own.
    source = (
        Path(__file__).resolve().parents[3] / "src" / Path(*module.__name__.split(".")).with_suffix(".py")
    )
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    named = re.findall(r"`(test_\w+)…?`", text)
    here = [name for name in globals() if name.startswith("test_")]
    assert len(named) == 16
    assert [] == [name for name in named if not any(each.startswith(name) for each in here)]
