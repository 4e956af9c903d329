"""Pools with walls: whose jobs a pool takes, for how long and how large, in every decision and every answer."""

from dataclasses import replace

import pytest

from gpuyard.control.wording import remedies_text
from gpuyard.core import apply
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.explain.why import explain_why
from gpuyard.core.state.dump import dump, load
from gpuyard.model import (
    ConfigSet,
    Job,
    JobClass,
    JobSpec,
    JobSubmitted,
    Node,
    OpenPools,
    Outcome,
    ReasonCode,
    Settings,
    TasksSubmitted,
)
from gpuyard.model.units import HOUR_MS, MINUTE_MS, NO_LIMIT_MS
from gpuyard.model.walls import Askers, Wall
from gpuyard.policies.registry import PRESETS
from gpuyard.testing import BATCH, ask
from harness.machines.checked import CheckedYard, replayed

CLASSES = (BATCH, JobClass("urgent", 10, limit_ms=8 * HOUR_MS), JobClass("long"))


def site(walls: dict[str, Wall], policy: str = "fifo", nodes: int = 2) -> CheckedYard:
    """Nodes of four GPUs in the pools `open` and `shut` of one cluster, alike."""
    fleet = [
        Node(f"{pool}-{number}", "main", pool, "H100", 4, 64_000, 1 << 18)
        for pool in ("open", "shut")
        for number in range(nodes)
    ]
    return CheckedYard(policy, fleet, settings=Settings(classes=CLASSES, walls=walls))


def pools(here: CheckedYard, job_id: int) -> set[str]:
    """Where a job runs."""
    return {here.state.nodes.node[grant.node].pool for grant in here.state.jobs[job_id].grants}


def put(here: CheckedYard, wanted: int | None = None, *, limit_ms: int = 0, **fields: object) -> int:
    """Submit a job of these fields of its spec."""
    asked = fields.pop("asked", None) or ask(1 if wanted is None else wanted)
    spec = JobSpec(**{"tenant": "lab", "ask": asked, **fields})  # type: ignore[arg-type]
    job_id = here.state.last_job_id + 1
    here.apply(JobSubmitted(here.now_ms, Job(job_id, spec, here.now_ms, limit_ms)))
    return job_id


OF_ANA = Wall(allow=Askers(users=("ana",)))
INSIDE = [
    (Wall(allow=Askers(tenants=("lab",))), {"tenant": "lab/vision"}, {"tenant": "labor"}),
    (Wall(allow=Askers(tenants=("lab/vision",))), {"tenant": "lab/vision/ana"}, {"tenant": "lab"}),
    (OF_ANA, {"user": "ana"}, {"user": "bob"}),
    (Wall(allow=Askers(groups=("red", "blue"))), {"groups": ("blue",)}, {"groups": ("green",)}),
    (Wall(allow=Askers(classes=("urgent",))), {"klass": "urgent"}, {"klass": ""}),
    (Wall(deny=Askers(classes=("batch",))), {"klass": "urgent"}, {"klass": ""}),
    (Wall(deny=Askers(users=("bob",), groups=("red",))), {"user": "ana"}, {"user": "ana", "groups": ("red",)}),
    (
        Wall(allow=Askers(users=("ana", "bob"), classes=("urgent",))),
        {"user": "bob", "klass": "urgent"},
        {"user": "bob"},
    ),
    (
        Wall(allow=Askers(users=("ana",)), deny=Askers(classes=("batch",))),
        {"user": "ana", "klass": "long"},
        {"user": "ana"},
    ),
    (Wall(time_limit_ms=HOUR_MS), {"limit_ms": HOUR_MS}, {"limit_ms": HOUR_MS + 1}),
    (Wall(min_gpu_milli=3000), {"wanted": 3}, {"wanted": 2}),
    (Wall(max_nodes_per_job=1), {"asked": ask(4, 1)}, {"asked": ask(4, 2)}),
]  # fmt: skip
"""A wall, a job that it lets in, and one that it keeps out."""


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_a_job_gets_nodes_of_open_pools_alone(policy: str) -> None:
    here = site({"main/shut": OF_ANA}, policy)
    theirs = [put(here, 4, user="bob") for _ in range(2)]
    hers = [put(here, 4, user="ana") for _ in range(2)]
    late = [put(here, 4, user=user) for user in ("bob", "ana")]
    here.step()
    assert [{"open"}, {"open"}] == [pools(here, job) for job in theirs]
    assert [{"shut"}, {"shut"}] == [pools(here, job) for job in hers]
    assert [set(), set()] == [pools(here, job) for job in late]


