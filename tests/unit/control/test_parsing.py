"""Texts that a process beside the server reads: within bounds, with the same errors, and nothing of them stays."""

import errno
import gc
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.config.reading import loads
from gpuyard.control import forking, parsing
from gpuyard.control.forking import GivenUp, Wanted
from gpuyard.control.parsing import Parser
from gpuyard.control.refusals import Overloaded, Unacceptable
from gpuyard.errors import BadInput, Misuse
from gpuyard.intake.job_texts import understand
from gpuyard.keys.problems import ConfigError
from harness.patience import until


@pytest.fixture(scope="module")
def parse() -> Iterator[Parser]:
    with pytest.MonkeyPatch.context() as patch:
        # The functions of this file can be found by another process.
        patch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(Path(__file__).parents[3])]))
        found = Parser(("gpuyard.config.reading",))
        yield found
        found.close()


def pid_of(_text: str) -> int:
    return os.getpid()


def takes_mib(count: int) -> int:
    return len([bytearray(1 << 20) for _ in range(count)])


def takes_its_time() -> None:
    # What the kernel does when the time is up.
    os.kill(os.getpid(), signal.SIGXCPU)


def works_on(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()), encoding="ascii")
    while True:
        pass


def breaks() -> None:
    raise ZeroDivisionError("in a text")


def misused() -> None:
    raise Misuse("yard submit", "it has no file")


def test_each_text_is_read_in_a_process_that_is_gone_afterwards(parse: Parser) -> None:
    first, second = parse(pid_of, "a"), parse(pid_of, "b")

    assert 3 == len({first, second, os.getpid()})
    until(lambda: not Path(f"/proc/{second}").exists())


def test_a_text_that_takes_too_much_is_refused_and_the_next_one_is_read(parse: Parser) -> None:
    with pytest.raises(Unacceptable, match="192 MiB"):
        parse(takes_mib, parsing.MEMORY_MIB + 1)
    assert 64 == parse(takes_mib, 64)
    with pytest.raises(Unacceptable, match="10 s"):
        parse(takes_its_time)
    assert parse(pid_of, "again")


def test_a_reading_that_nobody_wants_any_longer_is_ended(parse: Parser, tmp_path: Path) -> None:
    wanted, at_work = Wanted(), tmp_path / "pid"

    def gone() -> None:
        until(lambda: at_work.exists() and at_work.read_text(encoding="ascii"))
        wanted.give_up()

    going = threading.Thread(target=gone)
    going.start()
    with pytest.raises(GivenUp):
        parse.read_while(wanted, works_on, str(at_work))
    # Its own time would be up in ten seconds.
    until(lambda: not Path(f"/proc/{at_work.read_text(encoding='ascii')}").exists(), 5)
    going.join()


def test_what_is_given_up_before_it_is_asked_is_not_read(parse: Parser, tmp_path: Path) -> None:
    wanted, at_work = Wanted(), tmp_path / "pid"
    wanted.give_up()
    with pytest.raises(GivenUp):
        parse.read_while(wanted, works_on, str(at_work))
    assert not at_work.exists()
    assert parse(pid_of, "the next one")


def test_a_process_that_cannot_be_asked_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = Parser()

    def none_left(*_args: object) -> tuple[socket.socket, socket.socket]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def ends(*_args: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    with monkeypatch.context() as full:
        full.setattr(socket, "socketpair", none_left)
        with pytest.raises(Overloaded, match="Too many open files"):
            parse(pid_of, "a")
    with monkeypatch.context() as idle:
        # Twice it had ended just as the text came.
        idle.setattr(forking, "send", ends)
        with pytest.raises(Overloaded, match="Broken pipe"):
            parse(pid_of, "a")
    parse.close()


def test_what_is_wrong_with_a_text_is_said_as_it_is_said_here(parse: Parser) -> None:
    for text in ("version: 1\ntenants: [", "a: b\nversion: 1\n", "- 1"):
        with pytest.raises(ConfigError) as here:
            loads(text, "yard.yaml")
        with pytest.raises(ConfigError) as there:
            parse(loads, text, "yard.yaml")
        assert (here.value.message, here.value.file, here.value.problems) == (
            there.value.message,
            there.value.file,
            there.value.problems,
        )
    with pytest.raises(Misuse) as misuse:
        parse(misused)
    assert ("yard submit", "it has no file", "'yard submit --help' lists what it takes.") == (
        misuse.value.command,
        misuse.value.message,
        misuse.value.hint,
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError: in a text"):
        parse(breaks)


def test_an_error_is_gone_when_it_was_dealt_with(parse: Parser) -> None:
    """It has the call that was given the text, and left each text in the server until a collection."""
    gc.disable()
    try:
        try:
            parse(loads, "- 1", "yard.yaml")
        except ConfigError as error:
            seen = weakref.ref(error)
        assert seen() is None
    finally:
        gc.enable()


def test_a_configuration_is_the_same_wherever_it_is_read(parse: Parser) -> None:
    fleet = "clusters:\n  here: {engine: local, gpus: 8 x A100-80GB, emulate: true}\n"
    text = f"version: 1\n{fleet}tenants:\n  ml: {{limit: 4}}\n"

    assert loads(text) == parse(loads, text)


def test_a_file_of_9000_jobs_is_read_and_too_long_for_one_answer(parse: Parser) -> None:
    text = "---\n".join([f"name: j{n}\ncommand: ['true']\n" for n in range(9_000)])

    with pytest.raises(BadInput, match="it has 9,000 jobs, and 100 are read at once"):
        parse(understand, text, "many.yaml", "/", False, 0)
