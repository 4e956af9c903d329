"""`yard bench pack` and `yard bench place`: the figures they promise, with numba and scipy and without."""

import json
from pathlib import Path

import pytest

from gpuyard.cli.commands.bench.bench_pack import Placement
from gpuyard.cli.commands.bench.bench_place import mixed_nodes, mixed_tasks
from gpuyard.packing.board import POLICIES

from .conftest import Yard


@pytest.fixture
def lists(tmp_path: Path) -> tuple[Path, Path]:
    """Six nodes and a mix of shares, whole GPUs and tasks without."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    rows = [f"n{i},{cores}000,65536,{gpus},{model}" for i, (cores, gpus, model) in enumerate(
        [(96, 8, "G2"), (96, 8, "G2"), (104, 2, "T4"), (104, 2, "T4"), (16, 2, "P100"), (16, 2, "P100")]
    )]  # fmt: skip
    nodes.write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *rows]) + "\n")
    wants = ["3000,1024,1,810", "11000,1024,1,1000", "8000,1024,1,470", "4000,1024,1,160", "8000,1024,0,0"]
    rows = [f"p{i:02d},{wants[i * 7 % 5]}" for i in range(40)]
    pods.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *rows]) + "\n")
    return nodes, pods


def test_names_that_are_written_twice_are_the_same() -> None:
    assert set(POLICIES) == {placement.value for placement in Placement}


def test_pack_prints_its_figures(yard: Yard, lists: tuple[Path, Path]) -> None:
    pytest.importorskip("scipy")
    nodes, pods = lists
    found = {}
    for policy in Placement:
        done = yard(
            "bench",
            "pack",
            "--nodes",
            nodes,
            "--pods",
            pods,
            "--policy",
            policy.value,
            "--seeds",
            3,
            "-o",
            "json",
        )
        assert (0, "") == (done.code, done.err)
        found[policy] = figures = json.loads(done.out)
        assert ["policy", "seeds", "allocation_pct", "bound_pct", "refused_while_fitting"] == list(figures)
        assert (policy.value, 3, 0) == (figures["policy"], figures["seeds"], figures["refused_while_fitting"])
        assert 50 < figures["allocation_pct"]["90"] <= figures["allocation_pct"]["130"] <= 100
        assert figures["allocation_pct"]["100"] <= figures["bound_pct"]["100"] + 0.5
    assert found[Placement.RANDOM]["allocation_pct"]["100"] < found[Placement.PACK]["allocation_pct"]["100"]


def test_without_scipy_there_is_no_bound_and_a_word_about_it(
    yard: Yard, lists: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.sim.packing.bound.scipy_is_here", lambda: False)
    monkeypatch.setattr("gpuyard.packing.compiled.numba_is_here", lambda: False)
    nodes, pods = lists
    done = yard("bench", "pack", "--nodes", nodes, "--pods", pods, "--seeds", 1, "-o", "json")

    assert 0 == done.code
    assert "no bound: it needs scipy" in done.err
    assert {"100": None} == json.loads(done.out)["bound_pct"]


def test_a_broken_line_is_named(yard: Yard, lists: tuple[Path, Path]) -> None:
    nodes, pods = lists
    pods.write_text(pods.read_text() + "p99,1,1,1,none\n")
    done = yard("bench", "pack", "--nodes", nodes, "--pods", pods)

    assert (2, "") == (done.code, done.out)
    assert f"{pods}:42: gpu_milli is 'none', not a number" in done.err


def test_place_prints_its_figures(yard: Yard) -> None:
    done = yard("bench", "place", "--nodes", 40, "--decisions", 500, "-o", "json")

    assert (0, "") == (done.code, done.err)
    figures = json.loads(done.out)
    assert {"decisions", "cpu_s", "decisions_per_cpu_s", "policy"} <= set(figures)
    assert ("pack", 40) == (figures["policy"], figures["nodes"])
    assert figures["decisions"] >= 500
    assert figures["decisions_per_cpu_s"] == pytest.approx(figures["decisions"] / figures["cpu_s"], rel=0.2)


def test_the_mix_has_every_kind_and_about_as_many_sizes_as_a_real_one() -> None:
    nodes = mixed_nodes(1213)

    assert (1213, 13) == (len(nodes), len(set(nodes)))
    assert 1 == len(mixed_nodes(1))
    assert 1000 == len(mixed_tasks())
    assert 120 <= len(set(mixed_tasks())) <= 180
