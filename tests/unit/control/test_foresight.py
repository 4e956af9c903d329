"""Estimates and dry runs over a real store, with the process that works them out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.admission.wanted import make_job
from gpuyard.control.foresight.ahead import Foresights
from gpuyard.control.foresight.oracle import Foresight, answer_of
from gpuyard.control.refusals import NotFound, Unacceptable
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.replica.questions import QuestionRunner
from gpuyard.model import CATALOGUE
from gpuyard.model.units import HOUR_MS
from rigs.request_service import ROOT, Rig, rig

TWO_GPUS = make_job(command=("true",), gpus=2, name="x", limit_ms=HOUR_MS)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


@pytest.fixture
def ahead(service: Rig) -> Iterator[Foresights]:
    follower = Follower(service.replica.store.place)
    yield Foresights(
        service.replica,
        service.requests,
        service.views,
        QuestionRunner(service.replica, follower),
        service.now_ms,
    )
    follower.close()


def eta(ahead: Foresights, label: object) -> dict[str, Any]:
    return ahead.estimate(parse_label(str(label)))


def test_a_waiting_job_has_a_time_and_says_how(service: Rig, ahead: Foresights) -> None:
    service.start(service.submit(gpus=8, limit_ms=HOUR_MS), gpus=0xFF)
    mine = service.submit(gpus=8, limit_ms=HOUR_MS)

    found = eta(ahead, mine)

    assert ("PENDING", str(mine), 0) == (found["state"], found["job"], found["never_of_runs"])
    assert found["now_ms"] < found["starts_by_ms"]["p50"] <= found["starts_by_ms"]["p90"]
    assert found["bound_ms"] is not None
    assert "runs forward" in found["how"]
    assert found is eta(ahead, mine), "nothing has changed, so the answer is kept"


def test_where_not_one_run_came_to_its_end_that_is_said() -> None:
    long = Foresight("PENDING", cut_off=True, bound_ms=5, how="when job 1 ends", left_out=7)
    found = answer_of(0, "PENDING", long)

    assert (None, 5) == (found["starts_by_ms"], found["bound_ms"])
    text = "when job 1 ends; no more can be told: so long a queue takes too long to run forward even once"
    assert text == found["how"]

    budget = Foresight("PENDING", cut_off=True, bound_ms=5, how="when its budget renews")
    found = answer_of(0, "PENDING", budget)
    assert "when its budget renews; no more can be told: the time until then takes too long" in found["how"]


def test_jobs_that_run_or_have_ended_say_so(service: Rig, ahead: Foresights) -> None:
    mine = service.submit()
    service.start(mine)

    assert ("RUNNING", None) == (eta(ahead, mine)["state"], eta(ahead, mine)["starts_by_ms"])
    service.end(mine)
    assert "it has ended: COMPLETED" == eta(ahead, mine)["how"]
    with pytest.raises(NotFound):
        eta(ahead, 99)


def test_history_is_learned_from(service: Rig, ahead: Foresights) -> None:
    for _ in range(3):
        ended = service.submit()
        service.start(ended)
        service.end(ended)
    service.start(service.submit(gpus=8), gpus=0xFF)

    assert 3 == eta(ahead, service.submit(gpus=8))["basis"]["history_jobs"]


def test_of_an_array_the_next_task_is_told(service: Rig, ahead: Foresights) -> None:
    service.start(service.submit(gpus=8, limit_ms=HOUR_MS), gpus=0xFF)
    array = service.submit(gpus=8, limit_ms=HOUR_MS, array=(4, 5))

    assert f"{array}_4" == eta(ahead, array)["task"]


def test_a_dry_run_says_where_when_and_for_how_much_and_writes_nothing(
    service: Rig, ahead: Foresights
) -> None:
    head = service.replica.store.head()

    found = ahead.rehearse(ROOT, TWO_GPUS)

    assert (True, True) == (found["would_run"], found["starts_now"])
    assert [{"node": "n1", "gpus": [0, 1]}] == found["nodes"]
    assert {"p50": found["now_ms"], "p90": found["now_ms"]} == found["starts_by_ms"]
    assert 2 * CATALOGUE["H100"].list_price_micro_usd_h == found["cost"]["at_most_micro_usd"]
    assert head == service.replica.store.head()
    assert {} == service.replica.state.jobs


def test_a_dry_run_that_must_wait_says_why(service: Rig, ahead: Foresights) -> None:
    service.start(service.submit(gpus=8, limit_ms=HOUR_MS), gpus=0xFF)

    found = ahead.rehearse(ROOT, TWO_GPUS)

    assert not found["starts_now"]
    assert found["why"]
    assert found["starts_by_ms"]["p50"] > found["now_ms"]


def test_a_job_that_could_never_run_is_told_apart_from_one_that_makes_no_sense(ahead: Foresights) -> None:
    found = ahead.rehearse(ROOT, make_job(command=("true",), gpus=9, name="x"))

    assert not found["would_run"]
    assert "the largest node has 8" in found["why_never"]
    with pytest.raises(Unacceptable, match="unknown class"):
        ahead.rehearse(ROOT, make_job(command=("true",), klass="nope", name="x"))
