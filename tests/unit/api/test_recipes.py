"""What a job runs, and with which variables, is its owner's and the administrators': arguments hold secrets."""

from collections.abc import Iterator

import pytest

from rigs.teams import Team, team


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("recipes")) as made:
        yield made


def test_a_colleague_sees_the_job_and_not_what_is_in_it(yard: Team) -> None:
    job = yard.submit("ulla", command=["true", "--key", "s3cret"], env={"TOKEN": "s3cret"}, cwd="/tmp")
    for who, reads in (("ulla", True), ("tara", True), ("adam", True), ("carl", False), ("vera", False)):
        shown = yard.call("GET", f"/api/v1/jobs/{job}", yard.tokens[who])
        recipe = yard.call("GET", f"/api/v1/jobs/{job}/recipe", yard.tokens[who])
        assert 200 == shown.status
        assert {
            "run_s": 0,
            "gpu_hours": 0.0,
            "cost_usd": 0.0,
            "cpu_s": None,
            "memory_mib": None,
            "process_mib": None,
        } == shown.json["used"]
        assert (reads, reads) == (b"s3cret" in shown.body, b"s3cret" in recipe.body), who
        assert (200 if reads else 403) == recipe.status
        if reads:
            assert ["true", "--key", "s3cret"] == shown.json["files"]["command"]
            assert {"TOKEN": "s3cret"} == recipe.json["env"]
