"""The short way of `yard queue` understands what the long way understands, or leaves it alone."""

import subprocess
import sys

import pytest

from gpuyard.cli.lazy import ENTRIES, build
from gpuyard.cli.listing import Output
from gpuyard.cli.quick import _OUTPUTS, _VALUES, options_of


def test_it_knows_every_option_and_every_form() -> None:
    command = build("queue", ENTRIES["queue"])
    assert set(_VALUES) == {opt for param in command.params for opt in param.opts if param.name != "help"}
    assert list(_OUTPUTS) == [output.value for output in Output]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {}),
        (["-o", "json"], {"output": ["json"]}),
        (["--output=csv", "--limit", "5"], {"output": ["csv"], "limit": ["5"]}),
        (["--state", "PENDING", "--state=RUNNING"], {"state": ["PENDING", "RUNNING"]}),
    ],
)
def test_plain_words(words: list[str], options: dict[str, list[str]]) -> None:
    assert options == options_of(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["x"],
        ["-o"],
        ["-o", "pdf"],
        ["--limit", "0"],
        ["--limit", "-1"],
        ["-ojson"],
        ["--"],
    ],
)
def test_anything_else_is_left_to_the_long_way(words: list[str]) -> None:
    assert options_of(words) is None


def test_it_imports_nothing_that_takes_time() -> None:
    code = "import sys, gpuyard.cli.quick, gpuyard.cli.queue_table, gpuyard.cli.tables; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "typer",
        "pydantic",
        "rich",
        "yaml",
        "http.client",
        "dataclasses",
        "inspect",
        "gpuyard.core",
        "gpuyard.model",
    }
    assert set() == heavy & set(loaded)
