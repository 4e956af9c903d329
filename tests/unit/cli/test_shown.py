"""Text that would steer a terminal, on the faces that show it."""

import csv
import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuyard.cli.commands.jobs import show
from gpuyard.cli.listings.tables import format_table, print_records, write_csv
from gpuyard.cli.terminal import visible_text as module
from gpuyard.cli.terminal.streams import print_notice
from gpuyard.cli.terminal.visible_text import visible_lines, visible_text
from gpuyard.quantities import bytes_text
from gpuyard.reports.table import Column
from gpuyard.wire.endpoints import RECIPE

STEERS = "a\x1b[2J\x07\x9b\u202eb\u2066\u200b\u2028\n\rc\ud800\U000e0041"


def test_what_steers_is_shown_and_all_else_stays() -> None:
    for text in ("", "train-7", "Grüße, 猫 und 🚀", "8\u00a0h", "C:\\x1b"):
        assert text == visible_text(text)
    said = visible_text(STEERS)
    assert (True, True, True) == (
        said.isprintable(),
        said.startswith(r"a\x1b[2J\x07\x9b\u202eb"),
        r"\n\rc" in said,
    )
    assert "one\ntwo \\x1b[1m" == visible_lines("one\ntwo \x1b[1m")


@pytest.mark.parametrize("output", ["table", "wide", "csv", "yaml", "json"])
def test_a_listing_sends_nothing_of_it(capsys: pytest.CaptureFixture[str], output: str) -> None:
    text = STEERS.replace("\ud800", "")
    columns = [Column("NAME", lambda each: each["name"]), Column("WHY", lambda each: each["why"])]
    print_records([{"name": "x", "why": text}, {"name": "y", "why": "fine"}], columns, output)
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    if output == "csv":
        assert [["name", "why"], ["x", visible_text(text)], ["y", "fine"]] == list(
            csv.reader(io.StringIO(out))
        )
    elif output in ("yaml", "json"):
        read = json.loads(out) if output == "json" else yaml.safe_load(out)
        assert text == read[0]["why"], "a program gets it as it is"
    else:
        assert 3 == len(out.splitlines())


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            40,
            [
                "REQUEST  BY",
                "cores    the cgroup of the job, which",
                "         the kernel holds to them",
                "files    none",
            ],
        ),
        (22, ["REQUEST  BY", "cores    the cgroup o…", "files    none"]),
        (
            80,
            [
                "REQUEST  BY",
                "cores    the cgroup of the job, which the kernel holds to them",
                "files    none",
            ],
        ),
    ],
    ids=["goes on below", "no width for it", "has room"],
)
def test_a_sentence_goes_on_below_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, lines: list[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1)
    monkeypatch.setattr("os.get_terminal_size", lambda *_fd: os.terminal_size((width, 24)))
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [["cores", "the cgroup of the job, which the kernel holds to them"], ["files", "none"]]
    format_table([Column("REQUEST", lambda row: row[0]), Column("BY", lambda row: row[1], wraps=True)], rows)
    assert lines == capsys.readouterr().out.splitlines()


def test_a_notice_sends_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_notice(f"job 7 failed: {STEERS}", before="yard: ")
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_there_is_one_such_function() -> None:
    """A face that cleans text by itself would forget what the next one knows."""
    folder = Path(module.__file__).parent
    own = [
        path.name for path in folder.rglob("*.py") if "isprintable() else" in path.read_text(encoding="utf-8")
    ]
    assert [] == [name for name in own if name != "visible_text.py"]


STEERING = {"env": {"A\x1b[2J": "\u202ex\r"}, "script": "#!/bin/sh\n\tx \x1b]0;title\x07\n"}
"""How a job is run that was sent with text that steers terminals."""


@pytest.mark.parametrize("terminal", [True, False])
def test_environment_and_script_steer_no_terminal_and_are_exact_elsewhere(
    terminal: bool, answering_yard: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering_yard({RECIPE: STEERING})
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    show.show("1", env=True)
    show.show("1", script=True)
    exact = "A\x1b[2J='\u202ex\r'\n#!/bin/sh\n\tx \x1b]0;title\x07\n"
    plain = "A\\x1b[2J='\\u202ex\\r'\n#!/bin/sh\n\tx \\x1b]0;title\\x07\n"
    assert (plain if terminal else exact) == capsys.readouterr().out


def test_a_size_has_the_unit_that_fits_it() -> None:
    assert ["0 B", "12 B", "1.5 KiB", "3.0 MiB", "2,048.0 TiB"] == [
        bytes_text(count) for count in (0, 12, 1536, 3 << 20, 2048 << 40)
    ]


def test_a_cell_of_csv_is_no_formula_and_a_number_stays_one() -> None:
    harmful = ["=cmd|' /C calc'!A0", "+1+HYPERLINK(1)", "-2+cmd", "@SUM(A1)", "\t=1+x"]
    numbers = [-3, -0.5, "-3", "-$0.0043", "-12.5 %"]
    written = io.StringIO()
    with redirect_stdout(written):
        write_csv(
            ["=name", "tenant,a"],
            [["=1+x", 'say "hi"'], *[[text, number] for text, number in zip(harmful, numbers, strict=True)]],
        )

    head, first, *rest = written.getvalue().splitlines()
    assert ('\'=name,"tenant,a"', '\'=1+x,"say ""hi"""') == (head, first)
    assert all(line.startswith(("'=", "'+", "'-", "'@", "'\\t")) for line in rest)
    assert ["-3", "-0.5", "-3", "-$0.0043", "-12.5 %"] == [line.rpartition(",")[2] for line in rest]
