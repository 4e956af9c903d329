"""`explain`: every blocker with its numbers, from the state as it is."""

from dataclasses import replace

import pytest

from gpuyard.control.wording import help_flags, help_text, remedies_text
from gpuyard.core import Explanation, Policy, explain
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.suggestions import Help
from gpuyard.core.explain.why import explain_why as judged_why
from gpuyard.core.jobs.queue import count_ahead, walk_in_order
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    Budget,
    JobHeld,
    JobSuspended,
    Mig,
    Milli,
    NodeCordoned,
    NodeDown,
    ReasonCode,
)
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from gpuyard.policies import registry
from gpuyard.quantities import span_words
from gpuyard.testing import ask, node, nodes, share, tenant
from harness.yard import Yard


def helped(change: Help) -> str:
    return f"{help_text(change)} ({help_flags(change)})"


def lifted_by(yard: Yard, job_id: int) -> list[str]:
    return [remedies_text(reason.lifted_by) for reason in why(yard, job_id).reasons]


def why(yard: Yard, job_id: int, policy: str = "") -> Explanation:
    chosen: Policy = registry.build(registry.PRESETS[policy]) if policy else yard.policy
    found = explain(yard.state, chosen, job_id, yard.now_ms)
    assert found is not None
    return found


def texts(explanation: Explanation) -> list[str]:
    return [reason.text for reason in explanation.reasons]


def codes(explanation: Explanation) -> list[ReasonCode]:
    return [reason.code for reason in explanation.reasons]


def busy(yard: Yard, *gpus: int, hours: int = 2, **fields: object) -> None:
    """Jobs that run."""
    for count in gpus:
        yard.submit(ask(count, **fields), limit_ms=hours * HOUR_MS)
    yard.step()


# -- room ------------------------------------------------------------------------------------------------------------


def test_no_room_names_the_best_node_and_the_sum() -> None:
    yard = Yard("fifo", nodes(2))
    busy(yard, 6, 6)
    found = why(yard, yard.submit(8, limit_ms=HOUR_MS))

    assert ["8 x H100 on one node: 4 free on 2 nodes, but at most 2 on one node"] == texts(found)
    assert [("placement", False, "H100 coming free when something that runs ends")] == [
        (reason.by, reason.preemption_may_help, remedies_text(reason.lifted_by)) for reason in found.reasons
    ]
    assert (2 * HOUR_MS, "when job 1 ends as promised") == (found.start_ms, found.how)
    assert ["with 2 GPUs instead of 8 it would start now (--gpus 2)"] == [
        helped(each) for each in found.helps
    ]


def test_a_full_fleet_and_every_model_that_would_do() -> None:
    yard = Yard("fifo", [*nodes(1), *nodes(2, gpus=4, model="A10")])
    busy(yard, 4, 4, 8)
    found = why(yard, yard.submit(4))

    assert [
        "4 x A10 on one node: none is free on 2 nodes",
        "4 x H100 on one node: none is free on 1 node",
    ] == texts(found)


def test_a_gang_says_how_many_nodes_it_lacks() -> None:
    yard = Yard("fifo", nodes(3))
    busy(yard, 3, 8)
    pair = why(yard, yard.submit(ask(8, tasks=2)))
    with_rest = why(yard, yard.submit(ask(1, tasks=20)))

    assert ["8 x H100 on each of 2 nodes: 1 node has the room; 13 free on 2 nodes"] == texts(pair)
    assert [
        "8 x H100 on each of 2 nodes and 4 x H100 on one more: 1 node has the room; 13 free on 2 nodes"
    ] == texts(with_rest)


def test_a_job_that_may_be_spread_says_what_the_best_nodes_take() -> None:
    yard = Yard("fifo", nodes(3, gpus=4))
    busy(yard, 3, 3, 3)
    found = why(yard, yard.submit(ask(1, tasks=5, nodes_max=3)))

    assert ["5 tasks of 1 x H100 on at most 3 nodes: the best 3 nodes can take 3"] == texts(found)


def test_shares_look_for_the_best_gpu() -> None:
    yard = Yard("fifo", nodes(1, gpus=2))
    yard.submit(share(700), limit_ms=HOUR_MS)
    yard.submit(share(600), limit_ms=HOUR_MS)
    yard.step()

    assert ["0.5 H100 on one node: the best GPU has 0.4 free"] == texts(why(yard, yard.submit(share(500))))
    assert ["2 x 0.35 H100 on one node: the best node has 1 such GPU"] == texts(
        why(yard, yard.submit(share(350, count=2)))
    )


