"""`why`: the fewest blockers that are all there is, each with a lift, and helps that were tried out."""

from dataclasses import replace

from gpuyard.control.wording import help_flags, help_text, remedies_text
from gpuyard.core import Explanation, apply
from gpuyard.core import explain_why as why_
from gpuyard.core.explain.suggestions import Help
from gpuyard.model import (
    AddNodes,
    After,
    AfterKind,
    AskFor,
    AttemptState,
    BeginNow,
    Budget,
    Capability,
    EndJobs,
    EngineSeen,
    ForeignGone,
    GpusTaken,
    Job,
    JobCancelled,
    JobHeld,
    JobSpec,
    JobSubmitted,
    LeaveLine,
    LendMore,
    LimitTime,
    Mig,
    NodeCordoned,
    NodeDown,
    OpenNode,
    RaiseBorrow,
    RaiseBudget,
    RaiseLimit,
    RaisePerJob,
    RaisePerUser,
    RaiseRunningJobs,
    ReasonCode,
    ReleaseHold,
    Settings,
    Whole,
    WithoutAfter,
)
from gpuyard.model.units import HOUR_MS
from gpuyard.testing import BATCH, URGENT, ask, node, nodes, tenant
from harness.reference.lifted import judge
from harness.yard import Yard


def helped(change: Help) -> str:
    return f"{help_text(change)} ({help_flags(change)})"


def why(yard: Yard, job_id: int, *, books: bool = True) -> Explanation:
    found = why_(yard.state, yard.policy, job_id, yard.now_ms)
    assert found is not None
    judge(yard, found, books=books)
    return found


def lifts(found: Explanation) -> list[object]:
    return [reason.lift for reason in found.reasons]


def busy(yard: Yard, *gpus: int, hours: int = 2, tenant: str = "t") -> list[int]:
    ids = [yard.submit(count, tenant=tenant, limit_ms=hours * HOUR_MS) for count in gpus]
    yard.step()
    assert not set(ids) - set(yard.running())
    return ids


# -- room ------------------------------------------------------------------------------------------------------------


def test_sixteen_are_free_but_on_no_node_together() -> None:
    """The question of everyone who shares a cluster: 16 are free, so why does my job wait?"""
    yard = Yard("fifo", nodes(8))
    ids = busy(yard, *[6] * 8)
    found = why(yard, yard.submit(8, limit_ms=HOUR_MS))

    assert ["8 x H100 on one node: 16 free on 8 nodes, but at most 2 on one node"] == [
        reason.text for reason in found.reasons
    ]
    assert [EndJobs((ids[0],))] == lifts(found)
    assert ["job 1 ending (promised within 2 h)"] == [
        remedies_text(reason.lifted_by) for reason in found.reasons
    ]
    assert [
        "4 x 2 on up to 4 nodes instead of 8 GPUs on one node would start now "
        "(--tasks 4 --gpus 2, and `nodes_max: 4` in its YAML)",
        "with 2 GPUs instead of 8 it would start now (--gpus 2)",
    ] == [helped(each) for each in found.helps]


def test_a_drained_node_is_named_with_its_reason() -> None:
    yard = Yard("fifo", nodes(1))
    yard.apply(NodeCordoned(0, 0, "fan replaced"))
    found = why(yard, yard.submit(8))

    assert [OpenNode(0, "h100-0")] == lifts(found)
    assert found.reasons[0].text.startswith("8 GPUs on node h100-0 are drained: fan replaced")


def test_of_a_busy_and_a_broken_node_the_one_is_named_that_has_room_sooner() -> None:
    yard = Yard("fifo", nodes(2))
    ids = busy(yard, 8, hours=1)
    yard.apply(NodeDown(0, 1, "gone"))

    assert [EndJobs((ids[0],))] == lifts(why(yard, yard.submit(8, limit_ms=HOUR_MS)))


