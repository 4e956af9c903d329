"""`bench_pack.py` and `bench_place.py`: the figures that they print, on lists of one's own."""

import json
import sys
from pathlib import Path

import bench_pack
import bench_place
import pytest


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


def test_packing_allocates_no_more_than_the_bound_and_more_than_chance(lists: tuple[Path, Path]) -> None:
    pytest.importorskip("scipy")
    row = bench_pack.measure(*lists, 3)

    assert (3, 0) == (row["seeds"], row["refused while fitting"])
    for policy in bench_pack.POLICIES:
        assert 50 < row[policy] <= row["bound"] + 0.5
        assert row[policy] <= row[f"{policy} at 130"] <= 100
    assert row["random"] < row["pack"]


def test_own_lists_are_printed_as_a_table(
    lists: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    nodes, pods = map(str, lists)
    monkeypatch.setattr(sys, "argv", ["bench_pack.py", "--nodes", nodes, "--pods", pods, "--seeds", "1"])

    assert 0 == bench_pack.main()
    out = capsys.readouterr().out
    assert "| workload | random | best-fit | fgd | pack |" in out
    assert "\n| pods | " in out


def test_a_broken_line_is_named(
    lists: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, pods = lists
    pods.write_text(pods.read_text() + "p99,1,1,1,none\n")
    for program, words in (
        (bench_pack, ["--nodes", str(nodes), "--pods", str(pods)]),
        (bench_place, ["--fleet", str(nodes), "--pods", str(pods)]),
    ):
        monkeypatch.setattr(sys, "argv", [program.__name__, *words])
        assert 2 == program.main()
        assert f"{pods}:42: gpu_milli is 'none', not a number" in capsys.readouterr().err


def test_placing_counts_its_decisions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_place.py", "--nodes", "40", "--decisions", "500"])

    assert 0 == bench_place.main()
    figures = json.loads(capsys.readouterr().out)
    assert ("pack", 40) == (figures["policy"], figures["nodes"])
    assert figures["decisions"] >= 500
    assert figures["decisions_per_cpu_s"] == pytest.approx(figures["decisions"] / figures["cpu_s"], rel=0.2)


def test_the_mix_has_every_kind_and_about_as_many_sizes_as_a_real_one() -> None:
    nodes = bench_place.mixed_nodes(1213)

    assert (1213, 13) == (len(nodes), len(set(nodes)))
    assert 1 == len(bench_place.mixed_nodes(1))
    assert 1000 == len(bench_place.mixed_tasks())
    assert 120 <= len(set(bench_place.mixed_tasks())) <= 180
