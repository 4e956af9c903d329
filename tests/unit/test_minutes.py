"""The table of CI's minutes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "minutes.py"
REPORT = """\
<testsuites><testsuite name="pytest" tests="4" time="150.0">
<testcase classname="tests.slurm.test_admin" name="a" time="90.0"/>
<testcase classname="tests.e2e.test_top" name="b" time="60.5"/>
<testcase classname="tests.e2e.test_top.TestWhole" name="c" time="29.5"/>
<testcase classname="tests.new.test_thing" name="d" time="6.0"/>
</testsuite></testsuites>
"""


@pytest.fixture
def minutes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minutes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_test_is_in_one_row_and_the_sum_is_whole(
    minutes: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert 0 == minutes.main([str(report), "--most", "3"])
    assert [
        "| Slurm | 1 | 1.5 |",
        "| a yard alone | 2 | 1.5 |",
        "| others | 1 | 0.1 |",
        "| together | 4 | 3.1, 2.5 by the clock |",
    ] == capsys.readouterr().out.splitlines()[2:]
    assert 1 == minutes.main([str(report), "--most", "2"])


def test_every_module_that_is_there_has_a_row(minutes: ModuleType) -> None:
    tests = SCRIPT.parents[1] / "tests"
    names = [".".join(path.relative_to(tests).with_suffix("").parts) for path in tests.rglob("test_*.py")]
    assert [] == [name for name in names if minutes.row_of(f"tests.{name}") == minutes.REST]