def test_processes_from_outside_are_named() -> None:
    yard = Yard("fifo", nodes(1))
    apply(yard.state, GpusTaken(0, 0, 0b11, "pid 7 (python3)"))
    found = why(yard, yard.submit(8), books=False)

    assert [ForeignGone(0, "h100-0")] == lifts(found)
    assert ["2 x H100 of h100-0 are used outside the yard: pid 7 (python3)"] == [
        reason.text for reason in found.reasons
    ]


def test_what_no_node_could_hold_needs_more_nodes_or_larger_ones() -> None:
    yard = Yard("fifo", nodes(2))
    gang, large = yard.submit(ask(8, tasks=4)), yard.submit(16)

    assert [(ReasonCode.NEVER_FITS, 2)] == [
        (reason.code, reason.lift.count)  # type: ignore[union-attr]
        for reason in why(yard, gang).reasons
    ]
    (lift,) = lifts(why(yard, large))
    assert isinstance(lift, AddNodes)
    assert (16, 1) == (lift.like.gpus, lift.count)


def test_a_job_that_names_a_cluster_without_nodes_needs_nodes_there() -> None:
    yard = Yard("fifo", nodes(2))
    (lift,) = lifts(why(yard, yard.submit(replace(ask(1), clusters=("other",)))))

    assert isinstance(lift, AddNodes)
    assert ("other", 1) == (lift.like.cluster, lift.count)


def test_what_an_engine_cannot_do_needs_as_many_nodes_of_another_cluster() -> None:
    yard = Yard("fifo", nodes(4))
    yard.apply(EngineSeen(0, yard.state.nodes.node[0].cluster, (Capability.GANG,)))
    job = yard.submit(ask(8, tasks=2))
    (lift,) = lifts(why(yard, job))

    assert isinstance(lift, AddNodes)
    assert (2, False) == (lift.count, lift.like.cluster == yard.state.nodes.node[0].cluster)


def test_what_cannot_be_served_is_asked_for_otherwise() -> None:
    yard = Yard("fifo", nodes(1))
    job = yard.submit(ask(Mig(1, "9g.99gb")))

    assert [AskFor(job, ask(Whole(1)))] == lifts(why(yard, job))


# -- the job itself --------------------------------------------------------------------------------------------------


def test_a_hold_a_time_and_no_room_are_three_blockers() -> None:
    yard = Yard("fifo", nodes(1))
    ids = busy(yard, 8)
    job = yard.submit(8, begin_ms=HOUR_MS)
    yard.apply(JobHeld(0, job))
    found = why(yard, job)

    assert [ReleaseHold(job), BeginNow(job), EndJobs((ids[0],))] == lifts(found)


def test_each_job_waited_for_is_a_blocker_and_where_one_will_do_they_are_one() -> None:
    yard = Yard("fifo", nodes(1))
    first, second = yard.submit(1), yard.submit(1)
    after = (After(AfterKind.COMPLETED, first), After(AfterKind.ENDED, second))
    both, either = JobSpec("t", ask(1), after=after), JobSpec("t", ask(1), after=after, after_one=True)
    yard.apply(JobSubmitted(0, Job(3, both, 0)))
    yard.apply(JobSubmitted(0, Job(4, either, 0)))

    assert [WithoutAfter(3, (first,)), WithoutAfter(3, (second,))] == lifts(why(yard, 3, books=False))
    assert [WithoutAfter(4, (first, second))] == lifts(why(yard, 4, books=False))
    yard.apply(JobCancelled(0, first))
    assert [WithoutAfter(3, (first, second))] == lifts(why(yard, 3, books=False))
    # One of the two cannot come true any more: to wait for that one alone would be worse.
    assert [WithoutAfter(4, (first, second))] == lifts(why(yard, 4, books=False))


