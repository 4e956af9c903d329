"""The audit trail has a line for each thing that somebody did, however many events it took."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.views.audit import read_audit
from gpuyard.core.state.dump import dump
from gpuyard.model import JobEntered, Requested, Verb
from rigs.request_service import ANA, Rig, rig


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def told(service: Rig, **how: object) -> list[tuple[str, str, str]]:
    """Who, what, about; page by page."""
    lines, before = read_audit(service.replica.store, str, **how)  # type: ignore[arg-type]
    found = [(line["who"], line["what"], line["about"]) for line in lines]
    return found if before is None else found + told(service, **{**how, "before_seq": before})


def test_an_array_and_what_is_asked_of_many_at_once_are_one_line_each(service: Rig) -> None:
    service.submit(ANA)
    array = service.submit(ANA, array=tuple(range(30)))
    service.submit(ANA, array=(0, 1))
    wishes = [Requested(9_000_000, array + 1 + at, Verb.HOLD, "root") for at in range(30)]
    service.add(*wishes, Requested(9_000_000, 1, Verb.CANCEL, "root"))

    lines = [
        ("root", "cancel", "job 1"),
        ("root", "hold", f"30 jobs, job {array + 1} first"),
        ("ana", "submit", f"job {array + 31}, 2 tasks"),
        ("ana", "submit", f"job {array}, 30 tasks"),
        ("ana", "submit", "job 1"),
    ]
    for limit in (100, 1, 2):
        assert lines == [line for line in told(service, limit=limit) if line[1] != "configure"]
    assert lines[2:] == told(service, user="ana")


def test_whoever_comes_into_a_job_is_named_with_the_way_and_it_changes_nothing_else(service: Rig) -> None:
    job = service.submit(ANA)
    service.replica.catch_up()
    before = dump(service.replica.state)
    service.add(JobEntered(service.replica.state.now_ms, job, "shell", "bob (token t1)"))

    assert ("bob (token t1)", "enter", f"job {job}: shell") == told(service)[0]
    assert [("bob (token t1)", "enter", f"job {job}: shell")] == told(service, user="bob")
    assert before == dump(service.replica.state)
