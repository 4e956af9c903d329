"""Who may pass whom: the promise of EASY, who gets it, and what it keeps out of reach."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gpuyard.core import apply
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.quota_promise import QuotaPromise
from gpuyard.model import (
    ConfigSet,
    GpusTaken,
    JobSuspended,
    Mig,
    NodeCordoned,
    NodeDown,
    PolicySpec,
    ReasonCode,
    Reservation,
    Settings,
)
from gpuyard.testing import ask, nodes, share, tenant
from harness.machines.checked import CheckedYard
from harness.yard import Yard

S = 1000


def half_full(**options: object) -> Yard:
    """One node of 8 GPUs; four of them are taken until 10 s."""
    here = CheckedYard("fifo", nodes(1), **options)  # type: ignore[arg-type]
    here.submit(4, limit_ms=10 * S)
    here.step()
    return here


def test_a_job_passes_if_it_is_over_by_the_promised_time() -> None:
    here = half_full()
    head = here.submit(8, limit_ms=S)
    late = here.submit(1, limit_ms=10 * S + 1)
    in_time = here.submit(1, limit_ms=10 * S)
    plan = here.step()
    assert [in_time] == here.started(plan)
    assert (Reservation(head, 10 * S),) == plan.reservations
    assert ReasonCode.RESERVATION is here.code(plan, late)


@pytest.mark.parametrize("name", ["fifo", "conservative", "default"])
def test_a_job_without_a_limit_keeps_behind_a_promise_when_another_starts_ahead(name: str) -> None:
    """The job that starts ahead moves the promise away by as long as every job without a limit is taken to run."""
    here = CheckedYard(name, nodes(1))
    here.submit(4)
    here.step()
    here.now_ms = 60 * S
    ahead = here.submit(1)
    here.submit(8)
    behind = here.submit(1)
    plan = here.step()
    assert [ahead] == here.started(plan)
    assert ReasonCode.RESERVATION is here.code(plan, behind)


def test_a_job_passes_if_it_takes_nothing_that_is_promised() -> None:
    """Two GPUs are left over beside the six that are promised."""
    here = half_full()
    here.submit(6, limit_ms=S)
    long = [here.submit(1, limit_ms=100 * S) for _ in range(3)]
    assert long[:2] == here.started(here.step())


def test_cores_are_promised_too() -> None:
    here = CheckedYard("fifo", nodes(1, cpu_milli=8000))
    here.submit(ask(1, cpu_milli=4000), limit_ms=10 * S)
    here.step()
    here.submit(ask(1, cpu_milli=8000), limit_ms=S)
    thirsty = here.submit(ask(1, cpu_milli=1000), limit_ms=100 * S)
    frugal = here.submit(ask(1), limit_ms=100 * S)
    plan = here.step()
    assert [frugal] == here.started(plan)
    assert ReasonCode.RESERVATION is here.code(plan, thirsty)


@pytest.mark.parametrize("rule", [{"limit": {"total": 8}}, {"max_running_jobs": 2}])
def test_quota_is_promised_too(rule: dict[str, object]) -> None:
    """On another node, out of the way of the room that is promised, a job may still use quota that is."""
    here = CheckedYard("fifo", nodes(2), [tenant("a", **rule)])
    first = here.state.nodes.node[0].name
    gone = here.submit(ask(8, on_nodes=(first,)), limit_ms=10 * S, tenant="b")
    here.submit(2, limit_ms=20 * S, tenant="a")
    here.step()
    head = here.submit(ask(6, on_nodes=(first,)), limit_ms=100 * S, tenant="a")
    late = here.submit(1, limit_ms=100 * S, tenant="a")
    in_time = here.submit(1, limit_ms=10 * S, tenant="a")
    others = here.submit(1, limit_ms=100 * S, tenant="b")
    plan = here.step()
    assert (Reservation(head, 10 * S),) == plan.reservations
    assert ReasonCode.RESERVATION is here.code(plan, late)
    assert [in_time, others] == here.started(plan)
    here.now_ms = 10 * S
    here.end(gone)
    here.end(in_time)
    assert [head] == here.started(here.step())


def test_who_starts_in_a_pass_is_counted_once_for_the_quota_of_a_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many start beside a promise, each of them asks what those before it give back in time."""
    seen = []

    def counted(self: QuotaPromise, row: list[int], number: int, records: Iterable[JobRecord]) -> None:
        known = list(records)
        seen.extend(known)
        add(self, row, number, known)

    add = QuotaPromise._add
    monkeypatch.setattr(QuotaPromise, "_add", counted)
    here = CheckedYard("fifo", [*nodes(2), *nodes(4, model="A100-80GB")], [tenant("a", limit=32)])
    for _ in range(16):
        here.submit(ask(1, models=("H100",)), limit_ms=10 * S, tenant="a")
    here.step()
    here.submit(ask(8, 2, models=("H100",)), limit_ms=S, tenant="a")
    for _ in range(20):
        here.submit(ask(1, models=("A100-80GB",)), limit_ms=100 * S, tenant="a")
    assert 16 == len(here.decide().starts)
    # The yard makes four passes to compare them; in each, a job is counted once.
    assert len(seen) <= 4 * (16 + 16)