def test_a_job_that_is_alone_once_another_leaves_the_line_has_no_blocker_besides() -> None:
    """Though it would have to be handed in anew, after a later job of its name."""
    yard = Yard("fifo", nodes(1))
    ids = busy(yard, 8)
    first = yard.submit(8)
    alone = JobSpec("t", ask(8), after=(After(AfterKind.ALONE, 0),))
    yard.apply(JobSubmitted(0, Job(3, alone, 0, 0, 0, HOUR_MS)))
    yard.apply(JobSubmitted(0, Job(4, JobSpec("t", ask(8)), 0, 0, 0, 2 * HOUR_MS)))

    assert [BeginNow(3), EndJobs((ids[0],)), LeaveLine((first,))] == lifts(why(yard, 3, books=False))


# -- quotas ----------------------------------------------------------------------------------------------------------


def test_every_rule_of_every_tenant_has_its_own_lift() -> None:
    team = tenant("a", limit=4, max_gpus_per_job=2000, max_gpus_per_user=3000, max_running_jobs=1)
    yard = Yard("fifo", nodes(2), [team, tenant("a/u", guarantee=1, borrow=1)])
    busy(yard, 2, tenant="a/u")
    job = yard.submit(4, tenant="a/u", limit_ms=HOUR_MS)

    assert {
        RaisePerJob("a", 4000),
        RaiseLimit("a", "total", 6000),
        RaisePerUser("a", 6000),
        RaiseBorrow("a/u", "total", 5000),
        RaiseRunningJobs("a", 2),
    } == set(lifts(why(yard, job)))


def test_a_budget_is_raised_or_a_job_without_a_limit_gets_one() -> None:
    yard = Yard("fifo", nodes(1), [tenant("t", budget=Budget(HOUR_MS, 24 * HOUR_MS))])
    costly, endless = yard.submit(2, limit_ms=HOUR_MS), yard.submit(1)

    assert [RaiseBudget("t", 2 * HOUR_MS)] == lifts(why(yard, costly))
    assert [LimitTime(endless, HOUR_MS)] == lifts(why(yard, endless))


def test_what_others_hold_back_is_lent() -> None:
    yard = Yard("fifo", nodes(1), [tenant("b", guarantee=6, lend=0), tenant("c", guarantee=1, lend=0)])
    found = why(yard, yard.submit(4, limit_ms=HOUR_MS))

    assert [LendMore(("b",), "total")] == lifts(found)


def test_a_limit_that_goes_with_the_room_is_true_but_no_blocker() -> None:
    """When its own team's job ends, the job has both: nobody need raise the limit."""
    yard = Yard("fifo", nodes(1), [tenant("t", limit=8)])
    ids = busy(yard, 8)
    found = why(yard, yard.submit(4, limit_ms=HOUR_MS))

    assert [EndJobs((ids[0],))] == lifts(found)
    assert [ReasonCode.LIMIT] == [reason.code for reason in found.implied]


def test_a_limit_beside_the_room_of_others_is_a_blocker_of_its_own() -> None:
    yard = Yard("fifo", nodes(1), [tenant("t", limit=2)])
    ids = busy(yard, 8, tenant="other")
    found = why(yard, yard.submit(4, limit_ms=HOUR_MS))

    assert [RaiseLimit("t", "total", 4000), EndJobs((ids[0],))] == lifts(found)


# -- the line --------------------------------------------------------------------------------------------------------


def test_who_is_ahead_would_take_the_room_first() -> None:
    yard = Yard("fifo", nodes(1))
    ids = busy(yard, 8)
    ahead = [yard.submit(8, limit_ms=HOUR_MS) for _ in range(3)]
    found = why(yard, yard.submit(8, limit_ms=HOUR_MS))

    assert [EndJobs((ids[0],)), LeaveLine(tuple(ahead))] == lifts(found)
    assert "3 jobs come before it and take what there is: 2, 3 and 4" == found.reasons[1].text


def test_a_promise_and_a_strict_order_name_the_job_that_is_waited_for() -> None:
    for policy, code in (("fifo", ReasonCode.RESERVATION), ("strict-fifo", ReasonCode.HEAD_BLOCKED)):
        yard = Yard(policy, nodes(1))
        busy(yard, 4, hours=1)
        first, job = yard.submit(8, limit_ms=HOUR_MS), yard.submit(2, limit_ms=5 * HOUR_MS)
        found = why(yard, job)

        assert [(code, LeaveLine((first,)))] == [(reason.code, reason.lift) for reason in found.reasons]


