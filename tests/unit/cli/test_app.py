"""What holds for every command: help, version, errors without tracebacks, exit codes, where words go."""

import os
import pty
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuyard
from gpuyard import __version__
from gpuyard.cli.commands.foresight.simulate import Format
from gpuyard.cli.line.commands import ENTRIES, CommandEntry
from gpuyard.cli.line.options import PRESETS
from gpuyard.policies import registry
from gpuyard.sim.traces import FORMATS
from harness.patience import patient

from .conftest import Yard, command, environment

STARTUP_CPU_S_MAX = 1.0
"""About eight times what `yard --help` takes on a quiet machine: a test of imports, not of the machine."""

COMMANDS = [
    (),
    ("simulate",),
    ("validate",),
    ("demo",),
    ("bench",),
    ("bench", "simulate"),
    ("bench", "decide"),
    *[(name,) for name in ENTRIES if name not in {"simulate", "validate", "demo", "bench"}],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(yard: Yard, words: tuple[str, ...]) -> None:
    done = yard(*words, "--help")

    assert (0, "") == (done.code, done.err)
    assert done.out.startswith(f"Usage: {' '.join(('yard', *words))}")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert yard(*words, "-h").out == done.out


TYPES = re.compile(
    r"<\w+[^<>(]*>|\b(?:TEXT|INTEGER|PATH|FLOAT)\b|<=x|x>=|\{[A-Z]|\.{4}|\b[Ww]hoever\b|\b[Ww]ho (?:wants|has)\b"
)
"""Words of a language's types or of its parser, and sentences without one of our nouns."""


def test_help_speaks_of_what_people_give(yard: Yard) -> None:
    def pages(path: list[str], entry: CommandEntry) -> Iterator[list[str]]:
        yield path
        for name, below in entry.below.items():
            yield from pages([*path, name], below)

    found = [
        (" ".join(path), line)
        for name, entry in ENTRIES.items()
        if name != "slurm"
        for path in pages([name], entry)
        for line in yard(*path, "--help").out.splitlines()
        if TYPES.search(line)
    ]
    assert [] == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hold"], "yard hold: which job?\nyard hold JOB...; 'yard hold --help' lists what it takes.\n"),
        (["show"], "yard show: which job?\nyard show JOB; "),
        (["logs", "-f"], "yard logs: which job?\nyard logs JOB...; "),
        (["cancel"], "yard: cancel which job?\nyard cancel JOB..., or one of --name"),
        (["drain"], "yard drain: which node?\nyard drain NODE; "),
        (["convert"], "yard convert: which file?\nyard convert FILE; "),
        (["diff"], "yard diff: which file?\nyard diff FILE; "),
        (["token", "create"], "yard token create: which user?\nyard token create --user USER; "),
        (["completion"], "yard completion: bash|zsh|fish is missing\n"),
    ],
)
def test_what_is_missing_is_asked_for(yard: Yard, words: list[str], message: str) -> None:
    done = yard(*words)
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(message)


def test_help_names_the_commands_and_the_options(yard: Yard) -> None:
    assert all(name in yard("--help").out for name in ("simulate", "validate", "demo", "bench", "--version"))
    simulate = yard("simulate", "--help").out
    options = ("--trace", "--format", "--config", "--policy", "--seed", "--report", "--strict", "--gpus",
               "--gpu-model", "--gpus-per-node", "--node-mtbf", "--node-repair", "--spot-trace")  # fmt: skip
    assert [] == [option for option in options if option not in simulate]
    assert all(f"\n{section}:\n" in simulate for section in ("Options", "Fleet", "Trace", "What goes wrong"))


def test_names_that_are_written_twice_are_the_same() -> None:
    """The help lists them without importing what defines them."""
    assert set(FORMATS) == {format.value for format in Format}
    assert set(registry.PRESETS) == set(PRESETS)


def test_version(yard: Yard) -> None:
    assert f"yard {__version__}\n" == yard("--version").out


def test_without_a_command_the_help_is_a_usage_error(yard: Yard) -> None:
    for words in ((), ("bench",)):
        done = yard(*words)
        assert (2, "") == (done.code, done.out)
        assert "Usage: yard" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulat"], "yard: there is no command 'simulat'; did you mean 'simulate'?"),
        (["bench", "decode"], "yard bench: there is no command 'decode'; did you mean 'decide'?"),
        (
            ["simulate", "--polcy", "fifo"],
            "yard simulate: there is no option --polcy; did you mean '--policy'?",
        ),
        (
            ["simulate", "--trace", "x", "--gpus", "0"],
            "yard simulate: --gpus takes 1 or more, not 0",
        ),
        (
            ["simulate", "--trace", "x", "--format", "pdf"],
            "yard simulate: --format takes yard, history, philly, openb, sacct or swf, not 'pdf'",
        ),
        (
            ["simulate", "--trace", "x", "--gpus", "many"],
            "yard simulate: --gpus takes a whole number, not 'many'",
        ),
        (["bench", "decide", "--nodes", "-1"], "yard bench decide: --nodes takes 1 to 1000000, not -1"),
        (["demo", "-o"], "yard demo: there is no option -o"),
    ],
)
def test_usage_errors_say_what_and_where_to_look(yard: Yard, words: list[str], message: str) -> None:
    done = yard(*words)

    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(message)
    assert "--help' lists what it takes." in done.err
    assert "Traceback" not in done.err


