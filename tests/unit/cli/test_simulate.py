"""`yard simulate`: what it prints, what it refuses and what it says about what it was given."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpuyard.cli.commands.foresight.comparison import publish
from gpuyard.cli.commands.foresight.studies import NamedFleet, SeededStudy
from gpuyard.cli.listings.listing import Output
from gpuyard.config import Config
from gpuyard.model import Market, Node, Pool, Settings
from gpuyard.policies.registry import PRESETS
from gpuyard.sim.generate import poisson
from gpuyard.sim.study import Study
from gpuyard.wire.endpoints import HISTORY
from harness.answering import AnsweringYard, Answers

from .conftest import EXAMPLE, Yard

SUMMARY = {
    "jobs", "finished", "rejected", "timeouts", "unfinished", "jct_s", "wait_s", "slowdown", "makespan_s",
    "utilisation", "fragmentation", "fairness", "preemptions", "node_failures", "destroyed_gpu_s", "used_gpu_s",
    "cost_usd", "interrupted", "tenants", "sizes", "work_wait_s",
}  # fmt: skip


def test_json_has_the_policies_and_the_trace_and_nothing_else(yard: Yard, jobs: Path) -> None:
    done = yard(
        "simulate", "--trace", jobs, "--gpus", 64, "--policy", "fifo", "--policy", "sjf", "-o", "json"
    )

    assert (0, "") == (done.code, done.err)
    document = json.loads(done.out)
    assert {"policies", "trace"} == set(document)
    assert {"name": "jobs", "rows": 4, "jobs": 4, "skipped": 0, "seed": 0} == document["trace"]
    assert ["fifo", "sjf"] == list(document["policies"])
    fifo = document["policies"]["fifo"]
    assert set(fifo) >= SUMMARY
    assert (4, 4, 0) == (fifo["jobs"], fifo["finished"], fifo["unfinished"])
    assert {"mean", "p50", "p95", "p99"} == set(fifo["wait_s"])
    assert {"research", "product", "interns"} == set(fifo["tenants"])


@pytest.mark.parametrize(
    ("rows", "title"), [(2, "jobs: 1 job on 1 GPU"), (3, "jobs: 2 jobs in 10 s on 1 GPU")]
)
def test_the_title_counts_one_job_as_one(
    yard: Yard, jobs: Path, rows: int, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    few = "".join(jobs.read_text(encoding="utf-8").replace(",8\n", ",1\n").splitlines(keepends=True)[:rows])
    jobs.write_text(few, encoding="utf-8")
    done = yard("simulate", "--trace", jobs, "--gpus", 1, "--gpus-per-node", 1, "--policy", "fifo")
    assert title == done.out.splitlines()[0]


def test_every_form_has_the_same_figures(yard: Yard, jobs: Path) -> None:
    words = ("simulate", "--trace", jobs, "--gpus", 8, "--policy", "fifo", "--policy", "default", "-o")
    document = json.loads(yard(*words, "json").out)

    assert document == yaml.safe_load(yard(*words, "yaml").out)
    rows = list(csv.DictReader(io.StringIO(yard(*words, "csv").out)))
    assert ["fifo", "default"] == [row["policy"] for row in rows]
    for row in rows:
        assert document["policies"][row["policy"]]["wait_s"]["mean"] == float(row["wait_s_mean"])
        assert "false" == row["interrupted"]
    lines = yard(*words, "table").out.splitlines()
    assert ["policy", "fifo", "default"] == [line.split()[0] for line in lines[:3]]
    assert ["", "size", "up", "up"] == [line.partition(" ")[0] for line in lines[3:7]]
    wide = yard(*words, "wide").out
    assert wide.startswith("\n".join(lines))
    assert "\ntenant" in wide


def test_jobs_are_parted_by_size_where_it_is_asked(yard: Yard, jobs: Path) -> None:
    words = ("simulate", "--trace", jobs, "--gpus", 8, "--policy", "fifo")
    sizes = json.loads(yard(*words, "-o", "json", "--sizes", "1,4").out)["policies"]["fifo"]["sizes"]

    assert ["up to 1", "2-4", "5+"] == list(sizes)
    assert 4 == sum(each["jobs"] for each in sizes.values())
    refused = yard(*words, "--sizes", "8,4")
    assert (2, "") == (refused.code, refused.out)
    assert "--sizes must be rising numbers of GPUs such as 1,8,16, not 8,4" in refused.err


def test_several_seeds_are_told_one_by_one_and_together(yard: Yard, jobs: Path, tmp_path: Path) -> None:
    words = (
        "simulate",
        "--trace",
        jobs,
        "--gpus",
        16,
        "--policy",
        "fifo",
        "--policy",
        "sjf",
        "--node-mtbf",
        1,
    )
    many = (*words, "--seed", 0, "--seed", 3, "--keep", tmp_path / "kept")
    document = json.loads(yard(*many, "-o", "json").out)

    assert {"studies", "together"} == set(document)
    alone = [json.loads(yard(*words, "-o", "json", "--seed", seed).out) for seed in (0, 3)]
    assert alone == [{key: each[key] for key in ("trace", "policies")} for each in document["studies"]]
    (both,) = document["together"]
    assert ([0, 3], ["fifo", "sjf"]) == (both["seeds"], list(both["policies"]))
    for name, summary in both["policies"].items():
        parts = [each["policies"][name] for each in alone]
        for figure in ("jobs", "finished", "node_failures", "used_gpu_s"):
            assert summary[figure] == sum(part[figure] for part in parts)
    rows = list(csv.DictReader(io.StringIO(yard(*many, "-o", "csv").out)))
    assert [("0", "fifo"), ("0", "sjf"), ("3", "fifo"), ("3", "sjf")] == [
        (row["seed"], row["policy"]) for row in rows
    ]
    lines = yard(*many, "-o", "table").out.splitlines()
    assert ["policy", "fifo", "sjf"] == [line.split()[0] for line in lines[:3]]
    assert 4 == len(list((tmp_path / "kept").iterdir()))


def test_several_fleets_stand_beside_each_other(yard: Yard, jobs: Path) -> None:
    words = ("simulate", "--trace", jobs, "--gpus", 16, "--gpus", 32, "--policy", "fifo")
    lines = yard(*words).out.splitlines()
    assert ["policy", "fifo, 16 GPUs", "fifo, 32 GPUs"] == [line.partition("  ")[0] for line in lines[:3]]
    document = json.loads(yard(*words, "-o", "json").out)
    assert ["16 GPUs", "32 GPUs"] == [each["fleet"] for each in document["together"]]
    refused = yard(*words, "--report", "report.html")
    assert (2, "") == (refused.code, refused.out)
    assert "a report shows one seed on one fleet" in refused.err


def test_the_configuration_brings_fleet_and_policy(yard: Yard, jobs: Path) -> None:
    words = ("simulate", "--trace", jobs, "--config", EXAMPLE, "-o", "json")
    assert ["mine"] == list(json.loads(yard(*words).out)["policies"])
    assert ["fifo"] == list(json.loads(yard(*words, "--policy", "fifo", "--policy", "fifo").out)["policies"])


def test_without_a_configuration_the_default_policy_runs(yard: Yard, jobs: Path) -> None:
    document = json.loads(yard("simulate", "--trace", jobs, "--gpus", 16, "-o", "json").out)
    assert ["default"] == list(document["policies"])


def test_only_the_first_jobs(yard: Yard, jobs: Path) -> None:
    document = json.loads(
        yard("simulate", "--trace", jobs, "--gpus", 16, "--limit-jobs", 2, "-o", "json").out
    )
    assert (4, 2) == (document["trace"]["rows"], document["trace"]["jobs"])
    assert 2 == document["policies"]["default"]["finished"]


def test_broken_rows_are_counted_and_named(yard: Yard, tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text("submit_s,run_s,gpus\n0,60,1\n" + "1,soon,1\n" * 7 + "2,60,1\n")

    done = yard("simulate", "--trace", path, "--gpus", 8, "-o", "json")
    assert 0 == done.code
    assert 7 == json.loads(done.out)["trace"]["skipped"]
    first, *named, rest = done.err.splitlines()
    assert f"yard: {path}: 7 of 9 rows skipped" == first
    assert [f"  {path}:{line}: run_s is 'soon', not a number" for line in range(3, 8)] == named
    assert "and 2 more" in rest

    done = yard("simulate", "--trace", path, "--gpus", 8, "--strict")
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(f"yard: {path}:3: run_s is 'soon', not a number\n")


def test_one_bad_byte_costs_one_row(yard: Yard, tmp_path: Path) -> None:
    path = tmp_path / "byte.csv"
    path.write_bytes(b"submit_s,run_s\n" + b"0,1\n" * 1000 + b"0,\xff\n" + b"0,1\n" * 1000)

    done = yard("simulate", "--trace", path, "--gpus", 64, "--policy", "fifo", "-o", "json")
    assert f"  {path}:1002: is not UTF-8 text: byte 0xff" in done.err
    assert 2000 == json.loads(done.out)["policies"]["fifo"]["finished"]


def test_jobs_that_could_never_start_are_counted_with_a_reason(yard: Yard, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_text("submit_s,run_s,gpus\n0,60,1\n1,60,16\n2,60,16\n")

    done = yard("simulate", "--trace", path, "--gpus", 64, "-o", "json")
    assert (0, 2) == (done.code, json.loads(done.out)["policies"]["default"]["rejected"])
    assert "2 of 3 jobs rejected" in done.err
    assert "job 2: asks for 16 GPUs on one node; the largest node has 8" in done.err


@pytest.mark.parametrize(("mode", "rejected"), [("drive", 2), ("observe", 0)])
def test_what_the_named_engine_cannot_do_is_rejected(
    yard: Yard, tmp_path: Path, mode: str, rejected: int
) -> None:
    """A Slurm that is driven gives whole GPUs. What an observed one has started, it could start."""
    trace, config = tmp_path / "shares.csv", tmp_path / "yard.yaml"
    trace.write_text("submit_s,run_s,gpus\n0,60,1\n1,60,0.25\n2,60,0.25\n")
    config.write_text(
        "version: 1\nclusters:\n  hpc:\n    engine: slurm\n"
        + (f"    mode: {mode}\n" if mode != "drive" else "")
        + "    pools: {gpu: {nodes: 1, gpus: 8 x A100-80GB, cpus: 64, memory: 512G}}\n"
    )

    done = yard("simulate", "--trace", trace, "--config", config, "-o", "json")
    ((name, found),) = json.loads(done.out)["policies"].items()
    assert (0, rejected, 3 - rejected) == (done.code, found["rejected"], found["finished"]), name
    assert ("cluster hpc gives whole GPUs only, no shares of them" in done.err) == bool(rejected)


def test_names_the_configuration_lacks_are_said(yard: Yard, tmp_path: Path) -> None:
    path = tmp_path / "strangers.csv"
    path.write_text("submit_s,run_s,tenant,class\n0,60,research/ana,batch\n1,60,sales/zoe,vip\n")

    err = yard("simulate", "--trace", path, "--config", EXAMPLE).err
    assert "1 jobs are of classes that are not configured (vip) and are treated as batch" in err
    assert "tenants that are not configured have weight 1 and no guarantee: sales" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is no fleet to simulate"),
        (["--config", EXAMPLE, "--gpus", 8], "--config already describes the fleet"),
        (["--gpus", 12], "12 GPUs do not make whole nodes of 8"),
        (["--gpus", 8, "--gpu-model", "h100"], "unknown GPU model 'h100'; did you mean 'H100'?"),
        (["--gpus", 8, "--policy", "fiffo"], "unknown policy 'fiffo'; did you mean 'fifo'?"),
        (["--config", EXAMPLE, "--policy", "mien"], "unknown policy 'mien'; did you mean 'mine'?"),
        (["--gpus", 8, "--node-mtbf", "-1"], "nodes cannot fail every -1 hours"),
        (["--gpus", 8, "--node-mtbf", "0"], "nodes cannot fail every 0 hours"),
        (
            ["--gpus", 8, "--node-mtbf", "1e-12", "--node-repair", "0"],
            "1 nodes that fail every 1e-12 hours would fail",
        ),
        (["--gpus", 8, "--node-mtbf", "5", "--node-repair", "-1"], "nodes cannot fail every 5 hours"),
        (["--gpus", 8, "--spot-trace", EXAMPLE], f"{EXAMPLE}: not an availability trace"),
        (["--config", EXAMPLE, "--spot-trace", EXAMPLE], "a spot trace needs spot nodes"),
        (["--gpus", 8, "--report", "."], ".: is a directory"),
        (
            ["--gpus", 8, "--report", "no/such/report.html"],
            "no/such/report.html: there is no directory no/such",
        ),
        (["--config", "no.yaml"], "no.yaml: no such file"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    yard: Yard, jobs: Path, words: list[object], message: str
) -> None:
    done = yard("simulate", "--trace", jobs, *words)

    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(f"yard: {message}")
    assert "Traceback" not in done.err


def test_traces_that_are_none(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "prose").write_text("Dear all,\nthe jobs are in the other file.\n")
    for name, message in (
        ("nowhere", "there is no such file"),
        (".", "is a directory"),
        ("empty", "is empty"),
        ("prose", "is of no known format"),
    ):
        done = yard("simulate", "--trace", name, "--gpus", 8)
        assert (2, "") == (done.code, done.out)
        assert done.err.startswith(f"yard: {name}: {message}\n")


def test_mistakes_in_a_configuration_all_come_with_their_lines(
    yard: Yard, jobs: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("version: 1\nclutsers: {}\nclusters: {m: {pools: {h: {nodes: -1}}}}\n")

    done = yard("simulate", "--trace", jobs, "--config", "bad.yaml")
    assert 2 == done.code
    first, *rest = done.err.splitlines()
    assert f"yard: {len(rest)} problems" == first
    assert all(line.startswith("bad.yaml:") for line in rest)
    assert "bad.yaml:2:1: unknown key 'clutsers' at the top level; did you mean 'clusters'?" in rest


def test_failures_and_spot_reclaims(yard: Yard, jobs: Path, tmp_path: Path) -> None:
    spot = tmp_path / "spot.json"
    spot.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [8, 0, 8]}))
    words = ("simulate", "--trace", jobs, "--gpus", 64, "--policy", "fifo", "-o", "json")

    reclaimed = json.loads(yard(*words, "--spot-trace", spot).out)["policies"]["fifo"]
    assert 4 == reclaimed["finished"]
    assert reclaimed["node_failures"] >= 8
    assert reclaimed["destroyed_gpu_s"] > 0
    failing = yard(*words, "--node-mtbf", 0.2, "--node-repair", 0.1, "--seed", 3)
    assert json.loads(failing.out)["policies"]["fifo"]["node_failures"] > 0
    assert failing.out == yard(*words, "--node-mtbf", 0.2, "--node-repair", 0.1, "--seed", 3).out
    assert failing.out != yard(*words, "--node-mtbf", 0.2, "--node-repair", 0.1, "--seed", 4).out


def test_the_report_is_one_file(yard: Yard, jobs: Path, tmp_path: Path) -> None:
    done = yard(
        "simulate", "--trace", jobs, "--gpus", 64, "--policy", "fifo", "--policy", "sjf", "--report", "r.html"
    )
    page = (tmp_path / "r.html").read_text(encoding="utf-8")

    assert (0, "") == (done.code, done.err)
    assert page.startswith("<!doctype html>")
    assert f"yard simulate --trace {jobs} --gpus 64 --policy fifo" in page
    assert ["jobs.csv", "r.html"] == sorted(path.name for path in tmp_path.iterdir())


def test_results_come_before_a_report_that_cannot_be_written(
    yard: Yard, jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    done = yard("simulate", "--trace", jobs, "--gpus", 64, "--report", "r.html")
    assert 2 == done.code
    assert done.out.startswith("policy ")
    assert done.err.startswith("yard: r.html: cannot be written: No space left on device\n")


def test_formats_are_recognised_or_named(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text("1 0 -1 60 16 -1 -1 16 120 -1 1 1 1 -1 -1 -1 -1 -1\n")
    for words in ((), ("--format", "swf")):
        done = yard("simulate", "--trace", "log.swf", "--gpus", 16, *words, "-o", "json")
        assert 1 == json.loads(done.out)["policies"]["default"]["finished"]
    done = yard("simulate", "--trace", "log.swf", "--gpus", 16, "--processors-per-gpu", 16, "-o", "json")
    assert 60.0 == json.loads(done.out)["policies"]["default"]["used_gpu_s"]
    assert 2 == yard("simulate", "--trace", "log.swf", "--gpus", 16, "--format", "philly").code


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "csv"])
def test_an_interrupt_before_the_first_result_leaves_an_empty_comparison(
    yard: Yard, jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuyard.cli.terminal.progress.Bar.begin", stop)
    done = yard(
        "simulate", "--trace", jobs, "--gpus", 8, "--policy", "fifo", "-o", output, "--report", "r.html"
    )
    assert (130, "yard: interrupted before fifo\n") == (done.code, done.err)
    assert (tmp_path / "r.html").is_file()


@pytest.mark.parametrize("output", ["wide", "json", "csv"])
def test_an_interrupt_before_the_first_job_ended(
    yard: Yard, jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuyard.sim.simulate.decide", stop)
    done = yard(
        "simulate", "--trace", jobs, "--gpus", 8, "--policy", "fifo", "-o", output, "--report", "r.html"
    )
    assert (130, "yard: interrupted: fifo got through 0 of 4 jobs\n") == (done.code, done.err)
    assert "fifo" in done.out


def test_seeds_of_which_one_was_cut_short_say_so_together(capsys: pytest.CaptureFixture[str]) -> None:
    """They had the name of a policy that came to its end."""
    pool = Pool("p", "c", Market.RESERVED, (Node("n", "c", "p", "H100", 8, 96_000, 1 << 20),))
    fleet, made = NamedFleet("", Config(Settings(), (pool,), PRESETS, {}), [PRESETS["fifo"]]), []
    for seed in (0, 1):
        study = Study(poisson(20, 8, 0.5, seed), [pool], Settings())
        study.add(replace(study.simulate(PRESETS["fifo"]), interrupted=seed == 1))
        made.append(SeededStudy(study, fleet, seed, f"seed {seed}"))

    publish(made, Output.TABLE, None)
    rows = capsys.readouterr().out.splitlines()
    assert ["policy", "fifo (interrupted)"] == [row.partition("  ")[0] for row in rows[:2]]


def test_all_seeds_are_of_one_past(yard: Yard, answering_yard: Callable[[Answers], AnsweringYard]) -> None:
    """It was read once for each, and had more jobs each time."""
    job = {"submitted_ms": 1, "started_ms": 1_000, "ended_ms": 9_000, "gpus_per_task": "1", "tasks": 1}
    there = answering_yard({HISTORY: {"jobs": [{**job, "tenant": "t"}], "next_cursor": None}})
    words = ("simulate", "--history", "1d", "--gpus", 8, "--seed", 0, "--seed", 1, "-o", "json")
    studies = json.loads(yard(*words).out)["studies"]
    assert [1, 1] == [each["trace"]["jobs"] for each in studies]
    assert 1 == len(there.asked_of(HISTORY))
