"""The generated traces: the same everywhere, and what they claim to be."""

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.model import Ask, Milli, Whole
from gpuyard.sim import generate
from gpuyard.sim.generate import MONDAY_MS, WEEK_GPUS, poisson, teams_week
from gpuyard.sim.trace import Trace
from gpuyard.sim.traces import load, save

HOUR_MS = 3_600_000
TENANTS = (("ml/ana", "", 3), ("ml/ben", "urgent", 1))

GOLDEN_POISSON = "d56fd36afd7e4402"
GOLDEN_WEEK = "ae2d69c413bef2f4"


FIRST_FIELDS = ("gpus", "tasks", "cpu_milli", "memory_mib", "models", "pools", "nodes_max")
"""Of an ask, when these traces were first measured. Fields that came later are left at their defaults here."""


def ask_text(ask: Ask) -> str:
    """The ask in the form in which it was first hashed: a field that was added since does not change the trace."""
    assert all(
        getattr(ask, each.name) == each.default for each in fields(ask) if each.name not in FIRST_FIELDS
    )
    return f"Ask({', '.join(f'{name}={said(getattr(ask, name))}' for name in FIRST_FIELDS)})"


def said(value: object) -> str:
    """A value as it was first written: shares did not name their user then, and these traces name none."""
    if isinstance(value, Milli):
        assert "" == value.user
        return f"Milli(count={value.count!r}, milli={value.milli!r})"
    return repr(value)


def fingerprint(trace: Trace) -> str:
    columns = [
        list(c) for c in (trace.spec, trace.submit_ms, trace.run_ms, trace.limit_ms, trace.deadline_ms)
    ]
    content = [
        trace.name,
        trace.origin_ms,
        [[s.tenant, s.klass, s.checkpoint_ms, s.restart_cost_ms, ask_text(s.ask)] for s in trace.specs],
        columns,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def gpu_milli(ask: Ask) -> int:
    match ask.gpus:
        case Whole(count):
            return count * 1000 * ask.tasks
        case Milli(count, milli):
            return count * milli * ask.tasks
    raise AssertionError(ask)


def work_milli_ms(trace: Trace) -> int:
    milli = [gpu_milli(spec.ask) for spec in trace.specs]
    return sum(milli[spec] * run for spec, run in zip(trace.spec, trace.run_ms, strict=True))


def test_golden() -> None:
    """If this changes, every published number that was measured on these traces has to be measured again."""
    assert (GOLDEN_POISSON, GOLDEN_WEEK) == (
        fingerprint(poisson(2000, 256, 0.9, 7, tenants=TENANTS)),
        fingerprint(teams_week(1)),
    )


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_hash_seed_does_not_matter(hash_seed: str) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_generate import *\n"
        "print(fingerprint(poisson(500, 64, 0.9, 7, tenants=TENANTS)), fingerprint(teams_week(2)))"
    )
    paths = [str(Path(generate.__file__).parents[2]), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}

    run = subprocess.run(
        [sys.executable, "-c", code, *paths], env=environment, capture_output=True, text=True, check=True
    )

    expected = [fingerprint(poisson(500, 64, 0.9, 7, tenants=TENANTS)), fingerprint(teams_week(2))]
    assert expected == run.stdout.split()


