"""Every planted fault is caught: the source is copied, the fault is planted, and the tests named for it must fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from planted.faults import FAULTS, Planted

ROOT = Path(__file__).resolve().parents[2]
NOT_SHRUNK = """
from hypothesis import Phase, settings
settings.register_profile("planted", phases=(Phase.explicit, Phase.generate))
settings.load_profile("planted")
"""
"""A plugin: that some drawn history fails is enough, and to find the shortest one takes minutes."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_text_is_where_the_fault_is_planted(fault: Planted) -> None:
    text = (ROOT / "src" / "gpuyard" / fault.file).read_text(encoding="utf-8")
    assert 1 == text.count(fault.before), "the source has changed: plant it anew"
    named = [word.partition("::")[0] for word in fault.tests.split() if word.startswith("tests/")]
    assert named
    assert [] == [path for path in named if not (ROOT / path).exists()], "the tests that catch it have moved"


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault: Planted, tmp_path: Path) -> None:
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    file = tmp_path / "src" / "gpuyard" / fault.file
    file.write_text(file.read_text(encoding="utf-8").replace(fault.before, fault.after), encoding="utf-8")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "not_shrunk.py").write_text(NOT_SHRUNK, encoding="utf-8")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "not_shrunk"]
    path = f"{tmp_path / 'src'}:{tmp_path / 'plugins'}"
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *fault.tests.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert 1 == found.returncode, f"nothing failed:\n{found.stdout[-2000:]}{found.stderr[-500:]}"
