"""What a month saved, on two months with a planted change: fewer GPUs idle, and half of the waste gone."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.errors import BadInput
from gpuyard.ledger.units import month_days
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    ConfigSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    NodeAdded,
    Outcome,
    Settings,
    Ticked,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.reports.savings import build
from gpuyard.store import Submission, open_store
from gpuyard.testing.values import ask, node

OCTOBER, NOVEMBER, DECEMBER = [month_days(month)[0] * DAY_MS for month in ("2026-10", "2026-11", "2026-12")]
HELD = {OCTOBER: (0b1111, 60), NOVEMBER: (0b111111, 80)}
"""Of 8 GPUs, those that jobs had all the time, and how much of 100 they used."""


def history() -> Iterator[Event]:
    """A job for each day, and what it used, hour by hour. From October to November 2 of 8 GPUs less are idle, and
    waste goes down from 40 % to 20 % of the time that jobs had."""
    for job_id, day_ms in enumerate(range(OCTOBER, DECEMBER, DAY_MS), start=1):
        mask, percent = HELD[OCTOBER if day_ms < NOVEMBER else NOVEMBER]
        yield AttemptStarted(day_ms, job_id, 1, (Grant(0, mask, 1000, 0, 0, 1),))
        yield AttemptConfirmed(day_ms, job_id, 1)
        for hour_ms in range(day_ms, day_ms + DAY_MS, HOUR_MS):
            held, end_ms = mask.bit_count() * HOUR_MS, hour_ms + HOUR_MS
            used = held * percent // 100
            yield AttemptMeasured(
                end_ms, job_id, 1, hour_ms, end_ms, held, held, used, spans=((hour_ms, end_ms),)
            )
        yield AttemptEnded(day_ms + DAY_MS, job_id, 1, Outcome.COMPLETED)


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with open_store(Path(tmp_path_factory.mktemp("savings")) / "yard.db") as store:
        lease = store.elect("test")
        assert lease is not None
        settings = Settings(prices={"H100": 2_000_000})
        store.append([ConfigSet(OCTOBER, settings), NodeAdded(OCTOBER, node("h", gpus=8))])

        def submitted(first_id: int) -> list[Event]:
            spec = JobSpec("org/research", ask(1), user="ann")
            return [JobSubmitted(OCTOBER, Job(first_id + i, spec, OCTOBER)) for i in range(61)]

        store.submit([Submission(submitted, 61)], OCTOBER)
        store.append([*history(), Ticked(DECEMBER)])
        filler = Filler(store, [Ledger()], lambda: DECEMBER)
        while filler.step(lease.epoch):
            pass
        assert {} == filler.errors
        yield SimpleNamespace(store=store, now_ms=DECEMBER - 1)


def savings(readings: Any, sight: Sight = ALL, **values: str) -> dict[str, Any]:
    table = build(readings, {"month": "", "baseline": "", **values}, sight)
    return {row["what"]: row for row in table.rows}


def test_the_planted_change_is_found_within_five_percent(readings: Any) -> None:
    found = savings(readings)
    assert 0.25 * 8 * 24 * 30 == pytest.approx(found["idle"]["saved_gpu_hours"], rel=0.05)
    assert 0.20 * 6 * 24 * 30 == pytest.approx(found["wasted"]["saved_gpu_hours"], rel=0.05)
    # An hour of use cost 2 $ x 8 GPUs / 2.4 used before, and 2 $ x 8 / 4.8 after: half.
    assert 2_000_000 * 8 * 24 * 30 == pytest.approx(found["spend"]["saved_micro_usd"], rel=0.05)
    assert 2_000_000 * 1440 == pytest.approx(found["idle"]["saved_micro_usd"], rel=0.05)
    assert [50.0, 25.0] == [found["idle"][name] for name in ("baseline_percent", "percent")]
    assert [40.0, 20.0] == [found["wasted"][name] for name in ("baseline_percent", "percent")]


def test_what_got_worse_is_below_zero(readings: Any) -> None:
    found = savings(readings, month="2026-10", baseline="2026-11")
    assert found["idle"]["saved_gpu_hours"] < 0 > found["spend"]["saved_micro_usd"]


def test_a_baseline_without_anything_saves_nothing(readings: Any) -> None:
    found = savings(readings, baseline="2026-01")
    assert {None} == {line["saved_micro_usd"] for line in found.values()}


def test_a_tenant_sees_its_own_waste_and_spend_alone(readings: Any) -> None:
    assert ["wasted", "spend"] == list(savings(readings, Sight(("org/research",))))
    others = savings(readings, Sight(("org/product",)))
    assert [0, 0] == [others["spend"][name] for name in ("micro_usd", "baseline_micro_usd")]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"month": "november"}, "is not a month"),
        ({"baseline": "2026-11"}, "compared with itself"),
        ({"month": "2027-01"}, "has not begun"),
    ],
)
def test_other_months_are_refused(readings: Any, values: dict[str, str], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        savings(readings, **values)
