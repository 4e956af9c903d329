"""The benchmark programs work on tiny inputs: what they print is published, so it must be right."""

import ast
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace

import pytest

from gpuyard.core.fleet.mig_geometry import fit
from gpuyard.model.mig import MIG_MODELS, read_layout
from gpuyard.sim.generate import poisson
from gpuyard.sim.traces.swf_write import save_swf

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a program of benchmarks/ as it is imported when run from there."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    return import_module


def test_a_large_fleet_is_full_and_everything_happens_to_it(program: Callable[[str], ModuleType]) -> None:
    bench = program("bench_fleet")
    for mix in program("fleet_yard").MIXES:
        found = bench.measured(mix, 2, 12, 60, 2)
        assert found["passes"] == 24
        assert len(found["by_event"]) == 9
        assert found["starts"]
        assert (found["preemptions"] > 0) is (mix != "fifo")
        assert found["all"]["p50"] <= found["all"]["p99"] <= found["all"]["max"]


def lines_of_decisions(yard: ModuleType, mix: str, nodes: int) -> int:
    """How many lines of code run in the decisions of three rounds, on a fleet that has been looked at before."""
    fleet = yard.Fleet(yard.MIXES[mix], 2, nodes, 300)
    fleet.round()
    count, decide = [0], yard.decide

    def trace(_frame: FrameType, event: str, _found: object) -> Callable[..., object]:
        count[0] += event == "line"
        return trace

    def counted(*state: object) -> object:
        sys.settrace(trace)
        try:
            return decide(*state)
        finally:
            sys.settrace(None)

    yard.decide = counted
    for _ in range(3):
        fleet.round()
    yard.decide = decide
    return count[0]


@pytest.mark.parametrize("mix", ["default", "guarantees held back"])
def test_ten_times_the_nodes_are_not_much_more_work(program: Callable[[str], ModuleType], mix: str) -> None:
    """What happens is about the same on both fleets; what a pass does may follow that, and not the number of nodes."""
    few, many = [lines_of_decisions(program("fleet_yard"), mix, nodes) for nodes in (16, 160)]
    assert many < 1.5 * few, f"{few:,} lines with 32 nodes, {many:,} with 320"


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    """Two virtual clusters of 4 nodes and one without: 60 jobs, gangs among them, more than fit at once."""
    jobs = [
        f"2017-10-01 {10 + i // 12:02d}:{i % 12 * 5:02d}:00,{3000 + 977 * i % 40_000},{gpus},0,{vc}"
        for i in range(60)
        for gpus, vc in [((1, 8, 16, 2, 4)[i % 5], "abc"[0 if i % 3 else i % 2])]
    ]
    jobs.append("2017-10-01 09:00:00,100,1,100,c")
    head = "timestamp,duration,num_gpus,gpu_time,cluster"
    (tmp_path / "philly_2017_sep_nov.csv").write_text("\n".join([head, *jobs]) + "\n", encoding="utf-8")
    (tmp_path / "philly_vc_nodes.csv").write_text("vc,node num\na,4\nb,4\n", encoding="utf-8")
    return tmp_path


def test_an_exponent_is_found_again(program) -> None:
    figures = program("figures")

    assert pytest.approx(1.25) == figures.exponent([10, 100, 1000], [3 * n**1.25 for n in (10, 100, 1000)])


def test_tables_go_between_their_marks_and_nowhere_else(program, tmp_path: Path, capsys) -> None:
    figures = program("figures")
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x: begin -->\nold\n<!-- x: end -->\nbelow\n", encoding="utf-8")

    figures.publish("x", figures.table(["run", "s"], [["a", 1234.5], ["b", None]]), {}, write=True, page=page)

    text = page.read_text(encoding="utf-8")
    assert text.startswith("above\n<!-- x: begin -->\nMeasured at commit ")
    assert text.endswith("| a | 1,234 |\n| b | – |\n<!-- x: end -->\nbelow\n")
    assert "old" not in text
    assert "| a | 1,234 |" in capsys.readouterr().out


def test_a_page_without_marks_is_left_alone(program, tmp_path: Path) -> None:
    figures = program("figures")
    page = tmp_path / "page.md"
    page.write_text("nothing\n", encoding="utf-8")

    with pytest.raises(SystemExit, match="has no place for x"):
        figures.publish("x", "text", {}, write=True, page=page)

    assert "nothing\n" == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("layout", ["own nodes", "quotas", "shared"])
