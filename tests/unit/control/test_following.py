"""Which projections follow the log: registered by a program, or found in installed packages."""

from pathlib import Path

import pytest

from gpuyard.control.projections import Projection, register, registry
from gpuyard.errors import YardError
from rigs.gpu_time import GpuTime


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def installed(folder: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gpuyard.projections]\nmine = {where}\n")
    monkeypatch.syspath_prepend(folder)


def test_a_program_registers_its_own() -> None:
    assert ["fleet", "ledger", "waits"] == [each.name for each in registry.list_projections()]
    mine = GpuTime()
    register(mine)
    assert mine in registry.list_projections()
    assert ["fleet", "gpu-time", "ledger", "waits"] == [each.name for each in registry.list_projections()]


def test_those_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "rigs.gpu_time:GpuTime", monkeypatch)
    assert ["fleet", "gpu-time", "ledger", "waits"] == [each.name for each in registry.list_projections()]


def test_one_that_cannot_be_loaded_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "rigs.gpu_time:Nothing", monkeypatch)
    with pytest.raises(YardError, match=r"the projection mine \(rigs\.gpu_time:Nothing\) cannot be loaded"):
        registry.list_projections()


@pytest.mark.parametrize(
    ("name", "version", "wrong"),
    [
        ("", 1, "'' is not a name"),
        ("Gpu Time", 1, "'Gpu Time' is not a name"),
        ("x", 0, "projection x has version 0"),
    ],
)
def test_a_name_and_a_version_are_needed(name: str, version: int, wrong: str) -> None:
    mine = type("Mine", (Projection,), {"name": name, "version": version})
    with pytest.raises(YardError, match=wrong):
        register(mine())