@pytest.mark.parametrize(
    "x", [1e-300, 1e-9, 0.1, 0.5, 0.7071, 0.7072, 0.999999, 1.0, 1.5, 2.0, 5.75, 1e9, 1e300]
)
def test_the_logarithm_is_one(x: float) -> None:
    assert math.isclose(math.log(x), generate._ln(x), rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.parametrize("x", [-700.0, -20.0, -0.35, -0.34, -1e-9, 0.0, 0.34, 0.35, 1.0, 9.35, 700.0])
def test_the_exponential_is_one(x: float) -> None:
    assert math.isclose(math.exp(x), generate._exp(x), rel_tol=1e-12)


def test_the_poisson_trace_is_the_common_one() -> None:
    jobs = 40_000
    trace = poisson(jobs, 1024, 0.9, 1)

    sizes = Counter(gpu_milli(trace.specs[spec].ask) // 1000 for spec in trace.spec)
    shares = {1: 0.66, 2: 0.09, 4: 0.09, 8: 0.11, 16: 0.03, 32: 0.015, 64: 0.005}
    assert set(shares) == set(sizes)
    assert all(abs(sizes[size] / jobs - share) < 0.01 for size, share in shares.items())
    assert 570_000 < sorted(trace.run_ms)[jobs // 2] < 630_000
    assert 3_000_000 < sum(trace.run_ms) / jobs < 3_900_000
    slack = [
        (limit - 60_000) / run
        for run, limit in zip(trace.run_ms, trace.limit_ms, strict=True)
        if run > 10_000
    ]
    assert 0.999 < min(slack) < 1.01
    assert 2.99 < max(slack) <= 3
    assert {(Whole(8), 8), (Whole(8), 2), (Whole(1), 1)} <= {(s.ask.gpus, s.ask.tasks) for s in trace.specs}
    gaps = [after - before for before, after in zip(trace.submit_ms, trace.submit_ms[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert 0.97 < spread / mean < 1.03


@pytest.mark.parametrize("load", [0.5, 0.9, 1.3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_load_is_the_one_asked_for(load: float, seed: int) -> None:
    trace = poisson(10_000, 256, load, seed)

    offered = work_milli_ms(trace) / (256_000 * trace.submit_ms[-1])

    assert abs(offered / load - 1) < 0.05


def test_tenants_come_by_weight() -> None:
    trace = poisson(4000, 64, 0.9, 1, tenants=TENANTS)

    counts = Counter((trace.specs[spec].tenant, trace.specs[spec].klass) for spec in trace.spec)
    assert {("ml/ana", ""), ("ml/ben", "urgent")} == set(counts)
    assert 0.72 < counts["ml/ana", ""] / 4000 < 0.78


def test_no_job_is_larger_than_the_cluster() -> None:
    trace = poisson(2000, 8, 0.9, 1, gpus_per_node=4)

    assert {(1, 1), (2, 1), (4, 1), (4, 2)} == {(s.ask.gpus.count, s.ask.tasks) for s in trace.specs}


@pytest.mark.parametrize(
    "arguments",
    [
        {"jobs": 0},
        {"gpus": 0},
        {"load": 0.0},
        {"load": math.nan},
        {"gpus_per_node": 0},
        {"tenants": ()},
        {"tenants": (("a", "", 0),)},
    ],
)
def test_senseless_arguments(arguments: dict) -> None:
    with pytest.raises(BadInput):
        poisson(**{"jobs": 1, "gpus": 1, "load": 1.0, "seed": 1, **arguments})


@pytest.mark.parametrize("seed", range(5))
def test_the_week_of_three_teams(seed: int) -> None:
    trace = teams_week(seed)

    assert 2500 == len(trace)
    assert {"research", "product", "interns"} == {spec.tenant.partition("/")[0] for spec in trace.specs}
    assert {"", "urgent"} == {spec.klass for spec in trace.specs}
    assert all(spec.tenant.startswith("product/") for spec in trace.specs if spec.klass == "urgent")
    assert all(spec.checkpoint_ms for spec in trace.specs if spec.name == "train")
    assert {(), ("H100",), ("A100-80GB",), ("H100", "A100-80GB")} == {spec.ask.models for spec in trace.specs}
    assert 32_000 == max(gpu_milli(spec.ask) for spec in trace.specs)
    assert abs(work_milli_ms(trace) / (WEEK_GPUS * 1000 * 168 * HOUR_MS) - 0.95) < 0.01
    assert all(0 < run <= limit for run, limit in zip(trace.run_ms, trace.limit_ms, strict=True))
    assert datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000 == MONDAY_MS <= trace.origin_ms
    assert trace.submit_ms[-1] < 168 * HOUR_MS


def test_the_week_has_days_nights_and_a_weekend() -> None:
    trace = teams_week(1)
    before_ms = trace.origin_ms - MONDAY_MS
    hours = Counter((at + before_ms) // HOUR_MS for at in trace.submit_ms)
    working = sum(hours[day * 24 + hour] for day in range(5) for hour in range(8, 19))
    weekend = sum(hours[hour] for hour in range(120, 168))

    assert working > 0.8 * len(trace)
    assert weekend < 0.1 * len(trace)
    assert max(offered(trace)) > 1.5
    assert min(offered(trace)[day * 24 + 6 - before_ms // HOUR_MS] for day in range(1, 5)) < 0.6


def offered(trace: Trace) -> list[float]:
    """Of each hour, how much of the cluster the jobs would use if all of them ran as they came."""
    used = [0] * 240
    for row, start in enumerate(trace.submit_ms):
        end = start + trace.run_ms[row]
        for hour in range(start // HOUR_MS, min(len(used), -(-end // HOUR_MS))):
            part = min(end, (hour + 1) * HOUR_MS) - max(start, hour * HOUR_MS)
            used[hour] += part * gpu_milli(trace.specs[trace.spec[row]].ask)
    return [each / (WEEK_GPUS * 1000 * HOUR_MS) for each in used]


def test_the_paper_is_wanted_by_friday_noon() -> None:
    trace = teams_week(1)

    deadlines = {at + trace.origin_ms for at in trace.deadline_ms if at}

    assert {int(datetime(2026, 3, 6, 12, tzinfo=UTC).timestamp() * 1000)} == deadlines


@pytest.mark.parametrize(
    "trace", [teams_week(3), poisson(300, 64, 0.9, 1, tenants=TENANTS)], ids=["week", "poisson"]
)
def test_generated_traces_are_saved_and_loaded_unchanged(tmp_path: Path, trace: Trace) -> None:
    save(trace, tmp_path / f"{trace.name}.csv")

    assert trace == load(tmp_path / f"{trace.name}.csv", strict=True)
