"""The time of the log, where the machine's clock is set."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.control.access.people import person
from gpuyard.control.admission.wanted import new_job
from gpuyard.control.clock import Steady, since_boot_ms
from gpuyard.control.commands.configs import StartFile
from gpuyard.control.loop.leading import Leader
from gpuyard.control.loop.observe import attempt_events
from gpuyard.control.serve import Options, Yard, clock_ms
from gpuyard.engines.contract import AttemptReport, Phase
from gpuyard.model import AttemptEnded, ClockSet, Outcome, Settings
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.testing import Life, LiveYard, SimEngine, nodes
from gpuyard.testing import Yard as SchedulerYard
from harness.patience import until


class Clocks:
    """A clock that people set, and one that nobody can."""

    wall_ms = 1_000_000
    elapsed_ms = 77

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_ms += ms


def test_time_goes_on_where_the_clock_was_set_forward_and_back() -> None:
    clocks = Clocks()
    now_ms = Steady(lambda: clocks.wall_ms, 0, lambda: clocks.elapsed_ms)
    assert 1_000_000 == now_ms()
    clocks.wall_ms += 86_400_000
    now_ms.go_on(now_ms() + now_ms.ahead_ms)
    assert 87_400_000 == now_ms()
    clocks.wall_ms -= 86_400_000
    assert 87_400_000 == now_ms()
    clocks.pass_ms(5_000)
    # A job that ran for five seconds has run for five seconds.
    assert 87_405_000 == now_ms()


def test_after_a_restart_time_goes_on_from_the_last_event() -> None:
    clocks = Clocks()
    now_ms = Steady(lambda: clocks.wall_ms, 5_000_000, lambda: clocks.elapsed_ms)
    clocks.pass_ms(250)
    assert 5_000_250 == now_ms()
    clocks.wall_ms = 5_003_000
    assert 5_003_000 == now_ms()


def test_a_clock_that_was_set_ahead_is_followed_once_the_log_says_so() -> None:
    clocks = Clocks()
    now_ms = Steady(lambda: clocks.wall_ms, 0, lambda: clocks.elapsed_ms)
    clocks.wall_ms += 3_600_000
    clocks.pass_ms(1_000)
    assert (1_001_000, 3_600_000) == (now_ms(), now_ms.ahead_ms)
    clocks.pass_ms(1_000)
    now_ms.go_on(4_602_000)
    assert (4_602_000, 0) == (now_ms(), now_ms.ahead_ms)
    # Another server has told a later time: it is that of the log.
    now_ms.go_on(5_000_000)
    clocks.pass_ms(1_000)
    assert (5_001_000, 0) == (now_ms(), now_ms.ahead_ms)


def test_a_clock_that_was_set_is_told_of_for_an_hour() -> None:
    clocks = Clocks()
    now_ms = Steady(lambda: clocks.wall_ms, 0, lambda: clocks.elapsed_ms)
    clocks.pass_ms(600_000)
    now_ms()
    assert "" == now_ms.note, "a long pause between two looks is none"
    clocks.wall_ms += 3_600_000
    now_ms()
    assert now_ms.note.startswith("the clock of this machine was set 1 h ahead")
    clocks.wall_ms -= 3_600_000
    now_ms()
    assert now_ms.note.startswith("the clock of this machine was set 1 h back")
    clocks.pass_ms(3_600_000)
    assert "" == now_ms.note


def test_the_leader_writes_down_that_the_clock_was_set_before_the_log_follows_it() -> None:
    clocks = Clocks()
    here = LiveYard(lambda clock: SimEngine(clock, nodes(1), lambda _launch: Life(HOUR_MS)), now_ms=1_000_000)
    clock = Steady(lambda: clocks.wall_ms, 0, lambda: clocks.elapsed_ms)
    leader = Leader(here.replica, {}, StartFile(Settings()), "", "", clock, clock=clock)
    clocks.wall_ms += HOUR_MS
    clocks.pass_ms(1_000)
    for _ in ("it was set", "nothing is new"):
        leader._follow_clock(here.store.epoch)
        assert [ClockSet(1_001_000 + HOUR_MS, HOUR_MS)] == [
            event for _seq, event in here.store.read(0) if isinstance(event, ClockSet)
        ]
    assert (1_001_000 + HOUR_MS, HOUR_MS) == (clock(), here.replica.state.skipped_ms)


@pytest.mark.rig
def test_a_running_job_gets_no_longer_by_a_clock_that_is_set_and_its_end_is_by_the_same_clock(
    tmp_path: Path,
) -> None:
    """A whole server over this machine's engine, with a clock that a test sets."""
    ahead_ms = 0
    here = Yard(Options(tmp_path / "yard", emulate="2 x H100", port=0), now_ms=lambda: clock_ms() + ahead_ms)
    stop = tmp_path / "stop"
    try:
        here.start()
        until(lambda: bool(here.replica.state.nodes.node))
        new = new_job(
            command=("sh", "-c", f"until [ -e {stop} ]; do sleep 0.05; done"), gpus=1, name="job", cwd="/"
        )
        began_ms = since_boot_ms()
        job_id = here.requests.submit(person(os.geteuid(), os.getegid()), new).result(10).first_id
        until(lambda: job_id in here.replica.state.running)
        ahead_ms = HOUR_MS
        until(lambda: here.replica.state.skipped_ms)
        model = here.views.reading.latest()
        row = model.jobs.get(job_id)
        assert row is not None
        assert 0 <= model.now_ms - row.record.started_ms <= since_boot_ms() - began_ms
        stop.touch()
        until(lambda: here.store.history(job_id))
        kept = here.store.history(job_id)
        assert kept is not None
        assert "COMPLETED" == kept.state
        assert 0 <= kept.ended_ms - kept.started_ms <= since_boot_ms() - began_ms
        assert kept.started_ms > clock_ms() + HOUR_MS // 2, "by the clock in force"
        (set_,) = [event for _seq, event in here.store.read(0) if isinstance(event, ClockSet)]
        assert abs(set_.by_ms - HOUR_MS) < 60_000
        assert any(["the clock of this machine was set" in note for note in here.notes])
    finally:
        stop.touch()
        here.close()


def test_an_end_by_the_clock_of_the_start_is_told_by_the_one_in_force() -> None:
    here = SchedulerYard("fifo", nodes(1))
    job_id = here.submit(1)
    here.step()
    record = here.state.jobs[job_id]
    here.wait(MINUTE_MS)
    report = AttemptReport(
        "y-1-1", Phase.ENDED, Outcome.COMPLETED, started_ms=record.started_ms, ended_ms=here.now_ms
    )
    here.now_ms += HOUR_MS
    here.apply(ClockSet(here.now_ms, HOUR_MS))
    ended = attempt_events(record, report, here.now_ms + 1000)[-1]
    assert isinstance(ended, AttemptEnded)
    assert (MINUTE_MS, here.now_ms) == (ended.ended_ms - record.started_ms, ended.ended_ms)
    # An engine that knows of it, too, is an hour ahead then: the end is as it was seen.
    later = replace(report, ended_ms=report.ended_ms + HOUR_MS)
    (seen,) = attempt_events(record, later, here.now_ms + 1000)
    assert isinstance(seen, AttemptEnded)
    assert 0 == seen.ended_ms