@pytest.mark.parametrize(("wall", "inside", "outside"), INSIDE)
def test_whose_jobs_how_long_and_how_large(
    wall: Wall, inside: dict[str, object], outside: dict[str, object]
) -> None:
    here = site({"main/open": Wall(deny=Askers(tenants=("lab", "labor"))), "main/shut": wall})
    in_it = put(here, **inside)  # type: ignore[arg-type]
    out_of_it = put(here, **outside)  # type: ignore[arg-type]
    plan = here.step()
    assert {"shut"} == pools(here, in_it)
    assert set() == pools(here, out_of_it)
    assert ReasonCode.WALL is here.code(plan, out_of_it)
    record = here.state.jobs[out_of_it]
    never = impossible_reason(here.state, record.job.spec, record.limit_ms)
    assert never is not None
    assert ReasonCode.WALL is never.code
    assert here.state.jobs[in_it].shape.ways
    assert (None, False) == (
        estimate(here.state, here.policy, here.now_ms, record)[0],
        bool(record.shape.ways),
    )


SAID = [
    (OF_ANA, {"user": "bob"}, "pool shut takes only jobs of user ana"),
    (
        Wall(allow=Askers(tenants=("a", "b"), groups=("red",))),
        {"groups": ("blue",)},
        "pool shut takes only jobs of tenants a and b by people in group red",
    ),
    (Wall(deny=Askers(classes=("batch", "idle"))), {}, "pool shut takes no jobs of classes batch and idle"),
    (
        Wall(time_limit_ms=HOUR_MS),
        {"limit_ms": 2 * HOUR_MS},
        "pool shut takes only jobs of at most 1 h (this one may run for 2 h)",
    ),
    (
        Wall(time_limit_ms=HOUR_MS, default_time_ms=MINUTE_MS),
        {"limit_ms": NO_LIMIT_MS},
        "pool shut takes only jobs of at most 1 h (this one has no time limit)",
    ),
    (Wall(min_gpu_milli=2000), {}, "pool shut takes only jobs with at least 2 GPUs"),
    (
        Wall(max_nodes_per_job=1),
        {"asked": ask(4, 2)},
        "pool shut takes only jobs on at most 1 node (this one needs 2)",
    ),
]


@pytest.mark.parametrize(("wall", "job", "text"), SAID)
def test_why_names_the_wall_and_a_lift_that_opens_it(wall: Wall, job: dict[str, object], text: str) -> None:
    closed = Wall(deny=Askers(tenants=("lab",)))
    here = site({"main/open": closed, "main/shut": wall})
    job_id = put(here, **job)  # type: ignore[arg-type]
    here.step()
    found = explain_why(here.state, here.policy, job_id, here.now_ms)
    assert found is not None
    (reason,) = found.reasons
    assert found.judged
    assert f"pool open takes no jobs of tenant lab; {text}" == reason.text
    assert OpenPools(("main/open", "main/shut")) == reason.lift
    assert "open and shut" == reason.by
    assert "another wall of open and shut" in remedies_text(reason.lifted_by)


def test_a_job_that_names_a_closed_pool_is_told_of_open_ones() -> None:
    here = site({"main/shut": OF_ANA})
    reason = impossible_reason(here.state, JobSpec("lab", ask(1, pools=("shut",)), user="bob"))
    assert reason is not None
    assert "another pool: open, or another wall of shut" in remedies_text(reason.lifted_by)
    assert impossible_reason(here.state, JobSpec("lab", ask(1, pools=("shut", "open")), user="bob")) is None


def test_a_wall_that_is_in_nobodys_way_is_no_reason() -> None:
    here = site({"main/shut": OF_ANA})
    reason = impossible_reason(here.state, JobSpec("lab", ask(5), user="bob"))
    assert reason is not None
    assert ReasonCode.NEVER_FITS is reason.code


def test_a_gang_that_needs_open_and_closed_nodes_is_told_of_the_wall() -> None:
    here = site({"main/shut": OF_ANA})
    never = impossible_reason(here.state, JobSpec("lab", ask(4, 3), user="bob"))
    assert never is not None
    assert ReasonCode.WALL is never.code
    assert impossible_reason(here.state, JobSpec("lab", ask(4, 3), user="ana")) is None


