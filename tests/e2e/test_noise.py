"""A noisy neighbour: one user attacks, another works on. A few seconds of it here, ten minutes in `make soak`."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rigs.others import needs_root

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CALM_MS = 2_000
"""Far more than the attacks add on a busy machine, and far less than each of them once did."""

SECONDS = 600
CORES = 8
"""With fewer, the attackers' programs and their jobs take the cores of the server: how late an answer is shows that."""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a program of benchmarks/ as it is imported when run from there."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module


@needs_root
@pytest.mark.rig
def test_a_user_works_on_while_another_attacks(program: Callable[[str], ModuleType]) -> None:
    bench, attacks = program("bench_neighbour"), program("neighbour_attacks").BY_NAME
    names = ["bodies", "submissions", "pages of other sites"]

    row = bench.measured([attacks[name] for name in names], bench.Plan(seconds=4, per_s=4))

    assert ([], 0, 0) == (row["noisy"]["refusals"], row["noisy"]["lost"], row["noisy"]["twice"])
    for verb in ("submit", "list"):
        assert row["noisy"]["waits"][verb]["count"] == 16
        assert row["noisy"]["waits"][verb]["p50_ms"] < CALM_MS, row
    assert row["noisy"]["peak_mib"] < bench.MEMORY_MIB_MAX
    assert row["did"]["refused"] > 0, "the attack did not happen"


@needs_root
@pytest.mark.rig
def test_a_user_who_asks_seldom_does_not_wait_for_the_arrays_of_another(
    program: Callable[[str], ModuleType],
) -> None:
    """Nobody else had asked for two seconds, so that the attacker had the whole server when the user came.

    No bound on what may wait ends the attack: with the usual one it is over after twenty arrays.
    """
    bench, attacks = program("bench_neighbour"), program("neighbour_attacks").BY_NAME
    plan = bench.Plan(seconds=30, per_s=0.25, more="waiting_per_user: 1000000\n")

    row = bench.measured([attacks["held arrays"]], plan)

    assert ([], 0, 0) == (row["noisy"]["refusals"], row["noisy"]["lost"], row["noisy"]["twice"])
    for verb in ("submit", "list"):
        assert row["noisy"]["waits"][verb]["max_ms"] < CALM_MS, row
    assert row["did"]["accepted"] > 3, "the attack did not happen"


@needs_root
@pytest.mark.soak
@pytest.mark.parametrize("postgres", [False, True])
def test_a_user_works_on_through_ten_minutes_of_every_attack(
    program: Callable[[str], ModuleType], postgres: bool
) -> None:
    bench = program("bench_neighbour")

    row = bench.mixed(bench.Plan(seconds=SECONDS, postgres=postgres))

    noisy = row["noisy"]
    assert ([], 0, 0) == (noisy["refusals"], noisy["lost"], noisy["twice"])
    assert noisy["peak_mib"] < bench.MEMORY_MIB_MAX
    if (os.cpu_count() or 1) >= CORES:
        assert [] == row["broken"], row
    for verb in bench.VERBS:
        assert noisy["waits"][verb]["p50_ms"] < CALM_MS, row
