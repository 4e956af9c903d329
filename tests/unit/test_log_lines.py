"""Lines of a log: one for each record, printable and not endless; of many that are alike few are written."""

import io
import logging
import sys
from typing import Any

import pytest

from gpuyard.errors import printable_text
from gpuyard.log_lines import (
    ALIKE_BURST,
    ALIKE_PER_S,
    FIELD_CHARS_MAX,
    PERSON_BURST,
    PERSON_PER_S,
    PERSONS_MAX,
    RECORD_CHARS_MAX,
    SOURCE_BURST,
    TRACE_LINES_MAX,
    TRACE_MARK,
    LineFormatter,
    RepeatFilter,
    person_extra,
)

FORGED = "2026-01-01T00:00:00Z INFO gpuyard: all is well"


def record(msg: object, *args: Any, name: str = "gpuyard.api", exc_info: Any = None) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.WARNING, "", 0, msg, args, exc_info)
    made.created = 0.0
    return made


def line(msg: object, *args: Any, **more: Any) -> str:
    return LineFormatter().format(record(msg, *args, **more))


class Log:
    """A log and its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.written = io.StringIO()
        self.handler = logging.StreamHandler(self.written)
        self.repeats = RepeatFilter(self.handler, lambda: self.now_s)
        self.handler.addFilter(self.repeats)

    def write(
        self, times: int, msg: str = "%s is odd", name: str = "gpuyard.api", exc_info: Any = None
    ) -> None:
        for number in range(times):
            self.handler.handle(record(msg, number, name=name, exc_info=exc_info))

    def enter(self, person: str, job_id: int) -> None:
        """The line of a way into a job, as the API writes it."""
        made = record("%s: %s, job %s", person, "shell", job_id)
        made.__dict__.update(person_extra(person))
        self.handler.handle(made)

    @property
    def lines(self) -> list[str]:
        return self.written.getvalue().splitlines()


def test_a_record_is_one_line_in_utc() -> None:
    assert "1970-01-01T00:00:00Z WARNING gpuyard.api: job 7 is odd" == line("job %d is %s", 7, "odd")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a\n{FORGED}", rf"a\x0a{FORGED}"),
        ("a\r\x1b[2J\x9b\x00", r"a\x0d\x1b[2J\x9b\x00"),
        ("a\u2028b\u2029\u202e\ud800", r"a\u2028b\u2029\u202e\ud800"),
        ("\U000e0001", r"\U000e0001"),
        ("größer 日本", "größer 日本"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert shown == printable_text(text, 300)
    for said in (line("%s", text), line(text), line("%s", ValueError(text)), line("%s", [text][0])):
        assert f"1970-01-01T00:00:00Z WARNING gpuyard.api: {shown}" == said


def test_fields_and_records_are_cut_and_say_how_long_they_were() -> None:
    said = line("%s says %s", "x" * 1_000_000, "y" * 300)
    assert "x … 1,000,000 characters … x" in said
    assert said.endswith(" says " + "y" * 300)
    assert len(said) < 2 * FIELD_CHARS_MAX + 100
    assert len(line("z" * 1_000_000)) < RECORD_CHARS_MAX + 100


def test_what_does_not_fit_its_message_is_written_all_the_same() -> None:
    assert line("%d of %d", "x\n").endswith(r"%d of %d ('x\\x0a',)")


def test_no_line_of_a_traceback_passes_for_a_record() -> None:
    try:
        raise ValueError(f"a\n{FORGED}\u2028{FORGED}\n" + "b\n" * 10_000)
    except ValueError:
        first, *below = line("it failed", exc_info=sys.exc_info()).split("\n")
    assert first.endswith(": it failed")
    assert any([FORGED in each for each in below])
    assert {TRACE_MARK} == {each[: len(TRACE_MARK)] for each in below}
    assert all([each.isprintable() for each in below])
    assert len(below) <= TRACE_LINES_MAX + 1


def test_of_many_that_are_alike_few_are_written_and_the_others_counted() -> None:
    log = Log()
    log.write(1_000)
    assert [f"{number} is odd" for number in range(ALIKE_BURST)] == log.lines
    log.repeats.tell()
    assert ["… 980 more like this: %s is odd"] == log.lines[ALIKE_BURST:]
    log.now_s = 60.0
    log.write(1_000)
    assert int(60 * ALIKE_PER_S) == len(log.lines) - ALIKE_BURST - 1


def test_the_next_that_is_written_says_how_many_were_left_out() -> None:
    log = Log()
    log.write(ALIKE_BURST + 3)
    log.now_s = 1 / ALIKE_PER_S
    log.write(1)
    assert ["… 3 more like this: %s is odd", "0 is odd"] == log.lines[-2:]


def test_others_are_written_while_some_are_left_out() -> None:
    log = Log()
    log.write(1_000)
    log.write(1, "another: %s")
    log.write(1, name="gpuyard.store")
    assert ["another: 0", "0 is odd"] == log.lines[ALIKE_BURST:]


def test_errors_of_different_places_are_not_alike() -> None:
    log = Log()
    infos = []
    for wrong in (lambda: int("x"), lambda: {}["x"]):
        try:
            wrong()
        except (ValueError, KeyError):
            infos.append(sys.exc_info())
    for info in infos:
        log.write(100, exc_info=info)
    log.repeats.tell()
    assert ["… 80 more like this: %s is odd"] * 2 == [each for each in log.lines if "more like" in each]


def test_a_part_of_the_program_writes_so_much_however_different_it_is() -> None:
    log = Log()
    for number in range(1_000):
        log.write(1, f"text {number}: %s")
    assert SOURCE_BURST == len(log.lines)


def test_what_one_person_does_keeps_no_line_of_another_from_the_log() -> None:
    log = Log()
    for number in range(25):
        log.enter("mallory", number)
    log.enter("adam", 777)
    assert ["adam: shell, job 777"] == [line for line in log.lines if "adam" in line]
    assert PERSON_BURST + 1 == len(log.lines)
    log.write(1, "of the program: %s")
    assert "of the program: 0" == log.lines[-1]
    log.repeats.tell()
    assert "… 5 more like this of mallory: %s: %s, job %s" == log.lines[-1]


def test_many_names_fill_the_log_no_further_and_take_nothing_from_those_who_were_there() -> None:
    log = Log()
    log.enter("adam", 1)
    for number in range(10_000):
        log.enter(f"mallory{number % 5_000}", number)
    log.enter("adam", 2)
    assert "adam: shell, job 2" == log.lines[-1]
    assert len(log.lines) <= PERSONS_MAX * PERSON_BURST + SOURCE_BURST
    # Persons of whom nothing is heard make room for others.
    log.now_s = PERSON_BURST / PERSON_PER_S
    log.enter("eve", 3)
    assert "eve: shell, job 3" == log.lines[-1]
