"""The short way into a command understands what the long way understands, or leaves it alone."""

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.cli import app, group, quick
from gpuyard.cli.lazy import ENTRIES, PLAIN_MODULES
from gpuyard.cli.options import Called, Output
from gpuyard.cli.plain import NotPlain, Parameter, parameters, read

PLAIN = sorted(name for name, entry in ENTRIES.items() if entry.plain)


def declared(name: str) -> Any:
    entry = ENTRIES[name]
    return getattr(import_module(f"gpuyard.cli.{entry.module}"), entry.attribute or name)


def short(name: str, words: list[str]) -> dict[str, Any] | None:
    """What the short way makes of these words; None: it leaves them alone."""
    entry = ENTRIES[name]
    try:
        return (
            read(declared(name), words, carries=entry.words) if words or not entry.no_args_is_help else None
        )
    except NotPlain:
        return None


def long(name: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """What Typer makes of them; None: it complains, or shows its help."""
    seen: list[dict[str, Any]] = []
    entry = ENTRIES[name]
    module = import_module(f"gpuyard.cli.{entry.module}")
    command = declared(name)

    def instead(**values: Any) -> None:
        seen.append(values)

    for part in ("__annotations__", "__doc__"):
        setattr(instead, part, getattr(command, part))
    instead.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(module, entry.attribute or name, instead)
        built = group.built(name, entry)
        try:
            built.main(list(words), prog_name="yard", standalone_mode=False)
        except typer.TyperException:
            return None
    return seen[0] if seen else None


def same(values: dict[str, Any]) -> dict[str, Any]:
    """An option that may be repeated and was not given is None or nothing."""
    return {name: value or None if isinstance(value, list | tuple) and not isinstance(value, Called) else value
            for name, value in values.items()}  # fmt: skip


VALUES = ["1", "0", "2.5", "json", "wide", "x y", "2h", "USR1@60", "a=b", "-", "--", "train.sh", "-1", "", "--nope",
          "17", "12_3", "bash", "pdf", "--watch", "-h"]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_both_ways_read_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [
        word
        for parameter in parameters(declared(name))
        if isinstance(parameter, Parameter)
        for names in parameter.on_off
        for word in names
    ]
    understood = 0

    def check(words: list[str]) -> None:
        nonlocal understood
        brief = short(name, words)
        if brief is None:
            return
        understood += 1
        full = long(name, words, monkeypatch)
        assert full is not None, f"Typer refuses {words}, which the short way reads as {brief}"
        assert same(full) == same(brief), words

    for word in VALUES:
        check([word])
        check(["--", word])
    any_words = st.lists(st.sampled_from([*options, *[f"{o}=2" for o in options], *VALUES]), max_size=5)
    settings(max_examples=60, deadline=None)(given(any_words)(check))()
    assert understood, "nothing was plain"


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["-o", "json"], {"output": Output.JSON}),
        (["--output=csv", "--limit", "5"], {"output": Output.CSV, "limit": 5}),
        (["--state", "PENDING", "--state=RUNNING"], {"state": ["PENDING", "RUNNING"]}),
        (["--watch"], {"watch": 2}),
        (["--watch", "5", "-u", "ana"], {"watch": 5, "user": "ana"}),
        (["-w", "-o", "wide"], {"watch": 2, "output": Output.WIDE}),
    ],
)
def test_plain_words(words: list[str], values: dict[str, Any]) -> None:
    nothing = {"state": None, "tenant": "", "user": "", "mine": False, "limit": None, "tasks": False,
               "output": Output.TABLE, "columns": "", "watch": None}  # fmt: skip
    assert nothing | values == short("queue", words)


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
        ["-x"],
    ],
)
def test_anything_else_is_left_to_the_long_way(words: list[str]) -> None:
    assert short("queue", words) is None


def test_a_command_line_of_its_own_is_left_alone() -> None:
    found = short("run", ["-g", "2", "--", "python3", "-c", "print(1)", "--gpus", "8"])
    assert found is not None
    assert ("2", ["python3", "-c", "print(1)", "--gpus", "8"]) == (found["gpus"], found["words"])
    assert Called(True, frozenset({"gpus", "words"}), ("-g", "2")) == found["ctx"]


def test_dashes_that_belong_to_the_carried_command_are_not_ours() -> None:
    found = short("submit", ["-g", "2", "train.sh", "--", "x"])
    assert found is not None
    assert (False, ("-g", "2")) == (found["ctx"].dashes, found["ctx"].options)
    assert ["train.sh", "--", "x"] == found["words"]


def test_every_plain_module_has_a_command() -> None:
    assert {entry.module for entry in ENTRIES.values()} >= PLAIN_MODULES


def test_it_imports_nothing_that_takes_time() -> None:
    modules = ", ".join(f"gpuyard.cli.{name}" for name in sorted(PLAIN_MODULES))
    code = (
        "import sys, gpuyard.cli.quick, gpuyard.cli.plain, "
        "gpuyard.cli.tables, gpuyard.cli.complaints, "
        f"gpuyard.api.client, {modules}; print(*sorted(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"typer", "pydantic", "rich", "yaml", "http.client", "dataclasses", "inspect", "textual",
             "gpuyard.core", "gpuyard.model"}  # fmt: skip
    assert set() == heavy & set(loaded)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_the_same_page_either_way(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == quick.run([word])
    brief = capsys.readouterr().out
    assert 0 == app.run([word])
    assert brief == capsys.readouterr().out
    assert all(f"\n  {name} " in brief for name in ENTRIES)


def test_a_variable_stands_in_for_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_JOB_ID", "17")
    assert {"job": "17"} == short("checkpoint", []) == long("checkpoint", [], monkeypatch)
    assert {"job": "4"} == short("checkpoint", ["4"])
    monkeypatch.delenv("YARD_JOB_ID")
    assert {"job": ""} == short("checkpoint", [])
