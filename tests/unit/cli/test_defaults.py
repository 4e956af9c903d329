"""What a person wants unless something else is said: a few lines in a file, checked, and YARD_TENANT before them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.commands.submit import jobfields
from gpuyard.cli.connection.defaults import read, read_defaults
from gpuyard.cli.line.options import Called
from gpuyard.errors import BadInput


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("YARD_TENANT", raising=False)
    (tmp_path / "gpuyard").mkdir()
    return tmp_path / "gpuyard" / "defaults.yaml"


def test_the_environment_goes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {} == read_defaults()
    file.write_text("# mine\n---\ntenant: research/ana  # home\npool: [a100, h100]\ntime: '2h'\n\ngpus: 1\n")
    assert {"tenant": "research/ana", "pool": "a100,h100", "time": "2h", "gpus": "1"} == read_defaults()
    monkeypatch.setenv("YARD_TENANT", "product")
    assert "product" == read_defaults()["tenant"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tenant: a\ntennant: b\n", "d:2: unknown key 'tennant'; did you mean 'tenant'?"),
        ("tenant: a\ntenant: b\n", "d:2: 'tenant' occurs twice"),
        ("- tenant\n", "d:1: is not `name: value`"),
        ("pool:\n  - a\n", "d:1: has no value"),
        ("pool: [a,\n", "d:1: has a list that does not end"),
        ("time: '2h\n", "d:1: has a quote that does not end"),
        ("time: {a: 1}\n", "d:1: must be a text"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(text, "d")
    assert caught.value.message.startswith(says)


def completed(given: dict[str, Any], *said: str) -> dict[str, Any]:
    return jobfields.complete_request(Called(False, frozenset(said)), {"gpus": 0} | given)


def test_what_is_said_goes_before_the_defaults(file: Path) -> None:
    file.write_text("tenant: research\nclass: batch\npool: a100\ntime: 1:30:00\ngpus: 0.25\n")
    assert completed({}) == {
        "tenant": "research", "class": "batch", "pools": ["a100"], "time_limit_s": 5400, "gpus": 1, "gpu_milli": 250,
    }  # fmt: skip
    assert ("product", 0) == (
        completed({"tenant": "product"}, "gpus")["tenant"],
        completed({}, "gpus")["gpus"],
    )
    assert "gpu_milli" not in completed({"gpu_memory_mib": 8}, "gpu_memory")
    assert "gpus" not in jobfields.read_fallbacks(gpus=False), "a file with directives says what it needs"


def test_a_default_that_makes_no_sense_is_named_with_its_file(file: Path) -> None:
    file.write_text("time: soon\n")
    with pytest.raises(BadInput, match=r"defaults\.yaml: time must be a duration"):
        completed({})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("ana may not submit for research: ana has product here", True),
        ("ana may not submit for research/eli: ana has product here", False),
        ("the tenant has no such class", True),
        ("there is nothing to run", False),
    ],
)
def test_a_tenant_of_the_file_that_is_refused_is_named_with_the_file(
    file: Path, message: str, said: bool
) -> None:
    file.write_text("tenant: research\n", encoding="utf-8")
    error = jobfields.blame_default(BadInput(message), {"tenant": "research"})
    assert said == (f"The tenant research is from {file}." in error.hint)


def test_a_folder_of_somebody_else_holds_no_defaults(file: Path) -> None:
    """`sudo -u` keeps HOME: the command of that user is not refused for a folder that it cannot look into."""
    file.write_text("tenant: research\n", encoding="utf-8")
    file.parent.chmod(0o700)
    program = (
        "import os; from gpuyard.cli.connection.defaults import read_defaults; "
        "os.setuid(65534); print(read_defaults())"
    )
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ("{}\n", "") == (done.stdout, done.stderr)
