"""`yard eta` and `yard submit --dry-run` against a yard that runs."""

import json
from pathlib import Path

from e2e.conftest import Box


def test_a_waiting_job_is_told_when_it_starts_and_a_dry_run_submits_nothing(box: Box, tmp_path: Path) -> None:
    first = box.submit("-g", 8, "-t", "10m", "--", "sleep", 300)
    box.wait(first, "RUNNING")
    waiting = box.submit("-g", 8, "-t", "10m", "--", "true")

    told = box("eta", waiting)
    assert (0, "") == (told.code, told.err)
    assert told.out.startswith(f"job {waiting}: 50 % by ")
    assert "runs forward" in told.out
    (found,) = json.loads(box("eta", waiting, "-o", "json").out)
    assert found["now_ms"] < found["starts_by_ms"]["p50"] <= found["starts_by_ms"]["p90"]
    assert f"job {first}: it started" in box("eta", first).out

    tried = box("submit", "--dry-run", "-g", 2, "-t", "1h", "--", "true")
    assert (0, "") == (tried.code, tried.err)
    assert "not now" in tried.out
    assert "at most $6.87" in tried.out
    assert "nothing was submitted" in tried.out

    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --test-only --gres=gpu:1 -t 5\ntrue\n", encoding="utf-8")
    assert "nothing was submitted" in box("submit", script).out

    with box.client() as client:
        assert 2 == len(client.queue()["rows"])
    box("cancel", first, waiting)


def test_what_could_never_run_has_an_exit_code_of_its_own(box: Box) -> None:
    never = box("submit", "--dry-run", "-g", 9, "--", "true")
    assert 3 == never.code
    assert "the largest node has 8" in never.out

    wrong = box("submit", "--dry-run", "--class", "nope", "--", "true")
    assert 2 == wrong.code
    assert "unknown class" in wrong.err
    assert 2 == box("eta", 987654).code


def test_an_empty_yard_takes_a_job_at_once(box: Box) -> None:
    (found,) = json.loads(box("submit", "--dry-run", "-g", 1, "-o", "json", "--", "true").out)

    assert found["starts_now"]
    assert [0] == [len(each["gpus"]) - 1 for each in found["nodes"]]
