"""What people are told of named budgets: at submit, by `why`, in the queue, by dry runs and by `yard diff`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.config.reading import loads
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.commands.configs import Configurations
from gpuyard.control.fleet import Fleet, LiveCluster, choose_fleet
from gpuyard.control.foresight.ahead import Foresights
from gpuyard.control.refusals import Unacceptable
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.questions import QuestionRunner
from gpuyard.control.views.explanations import why_view
from gpuyard.core import dump
from gpuyard.core.explain.budget_use import find_reached
from gpuyard.model import BudgetAction, BudgetReached, JobClass, NamedBudget, Settings, Tenant
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ROOT, Rig, listed, rig

NOVEMBER_MS = 20_758 * DAY_MS


@contextmanager
def budgeted(tmp_path: Path, action: BudgetAction, gpu_hours: int = 10) -> Iterator[Rig]:
    rule = NamedBudget("lab", gpu_hours * HOUR_MS, tenant="t", action=action)
    settings = Settings(
        tenants=(Tenant("t"), Tenant("free")), budgets=(rule,), policy=PRESETS["default"],
        classes=(JobClass("batch", limit_ms=DAY_MS),),
    )  # fmt: skip
    with rig(tmp_path, settings) as service:
        service.time_ms = NOVEMBER_MS + DAY_MS
        yield service


def why(service: Rig, job_id: int) -> dict[str, Any]:
    service.replica.catch_up()
    state = service.replica.state
    return why_view(state, service.replica.policy, state.jobs[job_id], service.time_ms)


@pytest.mark.parametrize(
    ("fields", "says", "hint"),
    [
        (
            {"gpus": 4, "limit_ms": 3 * HOUR_MS},
            "it could never start: the budget lab is 10 GPU-hours, and this job may take 12",
            "What would change it: a time limit of at most 2 h 30 min, fewer GPUs, or a higher budget (an admin: "
            "budgets.lab in yard.yaml, then yard apply).",
        ),
    ],
)
def test_a_hard_budget_refuses_what_it_could_never_pay_for(
    tmp_path: Path, fields: dict[str, Any], says: str, hint: str
) -> None:
    with budgeted(tmp_path, BudgetAction.HARD) as service:
        with pytest.raises(Unacceptable) as caught:
            service.submit(tenant="t", **fields)
        assert (says, hint) == (caught.value.message, caught.value.hint)
        service.submit(tenant="free", **fields)
    for action in (BudgetAction.SOFT, BudgetAction.WARN):
        folder = tmp_path / action.value
        folder.mkdir()
        with budgeted(folder, action) as service:
            service.submit(tenant="t", **fields)


def test_a_job_that_waits_for_a_hard_budget_says_for_which_and_until_when(tmp_path: Path) -> None:
    with budgeted(tmp_path, BudgetAction.HARD) as service:
        service.start(service.submit(tenant="t", gpus=6, limit_ms=HOUR_MS), gpus=0b111111)
        waits = service.submit(tenant="t", gpus=2, limit_ms=5 * HOUR_MS // 2)
        found = why(service, waits)
        assert [
            (
                "BUDGET", "lab",
                "the budget lab is 10 GPU-hours: 0 spent, 6 set aside for what runs or is promised room, and this job "
                "may take 5; it renews in 28 d 23 h",
            )
        ] == [(each["code"], each["by"], each["text"]) for each in found["blockers"]]  # fmt: skip
        assert (
            "the next window, a shorter time limit, or a higher budget" in found["blockers"][0]["lifted_by"]
        )
        assert {"kind": "raise_named_budget", "budget": "lab", "to": 11 * HOUR_MS} == found["blockers"][0][
            "lift"
        ]


def test_jobs_over_a_soft_budget_stand_last_in_the_queue_and_say_why(tmp_path: Path) -> None:
    with budgeted(tmp_path, BudgetAction.SOFT, gpu_hours=8) as service:
        first = service.submit(tenant="t", gpus=8, limit_ms=HOUR_MS)
        before = why(service, first)
        assert "" == before["position"]
        service.start(first, gpus=0xFF)
        over, within = [service.submit(tenant=name, gpus=8, limit_ms=HOUR_MS) for name in ("t", "free")]
        service.replica.catch_up()
        assert [first, within, over] == [row[0] for row in listed(service.views)["rows"]]
        found = why(service, over)
        assert (
            "behind all jobs within their budgets: the soft budget lab is spent or set aside for 28 d 23 h more"
            == found["position"]
        )
        assert (1, 0) == (found["ahead"], why(service, within)["ahead"])
        assert "behind" not in why(service, within)["position"]


@pytest.mark.parametrize("action", list(BudgetAction))
def test_thresholds_are_told_once_whatever_the_action(tmp_path: Path, action: BudgetAction) -> None:
    with budgeted(tmp_path, action) as service:
        job = service.submit(tenant="t", gpus=8, limit_ms=HOUR_MS)
        service.start(job, gpus=0xFF)
        state, begun_ms = service.replica.state, service.time_ms
        told = []
        for minutes in range(0, 61, 5):
            events = find_reached(state, begun_ms + minutes * 60_000)
            told += [(minutes, event.percent) for event in events]
            service.add(*events)
        # 8 GPUs spend 5 of 10 GPU-hours in 37.5 minutes, and 8 in an hour.
        assert [(40, 50), (60, 80)] == told
        assert all([isinstance(event, BudgetReached) for event in events])


@pytest.mark.parametrize(
    ("action", "then"),
    [
        ("hard", "what runs goes on, no job that it counts starts until it renews"),
        ("soft", "jobs that it counts go behind all others until it renews"),
        ("warn", "it only warns"),
    ],
)
def test_a_difference_says_that_a_budget_is_below_what_is_spent(
    tmp_path: Path, action: str, then: str
) -> None:
    pool = "{nodes: 1, gpus: 8 x H100, cpus: 16, memory: 64G}"
    text = f"version: 1\nclusters: {{c: {{pools: {{p: {pool}}}}}}}\ntenants: {{t: {{}}}}\n"
    with budgeted(tmp_path, BudgetAction.HARD) as service:
        service.start(service.submit(tenant="t", gpus=8, limit_ms=HOUR_MS), gpus=0xFF)
        service.replica.catch_up()
        configs = Configurations(
            service.replica,
            service.committer,
            choose_fleet(loads(text), ""),
            "",
            service.now_ms,
            service.people,
        )
        lower = f"{text}budgets: {{lab: {{tenant: t, gpu_hours: 5, action: {action}}}}}\n"
        notes = configs.difference(configs.proposal(lower, "f"))["notes"]
        spent = "0 spent and 8 set aside for what runs"
        assert f"budget lab is 5 GPU-hours, below what this window has: {spent}; {then}" in notes
        enough = f"{text}budgets: {{lab: {{tenant: t, gpu_hours: 8, action: {action}}}}}\n"
        found = configs.difference(configs.proposal(enough, "f"))["notes"]
        assert [] == [note for note in found if note.startswith("budget")]


@pytest.mark.parametrize(
    ("action", "gpus", "says"),
    [
        (
            BudgetAction.HARD, 0b111111,
            "the budget lab is 10 GPU-hours: 0 spent, 6 set aside for what runs or is promised room, and this job may "
            "take 8; it renews in 28 d 23 h",
        ),
        (BudgetAction.SOFT, 0xFF, "the soft budget lab is spent or set aside"),
    ],
)  # fmt: skip
def test_a_dry_run_says_what_the_budget_would_do(
    tmp_path: Path, action: BudgetAction, gpus: int, says: str
) -> None:
    hours = 10 if action is BudgetAction.HARD else 8
    with budgeted(tmp_path, action, hours) as service:
        held = service.submit(tenant="t", gpus=gpus.bit_count(), limit_ms=HOUR_MS)
        service.start(held, gpus=gpus)
        follower = Follower(service.replica.store.place)
        ahead = Foresights(
            service.replica, service.requests, service.views, QuestionRunner(service.replica, follower),
            service.now_ms,
        )  # fmt: skip
        try:
            job = make_job(command=("true",), name="x", tenant="t", gpus=2, limit_ms=4 * HOUR_MS)
            found = ahead.rehearse(ROOT, job)
        finally:
            follower.close()
        assert not found["starts_now"]
        assert any([says in each["text"] for each in found["why"]]), found["why"]


def test_to_ask_for_budgets_changes_nothing(tmp_path: Path) -> None:
    with budgeted(tmp_path, BudgetAction.HARD) as service:
        service.start(service.submit(tenant="t", gpus=2, limit_ms=2 * HOUR_MS), gpus=0b11)
        service.submit(tenant="t", gpus=8, limit_ms=HOUR_MS)
        service.replica.catch_up()
        state, now_ms = service.replica.state, service.time_ms + HOUR_MS
        noted, written = len(state.tenants.unsettled), service.replica.store.head()
        configs = Configurations(
            service.replica,
            service.committer,
            Fleet(Settings(), (LiveCluster("c"),)),
            "",
            lambda: now_ms,
            service.people,
        )
        [(use, told)] = configs.budgets()

        assert (2 * (now_ms - state.jobs[1].started_ms) * 1000, 0) == (use.spent, told)
        assert (noted, written) == (len(state.tenants.unsettled), service.replica.store.head())
        before = dump(state)
        assert [(use, told)] == configs.budgets()
        assert before == dump(state)
