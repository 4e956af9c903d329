"""Every command line is read by one reader, by the same rules: names in full, options anywhere, `--` left alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.cli.line.commands import ALIASES, ENTRIES, CommandEntry
from gpuyard.cli.line.options import Called, HelpWanted, Output, Parameter, list_parameters, read
from gpuyard.cli.slurm.face import COMMANDS as OF_SLURM
from gpuyard.errors import Misuse

from .conftest import Yard

GOLDEN = Path(__file__).with_name("help.txt")


def walked() -> Iterator[tuple[list[str], CommandEntry]]:
    """All commands, those of groups too."""

    def below(path: list[str], entry: CommandEntry) -> Iterator[tuple[list[str], CommandEntry]]:
        yield path, entry
        for name, each in entry.below.items():
            yield from below([*path, name], each)

    for name, entry in ENTRIES.items():
        if name != "slurm":
            yield from below([name], entry)
    for name, entry in OF_SLURM.items():
        yield ["slurm", name], entry


COMMANDS = [(path, entry) for path, entry in walked() if not entry.about]
NAMES = [" ".join(path) for path, _ in COMMANDS]


def declared(path: list[str], entry: CommandEntry) -> list[Parameter]:
    return [each for each in list_parameters(entry.function(path[-1])) if isinstance(each, Parameter)]


def queue(*words: str) -> dict[str, Any]:
    return read(ENTRIES["queue"].function("queue"), words, "yard queue")


def submit(*words: str) -> dict[str, Any]:
    return read(ENTRIES["submit"].function("submit"), words, "yard submit", carries=True)


def test_the_help_of_every_command_is_as_it_was(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """`UPDATE_GOLDEN=1` rewrites the file. A diff is a change that users see: it belongs into the CHANGELOG."""
    monkeypatch.setenv("COLUMNS", "100")
    lines = [[], *[path for path, _ in walked()], ["slurm"], *[[alias] for alias in ALIASES]]
    pages = {tuple(path): yard(*path, "--help") for path in lines}
    assert {(0, "")} == {(page.code, page.err) for page in pages.values()}
    found = "\n".join([f"$ yard {' '.join([*path, '--help'])}\n{page.out}" for path, page in pages.items()])
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(found, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == found


@pytest.mark.parametrize(("path", "entry"), COMMANDS, ids=NAMES)
def test_what_no_command_takes_is_refused(path: list[str], entry: CommandEntry, yard: Yard) -> None:
    options = [
        (word, each)
        for each in declared(path, entry)
        for names in each.on_off
        for word in names
        if word[:2] == "--"
    ]
    known = {word for word, _ in options}
    shortened = [word[:-1] for word, _ in options if len(word) > 4 and word[:-1] not in known]
    unknown = ["--no-such-option", "-Z", *shortened]
    if any(getattr(each.says, "unknown", False) for each in declared(path, entry)):
        # Its words are options of another command.
        unknown = ["-Z"]
    forgotten = [
        word for word, each in options if each.kind is not bool and not getattr(each.says, "bare", "")
    ]
    flags = [f"{word}=x" for word, each in options if each.kind is bool]
    for word in (*unknown, *forgotten, *flags):
        done = yard(*path, word)
        assert (2, "") == (done.code, done.out), word
        assert done.err.startswith(f"yard {' '.join(path)}: "), word
        assert f"'yard {' '.join(path)} --help' lists what it takes.\n" in done.err, word


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["-o", "json"], {"output": Output.JSON}),
        (["-ojson"], {"output": Output.JSON}),
        (["--output=csv", "--limit", "5"], {"output": Output.CSV, "limit": 5}),
        (["--state", "PENDING", "--state=RUNNING"], {"state": ["PENDING", "RUNNING"]}),
        (["--watch"], {"watch": 2}),
        (["--watch", "5", "-u", "ana"], {"watch": 5, "user": "ana"}),
        (["-w", "-o", "wide"], {"watch": 2, "output": Output.WIDE}),
        (["-w5", "--user=--mine"], {"watch": 5, "user": "--mine"}),
    ],
)
def test_options_are_read(words: list[str], values: dict[str, Any]) -> None:
    nothing = {each.name: each.default for each in declared(["queue"], ENTRIES["queue"])}
    assert (None, False, Output.TABLE) == (nothing["state"], nothing["mine"], nothing["output"])
    assert nothing | values == queue(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x"], "it takes no word such as 'x'"),
        (["-o"], "-o needs a value: -o FORM"),
        (
            ["-u", "--mine"],
            "-u needs a value: -u USER; --mine is not a value, unless it is written -u=--mine",
        ),
        (["-o", "jsn"], "-o takes table, wide, json, yaml or csv, not 'jsn'; did you mean 'json'?"),
        (["--limit", "0"], "--limit takes 1 or more, not 0"),
        (["--limit", "1_0"], "--limit takes a whole number, not '1_0'"),
        (["--limit", "9" * 19], f"--limit takes a whole number, not '{'9' * 19}'"),
        (["--limit", "nan"], "--limit takes a whole number, not 'nan'"),
        (["--limi", "3"], "there is no option --limi; did you mean '--limit'?"),
        (["--mine=1"], "--mine takes no value: write --mine alone"),
        (["-x"], "there is no option -x"),
        (["--watch=0"], "--watch takes 1 to 86400, not 0"),
    ],
)
def test_a_misuse_is_told(words: list[str], message: str) -> None:
    with pytest.raises(Misuse) as found:
        queue(*words)
    assert (message, 2) == (found.value.message, found.value.exit_code)


def test_a_command_line_of_its_own_is_left_alone() -> None:
    found = submit("-g", "2", "--", "python3", "-c", "print(1)", "--gpus", "8", "--help")
    assert ("2", ["python3", "-c", "print(1)", "--gpus", "8", "--help"]) == (found["gpus"], found["words"])
    assert vars(Called(True, frozenset({"gpus", "words"}), ("-g", "2"))) == vars(found["ctx"])


def test_dashes_that_belong_to_the_carried_command_are_not_ours() -> None:
    found = submit("-g", "2", "train.sh", "--", "x")
    assert (False, ("-g", "2")) == (found["ctx"].dashes, found["ctx"].options)
    assert ["train.sh", "--", "x"] == found["words"]


@given(st.lists(st.text(max_size=6), min_size=1, max_size=6))
def test_words_after_the_dashes_stay_as_they_are(words: list[str]) -> None:
    assert words == submit("--", *words)["words"]


def test_options_may_follow_operands_and_flags_may_share_a_word() -> None:
    logs = ENTRIES["logs"].function("logs")
    assert read(logs, ["-f", "7", "--stderr"]) == read(logs, ["7", "--stderr", "-f"])
    up = ENTRIES["up"].function("up")
    assert (True, Path("x")) == (read(up, ["-dcx"])["detach"], read(up, ["-dcx"])["config"])


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--mine", "--help"], ["--limit", "3", "-h"]])
def test_help_is_wanted_wherever_it_stands_among_the_options(words: list[str]) -> None:
    with pytest.raises(HelpWanted):
        queue(*words)


def test_help_is_a_command_too(yard: Yard) -> None:
    assert yard("--help") == yard("help")
    assert yard("mig", "plan", "--help") == yard("help", "mig", "plan")


def test_commands_that_people_wait_for_import_nothing_that_takes_time() -> None:
    names = [
        "gpuyard.cli.commands.yard.defrag",
        "gpuyard.cli.commands.yard.down",
        "gpuyard.cli.commands.jobs.eta",
        "gpuyard.cli.commands.jobs.history",
        "gpuyard.cli.commands.jobs.logs",
        "gpuyard.cli.commands.yard.nodes",
        "gpuyard.cli.commands.yard.upkeep",
        "gpuyard.cli.commands.jobs.queue",
        "gpuyard.cli.commands.reports",
        "gpuyard.reports.audit",
        "gpuyard.reports.gpus",
        "gpuyard.reports.nodes",
        "gpuyard.reports.tenants",
        "gpuyard.cli.commands.submit.run",
        "gpuyard.cli.commands.people.share",
        "gpuyard.cli.commands.jobs.show",
        "gpuyard.cli.commands.submit.submit",
        "gpuyard.cli.commands.jobs.verbs",
        "gpuyard.cli.commands.jobs.why",
        "gpuyard.cli.listings.tables",
        "gpuyard.cli.line.commands",
    ]
    code = f"import sys, gpuyard.api.client, {', '.join(names)}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"typer", "click", "argparse", "pydantic", "rich", "yaml", "http.client", "dataclasses", "inspect",
             "textual", "difflib", "gpuyard.core", "gpuyard.model", "gpuyard.config"}  # fmt: skip
    assert set() == heavy & set(loaded)


@pytest.mark.parametrize(("text", "number"), [("0.5", 0.5), ("1e-3", 0.001), ("+2", 2.0), ("nan", None), ("inf", None),
                                              ("1_0", None), ("e", None), ("", None), ("1.2.3", None)])  # fmt: skip
def test_cores_are_a_number(text: str, number: float | None) -> None:
    if number is not None:
        assert number == submit("--cpus", text, "--", "true")["cpus"]
        return
    with pytest.raises(Misuse, match="--cpus takes a number"):
        submit("--cpus", text, "--", "true")
