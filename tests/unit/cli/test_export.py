"""`yard export`: to standard output or into a folder, and which yard it names."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from unit.cli.conftest import Yard, command, environment


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("YARD_URL", raising=False)
    monkeypatch.delenv("YARD_SERVER", raising=False)
    monkeypatch.setenv("YARD_DATA", str(tmp_path / "data"))


def test_the_scrape_file_names_the_yard_that_commands_ask(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def targets() -> list[str]:
        (found,) = yaml.safe_load(yard("export", "prometheus").out)["scrape_configs"]
        return [found["scheme"], *found["static_configs"][0]["targets"]]

    assert ["http", "127.0.0.1:7447"] == targets(), "no yard is known"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "yard.pid").write_text('{"port": 7451}', encoding="utf-8")
    assert ["http", "127.0.0.1:7451"] == targets(), "the yard of this machine"
    monkeypatch.setenv("YARD_URL", "https://yard.example.org")
    assert ["https", "yard.example.org:443"] == targets()
    refused = yard("export", "prometheus", "--server", "nonsense")
    assert (2, True) == (refused.code, "is not an address" in refused.err)


def test_dashboards_go_into_a_folder_or_one_to_standard_output(yard: Yard, tmp_path: Path) -> None:
    done = yard("export", "grafana", "--to", tmp_path / "boards")
    written = sorted((tmp_path / "boards").iterdir())

    assert (0, 7) == (done.code, len(written))
    assert [str(path) for path in written] == sorted(done.out.splitlines())
    one = yard("export", "grafana", "queue")
    assert "gpuyard-queue" == json.loads(one.out)["uid"]
    assert one.out == (tmp_path / "boards" / "gpuyard-queue.json").read_text(encoding="utf-8")
    assert (2, True) == ((every := yard("export", "grafana")).code, "Add --to DIR" in every.err)
    assert (2, True) == ((none := yard("export", "grafana", "x")).code, "gpus, jobs, racks" in none.err)
    (tmp_path / "file").touch()
    assert 2 == yard("export", "fluent-bit", "--to", tmp_path / "file").code


def test_a_list_that_nobody_reads_is_no_folder_that_cannot_be_written(tmp_path: Path) -> None:
    words = command("export", "grafana", "--to", str(tmp_path / "boards"))
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            words, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (1, "yard: No space left on device") == (done.returncode, done.stderr.splitlines()[0])
    assert 7 == len([*(tmp_path / "boards").iterdir()])
