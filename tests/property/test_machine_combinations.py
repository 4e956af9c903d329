"""Policies nobody has named, driven through anything that can happen."""

import pytest

from gpuyard.model import PolicySpec
from harness.machines.machine import run
from harness.machines.pairs import every_pair, name_of


@pytest.mark.parametrize("spec", every_pair(), ids=name_of)
def test_any_combination_keeps_every_invariant(spec: PolicySpec) -> None:
    run(spec, examples=2, steps=25)


@pytest.mark.soak
@pytest.mark.parametrize("spec", every_pair(), ids=name_of)
def test_any_combination_keeps_every_invariant_for_long(spec: PolicySpec) -> None:
    run(spec, examples=40, steps=60, derandomize=False, shrink=False)
