"""Every preset policy on GPUs that are cut, by demand and as somebody said, driven through anything that can happen."""

from dataclasses import replace

import pytest

from gpuyard.policies import registry
from harness.machines.machine import run
from harness.machines.pin_machine import PinMachine

UNCAPPED = {"backfill_depth": 1_000_000, "depth_per_tenant": 1_000_000}

# Nothing is shrunk: that takes minutes, and the log of two dozen steps reads well as it is.


@pytest.mark.parametrize("name", ["default", "fifo", "pack", "class"])
def test_preset_keeps_every_invariant_where_gpus_are_cut(name: str) -> None:
    run(replace(registry.PRESETS[name], **UNCAPPED), examples=14, steps=25, shrink=False, base=PinMachine)


@pytest.mark.soak
@pytest.mark.parametrize("name", registry.PRESETS)
def test_preset_keeps_every_invariant_where_gpus_are_cut_for_long(name: str) -> None:
    spec = replace(registry.PRESETS[name], **UNCAPPED)
    run(spec, examples=150, steps=60, derandomize=False, shrink=False, base=PinMachine)
