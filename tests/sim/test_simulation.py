"""The simulator against sums done by hand."""

import json
import signal
from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.model import (
    CATALOGUE,
    Ask,
    Budget,
    JobClass,
    JobSpec,
    Market,
    Mig,
    Node,
    Pool,
    Quota,
    Settings,
    Tenant,
    Whole,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.policies import registry
from gpuyard.sim import generate
from gpuyard.sim.faults import NodeChange, draw_failures, read_spot_reclaims
from gpuyard.sim.result import Result
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.trace import Trace

H = HOUR_MS
CLASSES = (JobClass("batch", grace_ms=0, min_run_ms=0), JobClass("urgent", 9, preemptible=False))


def pool(nodes: int = 1, gpus: int = 8) -> Pool:
    rows = tuple(Node(f"n{i}", "c", "p", "H100", gpus, 96_000, 1_000_000) for i in range(nodes))
    return Pool("p", "c", Market.RESERVED, rows)


def trace(*rows: tuple[int, int, JobSpec]) -> Trace:
    """(submit, run, spec), in milliseconds; limits are twice the run time."""
    made = Trace("hand")
    for submit_ms, run_ms, spec in rows:
        made.specs.append(spec)
        made.spec.append(len(made.specs) - 1)
        made.submit_ms.append(submit_ms)
        made.run_ms.append(run_ms)
        made.limit_ms.append(2 * run_ms)
        made.deadline_ms.append(0)
    return made


def ask(gpus: int, tenant: str = "t", klass: str = "", tasks: int = 1, **rest: int) -> JobSpec:
    return JobSpec(tenant, Ask(Whole(gpus), tasks), klass, **rest)


def run(jobs: Trace, policy: str = "fifo", settings: Settings | None = None, **more) -> Result:
    fleet = more.pop("fleet", pool())
    settings = settings or Settings(classes=CLASSES)
    return Simulation(jobs, [fleet], settings, registry.build(registry.PRESETS[policy]), **more).run()


def test_two_jobs_that_do_not_fit_together_run_one_after_the_other() -> None:
    result = run(trace((0, 4 * H, ask(8)), (H, 2 * H, ask(8))))
    assert [1, 2] == list(result.job_id)
    assert [0, 3 * H] == list(result.wait_ms)
    assert [4 * H, 5 * H] == list(result.jct_ms)
    assert 8 * 6 * H == result.used_gpu_ms
    assert 8 * 6 * CATALOGUE["H100"].list_price_micro_usd_h == result.cost_micro_usd


def test_a_job_past_its_limit_is_a_timeout_and_its_work_is_lost() -> None:
    jobs = trace((0, 4 * H, ask(2)))
    jobs.limit_ms[0] = H
    result = run(jobs)
    assert (0, 1) == (result.finished, result.timeouts)
    assert 2 * H == result.destroyed_gpu_ms == result.used_gpu_ms
    assert {} == result.redone_milli_ms


def test_a_failed_node_rolls_a_job_back_to_its_checkpoint() -> None:
    spec = ask(4, checkpoint_ms=H, restart_cost_ms=H // 2)
    down, up = NodeChange(int(2.75 * H), 0, up=False, why="failed"), NodeChange(4 * H, 0, up=True)
    result = run(trace((0, 5 * H, spec)), node_changes=[down, up])
    # 2 h of 2.75 h are saved; from 4 h on: half an hour of restart and the 3 h that are left.
    assert [int(7.5 * H)] == list(result.jct_ms)
    assert 4 * int(0.75 * H) == result.destroyed_gpu_ms
    assert {1: 4000 * int(0.75 * H)} == result.redone_milli_ms
    assert 4 * int((2.75 + 3.5) * H) == result.used_gpu_ms
    assert [int(1.25 * H)] == list(result.wait_ms)
    assert 1 == result.node_failures


def test_without_checkpoints_everything_is_done_again() -> None:
    change = [NodeChange(2 * H, 0, up=False, why="failed"), NodeChange(3 * H, 0, up=True)]
    result = run(trace((0, 5 * H, ask(1))), node_changes=change)
    assert [8 * H] == list(result.jct_ms)
    assert 2 * H == result.destroyed_gpu_ms


def test_an_urgent_job_preempts_the_one_that_loses_least() -> None:
    fresh = ask(8, checkpoint_ms=H)
    stale = ask(8)
    jobs = trace((0, 9 * H, stale), (0, 9 * H, fresh), (int(4.5 * H), H, ask(8, klass="urgent")))
    result = run(jobs, "class", fleet=pool(2))
    ends = dict(zip(result.job_id, result.jct_ms, strict=True))
    assert 1 == result.preemptions
    assert {1: 9 * H, 2: int(10.5 * H), 3: H} == ends
    assert 8 * H // 2 == result.destroyed_gpu_ms
    assert {2: 8000 * H // 2} == result.redone_milli_ms


def test_a_guarantee_is_reclaimed_from_who_borrows_it() -> None:
    settings = Settings(
        classes=CLASSES,
        tenants=(
            Tenant("a", quota=Quota(guarantee={"total": 8000})),
            Tenant("b", quota=Quota(guarantee={"total": 8000})),
        ),
    )
    jobs = trace((0, 8 * H, ask(8, "a")), (0, 8 * H, ask(8, "a")), (H, H, ask(8, "b")))
    result = run(jobs, "fair", settings, fleet=pool(2))
    waits = dict(zip(result.job_id, result.wait_ms, strict=True))
    assert 1 == result.preemptions
    assert 0 == waits[3]
    assert {1, 2, 3} == set(waits)


def test_jobs_that_can_never_run_are_rejected_and_counted() -> None:
    served, foreign = JobSpec("t", Ask(Mig(1, "1g.10gb"))), JobSpec("t", Ask(Mig(1, "1g.5gb")))
    result = run(trace((0, H, ask(9)), (0, H, ask(8, tasks=2)), (0, H, foreign), (0, H, served)))
    assert (1, 3, 0) == (result.finished, result.rejected, result.unfinished)


def test_a_budget_makes_a_job_wait_for_the_next_window() -> None:
    settings = Settings(classes=CLASSES, tenants=(Tenant("t", budget=Budget(12 * H, DAY_MS)),))
    result = run(trace((0, H, ask(4)), (0, H, ask(4))), settings=settings)
    # Each may take 8 GPU-hours by its limit; the second fits only after the first has spent just 4.
    assert [0, H] == list(result.wait_ms)
    late = run(trace((0, 2 * H, ask(3)), (0, 2 * H, ask(3))), settings=settings)
    assert [0, DAY_MS] == list(late.wait_ms)


def test_a_job_that_no_window_of_its_budget_can_hold_does_not_keep_the_simulation_going() -> None:
    settings = Settings(classes=CLASSES, tenants=(Tenant("t", budget=Budget(12 * H, DAY_MS)),))
    jobs = trace((0, 4 * H, ask(4)), (0, 2 * H, ask(3)), (0, 2 * H, ask(3)))
    looks = 0

    def progress(done: int, total: int) -> None:
        nonlocal looks
        looks += 1
        assert looks < 5_000, f"{done} of {total} jobs have ended, and time passes for ever"

    made = Simulation(jobs, [pool()], settings, registry.build(registry.PRESETS["sjf"]))
    result = made.run(progress)
    # The first may take 32 GPU-hours by its limit; the third fits into the second window.
    assert [(2, 0), (3, DAY_MS)] == sorted(zip(result.job_id, result.wait_ms, strict=True))
    assert (2, 1) == (result.finished, result.unfinished)


@pytest.mark.parametrize("policy", sorted(registry.PRESETS))
def test_nothing_is_lost_under_failures(policy: str) -> None:
    """Every job ends once; what was used is what finished plus what was destroyed; waits add up."""
    jobs = generate.poisson(400, 64, 1.1, 3)
    fleet = pool(8)
    changes = draw_failures(8, 40 * H, mtbf_hours=60, repair_hours=1, seed=5)
    result = run(jobs, policy, Settings(), fleet=fleet, node_changes=changes)
    assert sorted(result.job_id) == [i + 1 for i in range(400)]
    assert 0 == result.unfinished
    useful = sum(jobs.run_ms[i - 1] * milli for i, milli in zip(result.job_id, result.gpu_milli, strict=True))
    assert 0 == result.timeouts
    assert useful // 1000 == result.used_gpu_ms - result.destroyed_gpu_ms
    assert all(0 <= wait <= jct for wait, jct in zip(result.wait_ms, result.jct_ms, strict=True))


def test_spot_nodes_follow_a_record(tmp_path: Path) -> None:
    path = tmp_path / "spot.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": [2, 1, 0, 2]}))
    changes = read_spot_reclaims(path, [4, 5], 180_000)
    assert [
        NodeChange(60_000, 5, up=False, why="spot reclaim"),
        NodeChange(120_000, 4, up=False, why="spot reclaim"),
        NodeChange(180_000, 4, up=True),
        NodeChange(180_000, 5, up=True),
    ] == changes
    path.write_text("[1, 2")
    with pytest.raises(BadInput, match="not an availability trace"):
        read_spot_reclaims(path, [4], 1)


def test_an_interrupt_keeps_what_was_measured() -> None:
    jobs = generate.poisson(3000, 64, 0.9, 1)

    def progress(ended: int, _of: int) -> None:
        if ended > 500:
            signal.raise_signal(signal.SIGINT)

    made = Simulation(jobs, [pool(8)], Settings(), registry.build(registry.PRESETS["fifo"]))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = made.run(progress)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted
    assert 500 < result.finished < 3000
    assert 3000 == result.finished + result.unfinished
    assert len(result.job_id) == len(result.jct_ms) == len(result.tenant)
