"""Every preset policy, driven through anything that can happen."""

from dataclasses import replace

import pytest

from gpuyard.policies import registry
from harness.machines.machine import run

UNCAPPED = {"backfill_depth": 1_000_000, "depth_per_tenant": 1_000_000}


@pytest.mark.parametrize("name", registry.PRESETS)
def test_preset_keeps_every_invariant(name: str) -> None:
    run(replace(registry.PRESETS[name], **UNCAPPED), examples=14, steps=25)