def test_help_starts_quickly(process: Yard) -> None:
    """Nothing heavy is imported before a command needs it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < STARTUP_CPU_S_MAX

    code = "import sys, gpuyard.cli.line.commands; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "typing",
        "pydantic",
        "yaml",
        "rich.progress",
        "rich.console",
        "gpuyard.core",
        "gpuyard.sim",
        "gpuyard.config",
        "gpuyard.api",
        "gpuyard.control",
        "gpuyard.store",
    }
    assert set() == heavy & set(loaded.split())


def test_a_reader_that_leaves_is_no_error_to_talk_about(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            command("validate", "--schema"),
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=patient(60),
            check=False,
        )
    assert (1, b"") == (done.returncode, done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_named(jobs: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("simulate", "--trace", jobs, "--gpus", 64),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=patient(60),
            check=False,
        )
    assert 1 == done.returncode
    assert b"yard: No space left on device\nFree some space, and try again.\n" == done.stderr


def test_closed_streams_and_poor_encodings_are_survived(process: Yard, jobs: Path, tmp_path: Path) -> None:
    for redirect in (">&-", "2>&-"):
        words = " ".join(command("simulate", "--trace", jobs, "--gpus", 64))
        assert 0 == subprocess.run(f"{words} {redirect} </dev/null", shell=True, check=False).returncode
    (tmp_path / "ok.yaml").write_text(
        "version: 1\nclusters: {m: {pools: {h: {nodes: 1, gpus: 8 x H100, cpus: 8, memory: 1T}}}}\n"
    )
    done = process("validate", "ok.yaml", PYTHONIOENCODING="ascii")
    summed_up = "ok.yaml: ok ? 0 tenants, 8 GPUs in 1 pool, policy default"
    assert (0, summed_up) == (done.code, done.out.splitlines()[0])


def on_a_terminal(*arguments: object, columns: int = 80, **more: str) -> str:
    """What a terminal gets to see."""
    main, terminal = pty.openpty()
    with subprocess.Popen(
        command(*arguments),
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
        env=environment(TERM="xterm-256color", COLUMNS=str(columns), **more),
    ) as running:
        os.close(terminal)
        seen = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        running.wait(120)
    os.close(main)
    return seen.decode()


def test_colour_is_for_terminals_and_can_be_refused(yard: Yard, jobs: Path) -> None:
    words = ("simulate", "--trace", jobs, "--gpus", 8, "--policy", "fifo", "--policy", "sjf")
    piped = yard(*words)
    assert "\x1b" not in piped.out + piped.err

    coloured, refused = on_a_terminal(*words), on_a_terminal(*words, NO_COLOR="1")
    assert "\x1b[1;32m" in coloured
    assert not re.search(r"\x1b\[[\d;]*3\dm", refused)

    # A policy a line is too wide for this terminal, so there is a policy a column.
    lines = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", coloured).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["policy", "fifo", "sjf"] for line in lines)


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_what_validate_and_support_list_breaks_between_words(
    yard: Yard, tmp_path: Path, columns: int
) -> None:
    file = tmp_path / "ok.yaml"
    file.write_text("version: 1\nclusters: {m: {engine: local, gpus: 8 x H100, emulate: true}}\n")
    bundle = tmp_path / "b.tgz"
    for words in (("validate", file), ("support", bundle, "--data", tmp_path)):
        seen = on_a_terminal(*words, columns=columns).replace("\r", "").splitlines()
        bundle.unlink(missing_ok=True)
        alone = yard(*words).out.splitlines()
        bundle.unlink(missing_ok=True)
        said = {word for line in alone for word in line.split()}
        assert all(len(line) <= columns or " " not in line.strip() for line in seen), seen
        # A time or a size differs from run to run, and no word is cut.
        new = {word for line in seen for word in line.split()} - said
        assert not {word for word in new if not any(letter.isdigit() for letter in word)}, new


def test_a_complaint_on_a_terminal_stands_out_and_breaks_between_words() -> None:
    seen = on_a_terminal("submit", "--isolatio", "x" * 40, "--", "true").replace("\r", "")
    said = "\x1b[1;31myard submit: \x1b[0mthere is no option --isolatio; did you mean '--isolation'?\n"
    assert seen.startswith(said)
    long = on_a_terminal("queue", "-o", "x" * 50, NO_COLOR="1").replace("\r", "").splitlines()
    assert long[:2] == ["yard queue: -o takes table, wide, json, yaml or csv, not", f"'{'x' * 50}'"]


def test_only_the_full_screen_draws_with_rich() -> None:
    source = Path(gpuyard.__file__).parent
    found = [
        path
        for path in source.rglob("*.py")
        if re.search(r"^\s*(from|import) rich\b", path.read_text(), re.M)
    ]
    assert {source / "cli" / "top"} == {path.parent for path in found}
