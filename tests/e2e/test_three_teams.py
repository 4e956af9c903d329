"""Three teams on a live yard with emulated A100: statements against what the engine's supervisors wrote down.

Half a minute by default; `GPUYARD_LIVE_S=3600` runs a whole hour.
"""

import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.model import AttemptStarted, Event, JobSubmitted
from gpuyard.model.units import HOUR_MS
from gpuyard.store import open_store
from harness.patience import until
from harness.three_teams import ALL_OF_IT, CONFIG, PRICE_MICRO_USD_H, drive, engine_record, wishes

from .conftest import Box

LIVE_S = int(os.environ.get("GPUYARD_LIVE_S", "30"))
JOBS = 60 if LIVE_S < 600 else LIVE_S // 9
LATE_MS_MAX = 1_000
"""What passes in the median between the event of a start, from which a job is charged, and its first process."""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "yard", CONFIG)
    box.up()
    yield box
    box("down", "--jobs")


@pytest.mark.rig
@pytest.mark.wide
def test_a_live_yard_charges_what_its_supervisors_saw(yard: Box) -> None:
    with yard.client() as client:
        jobs = drive(client, wishes(7, LIVE_S * 1000, JOBS))
        until(lambda: not client.queue()["rows"], s=60 + LIVE_S)
        # The books follow the log, a few seconds behind.
        until(lambda: all([each["filled"] for each in client.projections()]))
    stated = {
        tenant: json.loads(yard("cost", "statement", tenant, "-o", "json").out)["lines"][0]
        for tenant in ("research", "product", "serving")
    }
    assert 0 == yard("down").code
    with open_store(yard.data / "yard.db") as store:
        events = [event for _seq, event in store.read(0, ALL_OF_IT)]
    for tenant, told in compared(yard.data, events, stated).items():
        print(tenant, told)
    assert set(jobs) == {ran.job_id for ran in engine_record(yard.data)}, "every job ran"


def compared(data: Path, events: list[Event], stated: dict[str, Any]) -> dict[str, str]:
    """A tenant's statement against what the engine wrote down: which slices an attempt had, and when it really ended.

    A job is charged from the event of its start, which comes before its first process by what a launch takes.
    """
    tenants = {each.job.id: each.job.spec.tenant for each in events if isinstance(each, JobSubmitted)}
    begun = {(each.job_id, each.attempt): each.at_ms for each in events if isinstance(each, AttemptStarted)}
    found = {}
    for tenant, total in stated.items():
        runs = [ran for ran in engine_record(data) if tenants[ran.job_id] == tenant]
        held_ms = sum([ran.sevenths * (ran.ended_ms - begun[ran.job_id, ran.attempt]) for ran in runs])
        charged_s = total["charged_gpu_hours"] * 3600 * 7
        slice_s = round(charged_s)
        assert abs(held_ms / 1000 - charged_s) < 0.5, (
            f"{tenant}: {charged_s} are charged, {held_ms} ms were held"
        )
        owed = (2 * held_ms * PRICE_MICRO_USD_H + 7 * HOUR_MS) // (2 * 7 * HOUR_MS)
        # An end that the yard's clock has not reached yet is booked when it is seen: some milliseconds later.
        assert owed == pytest.approx(total["charged_micro_usd"], abs=PRICE_MICRO_USD_H // (7 * 3600))
        late_ms = [ran.started_ms - begun[ran.job_id, ran.attempt] for ran in runs]
        # A supervisor reads the clock of the machine, which may stand a little behind that of the yard.
        assert -LATE_MS_MAX < min(late_ms) <= statistics.median(late_ms) <= LATE_MS_MAX
        found[tenant] = (
            f"{len(runs)} attempts, {slice_s} slice-seconds, {total['charged_micro_usd']} micro-dollars; processes ran "
            f"{round(sum([ran.ran_ms for ran in runs]) / 1000)}, from {min(late_ms)} to {max(late_ms)} ms after the "
            f"start, {statistics.median(late_ms)} in the median"
        )
    return found
