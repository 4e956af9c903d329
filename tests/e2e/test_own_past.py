"""A yard's own past, replayed: `yard history -o csv` is a trace, and `yard simulate --history` needs no file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.model import Mig, Milli, Whole
from gpuyard.sim import traces
from rigs.teams import CONFIG

from .conftest import Box

ASKED = {
    "whole": (["-g", 2], Whole(2), 1),
    "share": (["-g", "0.25"], Milli(1, 250), 1),
    "slice": (["-g", "1g.10gb"], Mig(1, "1g.10gb"), 1),
    "gang": (["-g", 2, "--tasks", 2, "--tenant", "research/vision"], Whole(2), 2),
    "fails": (["-g", 1, "-t", "10m"], Whole(1), 1),
}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    box = Box(tmp_path_factory.mktemp("past") / "yard", CONFIG)
    box.up()
    ids = {
        name: box.submit(
            "--tenant", "product", *words, "-n", name, "--", "false" if name == "fails" else "true"
        )
        for name, (words, _gpus, _tasks) in ASKED.items()
    }
    never = box.submit("--tenant", "product", "--hold", "-n", "never", "--", "true")
    assert 0 == box("cancel", never).code
    for job_id in ids.values():
        box.wait(job_id, "COMPLETED", "FAILED")
    yield box
    assert 0 == box("down", "--jobs").code


def test_the_history_as_csv_is_a_trace_with_the_same_times_gpus_tenants_and_states(
    past: Box, tmp_path: Path
) -> None:
    rows = {row["name"]: row for row in json.loads(past("history", "-o", "json").out)}
    printed = past("history", "-o", "csv").out
    file = tmp_path / "past.csv"
    file.write_text(printed, encoding="utf-8")

    assert "history" == traces.detect(file)
    trace = traces.load(file)
    ran = sorted([row for row in rows.values() if row["started_ms"]], key=lambda row: row["submitted_ms"])
    assert (len(ASKED), 1, "never started") == (len(trace), trace.skipped, trace.skipped_named[0].why)
    for place, row in enumerate(ran):
        spec = trace.specs[trace.spec[place]]
        _words, gpus, tasks = ASKED[row["name"]]
        assert row["submitted_ms"] == trace.origin_ms + trace.submit_ms[place]
        assert max(1, row["ended_ms"] - row["started_ms"]) == trace.run_ms[place]
        assert (row["tenant"], row["class"]) == (spec.tenant, spec.klass)
        assert (gpus, tasks) == (spec.ask.gpus, spec.ask.tasks)
        assert (row["time_limit_s"] or 0) * 1000 == trace.limit_ms[place]
    heads = printed.splitlines()[0].split(",")
    states = {
        line.split(",")[heads.index("name")]: line.split(",")[heads.index("state")]
        for line in printed.splitlines()
    }
    assert {name: row["state"] for name, row in rows.items()} == {name: states[name] for name in rows}
    assert ("FAILED", "CANCELLED") == (states["fails"], states["never"])


def test_the_past_is_simulated_on_the_yards_own_fleet_with_its_own_configuration(
    past: Box, tmp_path: Path
) -> None:
    done = past("simulate", "--history", "1d", "--policy", "fifo", "--policy", "default", "-o", "json")
    assert 0 == done.code, done.err
    found = json.loads(done.out)
    assert (len(ASKED), 1) == (found["trace"]["jobs"], found["trace"]["skipped"])
    assert {"fifo": len(ASKED), "default": len(ASKED)} == {
        name: each["finished"] for name, each in found["policies"].items()
    }
    assert {"product", "research/vision"} == set(found["policies"]["default"]["tenants"])

    (tmp_path / "past.csv").write_text(past("history", "-o", "csv").out, encoding="utf-8")
    by_file = past(
        "simulate", "--trace", tmp_path / "past.csv", "--gpus", 8, "--gpu-model", "A100-80GB", "-o", "json"
    )
    assert 0 == by_file.code, by_file.err


def test_what_cannot_be_replayed_is_said(past: Box) -> None:
    for words, says in (
        (["--policy", "fifo"], "--trace FILE, or --history 30d"),
        (["--history", "soon"], "--history"),
        (["--history", "1s"], "no job that you may see has ended within 1s"),
    ):
        done = past("simulate", *words)
        assert (2, "") == (done.code, done.out)
        assert says in done.err