DEFAULTS = [
    ({}, 8 * HOUR_MS),
    ({"main/open": Wall(time_limit_ms=HOUR_MS)}, 8 * HOUR_MS),
    ({"main/open": Wall(time_limit_ms=HOUR_MS), "main/shut": Wall(time_limit_ms=2 * HOUR_MS)}, 2 * HOUR_MS),
    (
        {"main/open": Wall(time_limit_ms=HOUR_MS, default_time_ms=MINUTE_MS), "main/shut": OF_ANA},
        MINUTE_MS,
    ),
    ({"main/open": Wall(default_time_ms=20 * HOUR_MS), "main/shut": OF_ANA}, 8 * HOUR_MS),
]


@pytest.mark.parametrize(("walls", "limit_ms"), DEFAULTS)
def test_a_job_that_names_no_time_limit_gets_the_longest_of_its_pools(
    walls: dict[str, Wall], limit_ms: int
) -> None:
    here = site(walls)
    job_id = put(here, klass="urgent", user="bob")
    assert limit_ms == here.state.jobs[job_id].limit_ms
    here.step()
    assert job_id in here.running()


def test_a_pool_that_is_named_gives_its_own_default() -> None:
    here = site({"main/shut": Wall(default_time_ms=MINUTE_MS)})
    jobs = [put(here, asked=ask(1, pools=names)) for names in ((), ("shut",), ("open",), ("shut", "open"))]
    limits_ms = [here.state.jobs[job].limit_ms for job in jobs]
    assert [BATCH.limit_ms, MINUTE_MS, BATCH.limit_ms, BATCH.limit_ms] == limits_ms


def test_a_job_may_be_spread_no_further_than_its_pool_allows() -> None:
    here = site({"main/shut": replace(OF_ANA, max_nodes_per_job=1)}, nodes=3)
    here.apply(ConfigSet(0, replace(here.state.settings, walls={
        "main/open": Wall(deny=Askers(users=("ana",))), "main/shut": Wall(max_nodes_per_job=2)})))  # fmt: skip
    blockers = [put(here, 2, user="ana") for _ in range(3)]
    here.step()
    wide = put(here, asked=ask(1, 4, nodes_max=4), user="ana")
    here.step()
    assert 2 >= len(here.state.jobs[wide].grants)
    assert {"shut"} == pools(here, wide)
    assert all(pools(here, job) == {"shut"} for job in blockers)


@pytest.mark.parametrize("policy", ["fifo", "default", "conservative", "class"])
def test_a_pool_that_is_closed_while_its_jobs_run(policy: str) -> None:
    """They run on; a job that waits for it goes elsewhere or says why; one that is stopped does not come back."""
    here = site({}, policy, nodes=1)
    runs = [put(here, 4, user="bob"), put(here, 4, user="bob")]
    waits = put(here, asked=ask(4, pools=("shut",)), user="bob")
    anywhere = put(here, 4, user="bob")
    here.step()
    inside = next(job for job in runs if pools(here, job) == {"shut"})
    here.apply(ConfigSet(here.now_ms, replace(here.state.settings, walls={"main/shut": OF_ANA})))
    plan = here.step()
    assert sorted(runs) == here.running()
    assert ReasonCode.WALL is here.code(plan, waits)
    assert ReasonCode.WALL is not here.code(plan, anywhere)
    found = explain_why(here.state, here.policy, waits, here.now_ms)
    assert found is not None
    assert "pool shut takes only jobs of user ana" == found.reasons[0].text
    here.end(inside, Outcome.NODE_FAIL)
    here.step()
    assert set() == pools(here, inside)
    here.apply(ConfigSet(here.now_ms, replace(here.state.settings, walls={})))
    here.step()
    assert {"shut"} == pools(here, waits) | pools(here, inside) | pools(here, anywhere)


def test_room_that_is_kept_in_a_pool_goes_when_the_pool_closes() -> None:
    here = site({"main/open": Wall(deny=Askers(tenants=("lab",)))}, "class", nodes=1)
    low = put(here, 4, klass="batch")
    here.step()
    here.now_ms += HOUR_MS
    high = put(here, 4, klass="urgent", user="bob")
    here.step()
    assert here.state.jobs[high].earmark is not None
    here.apply(ConfigSet(here.now_ms, replace(here.state.settings, walls={"main/shut": OF_ANA})))
    assert here.state.jobs[high].earmark is None
    here.step()
    assert {"open"} == pools(here, high)
    assert low in here.running()


