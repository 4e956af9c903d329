"""Duties: their rounds and pauses, what becomes of those that fail, whose they are, and how they end."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL
from gpuyard.control.duties.duty import LEAST_S, BackOff, Duties, Duty, DutyRecord, RunningDuty, Turn
from gpuyard.control.options import Options
from gpuyard.control.readings import Readings
from gpuyard.control.serve import Yard
from gpuyard.control.views.scheduler_metrics import duty_lines as metrics_of
from gpuyard.reports.duties import REPORT
from gpuyard.reports.table import Row
from gpuyard.shipping.contract import SinkSpec
from gpuyard.store import Fenced, StoreError
from harness.patience import patient, until

WAIT_S = 300


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


class Work:
    """What a duty does in a test: each round takes a second, and fails where it is told to."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.error, self.trouble = clock, None, ""
        self.error: Exception | None
        self.turns: list[Turn] = []

    def __call__(self, turn: Turn) -> None:
        self.clock.s += 1.0
        self.turns.append(turn)
        if self.error is not None:
            raise self.error

    def duty(self, **said: Any) -> Duty:
        return Duty("test", self, every_s=60.0, trouble=lambda: self.trouble, **said)


def follows() -> int | None:
    return None


# -- one round, by a clock that the test sets --------------------------------------------------------------------------


def test_a_duty_that_raises_is_tried_again_with_growing_pauses_until_a_round_is_good() -> None:
    clock = Clock()
    work = Work(clock)
    running = RunningDuty(work.duty(retry=BackOff(2.0, 10.0)), follows, clock)
    assert 60.0 == running.round()
    work.error = StoreError("the store is away")
    assert [2.0, 4.0, 8.0, 10.0, 10.0] == [running.round() for _ in range(5)]

    assert DutyRecord(100.0, 6, 5, 5, 106.0, 1.0, 101.0, "the store is away") == running.record
    assert (5.0, (0.0, 5.0)) == (running.good_age_s, running.ages_s())
    work.error = None
    assert 60.0 == running.round()
    assert DutyRecord(100.0, 7, 5, 0, 107.0, 1.0, 107.0) == running.record
    work.error = StoreError("again")
    assert 2.0 == running.round(), "as after the first failure"


def test_a_failure_that_lasts_is_logged_once_and_by_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    work = Work(clock)
    running = RunningDuty(work.duty(undone="nothing was done"), follows, clock)
    for error in (
        OSError(24, "Too many open files"),
        OSError(24, "Too many open files"),
        KeyError("x"),
        None,
    ):
        work.error = error
        running.round()

    told = [(each.levelname, each.getMessage(), each.exc_info is not None) for each in caplog.records]
    assert [
        ("WARNING", "test: nothing was done: Too many open files", False),
        ("ERROR", "test: nothing was done: 'x'", True),
        ("INFO", "test: works again", False),
    ] == told


def test_trouble_that_a_duty_has_without_raising_is_a_failure_with_a_pause_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    work = Work(clock)
    duties = Duties([work.duty()], follows, clock)
    work.trouble = "the receiver is away"
    assert 60.0 == duties["test"].round()
    assert {"test": "the receiver is away"} == duties.failing()
    assert not caplog.records, "it has logged that itself"
    work.trouble = ""
    duties["test"].round()
    assert {} == duties.failing()


def test_a_duty_of_the_leader_does_nothing_at_a_follower_but_what_it_says() -> None:
    clock = Clock()
    work, let_go = Work(clock), []
    duty = work.duty(leader=True, follower_s=3.0, elsewhere=lambda: let_go.append(clock.s))
    running = RunningDuty(duty, follows, clock)
    assert [3.0, 3.0] == [running.round(), running.round()]
    assert ([], [100.0, 100.0]) == (work.turns, let_go)
    assert (0, False) == (running.record.runs, running.here)

    epochs: list[int | None] = [7]
    running = RunningDuty(duty, lambda: epochs[0], clock)
    assert 60.0 == running.round()
    assert ([7], True) == ([turn.epoch for turn in work.turns], running.here)
    # Elected away in the middle of a round: no failure, and what failed before is another server's concern.
    work.error = StoreError("the store is away")
    running.round()
    assert "the store is away" == running.why
    work.error = Fenced("epoch 8 leads")
    assert (3.0, "") == (running.round(), running.why)
    epochs[0], work.error = None, None
    assert not running.here
    # It is late only since it leads again.
    clock.s += 1000.0
    running.round()
    epochs[0] = 9
    clock.s += 5.0
    assert (5.0, True) == (running.good_age_s, running.here)


