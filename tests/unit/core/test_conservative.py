"""Conservative backfill: a promise for everyone, and every promise is kept."""

from dataclasses import replace
from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.schedule.profile import FleetProfile
from gpuyard.model import Ask, Grant, Node, NodeCordoned, Plan, PolicySpec, ReasonCode, Whole
from gpuyard.policies import registry
from gpuyard.testing import ask, node, nodes, share, tenant
from harness.machines.checked import CheckedYard
from harness.yard import Yard

CONSERVATIVE = registry.PRESETS["conservative"]
SLOW = settings(suppress_health_check=list(HealthCheck), derandomize=True, database=None)


def promised(plan: Plan) -> dict[int, int]:
    return {each.job_id: each.at_ms for each in plan.reservations}


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_everyone_who_waits_is_promised_a_time() -> None:
    """Two GPUs, both busy until 100: three jobs in a row, each when the one before it is over."""
    yard = CheckedYard("conservative", [node(gpus=2)])
    yard.submit(2, limit_ms=100)
    yard.step()
    for _ in range(3):
        yard.submit(2, limit_ms=10)
    plan = yard.step()

    assert {2: 100, 3: 110, 4: 120} == promised(plan)
    assert [ReasonCode.ROOM] * 3 == [yard.code(plan, job) for job in (2, 3, 4)]


def test_a_job_behind_pushes_a_job_without_a_promise_back_and_never_one_with_a_promise() -> None:
    """Under `easy` only the first has a promise: an estimate for the second is none."""
    found = {}
    for name in ("fifo", "conservative"):
        yard = Yard(name, [node("a", gpus=2, pool="p"), node("b", gpus=2, pool="q")])
        for pool, limit_ms in (("p", 1000), ("q", 10)):
            yard.submit(ask(1, pools=(pool,)), limit_ms=limit_ms)
        yard.step()
        yard.submit(ask(2, pools=("p",)), limit_ms=10)
        second = yard.submit(ask(2, pools=("q",)), limit_ms=10)
        yard.step()
        before = estimate(yard.state, yard.policy, 0, yard.state.jobs[second]).at_ms
        yard.submit(ask(1, pools=("q",)), limit_ms=500)
        yard.step()
        found[name] = before, estimate(yard.state, yard.policy, 0, yard.state.jobs[second]).at_ms

    assert {"fifo": (10, 500), "conservative": (10, 10)} == found


def test_a_gap_is_filled_only_by_what_is_over_in_time() -> None:
    """One GPU is free until job 2 takes both at 100. Job 3 would run into it, job 4 would not."""
    yard = CheckedYard("conservative", [node(gpus=2)])
    yard.submit(1, limit_ms=100)
    yard.step()
    yard.submit(2, limit_ms=50)
    yard.submit(1, limit_ms=101)
    yard.submit(1, limit_ms=100)
    plan = yard.step()

    assert [4] == yard.started(plan)
    assert {2: 100, 3: 150} == promised(plan)
    assert ReasonCode.RESERVATION is yard.code(plan, 3)


def test_unlike_easy_it_keeps_the_promise_to_the_second_in_line() -> None:
    """n0 is busy until 100 and n1 is free. EASY looks after job 2 alone and lets job 4 take n1 from job 3."""
    fleet = [node("n0", gpus=2), node("n1", gpus=2)]
    found = {}
    for policy in ("fifo", "conservative"):
        yard = CheckedYard(policy, fleet)
        yard.submit(2, limit_ms=100)
        yard.submit(1, limit_ms=50)
        yard.step()
        yard.submit(ask(2, tasks=2), limit_ms=10)
        yard.submit(2, limit_ms=20)
        yard.submit(1, limit_ms=90)
        plan = yard.step()
        found[policy] = (yard.started(plan), promised(plan))

    assert ([5], {3: 100}) == found["fifo"]
    assert ([], {3: 100, 4: 50, 5: 110}) == found["conservative"]