@pytest.mark.parametrize("policy", ["strict-fifo", "fair", "srtf"])
def test_every_layout_runs_every_philly_job(program, philly: Path, layout: str, policy: str) -> None:
    bench = program("bench_philly")
    trace, nodes = bench.read(philly)

    row = bench.measure(trace, nodes, layout, policy)

    assert (61, 60, 1, 0) == tuple(row[key] for key in ("jobs", "finished", "rejected", "unfinished"))
    assert (row["fairness_error"] is None) == (layout == "own nodes")


def test_without_walls_gpuyard_and_the_count_agree(program, philly: Path) -> None:
    """Two programs that share no scheduling code find the same mean wait, to the last digit."""
    found = program("bench_philly").reference(philly, {"a": 2, "b": 2})

    counted, ours = found["count-only"], found["gpuyard on one large node"]
    assert 0 < counted["shared"] == ours["shared"]
    assert 0 < counted["own nodes"] == ours["own nodes"]


def test_philly_prints_a_table_and_what_it_means(program, philly: Path, monkeypatch, capsys) -> None:
    argv = ["bench_philly", "--data", str(philly), "--divide", "2", "--policies", "fair", "srtf"]
    monkeypatch.setattr(sys, "argv", argv)

    assert 0 == program("bench_philly").main()

    out = capsys.readouterr().out
    assert "### 4 nodes (divided by 2)" in out
    assert "| fair, quotas |" in out
    assert "**What sharing gains over isolation**" in out
    assert "**What `fair` costs against SRTF**" in out
    assert "**The fairness error** (and GPUs short), shared: fair 0." in out


def test_gpuyard_is_timed_on_the_very_file_a_peer_reads(program, tmp_path: Path) -> None:
    save_swf(poisson(50, 64, 1.5, 0), tmp_path / "t.swf")

    row = program("gpuyard_run").measure(tmp_path / "t.swf", 64, "fifo")

    assert (50, 64) == (row["jobs"], row["gpus"])
    assert 0 < row["cpu_s_simulation"] <= row["cpu_s"] <= row["cpu_s_process"]


def test_a_peer_is_held_against_gpuyard(program) -> None:
    common = {"jobs_per_cpu_s": 1.0, "peak_rss_mib": 1.0, "mean_wait_s": 0.0}
    found = {"AccaSim": {"cpu_s": 30.0, **common}, "gpuyard fifo": {"cpu_s": 2.0, **common}}

    rows = program("bench_peers").rows_of(0.9, found)

    assert ["15.0 ×", None] == [row[-1] for row in rows]


def test_latency_comes_from_the_command_it_names(program) -> None:
    text, rows = program("bench_speed").Bench(1, 500).latency()

    assert "20 waiting jobs, 2 nodes of 8 GPUs, 2 decisions" in text
    assert "yard bench decide --waiting 20 --nodes 2 --passes 2 --policy fifo" == rows[0]["command"]
    assert 0 < rows[0]["decide_ms"]["p50"] <= rows[0]["decide_ms"]["p99"]


def test_layouts_go_from_one_extreme_to_the_other_and_each_can_be_had(program) -> None:
    bench = program("bench_layouts")

    for geometry in MIG_MODELS.values():
        found = bench.layouts(geometry)
        assert "whole" == found[-1]
        for layout in found:
            names = read_layout(layout)
            assert () == fit(geometry, (), names).left_out


def test_how_many_ran_at_once_is_counted_by_their_times(program) -> None:
    spans = [(0, 10), (5, 20), (10, 30), (11, 12)]
    ended = [{"started_ms": a, "ended_ms": b} for a, b in spans]

    assert 3 == program("bench_sharing")._at_once(ended)


def test_the_fragment_says_when_results_differ(program) -> None:
    row = {"asked for": "-g 1", "jobs": 28, "results": "1"}
    found = {"gpu": "H200", "cores": 16, "persistence_mode_while_up": "Enabled", "rounds": [row, row], "ratio": 3.1,
             "same_results": False}  # fmt: skip

    text = program("bench_sharing").fragment(found)

    assert "3.10 x the jobs per hour of one by one; results are NOT the same" in text