def test_a_duty_of_every_server_is_done_at_a_follower_too() -> None:
    clock = Clock()
    work = Work(clock)
    RunningDuty(work.duty(), follows, clock).round()
    assert [0] == [turn.epoch for turn in work.turns]


def test_metrics_count_rounds_and_failures_and_leave_out_what_is_done_elsewhere() -> None:
    clock = Clock()
    work = Work(clock)
    elsewhere = Duty("other", work, every_s=1.0, leader=True)
    duties = Duties([work.duty(), elsewhere], follows, clock)
    work.error = StoreError("away")
    for each in duties:
        each.round()
    clock.s += 9.0

    lines = [line for line in metrics_of(duties) if not line.startswith("#")]
    assert [
        'gpuyard_duty_runs_total{duty="test"} 1',
        'gpuyard_duty_runs_total{duty="other"} 0',
        'gpuyard_duty_failures_total{duty="test"} 1',
        'gpuyard_duty_failures_total{duty="other"} 0',
        'gpuyard_duty_good_round_age_seconds{duty="test"} 10',
    ] == lines


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_round_follows_after_the_pause_that_the_one_before_asked_for() -> None:
    pauses, taken, ended = [0.0, 0.0, None], [], threading.Event()

    def do(_turn: Turn) -> float | None:
        taken.append(threading.current_thread().name)
        if len(taken) == 3:
            ended.set()
        return pauses[len(taken) - 1]

    running = RunningDuty(Duty("test", do, every_s=3600.0, first_s=0.0), follows)
    running.start()
    assert ended.wait(WAIT_S)
    assert running.stop(WAIT_S)
    assert 3 * ["yard-test"] == taken


def test_a_round_under_way_is_told_to_break_off_and_waited_for() -> None:
    began, seen = threading.Event(), []

    def do(turn: Turn) -> None:
        began.set()
        seen.append(turn.rest(WAIT_S))

    duties = Duties(
        [Duty("test", do, every_s=0.0, first_s=0.0, close=lambda: seen.append("closed"))], follows
    )
    duties.start()
    assert began.wait(WAIT_S)
    duties.close()
    assert [True, "closed"] == seen


def test_duties_end_in_the_reverse_order_of_their_start_and_one_that_does_not_end_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began, hangs, closed = threading.Event(), threading.Event(), list[str]()

    def hang(_turn: Turn) -> None:
        began.set()
        hangs.wait(WAIT_S)

    def refuse() -> None:
        closed.append("refuses")
        raise OSError(28, "No space left on device")

    def nothing(_turn: Turn) -> None:
        pass

    duties = Duties(
        [
            Duty("first", nothing, every_s=3600.0, close=lambda: closed.append("first")),
            Duty("refuses", nothing, every_s=3600.0, close=refuse),
            Duty("hangs", hang, every_s=0.0, first_s=0.0, close=lambda: closed.append("hangs")),
            Duty("last", nothing, every_s=3600.0, close=lambda: closed.append("last")),
        ],
        follows,
    )
    duties.start()
    assert began.wait(WAIT_S)
    began_s = time.monotonic()
    duties.close(wait_s=0.0)
    took_s = time.monotonic() - began_s
    hangs.set()

    assert ["last", "hangs", "refuses", "first"] == closed
    assert LEAST_S <= took_s < patient(LEAST_S * 4), "a moment for the one that hangs"
    assert [
        "hangs: a round did not end within 1 s and is left",
        "refuses: the duty did not end well: No space left on device",
    ] == [each.getMessage() for each in caplog.records]


