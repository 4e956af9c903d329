"""The page at `/`: it says what this is to a person, in JSON to a program, and nothing about anybody's jobs."""

import re
from collections.abc import Iterator

import pytest

from gpuyard import __version__
from gpuyard.api.handlers import front
from rigs.teams import Team, team


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("front")) as made:
        yield made


def test_without_the_console_a_browser_gets_a_page_that_names_the_commands_and_loads_nothing(
    yard: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "console_files", dict)
    job_id = yard.submit("erik", "product")
    answer = yard.call("GET", "/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    text = answer.body.decode()

    assert (200, "text/html; charset=utf-8") == (answer.status, answer.headers["content-type"])
    for said in (
        "console was not built",
        "yard top",
        "yard queue",
        "yard login",
        "/api/v1/openapi.json",
        __version__,
    ):
        assert said in text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script|<img|<link|\bsrc=|https?://(?!testserver|127\.0\.0\.1|localhost)", text), (
        text
    )
    assert "product" not in text
    assert "erik" not in text
    assert f"job {job_id}" not in text


def test_a_program_that_asks_for_json_gets_json(yard: Team) -> None:
    answer = yard.call("GET", "/", headers={"Accept": "application/json"})

    assert (200, "application/json") == (answer.status, answer.headers["content-type"])
    assert {
        "version": __version__,
        "auth": True,
        "description": "/api/v1/openapi.json",
    }.items() <= answer.json.items()
    assert "yard top" in answer.json["commands"]


def test_a_path_that_is_not_there_is_still_a_problem_in_json(yard: Team) -> None:
    answer = yard.call("GET", "/nothing", yard.tokens["adam"])

    assert (404, "application/problem+json") == (answer.status, answer.headers["content-type"])
