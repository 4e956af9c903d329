"""Bodies at their limits, at every endpoint that takes one: the server's memory is bounded, and comes back.

Each of them once here, ten minutes of them in `make soak`.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from gpuyard.wire.endpoints import ENDPOINTS
from rigs.others import needs_root

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a program of benchmarks/ as it is imported when run from there."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module


def test_every_endpoint_that_takes_a_body_is_sent_one(program: Callable[[str], ModuleType]) -> None:
    sent = {(method, f"/api/v1{path}") for method, path, _body in program("bench_bodies").BODIES}

    assert {(each.method, each.path) for each in ENDPOINTS if each.body} == sent


@needs_root
@pytest.mark.rig
@pytest.mark.wide
def test_a_body_of_each_kind_leaves_no_memory_taken(program: Callable[[str], ModuleType]) -> None:
    seen = program("bench_bodies").measured(seconds=0)

    assert [] == seen.broken, seen
    assert seen.peak_mib < 250, seen
    assert {"200", "409", "422"} <= {status.rpartition(" ")[2] for status in seen.statuses}, seen.statuses


@needs_root
@pytest.mark.rig
@pytest.mark.soak
def test_ten_minutes_of_bodies_leave_no_memory_taken(program: Callable[[str], ModuleType]) -> None:
    seen = program("bench_bodies").measured(seconds=600)

    assert [] == seen.broken, seen
