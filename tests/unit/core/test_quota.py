"""Quota arithmetic, case by case: guarantee, limit, borrowing, lending, levels of the tree, users, jobs, budgets."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuyard.core import explain
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.model import Ask, Budget, ClassLimit, ConfigSet, JobSpec, Quota, ReasonCode, Settings, Tenant
from gpuyard.model.units import NO_LIMIT_MS
from gpuyard.policies import registry
from gpuyard.testing import BATCH, ask, node, nodes, tenant
from harness.yard import Yard

S = 1000
H100_AND_A100 = [*nodes(1), *nodes(1, model="A100-80GB")]


@dataclass
class Case:
    """Jobs (tenant, GPUs) that come one after the other, and what is said of each."""

    name: str
    tenants: list[Tenant]
    jobs: list[tuple[Any, ...]]
    """Tenant, what it asks for and, if it is not the default one, the class."""
    wanted: list[str]
    fleet: list = field(default_factory=lambda: nodes(2))


CASES = [
    Case("no quota at all", [], [("a", 8), ("b", 8), ("a", 1)], ["started", "started", "room"]),
    Case("a limit", [tenant("a", limit=4)], [("a", 3), ("a", 2), ("b", 2)], ["started", "limit", "started"]),
    Case("a limit of zero", [tenant("a", limit=0)], [("a", 1), ("b", 1)], ["limit", "started"]),
    Case(
        "a limit above: two members together",
        [tenant("a", limit=4), tenant("a/x", limit=3)],
        [("a/x", 3), ("a/y", 2), ("b", 2)],
        ["started", "limit", "started"],
    ),
    Case(
        "borrowing is counted from the guarantee",
        [tenant("a", guarantee=2, borrow=3)],
        [("a", 5), ("a", 1)],
        ["started", "borrow"],
    ),
    Case(
        "nothing promised and nothing to borrow",
        [tenant("a", borrow=0)],
        [("a", 1), ("b", 1)],
        ["borrow", "started"],
    ),
    Case(
        "an unused guarantee is lent unless it says otherwise",
        [tenant("a", guarantee=12)],
        [("b", 8), ("b", 8)],
        ["started", "started"],
    ),
    Case(
        "what is not lent is kept",
        [tenant("a", guarantee=12, lend=4)],
        [("b", 8), ("b", 1), ("a", 8)],
        ["started", "held_back", "started"],
    ),
    Case(
        "what it holds back itself it may use, and then others may use no less",
        [tenant("a", guarantee=8, lend=0)],
        [("a", 8), ("b", 8), ("b", 1)],
        ["started", "started", "room"],
    ),
    Case(
        "members' promises are part of their parent's, not added to it",
        [tenant("a", guarantee=8, lend=0), tenant("a/x", guarantee=4, lend=0)],
        [("b", 8), ("b", 1), ("a/x", 4), ("a/y", 4)],
        ["started", "held_back", "started", "started"],
    ),
    Case(
        "by model: one is full, the other serves",
        [tenant("a", limit={"A100-80GB": 2})],
        [("a", 2), ("a", 2), ("a", ask(1, models=("A100-80GB",)))],
        ["started", "started", "limit"],
        H100_AND_A100,
    ),
    Case(
        "by model and in total",
        [tenant("a", limit={"A100-80GB": 4, "total": 5})],
        [("a", 4), ("a", 2), ("b", 2)],
        ["started", "limit", "started"],
        H100_AND_A100,
    ),
    Case(
        "a user's GPUs, whether the user is configured or not",
        [tenant("a", max_gpus_per_user=3000), tenant("a/x", 2)],
        [("a/x", 3), ("a/x", 1), ("a/y", 3), ("a/y", 1)],
        ["started", "per_user", "started", "per_user"],
    ),
    Case(
        "a team between is not a user",
        [tenant("a", max_gpus_per_user=3000)],
        [("a/team/x", 3), ("a/team/y", 3)],
        ["started", "started"],
    ),
    Case(
        "how many jobs run",
        [tenant("a", max_running_jobs=2)],
        [("a/x", 1), ("a/y", 1), ("a/y", 1), ("b", 1)],
        ["started", "started", "running_jobs", "started"],
    ),
    Case(
        "cores of all tasks together, of members too",
        [tenant("a", max_cpu_milli=10_000)],
        [
            ("a/x", ask(1, 2, cpu_milli=3000)),
            ("a/y", ask(1, cpu_milli=5000)),
            ("a/y", ask(1, cpu_milli=4000)),
            ("b", 1),
        ],
        ["started", "limit", "started", "started"],
    ),
    Case(
        "memory, of jobs without GPUs too",
        [tenant("a", max_memory_mib=1000)],
        [
            ("a", ask(0, memory_mib=600)),
            ("a", ask(1, memory_mib=401)),
            ("a", ask(1)),
            ("a", ask(1, memory_mib=400)),
        ],
        ["started", "limit", "started", "started"],
    ),
    Case(
        "GPUs of one class, of members too; other classes have theirs",
        [Tenant("a", quota=Quota(classes={"urgent": ClassLimit(3000)}))],
        [("a/x", 2, "urgent"), ("a/y", 2, "urgent"), ("a/y", 4), ("b", 2, "urgent"), ("a/x", 1, "urgent")],
        ["started", "limit", "started", "started", "started"],
    ),
    Case(
        "running jobs of one class, below another limit",
        [Tenant("a", quota=Quota(max_running_jobs=2, classes={"urgent": ClassLimit(running=1)}))],
        [("a", 1, "urgent"), ("a", 1, "urgent"), ("a", 1), ("a", 1)],
        ["started", "running_jobs", "started", "running_jobs"],
    ),
    Case(
        "the size of one job",
        [tenant("a", max_gpus_per_job=4000)],
        [("a", ask(2, 3)), ("a", 4)],
        ["job_too_large", "started"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_who_may_start(case: Case) -> None:
    here = Yard("fifo", case.fleet, case.tenants)
    said = []
    for path, wanted, *klass in case.jobs:
        job = here.submit(wanted, tenant=path, limit_ms=60 * S, klass="".join(klass))
        said.append(here.code(here.step(), job).name.lower())
    assert case.wanted == said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_policy_without_quotas_asks_for_room_alone(case: Case) -> None:
    here = Yard(replace(registry.PRESETS["fifo"], quotas=False), nodes(9), case.tenants)
    for path, wanted, *_klass in case.jobs:
        if isinstance(wanted, Ask) and wanted.models:
            continue
        job = here.submit(wanted, tenant=path, limit_ms=60 * S)
        assert [job] == here.started(here.step())


# -- budgets ---------------------------------------------------------------------------------------------------------


def budgeted(gpu_s: int, window_s: int) -> Yard:
    return Yard("fifo", nodes(1), [tenant("a", budget=Budget(gpu_s * S, window_s * S))])


def test_a_budget_counts_limits_before_and_use_after() -> None:
    """100 GPU-seconds: 8 x 10 s may come to 80, so 3 x 10 s more may not start until only 40 of them were used."""
    here = budgeted(100, 1000)
    first = here.submit(8, tenant="a", limit_ms=10 * S)
    here.step()
    here.wait(5 * S)
    here.end(first)
    second = here.submit(7, tenant="a", limit_ms=10 * S)
    assert ReasonCode.BUDGET is here.code(here.step(), second)
    third = here.submit(6, tenant="a", limit_ms=10 * S)
    assert [third] == here.started(here.step())


def test_a_job_without_a_time_limit_keeps_none_back_that_has_one() -> None:
    """A budget can come after the job: then the job waits for ever, and those behind it must not."""
    here = budgeted(100, 1000)
    without = here.submit(1, tenant="a", limit_ms=NO_LIMIT_MS)
    behind = here.submit(1, tenant="a", limit_ms=10 * S)
    plan = here.step()
    assert (ReasonCode.NO_TIME_LIMIT, [behind]) == (here.code(plan, without), here.started(plan))


def test_a_window_turns_at_its_time_and_not_before() -> None:
    here = budgeted(100, 60)
    first = here.submit(5, tenant="a", limit_ms=20 * S)
    here.step()
    here.wait(20 * S)
    here.end(first)
    second = here.submit(1, tenant="a", limit_ms=20 * S)
    assert [] == here.started(here.step())
    here.wait(39 * S)
    assert [] == here.running()
    here.wait(S)
    assert [second] == here.running()


def test_what_ran_across_the_turn_is_spent_in_both_windows() -> None:
    """From 50 s to 70 s on 5 GPUs: fifty GPU-seconds belong to the second window of 60 s."""
    here = budgeted(100, 60)
    here.wait(50 * S)
    first = here.submit(5, tenant="a", limit_ms=20 * S)
    here.step()
    here.wait(20 * S)
    here.end(first)
    spend = here.state.tenants.spend[here.state.tenants.number["a"]]
    assert spend is not None
    assert (60 * S, 50 * S * S) == (spend.window_start_ms, spend.spent)


def test_without_a_time_limit_a_job_cannot_be_counted_against_a_budget() -> None:
    here = budgeted(100, 60)
    job = here.submit(1, tenant="a")
    assert NO_LIMIT_MS == here.state.jobs[job].limit_ms
    assert ReasonCode.NO_TIME_LIMIT is here.code(here.step(), job)


def test_a_budget_above_holds_for_all_below_it() -> None:
    here = Yard("fifo", nodes(1), [tenant("a", budget=Budget(50 * S, 1000 * S)), tenant("a/x")])
    for path, started in (("a/x", 1), ("a/y", 1), ("b", 1), ("a/x", 0)):
        here.submit(2, tenant=path, limit_ms=10 * S)
        assert started == len(here.step().starts)


# -- who waits for quota is not overtaken for ever -------------------------------------------------------------------


def test_a_job_that_waits_for_quota_is_overtaken_only_in_time() -> None:
    """Limit 4, used 3 until 10 s, and a job of 2 waits: one GPU is spare until 10 s, and none after."""
    here = Yard("fifo", nodes(1), [tenant("a", limit=4)])
    here.submit(3, tenant="a", limit_ms=10 * S)
    here.step()
    first = here.submit(4, tenant="a", limit_ms=10 * S)
    late = here.submit(1, tenant="a", limit_ms=11 * S)
    in_time = here.submit(1, tenant="a", limit_ms=10 * S)
    plan = here.step()
    assert [in_time] == here.started(plan)
    assert (ReasonCode.LIMIT, ReasonCode.QUOTA_AHEAD) == (here.code(plan, first), here.code(plan, late))


def test_what_will_be_spare_then_may_be_used_for_longer() -> None:
    """Limit 4, used 3 until 10 s, and a job of 2 waits: two more may stay on beyond that, but not three."""
    here = Yard("fifo", nodes(1), [tenant("a", limit=4)])
    here.submit(3, tenant="a", limit_ms=10 * S)
    here.step()
    here.submit(2, tenant="a", limit_ms=10 * S)
    long = here.submit(1, tenant="a", limit_ms=100 * S)
    assert [long] == here.started(here.step())


def test_cores_that_a_job_waits_for_are_overtaken_only_in_time() -> None:
    """10 cores, 6 used until 10 s, and a job of 8 waits: two are spare for good, four until 10 s."""
    here = Yard("fifo", nodes(1), [tenant("a", max_cpu_milli=10_000)])
    here.submit(ask(1, cpu_milli=6000), tenant="a", limit_ms=10 * S)
    here.step()
    first = here.submit(ask(1, cpu_milli=8000), tenant="a", limit_ms=10 * S)
    late = here.submit(ask(1, cpu_milli=3000), tenant="a", limit_ms=11 * S)
    long = here.submit(ask(1, cpu_milli=2000), tenant="a", limit_ms=100 * S)
    plan = here.step()
    assert [long] == here.started(plan)
    assert (ReasonCode.LIMIT, ReasonCode.QUOTA_AHEAD) == (here.code(plan, first), here.code(plan, late))


def test_memory_that_a_job_waits_for_is_not_taken_by_a_longer_one() -> None:
    here = Yard("fifo", nodes(1), [tenant("a", max_memory_mib=1000)])
    here.submit(ask(1, memory_mib=600), tenant="a", limit_ms=10 * S)
    here.step()
    here.submit(ask(1, memory_mib=800), tenant="a", limit_ms=10 * S)
    late = here.submit(ask(1, memory_mib=300), tenant="a", limit_ms=11 * S)
    in_time = here.submit(ask(1, memory_mib=300), tenant="a", limit_ms=10 * S)
    plan = here.step()
    assert [in_time] == here.started(plan)
    assert ReasonCode.QUOTA_AHEAD is here.code(plan, late)


@pytest.mark.parametrize("policy", ["fifo", "conservative", "default"])
def test_a_promise_knows_when_cores_come_free(policy: str) -> None:
    """8 of 10 cores until 10 s: a job of 5 is expected then, not now."""
    here = Yard(policy, nodes(2), [tenant("a", max_cpu_milli=10_000)])
    here.submit(ask(1, cpu_milli=8000), tenant="a", limit_ms=10 * S)
    here.step()
    job = here.submit(ask(1, cpu_milli=5000), tenant="a", limit_ms=10 * S)
    here.step()

    found = estimate(here.state, here.policy, here.now_ms, here.state.jobs[job])
    assert 10 * S == found.at_ms


def test_mlops_team_of_40_cores_200_gib_and_8_gpus() -> None:
    """Document 003: the quota of the namespace mlops-team."""
    mlops = tenant("mlops-team", limit=8, max_cpu_milli=40_000, max_memory_mib=200 << 10)
    here = Yard("fifo", nodes(2), [mlops])
    wanted = [
        ask(4, cpu_milli=16_000, memory_mib=64 << 10),
        ask(2, cpu_milli=20_000),
        ask(1, memory_mib=137 << 10),
    ]
    jobs = [here.submit(each, tenant="mlops-team", limit_ms=60 * S) for each in wanted]
    few = here.submit(ask(3), tenant="mlops-team", limit_ms=60 * S)
    plan = here.step()
    assert jobs[:2] == here.started(plan)
    texts = [
        reason.text
        for job in (jobs[2], few)
        for reason in explain(here.state, here.policy, job, here.now_ms).reasons
        if reason.code is ReasonCode.LIMIT
    ]
    assert [
        "mlops-team would be 1 GiB of memory over its limit of 200 GiB (uses 64 GiB, asks for 137 GiB)",
        "mlops-team would be 1 GPU over its limit of 8 (uses 6, asks for 3)",
    ] == texts
    full = here.submit(ask(0, cpu_milli=5000), tenant="mlops-team", limit_ms=S)
    told = [reason.text for reason in explain(here.state, here.policy, full, here.now_ms).reasons]
    assert "mlops-team would be 1 core over its limit of 40 cores (uses 36, asks for 5)" in told


def test_a_job_beyond_all_cores_of_its_tenant_is_refused() -> None:
    here = Yard("fifo", nodes(1), [tenant("a", max_cpu_milli=8000, max_memory_mib=1024)])
    cores = impossible_reason(here.state, JobSpec("a", ask(1, cpu_milli=9000)))
    memory = impossible_reason(here.state, JobSpec("a/x", ask(1, 2, memory_mib=600)))
    assert cores is not None
    assert memory is not None
    assert "asks for 9 cores; a may never use more than 8 cores" == cores.text
    assert "asks for 1200 MiB of memory; a may never use more than 1 GiB" == memory.text


def test_in_strict_order_nobody_passes_who_waits_for_quota() -> None:
    here = Yard("strict-fifo", nodes(1), [tenant("a", limit=4)])
    here.submit(3, tenant="a", limit_ms=10 * S)
    here.step()
    here.submit(2, tenant="a", limit_ms=10 * S)
    short = here.submit(1, tenant="a", limit_ms=S)
    other = here.submit(1, tenant="b", limit_ms=S)
    plan = here.step()
    assert [other] == here.started(plan)
    assert ReasonCode.QUOTA_AHEAD is here.code(plan, short)


# -- settings that change --------------------------------------------------------------------------------------------


def test_a_lower_limit_stops_nobody_and_lets_nobody_start() -> None:
    here = Yard("fifo", nodes(2), [tenant("a", limit=8)])
    here.submit(6, tenant="a")
    here.step()
    here.apply(ConfigSet(0, Settings(tenants=(tenant("a", limit=4),), classes=(BATCH,))))
    job = here.submit(1, tenant="a")
    assert ReasonCode.LIMIT is here.code(here.step(), job)
    here.apply(ConfigSet(0, Settings(tenants=(tenant("a", limit=7),), classes=(BATCH,))))
    assert [job] == here.started(here.step())


def test_a_budget_keeps_what_was_spent_while_its_window_stays() -> None:
    here = budgeted(100, 60)
    job = here.submit(5, tenant="a", limit_ms=20 * S)
    here.step()
    here.wait(10 * S)
    here.end(job)
    for window_s, spent in ((60, 50), (120, 0)):
        budget = Budget(200 * S, window_s * S)
        settings = Settings(tenants=(tenant("a", budget=budget),), classes=(BATCH,))
        here.apply(ConfigSet(here.now_ms, settings))
        spend = here.state.tenants.spend[here.state.tenants.number["a"]]
        assert spend is not None
        assert spent * S * S == spend.spent


# -- what can never start --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tenants", "wanted", "code"),
    [
        ([], ask(9), ReasonCode.NEVER_FITS),
        ([], ask(8, 3), ReasonCode.NEVER_FITS),
        ([], ask(1, models=("T4",)), ReasonCode.NEVER_FITS),
        ([], ask(1, pools=("elsewhere",)), ReasonCode.NEVER_FITS),
        ([], ask(1, cpu_milli=64_001), ReasonCode.NEVER_FITS),
        ([], ask(4, 3, nodes_max=1), ReasonCode.NEVER_FITS),
        ([tenant("a", limit=4)], ask(5), ReasonCode.LIMIT),
        ([tenant("a", guarantee=1, borrow=3)], ask(5), ReasonCode.LIMIT),
        ([tenant("a", max_gpus_per_job=4000)], ask(5), ReasonCode.JOB_TOO_LARGE),
        ([tenant("a", max_gpus_per_user=4000)], ask(5), ReasonCode.PER_USER),
        ([], ask(8, 2), None),
        ([tenant("a", limit=5)], ask(5), None),
    ],
)
def test_what_could_never_start_is_told_at_the_door(tenants, wanted: Ask, code: ReasonCode | None) -> None:
    here = Yard("fifo", [*nodes(1), node("other", pool="q")], tenants)
    reason = impossible_reason(here.state, JobSpec("a/x", wanted))
    assert code is (reason.code if reason else None)
    if reason is not None:
        assert reason.text


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (ask(1, 4, cpu_milli=40_000), "asks for 4 x 40 cores; there are 128 cores on 2 nodes"),
        (ask(8, 3), "asks for 3 x (8 GPUs); 16 GPUs on 2 nodes cannot hold it"),
    ],
)
def test_what_is_too_much_together_is_named(wanted: Ask, text: str) -> None:
    here = Yard("fifo", nodes(2))
    reason = impossible_reason(here.state, JobSpec("a/x", wanted))
    assert reason is not None
    assert text == reason.text


@pytest.mark.parametrize(("asked", "text"), [(1, "asks for 1 GPU;"), (2, "asks for 2 GPUs;")])
def test_one_gpu_is_one(asked: int, text: str) -> None:
    here = Yard("fifo", nodes(1), [tenant("a", max_gpus_per_job=0)])
    reason = impossible_reason(here.state, JobSpec("a/x", ask(asked)))
    assert reason is not None
    assert reason.text.startswith(text)
