"""A command that needs something and is typed alone says what, and shows a line that has it."""

import os
from collections.abc import Iterator

import pytest

from gpuyard.cli import run
from gpuyard.cli.line.commands import ENTRIES, CommandEntry


def _needy() -> Iterator[tuple[str, CommandEntry]]:
    above = [(name, entry) for name, entry in ENTRIES.items()]
    below = [(f"{name} {inner}", each) for name, entry in above for inner, each in entry.below.items()]
    yield from [(name, entry) for name, entry in above + below if entry.needs[0]]


def test_a_command_typed_alone_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"submit", "run", "simulate", "store copy"} <= dict(_needy()).keys()
    for name, entry in _needy():
        what, example = entry.needs
        assert example.startswith(f"yard {name} ")
        assert 2 == run(name.split())
        said = capsys.readouterr()
        lines = [f"yard {name}: {what}", f"As in: {example}; 'yard {name} --help' lists what it takes."]
        assert ("", lines) == (said.out, said.err.splitlines())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "--since", ""], "yard history: --since is empty: write --since TIME, or leave it out"),
        (["waits", "--by="], "yard waits: --by is empty: write --by BY, or leave it out"),
        (["why", ""], "yard why: which job?"),
        (["show", ""], "yard show: which job?"),
        (["run", ""], "yard: the command is empty"),
        (["submit", "", "x"], "yard: the command is empty"),
        (["export", ""], "yard export: there is no command ''"),
        (["export", "-x", ""], "yard export: there is no option -x"),
    ],
)  # fmt: skip
def test_an_empty_word_says_nothing_and_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(words)
    assert said == capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "who", "hint"),
    [
        ("run -i -g 1 -- bash", "`yard run -i`", "Leave -i out to see the output alone"),
        ("attach 12", "`yard attach`", "`yard logs -f 12` shows what the job writes"),
        ("shell -t 12", "`yard shell -t`", "Leave -t out: without a terminal the command runs in pipes"),
    ],
)
def test_a_command_that_wants_a_terminal_says_what_does_without_one(
    words: str, who: str, hint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _fd: False)
    assert 2 == run(words.split())
    first, second = capsys.readouterr().err.splitlines()
    assert f"yard: {who} needs a terminal, but its input or output is a file or a pipe" == first
    assert f"{hint}; over ssh, `ssh -t` gives a terminal." == second