def test_depth_is_a_limit_on_promises() -> None:
    yard = CheckedYard(replace(CONSERVATIVE, backfill_depth=2), [node(gpus=1)])
    yard.submit(1, limit_ms=100)
    yard.step()
    for _ in range(4):
        yard.submit(1, limit_ms=10)
    plan = yard.step()

    assert {2: 100, 3: 110} == promised(plan)
    assert (2, 3) == plan.examined


def test_gpus_are_promised_one_by_one() -> None:
    """One of the two GPUs is free at any time, but never the same one for 60: the job waits for the later."""
    yard = CheckedYard("conservative", [node(gpus=2)])
    yard.submit(1, limit_ms=50)
    yard.submit(1, limit_ms=200)
    yard.step()
    yard.submit(1, limit_ms=60)
    yard.submit(1, limit_ms=60)
    plan = yard.step()

    assert {3: 50, 4: 110} == promised(plan)


def test_shares_cores_and_memory_are_promised_too() -> None:
    """Half a GPU is free at once, but the cores only at 100, when job 1 gives them back."""
    yard = CheckedYard("conservative", [node(gpus=1, cpu_milli=4000)])
    yard.submit(share(500, cpu_milli=3000), limit_ms=100)
    yard.step()
    yard.submit(share(500, cpu_milli=2000), limit_ms=10)
    yard.submit(share(500, cpu_milli=2000), limit_ms=10)
    yard.submit(share(500, cpu_milli=1000), limit_ms=100)
    plan = yard.step()

    assert {2: 100, 3: 100} == promised(plan)
    assert [4] == yard.started(plan)


def test_a_gang_waits_for_all_its_nodes_at_once() -> None:
    """n0 is free at 30, n1 at 70; the node for the rest is free already."""
    yard = CheckedYard("conservative", nodes(3, gpus=4))
    yard.submit(4, limit_ms=30)
    yard.submit(4, limit_ms=70)
    yard.step()
    yard.submit(ask(1, tasks=10), limit_ms=10)
    plan = yard.step()

    assert {3: 70} == promised(plan)


def test_a_spread_job_takes_what_there_is() -> None:
    """Six tasks on at most three nodes of four: two come free at 30, two at 50, and two more at 60."""
    yard = CheckedYard("conservative", nodes(3, gpus=4))
    for limit_ms in (30, 50, 60):
        yard.submit(2, limit_ms=limit_ms)
        yard.submit(2, limit_ms=90)
    yard.step()
    yard.submit(ask(1, tasks=6, nodes_max=3), limit_ms=10)
    plan = yard.step()

    assert {7: 60} == promised(plan)


def test_who_waits_for_quota_is_promised_the_end_of_it() -> None:
    """Job 3 waits for the limit until 100 and is booked in; job 4 of the same tenant may not run into it."""
    yard = CheckedYard("conservative", nodes(2, gpus=4), [tenant("t", limit=4)])
    yard.submit(3, limit_ms=100)
    yard.step()
    yard.submit(2, limit_ms=50)
    yard.submit(1, limit_ms=200)
    yard.submit(3, limit_ms=200, tenant="other")
    plan = yard.step()

    assert {2: 100} == promised(plan)
    assert ReasonCode.LIMIT is yard.code(plan, 2)
    assert [3, 4] == yard.started(plan)


def test_what_cannot_be_foretold_is_not_promised() -> None:
    yard = CheckedYard("conservative", nodes(1, gpus=4))
    yard.apply(NodeCordoned(0, 0, "repair"))
    yard.submit(4, limit_ms=10)
    plan = yard.step()

    assert () == plan.reservations
    assert ReasonCode.ROOM is yard.code(plan, 1)