def test_a_shorter_limit_that_would_help_is_told_with_its_option() -> None:
    yard = Yard("fifo", nodes(1))
    busy(yard, 4, hours=1)
    yard.submit(8, limit_ms=HOUR_MS)
    found = why(yard, yard.submit(2, limit_ms=5 * HOUR_MS))

    assert ["with a time limit of 1 h it would start now (--time 1h)"] == [
        helped(each) for each in found.helps
    ]


def test_where_nobody_knows_how_long_any_limit_helps() -> None:
    yard = Yard("fifo", nodes(1))
    yard.submit(4)
    yard.step()
    yard.wait(1000)
    yard.submit(8, limit_ms=HOUR_MS)
    found = why(yard, yard.submit(2))

    assert ["with a time limit it would start now (--time 1d)"] == [helped(each) for each in found.helps]


def test_a_job_for_which_others_stop_waits_for_them() -> None:
    yard = Yard("class", nodes(1), settings=Settings(classes=(BATCH, URGENT)))
    ids = busy(yard, 8)
    job = yard.submit(8, klass="urgent", limit_ms=HOUR_MS)
    told = why(yard, job)
    assert [EndJobs((ids[0],))] == lifts(told)
    assert ["job 1 is to be stopped for it"] == [reason.text for reason in told.reasons]

    yard.step()
    assert AttemptState.STOPPING is yard.state.jobs[ids[0]].phase
    kept = why(yard, job)
    assert [(ReasonCode.EARMARK, EndJobs((ids[0],)))] == [(r.code, r.lift) for r in kept.reasons]
    assert ["the engine's word that job 1 has stopped"] == [
        remedies_text(reason.lifted_by) for reason in kept.reasons
    ]


def test_a_job_that_starts_has_no_blockers_and_one_that_is_gone_no_explanation() -> None:
    yard = Yard("fifo", nodes(1))
    assert () == why(yard, yard.submit(1)).reasons
    assert None is why_(yard.state, yard.policy, 99, 0)


# -- privacy ---------------------------------------------------------------------------------------------------------


def test_jobs_of_others_are_named_by_id_only() -> None:
    yard = Yard("fifo", [node()])
    spec = JobSpec("secret/team", ask(8), name="codename")
    yard.apply(JobSubmitted(0, Job(1, spec, 0, HOUR_MS)))
    yard.step()
    yard.apply(JobSubmitted(0, Job(2, replace(spec, name="codename-2"), 0, HOUR_MS)))
    yard.apply(JobSubmitted(0, Job(3, JobSpec("me", ask(8)), 0, HOUR_MS)))
    found = why(yard, 3)

    said = " ".join([reason.text + remedies_text(reason.lifted_by) for reason in found.reasons]) + found.how
    assert "job 1" in said
    assert "codename" not in said


def test_where_another_gpu_model_would_serve_a_job_that_is_said() -> None:
    here = Yard("default", [*nodes(1, 8, "A100-80GB"), *nodes(1, 2, "L40S")])
    job = here.submit(ask(4, models=("H100",)))
    here.step()
    told = why(here, job)
    (reason,) = told.reasons
    assert "another GPU model: A100-80GB" == remedies_text(reason.lifted_by)
    assert ["--gpu-model A100-80GB"] == [help_flags(each) for each in told.helps]


def test_room_that_is_being_freed_and_used_from_outside_waits_for_both() -> None:
    yard = Yard("class", [node("n0", gpus=1)])
    runs = yard.submit(1)
    yard.step()
    urgent = yard.submit(1, klass="urgent")
    yard.step()
    apply(yard.state, GpusTaken(0, 0, 0b1, "pid 7 (python3)"))
    assert [EndJobs((runs,)), ForeignGone(0, "n0")] == lifts(why(yard, urgent, books=False))
