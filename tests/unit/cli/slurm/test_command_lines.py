"""Command lines are read as the C library reads them, and refused in its words."""

import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from gpuyard.cli import run
from gpuyard.cli.slurm.commands import sstat
from gpuyard.cli.slurm.language.getopt import Grammar, parse_option_table, read
from gpuyard.cli.slurm.language.stopping import Stop
from gpuyard.wire.endpoints import JOB
from harness.patience import patient

GRAMMAR = Grammar(
    "squeue",
    parse_option_table("format,o= long,l noheader,h jobs,j? sort,S= start states,t= users=:user user,u="),
)


@pytest.mark.parametrize(
    ("words", "given", "rest"),
    [
        ([], [], []),
        (["-o", "%i"], [("format", "%i")], []),
        (["-o%i"], [("format", "%i")], []),
        (["-ho%i %j"], [("noheader", ""), ("format", "%i %j")], []),
        (["--format=%i"], [("format", "%i")], []),
        (["--format", "%i"], [("format", "%i")], []),
        (["--form=%i"], [("format", "%i")], []),
        (["--us", "root"], [("user", "root")], []),
        (["--users=root"], [("user", "root")], []),
        (["-j", "17"], [("jobs", "")], ["17"]),
        (["-j17"], [("jobs", "17")], []),
        (["x", "-l", "y"], [("long", "")], ["x", "y"]),
        (["-l", "--", "-h"], [("long", "")], ["-h"]),
        (["-"], [], ["-"]),
        (["-o", ""], [("format", "")], []),
    ],
)
def test_it_is_read(words: list[str], given: list[tuple[str, str]], rest: list[str]) -> None:
    assert (given, rest) == tuple(read(GRAMMAR, words))


def test_the_first_other_word_ends_the_options_where_a_command_follows() -> None:
    found = read(GRAMMAR._replace(anywhere=False), ["-l", "script", "-h"])
    assert ([("long", "")], ["script", "-h"]) == tuple(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--foo"], "squeue: unrecognized option '--foo'"),
        (["--foo=3"], "squeue: unrecognized option '--foo'"),
        (["-lZ"], "squeue: invalid option -- 'Z'"),
        (["-S"], "squeue: option requires an argument -- 'S'"),
        (["--sort"], "squeue: option '--sort' requires an argument"),
        (["--long=3"], "squeue: option '--long' doesn't allow an argument"),
        (["--st"], "squeue: option '--st' is ambiguous; possibilities: '--start' '--states'"),
    ],
)
def test_it_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(Stop) as stop:
        read(GRAMMAR, words)
    assert (message, 'Try "squeue --help" for more information') == stop.value.lines
    assert 1 == stop.value.code


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--ussr"], "squeue: did you mean '--user'?"),
        (["--ussr=ana"], "squeue: did you mean '--user'?"),
        (["--FORMAT=%i"], "squeue: did you mean '--format'?"),
        (["--noheadre"], "squeue: did you mean '--noheader'?"),
    ],
)
def test_the_option_that_was_meant_is_proposed(words: list[str], meant: str) -> None:
    with pytest.raises(Stop) as stop:
        read(GRAMMAR, words)
    unknown = f"squeue: unrecognized option '{words[0].partition('=')[0]}'"
    assert (unknown, meant, 'Try "squeue --help" for more information') == stop.value.lines


SPOILT = {
    "sacct": ("--foramt=x", "--format"),
    "salloc": ("--tiem=1", "--time"),
    "sbatch": ("--gers=gpu:1", "--gres"),
    "scancel": ("--stae=x", "--state"),
    "scontrol": ("--onelinr", "--oneliner"),
    "sinfo": ("--fromat=x", "--format"),
    "squeue": ("--ussr", "--user"),
    "sreport": ("--parsabel", "--parsable"),
    "srun": ("--gers=1", "--gres"),
}


@pytest.mark.parametrize("program", sorted(SPOILT))
def test_every_command_proposes_it(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    option, meant = SPOILT[program]
    assert 0 != run(["slurm", program, option])
    assert f"{program}: did you mean '{meant}'?" == capfd.readouterr().err.splitlines()[1]


def test_what_a_command_prints_is_written_at_once_also_where_python_does_not_buffer() -> None:
    # `scontrol show hostnames | head -n 1` under `set -o pipefail`: `head` leaves after what it reads first.
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        words = [sys.executable, "-m", "gpuyard.cli", "slurm", "scontrol", "show", "hostnames", "n[1-3]"]
        subprocess.run(
            words, stdout=writer, check=True, timeout=patient(60), env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        assert reader.recv(1000) == b"n1\nn2\nn3\n"


def test_a_signal_without_a_name_cancels_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == run(["slurm", "scancel", "-s", "", "17"])
    assert "Unknown job signal: " == capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize("option", ["state", "nodelist", "user", "name", "account", "partition", "qos"])
def test_a_bound_without_a_value_is_not_every_job(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == run(["slurm", "scancel", f"--{option}="])
    said = f"scancel: error: --{option} is empty: give it a value, or leave it out\n"
    assert said == capsys.readouterr().err


def test_help_fits_a_terminal_and_is_as_it_was_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> list[str]:
        assert 0 == run(["slurm", "srun", "--help"])
        return capsys.readouterr().out.splitlines()

    whole = lines()
    assert max(map(len, whole)) > 100
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    fitted = lines()
    assert max(map(len, fitted)) <= 80
    assert " ".join(whole).split() == " ".join(fitted).split()


def test_sstat_of_an_array_asks_for_a_task(answering_yard: Any) -> None:
    answering_yard({JOB: {"id": 7, "label": "7", "state": "RUNNING", "array": True, "jobs": []}})

    with pytest.raises(Stop, match="7 is an array; name one of its tasks, as in: sstat 7_0"):
        sstat.run(["-j", "7"])