def test_an_overdue_job_is_expected_to_end_right_away() -> None:
    yard = CheckedYard("conservative", [node(gpus=1)])
    yard.submit(1, limit_ms=10)
    yard.step()
    yard.submit(1, limit_ms=10)
    yard.now_ms = 500
    plan = yard.step()

    assert {2: 501} == promised(plan)


# -- properties ------------------------------------------------------------------------------------------------------

fleets = st.lists(
    st.builds(
        lambda gpus, group, switch: node(gpus=gpus, nvlink_group_size=group, switch=switch, cpu_milli=8000),
        st.sampled_from((2, 4)),
        st.sampled_from((0, 2)),
        st.sampled_from(("s1", "s2")),
    ),
    min_size=1,
    max_size=4,
).map(lambda fleet: [replace(each, name=f"n{i}") for i, each in enumerate(fleet)])

asks = st.one_of(
    st.builds(
        ask,
        st.sampled_from((1, 1, 2, 4)),
        st.sampled_from((1, 1, 2, 3)),
        cpu_milli=st.sampled_from((0, 0, 3000)),
    ),
    st.builds(
        share,
        st.sampled_from((250, 500, 700)),
        st.sampled_from((1, 1, 2)),
        cpu_milli=st.sampled_from((0, 2000)),
    ),
)
arrivals = st.lists(st.tuples(st.integers(0, 12), asks, st.integers(1, 30)), min_size=1, max_size=14)


@SLOW
@given(fleets, arrivals, st.sampled_from(("fifo", "sjf")))
def test_no_promise_is_put_off_when_jobs_end_as_promised(
    fleet: list[Node], jobs: list[tuple[int, Ask, int]], order: str
) -> None:
    """Whatever starts past it meanwhile: each job starts by the first time it was ever promised.

    Under `sjf` a shorter job that comes later goes ahead, so there all jobs come at once.
    """
    yard = CheckedYard(PolicySpec("c", order=(order,), backfill="conservative", backfill_depth=1000), fleet)
    due = [(at_ms if order == "fifo" else 0, wanted, limit_ms) for at_ms, wanted, limit_ms in jobs]
    due.sort(key=lambda row: row[0])
    latest: dict[int, int] = {}
    for _ in range(1000):
        while due and due[0][0] <= yard.now_ms:
            yard.submit(due[0][1], limit_ms=due.pop(0)[2])
        for job_id in [r.id for r in yard.state.running.values() if r.end_ms <= yard.now_ms]:
            yard.end(job_id)
        plan = yard.step()
        for job_id, at_ms in promised(plan).items():
            assert at_ms <= latest.setdefault(job_id, at_ms), f"job {job_id} is put off to {at_ms}"
        overdue = [j for j, at_ms in latest.items() if at_ms <= yard.now_ms and j not in yard.state.running]
        assert [] == [j for j in overdue if j in yard.state.jobs], "a promised time has passed"
        times = [r.end_ms for r in yard.state.running.values()] + [at_ms for at_ms, _, _ in due]
        if not times:
            break
        yard.now_ms = min(times)


@SLOW
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20)), max_size=6),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20)), min_size=1, max_size=8),
)
def test_whoever_starts_in_strict_order_starts_here_too(
    count: int, running: list[tuple[int, int]], waiting: list[tuple[int, int]]
) -> None:
    """On nodes of one GPU, where it does not matter which node a task gets."""
    started = {}
    for policy in ("strict-fifo", "conservative"):
        yard = CheckedYard(policy, nodes(count, gpus=1))
        for tasks, limit_ms in running:
            yard.submit(ask(1, tasks=tasks), limit_ms=limit_ms)
        first = yard.step()
        yard.now_ms = 1
        for tasks, limit_ms in waiting:
            yard.submit(ask(1, tasks=tasks), limit_ms=limit_ms)
        started[policy] = {*yard.started(first), *yard.started(yard.step())}

    assert started["strict-fifo"] <= started["conservative"]