def test_static_layouts_serve_what_they_hold(program) -> None:
    """One GPU cut 2x1g + 2g + 3g: slices in hand count by hand, larger ones serve, and what ends is free again."""
    streams, static = program("mig_streams"), program("mig_static")
    one, two, three, seven = 0, 2, 3, 5
    day = [
        streams.Request(at_s, size, 100.0)
        for at_s, size in [
            (0.0, one),
            (1.0, one),
            (2.0, one),
            (3.0, three),
            (4.0, one),
            (5.0, seven),
            (6.0, two),
        ]
    ] + [streams.Request(200.0, two, 100.0)]
    replay = static.Replay(day, 1)

    # The third 1g takes the 2g; then the 3g is taken, and nothing is left for a 1g, a 7g or a 2g.
    found = replay.on(replay.uniform(2, 0, 1, 1, 0, 0))
    assert pytest.approx((5 / 8, 8 * 100.0 / (7 * 86_400.0))) == found[:2]
    assert pytest.approx(4 / 8) == replay.on(replay.uniform(7, 0, 0, 0, 0, 0)).acceptance
    assert all(
        sum(n * size.compute for n, size in zip(counts, streams.SIZES, strict=True)) <= 7
        for counts in static.layouts()
    )
    assert 38 == len(static.layouts())


def test_slices_are_held_against_the_best_static_layout(program) -> None:
    mig = program("bench_mig")
    row = mig.measure("drifting", 1.2, 4, range(1))

    assert row == {
        **mig.measure("drifting", 1.2, 4, range(1)),
        "pack": row["pack"],
        "best-fit": row["best-fit"],
    }
    for what in ("acceptance", "utilisation"):
        best = row[f"best by {what}"][what]
        assert all(best >= row[name][what] for name in ("all-1g", "all-balanced"))
        assert 0 < row["pack"][what] < 100
        assert f"{row['pack'][what] - best:+.2f}" in mig.shown([row], what, 1)


def test_openb_is_packed_with_nothing_known_before(program, tmp_path: Path) -> None:
    nodes = [f"n{i},32000,65536,4,T4" for i in range(12)]
    pods = [f"p{i},{1000 + i % 3 * 1000},1000,1,{(250, 500, 460)[i % 3]}," for i in range(120)]
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "\n".join(["sn,cpu_milli,memory_mib,gpu,model", *nodes])
    )
    (tmp_path / "openb_pod_list_tiny.csv").write_text("\n".join([head, *pods]))

    row = program("bench_learned").measure(tmp_path, tmp_path / "openb_pod_list_tiny.csv", 2)

    assert "tiny" == row["workload"]
    assert row["times"] >= 1
    assert abs(row["told"] - row["learned"]) < 5
    assert 80 < row["learned"] <= 100


def test_a_queue_that_cannot_be_filled_in_time_ends_the_program(program) -> None:
    changes = program("bench_changes")
    asked: list[str] = []

    class Slow(changes.Side):
        def __init__(self) -> None:
            """No server."""

        def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
            asked.append(f"{method} {path}")
            return b'{"nodes": [{"name": "n0"}]}'

        def caller(self) -> SimpleNamespace:
            return SimpleNamespace(ask=lambda *_words: SimpleNamespace(status=201), close=lambda: None)

    with pytest.raises(TimeoutError, match="of 1,000 jobs were submitted in time"):
        Slow().submit(1000, time.monotonic() - 1)
    # Nothing starts while the queue is filled: it would never be full where jobs end faster than they come.
    assert ["GET /api/v1/nodes", "POST /api/v1/nodes/n0/drain"] == asked
    Slow().submit(1000, time.monotonic() + 60)
    assert "POST /api/v1/nodes/n0/resume" == asked[-1]


def test_what_programs_import_of_gpuyard_is_there() -> None:
    """A program that is run by hand alone breaks without a word when a name moves."""
    missing = []
    for path in sorted(BENCHMARKS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpuyard"):
                module = import_module(str(node.module))
                missing += [
                    f"{path.name}:{node.lineno} {node.module}.{each.name}"
                    for each in node.names
                    if not hasattr(module, each.name) and not find_spec(f"{node.module}.{each.name}")
                ]
    assert [] == missing


def test_histories_are_drawn_from_their_numbers(program) -> None:
    same_plans = program("same_plans")

    hashes = [same_plans.hashed(number) for number in range(6)]

    assert 6 == len(set(hashes))
    assert hashes == [same_plans.hashed(number) for number in range(6)]


def test_a_checkout_decides_the_same_as_itself(program) -> None:
    """And histories with another hash are named by their numbers."""
    same_plans = program("same_plans")
    tree = Path(same_plans.__file__).parents[1]

    assert same_plans.run(tree, 2, 5, Path(sys.executable)) == [same_plans.hashed(n) for n in range(2, 5)]
    assert [41] == same_plans.differing(["a", "b", "c"], ["a", "x", "c"], 40)