def test_what_never_began_is_closed_at_once() -> None:
    began_s, closed = time.monotonic(), []
    duty = Duty("test", lambda _turn: None, every_s=1.0, close=lambda: closed.append(1))
    Duties([duty], follows).close()
    assert [1] == closed
    assert time.monotonic() - began_s < WAIT_S


def test_two_duties_of_one_name_are_refused() -> None:
    duty = Duty("test", lambda _turn: None, every_s=1.0)
    with pytest.raises(ValueError, match="two duties have one name"):
        Duties([duty, duty], follows)


# -- a server ----------------------------------------------------------------------------------------------------------


@contextmanager
def server(folder: Path, begin: Callable[[Yard], None] = Yard.start, **said: Any) -> Iterator[Yard]:
    made = Yard(Options(folder, emulate="2 x H100", port=0, **said))
    try:
        begin(made)
        yield made
    finally:
        made.close()


def test_a_duty_that_fails_is_a_reason_of_a_server_that_is_ready_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [OSError(5, "the disk is gone")]

    def look() -> float:
        if errors:
            raise errors[0]
        return 3600.0

    def begin(made: Yard) -> None:
        monkeypatch.setattr(made.watch, "round", look)
        made.start()

    with server(tmp_path / "yard", begin, look_s=1.0) as here:

        def shown() -> Row:
            return {row["name"]: row for row in REPORT.build(Readings(here), {}, ALL).rows}["watch"]

        until(lambda: here.readiness()[0] and shown()["failures"] > 1)
        ready, how = here.readiness()
        told = ["watch: the disk is gone"]
        assert (True, "duty watch", told, None) == (ready, how["reason"], how["duties"], how["error"])
        assert ("the disk is gone", None, False) == (shown()["why"], shown()["good_ms"], shown()["leader"])
        errors.clear()
        until(lambda: not here.duties.failing())
        ready, how = here.readiness()
        assert (True, None, []) == (ready, how["reason"], how["duties"])
        row = shown()
        assert (row["failures"] + 1, "", True) == (row["runs"], row["why"], row["here"])
        assert row["good_ms"] == row["last_ms"] <= here.now_ms()


def test_a_server_that_only_answers_leaves_the_duties_of_the_leader_alone(tmp_path: Path) -> None:
    with server(tmp_path / "yard", leads=False) as here:
        until(lambda: here.duties["reserve"].record.runs and not here.duties["waits"].here)
        table = REPORT.build(Readings(here), {}, ALL)
        at_leader = {row["name"]: row["runs"] for row in table.rows if row["leader"]}
        assert {"projections": 0, "forgetting": 0, "retention": 0, "waits": 0} == at_leader
        assert {"leads": False} == table.head
        assert ("this server does not lead: duties of the leader are done elsewhere",) == REPORT.notes(
            table.head
        )


def test_the_list_has_every_duty_of_a_server_and_starts_and_ends_with_it(tmp_path: Path) -> None:
    yaml = tmp_path / "yard.yaml"
    yaml.write_text(
        "version: 1\nclusters: {box: {gpus: 2 x H100, emulate: true, allow_root: true}}\n"
        "logs: {sinks: [{loki: {url: http://127.0.0.1:9}}]}\n"
        "telemetry: {prometheus: {url: http://127.0.0.1:9}}\n",
        encoding="utf-8",
    )
    with server(tmp_path / "yard", config=yaml) as here:
        assert ["loki"] == [spec.name for spec in here.fleet.sinks if isinstance(spec, SinkSpec)]
        names = [each.duty.name for each in here.duties]
        assert [
            "reserve", "projections", "forgetting", "retention", "waits", "watch", "prometheus", "logs-loki",
        ] == names  # fmt: skip
        threads = {each.name for each in threading.enumerate()}
        assert {f"yard-{name}" for name in names} <= threads
        until(lambda: here.duties["forgetting"].record.runs == 1)
        until(lambda: here.readiness()[1]["reason"] == "duty prometheus")
    until(lambda: not [each for each in threading.enumerate() if each.name in {f"yard-{n}" for n in names}])