@SLOW
@given(fleets, st.lists(st.tuples(asks, st.integers(1, 12)), min_size=1, max_size=7))
def test_the_earliest_time_is_the_earliest(fleet: list[Node], jobs: list[tuple[Ask, int]]) -> None:
    """Against a search that tries every moment, every node and every set of GPUs."""
    yard = Yard("conservative", fleet)
    for wanted, limit_ms in jobs:
        yard.submit(wanted, limit_ms=limit_ms)
    profile = FleetProfile(yard.state, yard.policy, 0)
    slots: list[tuple[int, int, tuple[Grant, ...]]] = []
    for job_id in range(1, len(jobs) + 1):
        record = yard.state.jobs[job_id]
        slot = profile.earliest(record, 0)
        run_ms = record.estimate_ms
        expected = next(
            (at for at in range(200) if fits(fleet, slots, record.job.spec.ask, at, run_ms)), None
        )
        assert expected == (slot and slot.at_ms)
        if slot is not None:
            slots.append((slot.at_ms, slot.at_ms + run_ms, slot.grants))
            profile.book(record, slot)
            assert sound(fleet, slots), f"{slot} takes what is taken"


def sound(fleet: list[Node], slots: list[tuple[int, int, tuple[Grant, ...]]]) -> bool:
    """Nothing is taken twice at any time."""
    return all(
        min(left) >= 0 and cpu >= 0
        for at in {start for start, _end, _grants in slots}
        for left, cpu in free_at(fleet, slots, at)
    )


def free_at(
    fleet: list[Node], slots: list[tuple[int, int, tuple[Grant, ...]]], at_ms: int
) -> list[tuple[list[int], int]]:
    """Milli of each GPU and cores free on each node."""
    left = [[1000] * each.gpus for each in fleet]
    cpu = [each.cpu_milli for each in fleet]
    for start_ms, end_ms, grants in slots:
        if start_ms <= at_ms < end_ms:
            for grant in grants:
                cpu[grant.node] -= grant.cpu_milli
                for gpu in range(fleet[grant.node].gpus):
                    left[grant.node][gpu] -= grant.milli * (grant.gpus >> gpu & 1)
    return list(zip(left, cpu, strict=True))


def fits(
    fleet: list[Node], slots: list[tuple[int, int, tuple[Grant, ...]]], wanted: Ask, at_ms: int, run_ms: int
) -> bool:
    """Whether the job could run from then on: on nodes alike, as many tasks to a node as an empty one holds."""
    moments = [free_at(fleet, slots, t) for t in range(at_ms, at_ms + run_ms)]
    milli = 1000 if isinstance(wanted.gpus, Whole) else wanted.gpus.milli

    def most(number: int) -> int:
        """Tasks that the same GPUs of a node hold at every moment."""
        gpus = range(fleet[number].gpus)
        cpu = min(moment[number][1] for moment in moments)
        for tasks in range(wanted.tasks, 0, -1):
            if cpu >= wanted.cpu_milli * tasks and any(
                all(moment[number][0][gpu] >= milli for moment in moments for gpu in chosen)
                for chosen in combinations(gpus, wanted.gpus.count * tasks)
            ):
                return tasks
        return 0

    kinds = {(each.gpus, each.nvlink_group_size, each.cluster) for each in fleet}
    for kind in kinds:
        members = [
            i for i, each in enumerate(fleet) if (each.gpus, each.nvlink_group_size, each.cluster) == kind
        ]
        empty = min(
            wanted.tasks,
            kind[0] // wanted.gpus.count,
            8000 // wanted.cpu_milli if wanted.cpu_milli else wanted.tasks,
        )
        if not empty:
            continue
        full, rest = divmod(wanted.tasks, empty)
        held = sorted((min(most(number), empty) for number in members), reverse=True)
        enough = len(held) >= full + (rest > 0) and all(tasks == empty for tasks in held[:full])
        if enough and (not rest or held[full] >= rest):
            return True
    return False