@pytest.mark.parametrize("late_ms", [-1, 0, 5 * S])
def test_who_lacks_quota_keeps_its_promise_while_those_it_waits_for_are_overdue(late_ms: int) -> None:
    """The job that has the room and the quota should be over by now. Nobody takes its place before its turn."""
    here = CheckedYard("fifo", nodes(1, gpus=4), [tenant("a", limit=4)])
    gone = here.submit(3, limit_ms=10 * S, tenant="a")
    here.step()
    head = here.submit(4, limit_ms=S, tenant="a")
    long = here.submit(1, limit_ms=100 * S, tenant="b")
    assert (Reservation(head, 10 * S),) == here.step().reservations
    here.now_ms = 10 * S + late_ms
    here.submit(1, limit_ms=100 * S, tenant="b")
    plan = here.step()
    assert ReasonCode.RESERVATION is here.code(plan, long)
    here.end(gone)
    assert [head] == here.started(here.step())


@pytest.mark.parametrize(
    "ahead",
    [
        {"wanted": 3, "tenant": "poor"},
        {"wanted": ask(1, models=("T4",))},
        {"wanted": ask(9)},
    ],
    ids=["waits for quota", "asks for what is not there", "asks for too much"],
)
def test_the_first_who_waits_for_room_is_promised_it_whoever_else_is_ahead(ahead: dict) -> None:
    """Jobs ahead that wait for something else than room must not cost it its promise."""
    here = half_full(tenants=[tenant("poor", limit=2)])
    here.submit(ahead.pop("wanted"), **ahead)
    head = here.submit(8, limit_ms=S)
    long = here.submit(1, limit_ms=100 * S)
    # Twice, so that what is known from the first pass is used in the second.
    for _ in range(2):
        plan = here.step()
        assert [] == here.started(plan)
        assert (Reservation(head, 10 * S),) == plan.reservations
        assert ReasonCode.RESERVATION is here.code(plan, long)
        here.submit(8, limit_ms=S)


@pytest.mark.parametrize("gone", [NodeDown, NodeCordoned])
def test_who_cannot_be_promised_anything_leaves_it_to_the_next(gone: type) -> None:
    """The only A100 node is closed. Who waits for it cannot be told a time; who waits for the H100s can."""
    here = CheckedYard("fifo", [*nodes(1), *nodes(1, model="A100-80GB")])
    here.submit(ask(4, models=("H100",)), limit_ms=10 * S)
    here.step()
    here.apply(gone(0, 1, "closed"))
    lost = here.submit(ask(8, models=("A100-80GB",)), limit_ms=S)
    head = here.submit(ask(8, models=("H100",)), limit_ms=S)
    long = here.submit(1, limit_ms=100 * S)
    plan = here.step()
    assert (Reservation(head, 10 * S),) == plan.reservations
    assert (ReasonCode.ROOM, ReasonCode.RESERVATION) == (here.code(plan, lost), here.code(plan, long))


def test_who_waits_for_a_gpu_to_be_cut_leaves_the_promise_to_the_next() -> None:
    """Nobody can say when more GPUs are whole than stay so. When eight are free on one node is known."""
    here = CheckedYard("fifo", nodes(1, model="H200"), settings=Settings(whole_gpus=4))
    here.submit(4, limit_ms=10 * S)
    here.step()
    sliver = here.submit(ask(Mig(1, "1g.18gb")), limit_ms=S)
    head = here.submit(8, limit_ms=S)
    long = here.submit(1, limit_ms=100 * S)
    # Twice, so that what is known from the first pass is used in the second.
    for _ in range(2):
        plan = here.step()
        assert (Reservation(head, 10 * S),) == plan.reservations
        assert (ReasonCode.ROOM, ReasonCode.RESERVATION) == (here.code(plan, sliver), here.code(plan, long))
        here.submit(8, limit_ms=S)


def test_who_waits_for_what_somebody_outside_uses_leaves_the_promise_to_the_next() -> None:
    here = Yard("fifo", [*nodes(1), *nodes(1, model="A100-80GB")])
    # The books that tests keep beside the state know of the yard's own jobs only.
    apply(here.state, GpusTaken(0, 1, 0b1000_0000, "someone"))
    here.submit(ask(4, models=("H100",)), limit_ms=10 * S)
    here.step()
    here.submit(ask(8, models=("A100-80GB",)), limit_ms=S)
    head = here.submit(ask(8, models=("H100",)), limit_ms=S)
    long = here.submit(ask(1, models=("H100",)), limit_ms=100 * S)
    plan = here.step()
    assert (Reservation(head, 10 * S),) == plan.reservations
    assert ReasonCode.RESERVATION is here.code(plan, long)