def test_whole_gpus_are_promised_for_when_a_users_shares_end_and_nobody_overtakes() -> None:
    yard = Yard("default", nodes(1, gpus=2))
    yard.submit(Ask(Milli(1, 250, "ana")), limit_ms=HOUR_MS)
    yard.step()
    whole, behind = yard.submit(2, limit_ms=HOUR_MS), yard.submit(1, limit_ms=2 * HOUR_MS)

    assert [] == yard.started(yard.step())
    found = why(yard, whole)
    assert (HOUR_MS, "when job 1 ends as promised") == (found.start_ms, found.how)
    assert 2 * HOUR_MS == why(yard, behind).start_ms


def test_cores_and_memory_are_named_where_gpus_are_free() -> None:
    yard = Yard("fifo", nodes(2, cpu_milli=64_000, memory_mib=65_536))
    busy(yard, 1, cpu_milli=48_000, memory_mib=49_152)
    busy(yard, 1, cpu_milli=40_000, memory_mib=32_768)

    assert ["4 x H100 and 32 cores on one node: 2 nodes have the GPUs, but at most 24 cores free"] == texts(
        why(yard, yard.submit(ask(4, cpu_milli=32_000)))
    )
    assert ["4 x H100 and 48 GiB on one node: 2 nodes have the GPUs, but at most 32 GiB free"] == texts(
        why(yard, yard.submit(ask(4, memory_mib=49_152)))
    )


def test_closed_nodes_that_would_matter_are_counted() -> None:
    yard = Yard("fifo", nodes(4))
    busy(yard, 8)
    yard.apply(NodeCordoned(0, 1, "drain"))
    yard.apply(NodeCordoned(0, 2, "drain"))
    yard.apply(NodeDown(0, 3, "XID 79"))
    found = why(yard, yard.submit(8))

    assert [
        "8 x H100 on one node: none is free on 1 node",
        "2 nodes with 16 H100 are cordoned",
        "1 node with 8 H100 is down",
    ] == texts(found)
    assert "h100-1 and h100-2 taking new work again" == remedies_text(found.reasons[1].lifted_by)


def test_another_model_would_help() -> None:
    yard = Yard("fifo", [*nodes(1), *nodes(1, model="A100-80GB")])
    yard.submit(ask(8, models=("H100",)), limit_ms=HOUR_MS)
    yard.step()
    found = why(yard, yard.submit(ask(8, models=("H100",)), limit_ms=HOUR_MS))

    assert ["on A100-80GB it would start now (--gpu-model A100-80GB)"] == [
        helped(each) for each in found.helps
    ]


# -- quotas ----------------------------------------------------------------------------------------------------------


def test_all_quotas_on_all_levels_are_named() -> None:
    tenants = [
        tenant("org", limit=8),
        tenant("org/lab", limit={"H100": 6}, max_running_jobs=1),
        tenant("org/lab/ben", guarantee=1, borrow=2),
    ]
    yard = Yard("fifo", nodes(2), tenants)
    yard.submit(6, tenant="org/lab/ana", limit_ms=2 * HOUR_MS)
    yard.step()
    found = why(yard, yard.submit(4, tenant="org/lab/ben", limit_ms=HOUR_MS))

    assert [
        "org/lab would be 4 H100 over its limit of 6 H100 (uses 6, asks for 4)",
        "org would be 2 GPUs over its limit of 8 (uses 6, asks for 4)",
        "org/lab/ben may borrow 2 GPUs above its guarantee of 1 and would be 1 over that (uses 0, asks for 4)",
        "org/lab runs 1 job and may run 1",
    ] == texts(found)
    assert ["org/lab", "org", "org/lab/ben", "org/lab"] == [reason.by for reason in found.reasons]
    assert None is found.start_ms, "it asks for more than it may ever borrow"


def test_quota_comes_free_when_something_ends() -> None:
    yard = Yard("fifo", nodes(2), [tenant("t", limit=4)])
    busy(yard, 3)
    found = why(yard, yard.submit(2, limit_ms=HOUR_MS))

    assert ["t would be 1 GPU over its limit of 4 (uses 3, asks for 2)"] == texts(found)
    assert (2 * HOUR_MS, "when job 1 ends as promised") == (found.start_ms, found.how)
    assert ["with 1 GPU instead of 2 it would start now (--gpus 1)"] == [helped(each) for each in found.helps]


