"""`yard why` and `yard share` on a real yard: what stands in a job's way, now and a moment ago."""

import json
import time

import pytest

from .conftest import Box


@pytest.fixture(scope="module")
def jobs(box: Box) -> tuple[int, int]:
    """A job that has six of eight GPUs, and one that waits for all eight."""
    first = box.submit("-g", 6, "--time", "1h", "--", "sleep", 600)
    box.wait(first, "RUNNING")
    second = box.submit("-g", 8, "--time", "1h", "--name", "large", "--", "true")
    return first, second


def test_every_blocker_is_told_with_what_lifts_it(box: Box, jobs: tuple[int, int]) -> None:
    first, second = jobs
    done = box("why", second)
    assert (0, "") == (done.code, done.err)
    lines = done.out.splitlines()
    assert f"job {second} of " in lines[0]
    assert lines[0].endswith("is PENDING: one thing is in its way")
    assert "1. 8 x A100-80GB on one node: 2 free on 1 node" in lines
    assert f"   lifted by: job {first} ending (promised within " in done.out
    assert "with 2 GPUs instead of 8 it would start now: --gpus 2" in done.out
    assert "\x1b" not in done.out


def test_programs_get_the_lift_itself(box: Box, jobs: tuple[int, int]) -> None:
    first, second = jobs
    found = json.loads(box("why", second, "-o", "json").out)
    assert [{"kind": "end_jobs", "job_ids": [first]}] == [each["lift"] for each in found["blockers"]]
    with box.client() as client:
        assert found.keys() == client.why(second).keys() | {"eta"}


def test_what_is_said_to_help_helps(box: Box, jobs: tuple[int, int]) -> None:
    """The help is taken at its word."""
    _first, second = jobs
    (help_,) = json.loads(box("why", second, "-o", "json").out)["helps"]
    smaller = box.submit(*help_["flags"].split(), "--time", "1m", "--", "true")
    box.wait(smaller, "COMPLETED")


def test_the_past_is_answered_too(box: Box, jobs: tuple[int, int]) -> None:
    _first, second = jobs
    at_ms = time.time_ns() // 1_000_000
    assert 0 == box("hold", second).code
    now, then = box("why", second), box("why", second, "--at", at_ms)
    assert 0 == box("release", second).code
    assert "it is on hold" in now.out
    assert f"job {second} of " in then.out
    assert " was PENDING at " in then.out
    assert "on hold" not in then.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("99",), "there is no job 99"),
        (("x",), "is not a job id"),
        (("1", "--at", "soon"), "is not a time"),
        (("1", "--at", "-5d"), "does not reach back"),
        (("1", "--at", "2999-01-01"), "in the future"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    box: Box, jobs: tuple[int, int], words: tuple[str, ...], said: str
) -> None:
    done = box("why", *words)
    assert (2, "") == (done.code, done.out)
    assert said in done.err
    assert "Traceback" not in done.err


def test_shares_are_a_table_or_the_arithmetic(box: Box, jobs: tuple[int, int]) -> None:
    table, sums = box("share"), box("share", "--explain")
    assert (0, "", 0, "") == (table.code, table.err, sums.code, sums.err)
    assert table.out.startswith("TENANT")
    assert "of the only member of the yard = 100.0%" in sums.out
    found = json.loads(box("share", "-o", "json").out)
    assert 6 == found["tenants"][0]["amounts"]["total"]["used"]
    missing = box("share", "nobody")
    assert (2, True) == (missing.code, "there is no tenant 'nobody'" in missing.err)
