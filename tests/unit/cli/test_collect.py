"""`yard collect`: what it does while the yard is away or says no, and the unit that it prints."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.api.client import NoServer, Refused
from gpuyard.cli.commands.yard.collect import _Process, collect
from gpuyard.errors import BadInput
from gpuyard.telemetry.samples import KernelLine


class Eyes:
    """A collector that sees one more of something at every look."""

    looks: tuple[()] = ()

    def __init__(self) -> None:
        self.seen = 0
        self.on_gpus: dict[int, set[str]] = {}

    def take(self, _now_ms: int) -> dict[str, int | float]:
        self.seen += 1
        return {"node/memory_used": self.seen, "node/memory_available": float("nan")}

    def lines(self) -> list[KernelLine]:
        return []

    def close(self) -> None:
        pass


class Yard:
    """A yard that answers as it is told to."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.off_ms = 0
        self.taken: list[int | None] = []
        self.faults: dict[str, int] = {}

    def hand_in(self, node: str, batch: dict[str, Any]) -> dict[str, Any]:
        if self.trouble is not None:
            raise self.trouble
        self.taken += batch["series"]["node/memory_used"]
        self.faults = batch["faults"]
        return {"node": node, "taken": len(batch["at_ms"]), "clock_off_ms": self.off_ms}


def made() -> tuple[_Process, Yard]:
    yard = Yard()
    return _Process("n1", Eyes(), yard, 10), yard  # type: ignore[arg-type]


def test_samples_wait_while_the_yard_is_away_and_are_handed_in_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    process, yard = made()
    yard.trouble = NoServer("no yard answers")
    for _turn in range(3):
        process._look()
        assert 0.0 == process._hand_in(False)
    yard.trouble = None
    process._look()
    process._hand_in(False)
    process._hand_in(False)

    assert [1, 2, 3, 4] == yard.taken
    assert {"no number": 4} == yard.faults
    said = capsys.readouterr().err
    assert (1, 1) == (said.count("samples wait here"), said.count("all is well again"))


def test_a_collector_that_is_refused_asks_less_often_and_keeps_its_samples() -> None:
    process, yard = made()
    yard.trouble = Refused(401, {"detail": "the token was revoked"})
    process._look()

    assert 60.0 == process._hand_in(False)
    yard.trouble = None
    process._hand_in(False)
    assert [1] == yard.taken


def test_a_batch_that_the_yard_does_not_understand_is_not_sent_for_ever() -> None:
    process, yard = made()
    yard.trouble = Refused(422, {"detail": "no"})
    process._look()
    process._hand_in(False)
    yard.trouble = None
    process._look()
    process._hand_in(False)

    assert [2] == yard.taken


def test_a_clock_that_is_off_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    process, yard = made()
    yard.off_ms = -60_000
    for _turn in range(2):
        process._look()
        process._hand_in(False)

    assert 1 == capsys.readouterr().err.count("the clock of this machine is 60 s ahead of the yard's")


def test_the_unit_has_the_options_and_says_how_to_make_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect(server="https://yard:7447", token_file=tmp_path / "t", node="n7", slurm=tmp_path, unit=True)
    text = capsys.readouterr().out

    assert (
        f"collect --server https://yard:7447 --token-file {tmp_path}/t --node n7 --slurm {tmp_path}\n" in text
    )
    assert "yard token create --role collector --user n7" in text
    with pytest.raises(BadInput, match="needs --server and --token-file"):
        collect(unit=True)


def test_a_token_file_or_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("yard_x")
    with pytest.raises(BadInput, match="No such file"):
        collect(server="http://127.0.0.1:9", token_file=tmp_path / "none")
    with pytest.raises(BadInput, match="is not a shared folder"):
        collect(server="http://127.0.0.1:9", token_file=tmp_path / "t", slurm=tmp_path)


def test_dcgm_exporter_reads_which_job_is_on_which_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "5").write_text("left by a collector that was killed\n")
    (folder / "README").write_text("not ours\n")
    eyes = Eyes()
    process = _Process("n1", eyes, Yard(), 10, folder)  # type: ignore[arg-type]

    def there() -> dict[str, str]:
        return {each.name: each.read_text() for each in folder.iterdir() if each.name != "README"}

    eyes.on_gpus = {0: {"y-18fe-12-1"}, 1: {"y-18fe-12-1", "y-18ff-7-3"}, 2: set()}
    process._look()
    assert {"0": "12\n", "1": "7\n12\n"} == there()
    eyes.on_gpus = {0: {"y-18fe-13-1"}, 1: set(), 2: set()}
    process._look()
    assert {"0": "13\n"} == there()

    assert process._files is not None
    process._files.close()
    assert {} == there()
    process._files._folder = str(tmp_path / "jobs" / "README")
    process._look()
    process._look()
    assert 1 == capsys.readouterr().err.count("jobs are not written for dcgm-exporter"), (
        "said once; looking goes on"
    )
    assert 4 == eyes.seen
