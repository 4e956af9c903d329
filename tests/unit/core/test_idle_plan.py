"""The last answer stands only while a new pass would find the same."""

from dataclasses import replace

import pytest

from gpuyard.core import decide
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    Capability,
    ConfigSet,
    DemandLearned,
    EngineSeen,
    JobCancelled,
    JobHeld,
    JobReleased,
    Milli,
    NodeAdded,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Outcome,
    ReasonCode,
    Settings,
    Ticked,
    TokenMade,
)
from gpuyard.policies import registry
from gpuyard.testing import BATCH, ask, node, nodes, tenant
from harness.machines.checked import CheckedYard
from harness.yard import Yard

S = 1000


def full(policy: str = "fifo", **options: object) -> Yard:
    """One GPU is left of two nodes, and a job waits; the last pass decided nothing."""
    here = CheckedYard(policy, nodes(2), **options)  # type: ignore[arg-type]
    for gpus in (8, 7):
        here.submit(gpus, limit_ms=20 * S)
    here.step()
    here.submit(ask(8, 2), limit_ms=20 * S)
    assert here.step().empty
    return here


CHANGES = {
    "two ends": lambda here: (here.end(1), here.end(2)),
    "a cancelled job ahead": lambda here: here.apply(JobCancelled(here.now_ms, 3)),
    "a failed node's jobs": lambda here: (
        here.apply(NodeDown(here.now_ms, 0, "failed")),
        here.end(1, Outcome.NODE_FAIL),
        here.apply(NodeUp(here.now_ms, 0)),
        here.apply(JobCancelled(here.now_ms, 3)),
    ),
    "a new node": lambda here: here.apply(NodeAdded(here.now_ms, node("other", gpus=1))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(change) -> None:
    """A job of one GPU was refused for the sake of the one before it. Something changes, and one of them starts."""
    here = full()
    here.submit(1, limit_ms=100 * S)
    assert here.step().empty
    change(here)
    assert here.step().starts


def test_a_job_on_hold_no_longer_blocks_and_blocks_again_when_released() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.submit(4, limit_ms=10 * S)
    here.step()
    head, small = here.submit(8, limit_ms=S), here.submit(1, limit_ms=100 * S)
    assert here.step().empty
    here.apply(JobHeld(0, head))
    here.submit(1, limit_ms=100 * S)
    assert [small, small + 1] == here.started(here.step())
    here.apply(JobReleased(0, head))
    other = here.submit(1, limit_ms=101 * S)
    assert ReasonCode.RESERVATION is here.code(here.step(), other)


def test_an_uncordoned_node_is_used_at_once() -> None:
    here = CheckedYard("fifo", nodes(1))
    here.apply(NodeCordoned(0, 0, "drain"))
    job = here.submit(8)
    assert here.step().empty
    here.apply(NodeUncordoned(0, 0))
    assert [job] == here.started(here.step())


def test_an_arrival_that_fits_is_not_taken_for_one_that_does_not() -> None:
    """Eight GPUs are known not to be there. One is."""
    here = CheckedYard("fifo", nodes(1))
    here.submit(4, limit_ms=10 * S)
    here.step()
    here.submit(8, limit_ms=S)
    assert here.step().empty
    here.submit(8, limit_ms=S)
    assert here.step().empty
    short = here.submit(1, limit_ms=S)
    assert [short] == here.started(here.step())


@pytest.mark.parametrize("policy", registry.PRESETS)
def test_arrivals_that_cannot_start_are_counted(policy: str) -> None:
    """Whether they are looked at or not, the plan says how many wait, and equals that of a state without memory."""
    here = full(policy, tenants=[tenant("t", limit=32)])
    waiting = here.state.queue.count
    for number in range(6):
        here.now_ms += 500
        here.submit((8, 1, 4)[number % 3], tenant=("t", "u")[number % 2], limit_ms=(20 + number) * S)
        assert waiting + number + 1 == here.decide().waiting


def test_a_job_that_waits_for_quota_is_looked_at_though_there_is_no_room() -> None:
    """Behind it nobody of its tenant may start who would delay it, whether or not there is room for itself."""
    here = CheckedYard("sjf", nodes(1), [tenant("a", limit=4)])
    here.submit(4, tenant="a", limit_ms=100 * S)
    here.submit(4, tenant="b", limit_ms=100 * S)
    here.step()
    for limit_s in (50, 40, 30):
        here.submit(4, tenant="a", limit_ms=limit_s * S)
        assert here.step().empty


def test_time_alone_can_change_the_answer() -> None:
    """Over in time if it started now, too late a few seconds later: it waits for its tenant's quota by then."""
    here = CheckedYard("fifo", nodes(1), [tenant("a", limit=6)])
    here.submit(5, tenant="a", limit_ms=20 * S)
    here.submit(3, tenant="b", limit_ms=30 * S)
    here.step()
    here.submit(2, tenant="a", limit_ms=S)
    here.submit(ask(1), tenant="a", limit_ms=10 * S)
    for _ in range(12):
        here.step()
        here.now_ms += S
    assert here.state.now_ms < here.now_ms


def test_protection_from_preemption_ends_by_itself() -> None:
    classes = (
        replace(BATCH, min_run_ms=5 * S),
        replace(BATCH, name="urgent", priority=10, preemptible=False),
    )
    here = CheckedYard("class", nodes(1), settings=Settings(classes=classes))
    here.submit(8)
    here.step()
    here.submit(8, klass="urgent")
    assert here.step().empty
    here.now_ms += 5 * S - 1
    assert here.step().empty
    here.now_ms += 1
    assert [1] == [stop.job_id for stop in here.step().stops]


def test_settings_and_ticks_are_noticed() -> None:
    here = CheckedYard("fifo", nodes(1), [tenant("a", limit=0)])
    job = here.submit(1, tenant="a", begin_ms=0)
    later = here.submit(1, tenant="b", begin_ms=7 * S)
    assert here.step().empty
    here.now_ms = 7 * S
    here.apply(Ticked(7 * S))
    assert [later] == here.started(here.step())
    here.apply(ConfigSet(7 * S, replace(here.state.settings, tenants=())))
    assert [job] == here.started(here.step())


def test_an_event_of_another_domain_moves_the_clock_and_leaves_the_last_plan() -> None:
    here = full()
    state, last = here.state, here.state.idle_plan
    at_ms = here.now_ms + 1
    here.apply(TokenMade(at_ms, "id", "ana", "user", "t", 0, "root"))
    assert (at_ms, last) == (state.now_ms, state.idle_plan)
    assert last is not None
    assert last.stands(state.change_seq, here.policy, at_ms)
    assert last.plan == decide(state, here.policy, at_ms)
    assert last is state.idle_plan, "there was another pass"


def test_an_event_of_another_domain_closes_a_period() -> None:
    """Time passes with every event: shares have moved, so the last plan is void."""
    here = full()
    last, due_ms = here.state.idle_plan, here.state.tenants.due_ms
    here.apply(TokenMade(due_ms, "id", "ana", "user", "t", 0, "root"))
    assert due_ms < here.state.tenants.due_ms
    assert last is not None
    assert not last.stands(here.state.change_seq, here.policy, due_ms)


def test_a_full_cluster_is_seen_alike_where_quotas_are_kept_but_do_not_count() -> None:
    """What other tenants hold back is no reason to work out a promise by a policy that heeds no quotas."""
    spec = replace(registry.PRESETS["fifo"], quotas=False)
    lends = tenant("b", guarantee=4, lend=1)
    here = CheckedYard(spec, [node("n0", gpus=8, cpu_milli=8000)], [lends])
    here.submit(ask(1, cpu_milli=4000), limit_ms=20 * S)
    here.submit(ask(1, cpu_milli=5000), limit_ms=20 * S)
    here.step()
    # No node has so many GPUs free; of the job before it only a search tells that there is no room.
    here.submit(8, limit_ms=20 * S)
    assert here.step().empty
    here.apply(AttemptConfirmed(0, 1, 1))
    assert here.step().empty


def test_what_an_engine_cannot_do_changes_what_is_expected_on_its_nodes() -> None:
    here = CheckedYard("fgd", [node("n0", gpus=2, cluster="a"), node("n1", gpus=2, cluster="b")])
    here.apply(DemandLearned(0, ((Ask(Milli(1, 500)), 9), (ask(1), 1))))
    here.submit(1)
    here.end(here.step().starts[0].job_id)
    # The idle GPUs of n1 are of no use for shares from now on: a job of a whole one does least harm there.
    here.apply(EngineSeen(0, "b", (Capability.SHARES,)))
    here.submit(1)
    (start,) = here.step().starts
    assert 1 == start.grants[0].node