def test_a_full_cluster_is_full_even_where_someone_holds_back() -> None:
    """All that is held back is in use by its owner: who waits then waits for room, and is promised it."""
    here = CheckedYard("fifo", nodes(1), [tenant("owner", guarantee=4, lend=2)])
    here.submit(4, tenant="owner", limit_ms=10 * S)
    here.step()
    head = here.submit(6, tenant="other", limit_ms=S)
    plan = here.step()
    assert ReasonCode.ROOM is here.code(plan, head)
    long = here.submit(1, tenant="other", limit_ms=100 * S)
    assert ReasonCode.RESERVATION is here.code(here.step(), long)


def test_deciding_without_committing_changes_nothing() -> None:
    """What is promised is worked out among drafts: the next decision must not go by those."""
    here = half_full()
    here.submit(6, limit_ms=S)
    here.submit(2, limit_ms=5 * S)
    here.submit(2, limit_ms=100 * S)
    plans = [here.decide() for _ in range(3)]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].starts


def test_new_weights_change_where_a_promise_is_kept() -> None:
    """Both models would serve at the same time; the cheaper one does, also after the prices have changed places."""
    here = CheckedYard("fifo", [*nodes(1), *nodes(1, model="A100-80GB")])
    for model in ("H100", "A100-80GB"):
        here.submit(ask(4, models=(model,)), limit_ms=10 * S)
    here.step()
    here.submit(8, limit_ms=S)
    here.submit(1, limit_ms=100 * S)
    here.decide()
    weights = {"H100": 1, "A100-80GB": 1000}
    here.apply(ConfigSet(0, replace(here.state.settings, share_weights=weights)))
    (start,) = here.step().starts
    assert "A100-80GB" == here.books.nodes[start.grants[0].node].gpu_model


def test_a_suspended_job_is_not_expected_to_end_soon() -> None:
    here = half_full()
    here.apply(JobSuspended(0, 1))
    here.submit(8, limit_ms=S)
    year = here.submit(1, limit_ms=365 * 24 * 3600 * S)
    assert [year] == here.started(here.step())


def test_in_strict_order_the_first_without_room_ends_the_pass() -> None:
    here = CheckedYard("strict-fifo", nodes(1), [tenant("poor", limit=0)])
    here.submit(4, limit_ms=10 * S)
    here.step()
    poor = here.submit(1, tenant="poor")
    head = here.submit(8)
    behind = here.submit(1, limit_ms=S)
    plan = here.step()
    assert (poor, head) == plan.examined
    assert ReasonCode.NOT_EXAMINED is here.code(plan, behind)


def test_depth_limits_how_many_are_looked_at() -> None:
    """Each asks for something else, so each is looked at by itself."""
    here = half_full()
    here.policy = replace(here.policy, spec=replace(here.policy.spec, backfill_depth=2))
    here.submit(8, limit_ms=S)
    blocked = [here.submit(gpus, limit_ms=100 * S) for gpus in (1, 2, 3)]
    plan = here.step()
    assert 2 == len(plan.examined)
    assert ReasonCode.NOT_EXAMINED is here.code(plan, blocked[-1])


def test_shares_of_a_gpu_are_promised_one_by_one() -> None:
    here = CheckedYard("fifo", nodes(1, gpus=1))
    here.submit(share(600), limit_ms=10 * S)
    here.step()
    head = here.submit(share(700), limit_ms=S)
    long = here.submit(share(400), limit_ms=100 * S)
    fine = here.submit(share(300), limit_ms=100 * S)
    plan = here.step()
    assert [fine] == here.started(plan)
    assert (Reservation(head, 10 * S),) == plan.reservations
    assert ReasonCode.RESERVATION is here.code(plan, long)


def test_a_node_with_a_gpu_that_someone_else_uses_is_not_promised_whole() -> None:
    """Whoever wants a whole node waits for the last job there, but not where one more GPU stays taken."""
    here = Yard("fifo", nodes(2))
    # The books that tests keep beside the state know of the yard's own jobs only.
    apply(here.state, GpusTaken(0, 0, 0b1000_0000, "someone"))
    here.submit(6, limit_ms=10 * S)
    here.submit(8, limit_ms=100 * S)
    assert 2 == len(here.step().starts)
    head = here.submit(8, limit_ms=S)
    small = here.submit(1, limit_ms=50 * S)
    plan = here.step()
    assert (Reservation(head, 100 * S),) == plan.reservations
    assert [small] == here.started(plan)


