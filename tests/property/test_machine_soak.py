"""The same histories as in `test_machine_presets`, longer, other ones each time: `make soak`."""

from dataclasses import replace

import pytest

from gpuyard.policies import registry
from harness.machines.machine import run

UNCAPPED = {"backfill_depth": 1_000_000, "depth_per_tenant": 1_000_000}


@pytest.mark.soak
@pytest.mark.parametrize("name", registry.PRESETS)
@pytest.mark.parametrize("capped", [False, True])
def test_preset_keeps_every_invariant_for_long(name: str, capped: bool) -> None:
    spec = registry.PRESETS[name] if capped else replace(registry.PRESETS[name], **UNCAPPED)
    run(spec, examples=150, steps=60, derandomize=False, shrink=False)