def test_whoever_would_delay_one_that_waits_for_quota_is_told_so() -> None:
    yard = Yard("fifo", nodes(2), [tenant("t", limit=4)])
    busy(yard, 3)
    first = yard.submit(4, limit_ms=HOUR_MS)
    found = why(yard, yard.submit(1, limit_ms=3 * HOUR_MS))

    assert [
        f"job {first}, ahead of it, waits for the quota of t, which is free in 2 h; this one may run for 3 h"
    ] == texts(found)
    assert ["with a time limit of 2 h it would start now (--time 2h)"] == [
        helped(each) for each in found.helps
    ]


def test_a_job_without_a_time_limit_is_told_to_take_one_not_a_shorter_one() -> None:
    yard = Yard("fifo", nodes(2), [tenant("t", limit=4)])
    busy(yard, 3)
    first, endless = yard.submit(4, limit_ms=HOUR_MS), yard.submit(1)
    assert [f"job {first} starting, or a time limit (-t)"] == lifted_by(yard, endless)

    room = Yard("fifo", nodes(1))
    busy(room, 6, hours=1)
    big, small = room.submit(8, limit_ms=HOUR_MS), room.submit(2)
    assert [f"a time limit (-t), or the start of job {big}"] == lifted_by(room, small)
    judged = judged_why(room.state, room.policy, small, room.now_ms)
    assert judged is not None
    assert [f"a time limit (-t), or the start of job {big}"] == [
        remedies_text(each.lifted_by) for each in judged.reasons
    ]


def test_what_each_user_may_use_is_said_in_plain_words() -> None:
    yard = Yard("fifo", nodes(2), [tenant("lab", max_gpus_per_user=4000)])
    yard.submit(3, tenant="lab/ana", limit_ms=2 * HOUR_MS)
    yard.step()
    found = why(yard, yard.submit(2, tenant="lab/ana", limit_ms=HOUR_MS))

    assert ["each user of lab may use 4 GPUs, and lab/ana would use 5 (uses 3, asks for 2)"] == texts(found)
    assert "jobs of lab/ana ending, or more for each user of lab (max_gpus_per_user)" == remedies_text(
        found.reasons[0].lifted_by
    )


def test_a_limit_of_one_model_does_not_keep_it_from_another() -> None:
    yard = Yard("fifo", [*nodes(1, gpus=4, model="A10"), *nodes(1)], [tenant("t", limit={"A10": 2})])
    busy(yard, 2)
    job = yard.submit(4, limit_ms=HOUR_MS)

    assert () == why(yard, job).reasons
    assert [job] == yard.started(yard.step())


def test_a_budget_says_what_is_spent_and_when_the_window_turns() -> None:
    yard = Yard("fifo", nodes(2), [tenant("t", budget=Budget(10 * HOUR_MS, DAY_MS))])
    busy(yard, 4)
    found = why(yard, yard.submit(4, limit_ms=2 * HOUR_MS))

    assert [
        "t has a budget of 10 GPU-hours: 0 spent, 8 promised to what runs, and this job may take 8; "
        "the window ends in 1 d"
    ] == texts(found)
    assert (None, "it waits for the budget of t") == (found.start_ms, found.how)
    assert ["t has a budget, and a job without a time limit cannot be counted against it"] == texts(
        why(yard, yard.submit(1))
    )


def test_a_job_larger_than_a_whole_budget_is_not_told_to_wait_for_the_next_window() -> None:
    yard = Yard("fifo", nodes(2), [tenant("t", budget=Budget(10 * HOUR_MS, DAY_MS))])
    busy(yard, 4)
    fits, never = yard.submit(4, limit_ms=2 * HOUR_MS), yard.submit(4, limit_ms=3 * HOUR_MS)

    assert ["the next window, a shorter time limit, or a higher budget"] == lifted_by(yard, fits)
    assert ["a time limit of at most 2 h 30 min, fewer GPUs, or a higher budget"] == lifted_by(yard, never)
    found = why(yard, never)
    assert ["it can never start: t has a budget of 10 GPU-hours, and this job may take 12"] == texts(found)
    assert (None, "never: the job may take more than the whole budget of t") == (found.start_ms, found.how)
    unlimited = why(yard, yard.submit(1))
    assert "never: t has a budget, and the job has no time limit" == unlimited.how