def test_tasks_of_an_array_are_walled_in_together() -> None:
    here = site({"main/open": Wall(default_time_ms=MINUTE_MS, max_nodes_per_job=1), "main/shut": OF_ANA})
    spec = JobSpec("lab", ask(4), user="bob")
    here.apply(TasksSubmitted(0, Job(2, spec, 0, array_id=1, array_index=0), (0, 1, 2)))
    here.step()
    assert [{"open"}, {"open"}, set()] == [pools(here, job) for job in (2, 3, 4)]
    assert {MINUTE_MS} == {record.limit_ms for record in here.state.jobs.values()}


def test_jobs_of_another_scheduler_know_no_walls() -> None:
    here = site({"main/open": OF_ANA, "main/shut": Wall(time_limit_ms=MINUTE_MS)})
    spec = JobSpec("lab", ask(1), user="bob", origin="1@0")
    apply(here.state, JobSubmitted(0, Job(10**12, spec, 0)))
    record = here.state.jobs[10**12]
    assert (BATCH.limit_ms, 1) == (record.limit_ms, len(record.shape.ways))


def test_a_dump_and_the_log_know_the_walls() -> None:
    here = site({"main/shut": replace(OF_ANA, time_limit_ms=HOUR_MS)})
    put(here, 4, user="ana", groups=("red",), limit_ms=HOUR_MS)
    waits = put(here, 4, asked=ask(4, pools=("shut",)), user="bob")
    here.step()
    loaded = load(dump(here.state))
    assert dump(here.state) == dump(loaded) == dump(replayed(here.log))
    assert loaded.settings.walls == here.state.settings.walls
    assert loaded.jobs[waits].shape.walled
    assert ("red",) == loaded.jobs[1].job.spec.groups


ORDERED = [name for name in sorted(PRESETS) if "class" in PRESETS[name].order]


@pytest.mark.parametrize("policy", ORDERED)
def test_jobs_that_name_a_pool_with_priority_go_first_whatever_their_classes(policy: str) -> None:
    here = site({"main/shut": Wall(priority=2), "main/open": Wall(priority=1)}, policy, nodes=1)
    blockers = [put(here, asked=ask(4, pools=(pool,)), klass="urgent") for pool in ("open", "shut")]
    here.step()
    asked = [((), "urgent"), (("shut", "open"), ""), (("open",), "urgent"), (("shut",), "")]
    waits = [put(here, asked=ask(4, pools=names), klass=klass) for names, klass in asked]
    here.step()
    assert blockers == here.running()
    order = []
    for _ in waits:
        for job_id in here.running():
            here.end(job_id)
        plan = here.step()
        order += here.started(plan)
    assert [waits[3], waits[2], waits[1], waits[0]] == order or [waits[3], waits[2]] == order[:2]
    assert order.index(waits[1]) < order.index(waits[0])


def test_a_pool_whose_jobs_are_not_preemptible_keeps_them() -> None:
    here = site({"main/shut": Wall(preemptible=False)}, "class", nodes=1)
    low = [put(here, asked=ask(4, pools=(pool,))) for pool in ("open", "shut")]
    here.step()
    assert low == here.running()
    here.now_ms += HOUR_MS
    high = [put(here, asked=ask(4, pools=("shut",)), klass="urgent"), put(here, 4, klass="urgent")]
    plan = here.step()
    assert [(low[0], high[1])] == [(stop.job_id, stop.for_job) for stop in plan.stops]
    assert ReasonCode.ROOM is here.code(plan, high[0])


def test_jobs_of_a_higher_tier_stop_those_of_a_lower_one() -> None:
    """As Slurm's preemption by partition does."""
    here = site({"main/shut": Wall(priority=1)}, "class", nodes=1)
    low = put(here, 4, klass="urgent")
    second = put(here, 4, klass="urgent")
    here.step()
    here.now_ms += HOUR_MS
    high = put(here, asked=ask(4, pools=("shut",)))
    plan = here.step()
    inside = next(job for job in (low, second) if pools(here, job) == {"shut"})
    assert [(inside, high)] == [(stop.job_id, stop.for_job) for stop in plan.stops]
