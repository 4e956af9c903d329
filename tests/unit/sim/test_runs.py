"""Simulations at once: the same results as one after the other, what Ctrl-C leaves, and results that are kept."""

import json
import os
import signal
import sys
from array import array
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import BadInput, YardError
from gpuyard.model import Market, Node, PolicySpec, Pool, Settings
from gpuyard.policies.registry import PRESETS
from gpuyard.sim.generate import poisson
from gpuyard.sim.result import Result
from gpuyard.sim.runs.at_once import Comparison, run_all
from gpuyard.sim.runs.kept_results import KeptResults
from gpuyard.sim.simulate import Progress
from gpuyard.sim.study import Faults, Study, plan_node_changes

POLICIES = [PRESETS["fifo"], PRESETS["class"], PRESETS["sjf"]]


def pool(count: int) -> Pool:
    nodes = [Node(f"n{at}", "c", "p", "H100", 8, 96_000, 1 << 20) for at in range(count)]
    return Pool("p", "c", Market.RESERVED, tuple(nodes))


def comparisons(seeds: int = 2, jobs: int = 60) -> list[Comparison]:
    found = []
    for seed in range(seeds):
        trace = poisson(jobs, 32, 0.9, seed)
        changes = plan_node_changes(trace, [pool(8)], Faults(mtbf_hours=20), seed)
        found.append(Comparison(Study(trace, [pool(8)], Settings(), changes), POLICIES))
    return found


def told(made: list[Comparison]) -> list[list[dict[str, Any]]]:
    """Everything that was measured, without how long it took."""
    return [
        [
            {field.name: getattr(result, field.name) for field in fields(result) if field.name != "cpu_s"}
            for result in each.study.results
        ]
        for each in made
    ]


class Unasked(Study):
    """A study that must not be simulated."""

    def simulate(self, spec: PolicySpec, progress: Progress | None = None) -> Result:
        raise AssertionError(f"{spec.name} was simulated")


def test_many_at_once_give_what_one_after_the_other_gives() -> None:
    here, beside = comparisons(), comparisons()
    seen: list[tuple[int, int]] = []

    assert run_all(here, cores=1)
    assert run_all(beside, lambda done, jobs: seen.append((done, jobs)), cores=3)
    assert told(here) == told(beside)
    assert [["fifo", "class", "sjf"]] * 2 == [[r.policy for r in each.study.results] for each in beside]
    assert (360, 360) == seen[-1]
    assert {360} == {jobs for _, jobs in seen}


def test_ctrl_c_between_two_policies_keeps_the_first() -> None:
    (made,) = comparisons(1)

    def progress(done: int, _jobs: int) -> None:
        if done > 60:
            raise KeyboardInterrupt

    assert not run_all([made], progress, cores=1)
    assert [("fifo", False), ("class", True)] == [(r.policy, r.interrupted) for r in made.study.results]


def test_ctrl_c_stops_all_and_keeps_what_they_had() -> None:
    made = comparisons(2, 20_000)

    def progress(_done: int, _jobs: int) -> None:
        if not stopped:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    stopped: list[bool] = []
    before = signal.getsignal(signal.SIGINT)
    assert not run_all(made, progress, cores=2)
    results = [result for each in made for result in each.study.results]
    assert results
    assert any(result.interrupted for result in results)
    assert before == signal.getsignal(signal.SIGINT)


def test_what_a_simulation_raises_is_raised_here() -> None:
    (made,) = comparisons(1)
    wrong = replace(PRESETS["fifo"], name="wrong", placement="nowhere")

    with pytest.raises(YardError, match=r"nowhere.*not installed"):
        run_all([Comparison(made.study, [*POLICIES, wrong])], cores=2)


class Deadly:
    """Ends the process that reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_a_process_that_dies_is_no_result() -> None:
    deadly: Any = Deadly()
    study = Study(poisson(10, 8, 0.5, 0), [pool(1)], deadly)

    with pytest.raises(YardError, match="ended without a result"):
        run_all([Comparison(study, POLICIES)], cores=2)


def test_a_process_that_never_begins_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is sent is more than a pipe holds, so that this fails while it is sent."""
    monkeypatch.setattr(sys, "executable", "/bin/true")

    with pytest.raises(YardError, match="ended without a result"):
        run_all(comparisons(1, 20_000), cores=2)


def test_a_comparison_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path / "kept")
    (first,) = comparisons(1)

    def progress(done: int, _jobs: int) -> None:
        if done > 60:
            raise KeyboardInterrupt

    assert not run_all([first], progress, cores=1, kept=kept)
    assert ["fifo"] == [path.name.partition("-")[0] for path in kept.folder.iterdir()]

    (again,) = comparisons(1)
    begun: list[int] = []
    assert run_all([again], lambda done, _jobs: begun.append(done), cores=1, kept=KeptResults(kept.folder))
    assert min(begun) >= 60
    (whole,) = comparisons(1)
    assert run_all([whole], cores=1)
    assert told([whole]) == told([again])

    study = again.study
    unasked = Unasked(study.trace, study.pools, study.settings, study.node_changes)
    assert run_all([Comparison(unasked, POLICIES)], cores=1, kept=kept)
    assert told([whole]) == told([Comparison(unasked, POLICIES)])


def test_another_question_finds_nothing(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path)
    (made,) = comparisons(1)
    run_all([made], cores=1, kept=kept)
    study, spec = made.study, POLICIES[0]
    assert kept.find(study.bare(), spec) is not None

    longer = replace(study.trace, run_ms=array("q", [ms + 1 for ms in study.trace.run_ms]))
    others = [
        Study(longer, study.pools, study.settings, study.node_changes),
        Study(study.trace, [pool(9)], study.settings, study.node_changes),
        Study(study.trace, study.pools, Settings(policy=PRESETS["fair"]), study.node_changes),
        Study(study.trace, study.pools, study.settings),
    ]
    assert [None] * 4 == [kept.find(other, spec) for other in others]
    assert kept.find(study, replace(spec, backfill_depth=7)) is None


def test_a_file_that_holds_no_result_is_not_taken_for_one(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path)
    (made,) = comparisons(1)
    run_all([Comparison(made.study, POLICIES[:1])], kept=kept)
    (path,) = tmp_path.iterdir()
    plain = json.loads(path.read_text(encoding="utf-8"))
    del plain["wait_ms"]
    for text in ("", json.dumps(plain), "3", "[]", '"ÿ"'):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(BadInput, match="is no kept result"):
            run_all([Comparison(made.study, POLICIES[:1])], kept=KeptResults(tmp_path))
