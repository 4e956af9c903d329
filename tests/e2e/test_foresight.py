"""`yard eta` and `yard submit --dry-run` against a yard that runs."""

import json
import re
from pathlib import Path

from e2e.conftest import Box
from harness.patience import until


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
    until(lambda: box("queue", "-o", "json").out.strip() == "[]")
    (found,) = json.loads(box("submit", "--dry-run", "-g", 1, "-o", "json", "--", "true").out)

    assert found["starts_now"]
    assert [0] == [len(each["gpus"]) - 1 for each in found["nodes"]]


def test_slurms_words_for_the_same(box: Box, tmp_path: Path) -> None:
    """`sbatch --test-only` tells on standard error when and where; what could never start ends with 1."""
    with box.client() as client:
        node = client.nodes()[0]["name"]
    until(lambda: box("queue", "-o", "json").out.strip() == "[]")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\ntrue\n", encoding="utf-8")

    now = box("slurm", "sbatch", "--test-only", "--gres=gpu:1", "-t", "5", script)
    assert (0, "") == (now.code, now.out)
    said = rf"sbatch: Job \d+ to start at [-\dT:]+ using 1 processors on nodes {re.escape(node)} in partition local\n"
    assert re.fullmatch(said, now.err), now.err

    never = box("slurm", "sbatch", "--test-only", "--gres=gpu:99", "-t", "5", script)
    assert (1, "") == (never.code, never.out)
    assert never.err.startswith("allocation failure: it could never start: asks for 99 GPUs")

    full = box.submit("-g", 8, "-t", "1h", "--", "sleep", 600)
    box.wait(full, "RUNNING")
    later = box("slurm", "sbatch", "--test-only", "--gres=gpu:1", "-t", "5", script)
    assert 0 == later.code
    assert "on nodes (not chosen yet) in partition local" in later.err
    with box.client() as client:
        assert [full] == [row[0] for row in client.queue()["rows"]]
    box("cancel", full)


def test_sshare_tells_the_shares(box: Box) -> None:
    done = box("slurm", "sshare", "-P")
    assert (0, "") == (done.code, done.err)
    head, root, *rows = [line.split("|") for line in done.out.splitlines()]
    assert ["Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare"] == head
    assert ["root", "", "1", "1.000000"] == root[:4]
    assert ["1.000000"] == [row[6] for row in rows]
