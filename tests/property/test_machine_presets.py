"""Every preset policy, driven through anything that can happen."""

from dataclasses import replace

import pytest

from gpuyard.policies import registry
from harness.machines import strategies as some
from harness.machines.machine import run

UNCAPPED = {"backfill_depth": 1_000_000, "depth_per_tenant": 1_000_000}


@pytest.mark.parametrize("name", registry.PRESETS)
def test_preset_keeps_every_invariant(name: str) -> None:
    preset = registry.PRESETS[name]
    # The histories last for seconds and minutes: there a job's turn has to come sooner.
    turn_ms = some.PERIOD_MS * 2 if preset.turn_ms else 0
    run(replace(preset, turn_ms=turn_ms, **UNCAPPED), examples=14, steps=25)
