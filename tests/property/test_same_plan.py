"""Same input, same plan: in any hash seed, and whatever order the parts of a dump stand in."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from gpuyard.core import Policy, State, apply, decide, dump, load
from gpuyard.model import (
    AttemptStarted,
    ConfigSet,
    JobClass,
    JobSubmitted,
    Node,
    NodeAdded,
    Quota,
    Settings,
    Tenant,
)
from gpuyard.policies import registry
from gpuyard.sim import generate

GOLDEN = Path(__file__).parents[1] / "golden"

SUBMITTERS = [("research/ana", "batch", 4), ("product/lee", "urgent", 1), ("interns/max", "batch", 4)]
SETTINGS = Settings(
    tenants=(
        Tenant("research", 3, Quota(guarantee={"total": 12_000})),
        Tenant("interns", 1, Quota(limit={"total": 12_000})),
    ),
    classes=(JobClass("batch"), JobClass("urgent", priority=100, preemptible=False)),
)

PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from test_decisions import decisions
from gpuyard.policies import registry
for name in sorted(registry.PRESETS):
    print(name, hashlib.sha256(decisions(name).encode()).hexdigest())
"""


def test_the_hash_seed_changes_nothing() -> None:
    """Every decision of every preset, under three hash seeds."""
    outputs = set()
    for seed in ("0", "1", "4242"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(GOLDEN)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(ran.stdout)
    assert 1 == len(outputs)
    assert len(registry.PRESETS) == len(next(iter(outputs)).splitlines())


def full_yard(policy: Policy) -> State:
    """A small cluster with more jobs than it holds, by all tenants and classes of the golden traces."""
    trace = generate.poisson(120, 32, 3.0, 5, tenants=SUBMITTERS)
    state = State()
    apply(state, ConfigSet(0, SETTINGS))
    for number in range(4):
        apply(state, NodeAdded(0, Node(f"n{number}", "c", "p", "H100", 8, 96_000, 1_000_000, 4)))
    for row in range(len(trace)):
        apply(state, JobSubmitted(trace.submit_ms[row], trace.job(row)))
        for start in decide(state, policy, state.now_ms).starts:
            apply(state, AttemptStarted(state.now_ms, start.job_id, start.attempt, start.grants))
    return state


def shuffled(value: object, random: Random) -> object:
    """The same mapping, its keys in another order, all the way down. Lists keep theirs: it means something."""
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key], random) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    return value


@pytest.mark.parametrize("name", sorted(registry.PRESETS))
def test_a_dump_in_any_order_gives_the_same_plan(name: str) -> None:
    policy = registry.build(registry.PRESETS[name])
    state = full_yard(policy)
    now_ms = state.now_ms + 1
    wanted = decide(state, policy, now_ms)
    assert wanted.waiting > 0
    for seed in range(5):
        again = load(shuffled(dump(state), Random(seed)))  # type: ignore[arg-type]
        assert wanted == decide(again, policy, now_ms)