def test_what_others_hold_back_is_told_with_their_names() -> None:
    yard = Yard("fifo", nodes(2), [tenant("ops", guarantee=8, lend=2), tenant("t")])
    busy(yard, 8)
    found = why(yard, yard.submit(4, limit_ms=HOUR_MS))

    assert [
        "14 of 16 GPUs that are up are in use or held back, and it asks for 4: held back by ops (6, uses 0)"
    ] == texts(found)
    assert (2 * HOUR_MS, "when job 1 ends as promised") == (found.start_ms, found.how)


# -- its turn --------------------------------------------------------------------------------------------------------


def test_a_promise_to_someone_ahead_is_the_reason_where_there_is_room() -> None:
    yard = Yard("fifo", nodes(1))
    busy(yard, 6, hours=1)
    big, small = yard.submit(8, limit_ms=HOUR_MS), yard.submit(2, limit_ms=5 * HOUR_MS)
    for policy in ("fifo", "conservative"):
        found = why(yard, small, policy)
        assert [
            f"there is room now, but job {big} is promised 8 GPUs in 1 h, and this job may run 5 h"
        ] == texts(found)
        assert ["with a time limit of 1 h it would start now (--time 1h)"] == [
            helped(each) for each in found.helps
        ]
        assert (1, 2, 2 * HOUR_MS) == (found.ahead, found.waiting, found.start_ms)
    strict = why(yard, small, "strict-fifo")
    assert [f"job {big} is ahead of it and waits for room; policy strict-fifo lets nobody overtake"] == texts(
        strict
    )


def test_who_was_not_looked_at_is_told_how_many_are_ahead() -> None:
    yard = Yard(replace(registry.PRESETS["fifo"], backfill_depth=1), nodes(1))
    busy(yard, 7, hours=1)
    yard.submit(8, limit_ms=HOUR_MS)
    yard.submit(2, limit_ms=HOUR_MS)
    found = why(yard, yard.submit(1, limit_ms=HOUR_MS))

    assert ["2 jobs are ahead of it; a pass looks at 1 that cannot start"] == texts(found)


def test_the_room_of_whoever_starts_first_is_not_there() -> None:
    """Both find room on the empty node, but only the first one gets it: before the plan is carried out, too."""
    yard = Yard("fifo", nodes(1))
    first, second = yard.submit(8, limit_ms=HOUR_MS), yard.submit(8, limit_ms=HOUR_MS)

    assert () == why(yard, first).reasons
    assert ["8 x H100 on one node: none is free on 1 node"] == texts(why(yard, second))
    assert HOUR_MS == why(yard, second).start_ms


def test_holds_and_begin_times_come_on_top_of_what_else_is_in_the_way() -> None:
    yard = Yard("fifo", nodes(1))
    busy(yard, 8)
    held = yard.submit(8, limit_ms=HOUR_MS)
    yard.apply(JobHeld(0, held))
    later = yard.submit(1, limit_ms=HOUR_MS, begin_ms=3 * HOUR_MS)

    assert [ReasonCode.HELD, ReasonCode.ROOM] == codes(why(yard, held))
    assert (None, "it is on hold, and nobody has said for how long") == (
        why(yard, held).start_ms,
        why(yard, held).how,
    )
    assert "it asked not to start for another 3 h" == texts(why(yard, later))[0]
    assert 3 * HOUR_MS == why(yard, later).start_ms


def test_what_can_never_run() -> None:
    yard = Yard("fifo", nodes(1))
    large, slice_ = why(yard, yard.submit(9)), why(yard, yard.submit(ask(Mig(1, "9g.99gb"))))

    assert ["asks for 9 GPUs on one node; the largest node has 8"] == texts(large)
    assert [ReasonCode.NEVER_FITS] == codes(large)
    assert [ReasonCode.UNSUPPORTED] == codes(slice_)
    assert None is large.start_ms


