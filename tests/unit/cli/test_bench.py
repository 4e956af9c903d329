"""`yard bench`: the figures it promises, and that the full policy is really at work in them."""

import json
from pathlib import Path

import pytest

from gpuyard.cli.commands.bench.bench_yard import bench_yard
from gpuyard.sim.study import cut_trace
from gpuyard.sim.traces import load

from .conftest import Yard


def test_simulate_prints_its_figures(yard: Yard) -> None:
    done = yard(
        "bench", "simulate", "--jobs", 2000, "--gpus", 128, "--load", 1.05, "--policy", "fifo", "-o", "json"
    )

    assert (0, "") == (done.code, done.err)
    figures = json.loads(done.out)
    assert {"jobs", "gpus", "cpu_s", "jobs_per_cpu_s", "peak_rss_mib", "mean_wait_s", "decide_ms"} <= set(
        figures
    )
    assert {"p50", "p99"} == set(figures["decide_ms"])
    assert (2000, 128, 1.05, "fifo", 0) == tuple(
        figures[k] for k in ("jobs", "gpus", "load", "policy", "seed")
    )
    assert (2000, 0, 0, 0) == tuple(figures[k] for k in ("finished", "unfinished", "rejected", "preemptions"))
    assert 0 < figures["decide_ms"]["p50"] <= figures["decide_ms"]["p99"]
    assert figures["peak_rss_mib"] > 10
    assert figures["jobs_per_cpu_s"] == pytest.approx(2000 / figures["cpu_s"], rel=0.01)


def test_the_full_policy_has_something_to_do(yard: Yard) -> None:
    """Tenants, guarantees, limits and classes that preempt."""
    done = yard("bench", "simulate", "--jobs", 3000, "--gpus", 256, "--load", 1.05, "-o", "json")
    figures = json.loads(done.out)

    assert ("default", 3000, 0) == (figures["policy"], figures["finished"], figures["rejected"])
    assert figures["preemptions"] > 0
    bench = bench_yard(256, "default")
    assert 3 == len(bench.config.settings.tenants)
    assert all(t.quota.guarantee and t.quota.limit for t in bench.config.settings.tenants)
    assert {"batch", "urgent"} == {klass for _, klass, _ in bench.submitters}
    assert () == bench_yard(256, "fifo").config.settings.tenants


@pytest.mark.parametrize("name", ["trace.swf", "trace.csv", "trace.csv.gz"])
def test_the_trace_is_kept(yard: Yard, tmp_path: Path, name: str) -> None:
    yard(
        "bench",
        "simulate",
        "--jobs",
        200,
        "--gpus",
        64,
        "--policy",
        "fifo",
        "--save-trace",
        name,
        "-o",
        "json",
    )
    kept, made = load(tmp_path / name), bench_yard(64, "fifo").trace(200, 0.9, 0)

    assert 200 == len(kept)
    assert [spec.ask for spec in made.specs] == [spec.ask for spec in kept.specs]
    assert made.spec == kept.spec
    assert all(abs(a - b) <= 1000 for a, b in zip(made.run_ms, kept.run_ms, strict=True))


def test_decide_prints_its_figures(yard: Yard) -> None:
    words = ("bench", "decide", "--waiting", 300, "--nodes", 40, "--passes", 25, "-o", "json")
    figures = json.loads(yard(*words).out)

    assert (300, 40, 320, 25) == tuple(figures[k] for k in ("waiting", "nodes", "gpus", "passes"))
    assert {"p50", "p99", "max"} == set(figures["decide_ms"])
    assert 0 < figures["decide_ms"]["p50"] <= figures["decide_ms"]["p99"] <= figures["decide_ms"]["max"]
    assert figures["starts"] > 0
    assert figures["running"] > 0
    fifo = json.loads(yard(*words, "--policy", "fifo").out)
    assert ("fifo", 0) == (fifo["policy"], fifo["preemptions"])


def test_what_cannot_be_measured(yard: Yard) -> None:
    for words, message in (
        (("simulate", "--policy", "mine"), "unknown policy 'mine'"),
        (("simulate", "--load", "0"), "a trace needs jobs, GPUs, nodes and a load of more than 0"),
        (("simulate", "--gpus", "12"), "12 GPUs do not make whole nodes of 8"),
        (("simulate", "--jobs", "5", "--save-trace", "no/such/t.swf"), "no/such/t.swf: cannot be written"),
        (("decide", "--policy", "fiffo"), "unknown policy 'fiffo'; did you mean 'fifo'?"),
    ):
        done = yard("bench", *words)
        assert (2, "") == (done.code, done.out)
        assert done.err.startswith(f"yard: {message}")


def test_people_get_a_table(yard: Yard) -> None:
    out = yard("bench", "simulate", "--jobs", 100, "--gpus", 64, "--policy", "fifo").out
    assert ["figure", "value"] == out.splitlines()[0].split()
    assert any(line.split()[0] == "decide_ms_p99" for line in out.splitlines())


def test_the_first_jobs_of_a_trace_are_a_trace() -> None:
    trace = bench_yard(64, "fifo").trace(50, 0.9, 0)
    few = cut_trace(trace, 10)
    assert (10, 10, 10) == (len(few), len(few.run_ms), len(few.deadline_ms))
    assert few.job(9) == trace.job(9)
    assert cut_trace(trace, 100) is trace
