"""Studies: equal conditions for every policy, and faults that add up."""

import json
from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.model import Market, Node, Pool, Settings
from gpuyard.policies.registry import PRESETS
from gpuyard.sim import study as module
from gpuyard.sim.faults import NodeChange
from gpuyard.sim.generate import poisson
from gpuyard.sim.runs.at_once import Comparison, run_all
from gpuyard.sim.study import Faults, Study, plan_node_changes

TRACE = poisson(60, 32, 0.9, 0)


def pool(nodes: int, market: Market = Market.RESERVED, name: str = "p") -> Pool:
    made = tuple(Node(f"{name}-{i}", "c", name, "H100", 8, 96_000, 1 << 20) for i in range(nodes))
    return Pool(name, "c", market, made)


def test_policies_run_one_after_another_under_the_same_faults() -> None:
    changes = plan_node_changes(TRACE, [pool(8)], Faults(mtbf_hours=20), seed=1)
    study = Study(TRACE, [pool(8)], Settings(), changes)

    assert run_all([Comparison(study, [PRESETS["fifo"], PRESETS["sjf"]])], cores=1)
    assert ["fifo", "sjf"] == [result.policy for result in study.results]
    assert all(result.node_failures for result in study.results)
    assert study.rejection is None


def test_the_first_rejected_job_is_explained() -> None:
    study = Study(TRACE, [pool(1)], Settings())
    run_all([Comparison(study, [PRESETS["fifo"]])])

    assert study.results[0].rejected
    assert study.rejection is not None
    job, reason = study.rejection
    first = next(i + 1 for i, s in enumerate(TRACE.spec) if TRACE.specs[s].ask.tasks > 1)
    assert first == job
    assert "GPUs" in reason.text


def test_failures_and_reclaims_of_one_node_do_not_cut_each_other_short(tmp_path: Path) -> None:
    def down(at_ms: int) -> NodeChange:
        return NodeChange(at_ms, 0, False, "x")

    def up(at_ms: int) -> NodeChange:
        return NodeChange(at_ms, 0, True)

    merged = list(module._merged([[down(10), up(30)], [down(20), up(40), down(50), up(60)]]))
    assert [(10, False), (40, True), (50, False), (60, True)] == [(c.at_ms, c.up) for c in merged]

    spot = tmp_path / "spot.json"
    spot.write_text(json.dumps({"metadata": {"gap_seconds": 3600}, "data": [2, 1, 2, 0]}))
    pools = [pool(2), pool(2, Market.SPOT, "s")]
    changes = plan_node_changes(TRACE, pools, Faults(5.0, 2.0, spot), seed=0)
    state: dict[int, bool] = {}
    for change in changes:
        assert state.get(change.node, True) != change.up
        state[change.node] = change.up
    assert all(state.values())


def test_only_spot_nodes_follow_a_spot_trace(tmp_path: Path) -> None:
    spot = tmp_path / "spot.json"
    spot.write_text(json.dumps({"metadata": {"gap_seconds": 3600}, "data": [2, 0]}))
    changes = plan_node_changes(TRACE, [pool(3), pool(2, Market.SPOT, "s")], Faults(spot_trace=spot), seed=0)
    assert {3, 4} == {change.node for change in changes}

    with pytest.raises(BadInput, match="needs spot nodes"):
        plan_node_changes(TRACE, [pool(3)], Faults(spot_trace=spot), seed=0)


def test_no_faults_no_changes() -> None:
    assert [] == plan_node_changes(TRACE, [pool(3)], Faults(), seed=0)
    assert [] == plan_node_changes(poisson(1, 8, 1, 0), [pool(1)], Faults(mtbf_hours=1e9), seed=0)
