"""`yard slurm import` from saved files: what is written, what is said, what is refused."""

import re
from pathlib import Path

import pytest

from gpuyard.cli import run
from gpuyard.config.reading import load
from gpuyard.control.fleet import choose_fleet
from unit.cli.conftest import Done, Yard

RECORDED = Path(__file__).parents[2] / "engines" / "slurm_22_05"


@pytest.fixture
def slurm(capfd: pytest.CaptureFixture[str], yard: Yard):
    def call(*arguments: object) -> Done:
        capfd.readouterr()
        code = run(["slurm", *map(str, arguments)])
        written = capfd.readouterr()
        assert code is not None
        return Done(code, written.out, written.err)

    return call


def test_one_command_reads_a_site_and_one_replays_it(slurm, yard: Yard) -> None:
    done = slurm("import", "--files", RECORDED, "--dir", "site")

    assert (0, "") == (done.code, done.err)
    assert "yardrig, Slurm 22.05.8: 4 nodes, 32 GPUs, 4 accounts, 3 QOS, 15 jobs\n" in done.out
    assert "Replay it: yard simulate --trace site/trace.csv --config site/yard.yaml" in done.out
    assert {"yard.yaml", "trace.csv", "notes.txt", "sacct.txt"} == {
        path.name for path in Path("site").iterdir()
    }
    again = yard("simulate", "--trace", "site/trace.csv", "--config", "site/yard.yaml", "-o", "csv")
    assert 0 == again.code
    assert "slurm" in again.out
    assert 0 == yard("validate", "site/yard.yaml").code


def test_the_trace_has_who_what_and_when(slurm) -> None:
    slurm("import", "--files", RECORDED, "--dir", "site")

    lines = Path("site/trace.csv").read_text().splitlines()
    assert "submit,run_s,limit_s,tenant,class,gpus,tasks,gpu_model,cpus,memory_mib" == lines[0]
    assert "2026-11-15T10:30:05.000Z,3,300,research/nlp/nobody,normal,2,,,4,4096" == lines[1]
    # A gang of 4 nodes x 8, and a requeued job that counts from when it could start again.
    assert "2026-11-15T10:30:11.000Z,3,120,root,high,8,4,,1,1024" in lines
    assert "2026-11-15T10:30:17.000Z,3,60,root,normal,1,,,1,1024" in lines


def test_two_sites_in_one_file(slurm, yard: Yard, tmp_path: Path) -> None:
    """Both have a partition `main` and the same accounts; one of them gives an account another share."""
    other = tmp_path / "other"
    other.mkdir()
    for path in RECORDED.iterdir():
        if path.is_file():
            (other / path.name).write_text(path.read_text(encoding="utf-8").replace("yardrig", "second"))
    slurm("import", "--files", RECORDED, "--dir", "site")
    again = slurm("import", "--files", RECORDED, "--add-to", "site/yard.yaml", "--dir", "same")
    done = slurm("import", "--files", other, "--add-to", "site/yard.yaml", "--dir", "both")

    assert "there is a cluster 'yardrig' in the file already" in again.err
    assert (2, 0) == (again.code, done.code), done.err
    config = load("both/yard.yaml")
    fleet = choose_fleet(config, "")
    assert ["yardrig", "second"] == [cluster.name for cluster in fleet.clusters if cluster.observed]
    assert {"yardrig": False, "second": False} == config.settings.observed
    one = load("site/yard.yaml")
    assert one.settings.tenants == config.settings.tenants
    pools = {cluster: list(each.pools) for cluster, each in config.clusters.items()}
    assert [f"second-{name}" for name in pools["yardrig"]] == pools["second"]
    assert f"pool '{pools['yardrig'][0]}' is also in another cluster" in Path("both/notes.txt").read_text()
    assert 0 == yard("validate", "both/yard.yaml").code


def test_nothing_is_overwritten_unless_asked(slurm) -> None:
    slurm("import", "--files", RECORDED, "--dir", "site")
    Path("site/yard.yaml").write_text("mine")

    done = slurm("import", "--files", RECORDED, "--dir", "site")

    assert (2, "mine") == (done.code, Path("site/yard.yaml").read_text())
    assert "site/yard.yaml already exists; nothing was written" in done.err
    assert 0 == slurm("import", "--files", RECORDED, "--dir", "site", "--force").code


def test_the_commands_are_those_whose_files_are_read(slurm) -> None:
    done = slurm("import", "--commands", "--since", "7d")

    assert 0 == done.code
    assert "sacct --allusers --allocations --duplicates --parsable2 --starttime=now-7days" in done.out
    # A name that holds lines makes no rows in what is saved either.
    assert re.search(r" '--delimiter=\|[A-Za-z0-9_-]{12}' > jobs.txt", done.out)
    named = {line.rpartition("> ")[2] for line in done.out.splitlines() if "> " in line}
    assert named <= {path.name for path in RECORDED.iterdir()}
    assert 8 == len(named)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--files", "nowhere"), 2, "nowhere/config.txt: No such file or directory"),
        (("--conf", "nowhere"), 2, "--conf nowhere: No such file or directory"),
        (("--since", "soon"), 2, "--since 'soon' is not a time"),
        (("--files", RECORDED, "--conf", "/dev/null"), 2, "two ways to read a cluster"),
        (("--files", RECORDED, "--gpu-type", "a100=A100-40G"), 2, "did you mean 'A100-40GB'?"),
        (("--fils", "x"), 2, "there is no option --fils; did you mean '--files'?"),
    ],
)
def test_what_is_wrong_is_said(slurm, words: tuple[object, ...], code: int, complaint: str) -> None:
    done = slurm("import", *words)

    assert code == done.code
    assert complaint in done.err
    assert not Path("yard.yaml").exists()