def test_a_promise_follows_what_starts_on_its_nodes_and_what_ends_anywhere() -> None:
    """Two nodes; the head is promised the one that is empty first, and that changes with every start and end."""
    here = CheckedYard("fifo", nodes(2))
    first, second = here.submit(7, limit_ms=10 * S), here.submit(7, limit_ms=20 * S)
    here.step()
    head = here.submit(8, limit_ms=S)
    here.submit(1, limit_ms=5 * S)
    assert (Reservation(head, 10 * S),) == here.step().reservations
    here.apply(JobSuspended(here.now_ms, first))
    here.submit(1, limit_ms=5 * S)
    assert (Reservation(head, 20 * S),) == here.step().reservations
    here.end(second)
    here.submit(2, limit_ms=100 * S)
    assert (Reservation(head, 5 * S),) == here.step().reservations


GUARANTEES = [tenant("red", guarantee={"total": 4}), tenant("blue", guarantee={"total": 4})]


RECLAIMS = PolicySpec("reclaims", order=("class",), preemption=("reclaim", "class"))
"""As `default`, where the tenant that borrows is not behind by its share."""


def promised_to_a_borrower(policy: PolicySpec | str = RECLAIMS, **holder: object) -> tuple[Yard, int]:
    """One node of 8 GPUs: red has a thousandth of one of them and is promised all, which is 4 above its guarantee."""
    here = CheckedYard(policy, nodes(1), GUARANTEES)
    here.submit(share(1), tenant="red", **holder)  # type: ignore[arg-type]
    here.step()
    head = here.submit(8, tenant="red")
    here.step()
    return here, head


def test_a_promise_to_a_borrower_does_not_bind_a_job_within_its_guarantee() -> None:
    here, head = promised_to_a_borrower(limit_ms=900 * S)
    within = here.submit(1, tenant="blue")
    plan = here.step()
    assert [within] == here.started(plan)
    assert [head] == [each.job_id for each in plan.reservations]
    assert plan.reservations[0].at_ms > 900 * S, "the promise is put off behind the job that came before it"


def test_a_guarantee_passes_a_borrower_up_to_its_size() -> None:
    """The fifth GPU of blue would be borrowed as well: then it is the turn of the job that was there first."""
    here, _head = promised_to_a_borrower(limit_ms=900 * S)
    jobs = [here.submit(1, tenant="blue") for _ in range(5)]
    plan = here.step()
    assert jobs[:4] == here.started(plan)
    assert jobs[:4] == sorted(here.state.running)[1:]
    assert ReasonCode.RESERVATION is here.code(here.step(), jobs[4])


def test_a_promise_binds_the_tenant_s_own_jobs_and_those_without_a_guarantee() -> None:
    here, _head = promised_to_a_borrower(limit_ms=900 * S)
    own, stranger = here.submit(1, tenant="red"), here.submit(1, tenant="green")
    plan = here.step()
    assert [] == here.started(plan)
    for job_id in (own, stranger):
        assert ReasonCode.RESERVATION is here.code(plan, job_id)


def test_a_promise_within_a_guarantee_binds_other_guarantees() -> None:
    """What red has now has ended by then: it does not borrow when it starts."""
    here = CheckedYard(RECLAIMS, nodes(1, gpus=5), GUARANTEES)
    here.submit(2, tenant="red", limit_ms=900 * S)
    here.step()
    here.submit(4, tenant="red")
    passing = here.submit(2, tenant="blue")
    plan = here.step()
    assert [] == here.started(plan)
    assert ReasonCode.RESERVATION is here.code(plan, passing)


def test_a_policy_that_takes_nothing_back_keeps_every_promise() -> None:
    here, _head = promised_to_a_borrower("fifo", limit_ms=900 * S)
    passing = here.submit(1, tenant="blue")
    plan = here.step()
    assert [] == here.started(plan)
    assert ReasonCode.RESERVATION is here.code(plan, passing)


def test_a_borrower_starts_when_the_guarantee_is_not_used_any_more() -> None:
    here, head = promised_to_a_borrower(limit_ms=900 * S)
    within = here.submit(1, tenant="blue", limit_ms=10 * S)
    here.step()
    here.now_ms = 10 * S
    here.end(within)
    here.step()
    here.now_ms = 900 * S
    here.end(1)
    assert [head] == here.started(here.step())


@pytest.mark.parametrize("name", ["fifo", "default"])
@pytest.mark.parametrize("cpu_milli", [0, 1000])
def test_a_job_that_takes_nothing_of_what_is_promised_is_not_held(name: str, cpu_milli: int) -> None:
    """All GPUs of the node are promised, and neither its cores nor room for a job without GPUs."""
    here = CheckedYard(name, nodes(1, cpu_milli=8000))
    here.submit(1, limit_ms=900 * S)
    here.step()
    here.submit(8)
    without = here.submit(ask(0, cpu_milli=cpu_milli))
    assert [without] == here.started(here.step())