def test_room_that_is_being_freed() -> None:
    """Urgent: to be stopped for it, then kept for it, and for the others it is gone."""
    yard = Yard("class", nodes(1))
    victim = yard.submit(8, limit_ms=HOUR_MS)
    yard.step()
    yard.now_ms = MINUTE_MS
    urgent = yard.submit(4, klass="urgent", limit_ms=HOUR_MS)
    before = why(yard, urgent)
    yard.step()
    after = why(yard, urgent)
    other = why(yard, yard.submit(8, limit_ms=HOUR_MS))

    assert ["job 1 is to be stopped for it", "4 x H100 on one node: none is free on 1 node"] == texts(before)
    assert [False, True] == [reason.preemption_may_help for reason in before.reasons]
    assert [
        "4 x H100 on h100-0 are kept for it for another 10 min 1 s: job 1 should have stopped in 1 s"
    ] == texts(after)
    assert MINUTE_MS + SECOND_MS == before.start_ms == after.start_ms
    assert [
        "8 x H100 on one node: none is free on 1 node",
        "4 x H100 are kept for job 2",
    ] == texts(other)
    assert (
        "it has run for 1 min on h100-0 and is stopping (class, to make room for job 2)"
        == why(yard, victim).how
    )


def test_a_job_that_can_start_and_one_that_has() -> None:
    yard = Yard("fifo", nodes(1))
    job = yard.submit(1, limit_ms=2 * HOUR_MS)
    assert ((), 0, "it starts now") == (why(yard, job).reasons, why(yard, job).start_ms, why(yard, job).how)
    yard.step()
    assert "it has been starting for 0 s on h100-0, promised to end within 2 h" == why(yard, job).how
    yard.now_ms = HOUR_MS
    yard.apply(AttemptConfirmed(HOUR_MS, job, 1))
    assert "it has run for 1 h on h100-0, promised to end within 1 h" == why(yard, job).how
    yard.apply(JobSuspended(HOUR_MS, job))
    assert "it has been suspended for 0 s and keeps its GPUs on h100-0" == why(yard, job).how
    yard.end(job)
    assert None is explain(yard.state, yard.policy, job, HOUR_MS)


# -- estimates -------------------------------------------------------------------------------------------------------


def test_an_estimate_says_when_it_counts_only_some_of_those_ahead() -> None:
    yard = Yard("fifo", [node(gpus=1)])
    yard.submit(1, limit_ms=HOUR_MS)
    yard.step()
    for _ in range(250):
        yard.submit(1, limit_ms=HOUR_MS)
    job = yard.submit(1, limit_ms=HOUR_MS)

    assert 201 * HOUR_MS == estimate(yard.state, yard.policy, 0, yard.state.jobs[job]).at_ms
    assert why(yard, job).how.endswith("only the first 200 of 250 jobs ahead are counted, so it may be later")


def test_nothing_is_foretold_from_a_job_without_a_time_limit() -> None:
    yard = Yard("fifo", nodes(1))
    yard.submit(8)
    yard.step()
    found = why(yard, yard.submit(8, limit_ms=HOUR_MS))

    assert (None, "it waits for job 1, which has no time limit") == (found.start_ms, found.how)


def test_in_strict_order_nobody_is_expected_before_those_ahead() -> None:
    yard = Yard("strict-fifo", nodes(1))
    busy(yard, 6, hours=1)
    yard.submit(8, limit_ms=HOUR_MS)
    small = yard.submit(1, limit_ms=MINUTE_MS)

    assert 2 * HOUR_MS == estimate(yard.state, yard.policy, 0, yard.state.jobs[small]).at_ms
    assert (
        0 == estimate(yard.state, registry.build(registry.PRESETS["fifo"]), 0, yard.state.jobs[small]).at_ms
    )


@pytest.mark.parametrize("policy", registry.PRESETS)
def test_those_ahead_are_counted_in_the_order_in_which_they_are_looked_at(policy: str) -> None:
    yard = Yard(
        policy, nodes(1), [tenant("a", weight=3), tenant("b"), tenant("b/x"), tenant("b/y", weight=2)]
    )
    for count, (who, klass) in enumerate(
        [("a", ""), ("b", "urgent"), ("b/x", ""), ("b/y", ""), ("c", "")] * 4
    ):
        yard.now_ms = count * SECOND_MS
        yard.submit(1 + count % 5, tenant=who, klass=klass, limit_ms=HOUR_MS - count * MINUTE_MS)
        if count < 6:
            yard.step()
    yard.decide()
    line = list(walk_in_order(yard.state.queue))

    assert yard.state.queue.count == len(line) > 10
    assert list(range(len(line))) == [count_ahead(yard.state.queue, record) for record in line]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (5_000, "5 s"),
        (125 * MINUTE_MS, "2 h 5 min"),
        (3 * DAY_MS + 1000, "3 d"),
        (90_000, "1 min 30 s"),
    ],
)
def test_spans(ms: int, text: str) -> None:
    assert text == span_words(ms)
