"""The time of the log, where the machine's clock is set."""

import asyncio
import json
import os
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request

from gpuyard.api.edge.peers import PERSON
from gpuyard.api.server.app import _health
from gpuyard.control.access.people import find_person
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.clock import ClockRecord, Instant, Steady, clock_ms, since_boot_ms
from gpuyard.control.commands.configs import StartFile
from gpuyard.control.loop.leading import Leader
from gpuyard.control.loop.observe import attempt_events
from gpuyard.control.options import Options
from gpuyard.control.serve import Yard
from gpuyard.engines.contract import AttemptReport, Phase
from gpuyard.engines.machine.processes import boot_id
from gpuyard.model import AttemptEnded, CheckpointSeen, ClockSet, Outcome, Settings
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.testing import Life, LiveYard, SimEngine, nodes
from gpuyard.testing import Yard as SchedulerYard
from gpuyard.wire import endpoints
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


def running_until(here: Yard, stop: Path) -> tuple[int, int]:
    """Start a server, and a job that runs until this file is there: when that was at the earliest, and its id."""
    here.start()
    until(lambda: bool(here.replica.state.nodes.node))
    waits = f"until [ -e {stop} ]; do sleep 0.05; done"
    new = make_job(command=("sh", "-c", waits), gpus=1, name="job", cwd="/")
    began_ms = since_boot_ms()
    job_id = here.requests.submit(find_person(os.geteuid(), os.getegid()), new, Future()).result(10).first_id
    until(lambda: job_id in here.replica.state.running)
    return began_ms, job_id


@pytest.mark.rig
def test_a_running_job_gets_no_longer_by_a_clock_that_is_set_and_its_end_is_by_the_same_clock(
    tmp_path: Path,
) -> None:
    """A whole server over this machine's engine, with a clock that a test sets."""
    ahead_ms = 0
    here = Yard(Options(tmp_path / "yard", emulate="2 x H100", port=0), now_ms=lambda: clock_ms() + ahead_ms)
    stop = tmp_path / "stop"
    try:
        began_ms, job_id = running_until(here, stop)
        ahead_ms = HOUR_MS
        until(lambda: here.replica.state.skipped_ms)
        model = here.views.reading.latest()
        row = model.jobs.get(job_id)
        assert row is not None
        assert 0 <= model.now_ms - row.record.started_ms <= since_boot_ms() - began_ms
        stop.touch()
        until(lambda: here.store.history.find(job_id))
        kept = here.store.history.find(job_id)
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


@pytest.mark.rig
@pytest.mark.parametrize("booted", [False, True])
def test_a_clock_that_was_set_while_no_server_ran_is_seen_at_the_next_start_of_the_same_boot(
    tmp_path: Path, booted: bool
) -> None:
    options = Options(tmp_path / "yard", emulate="2 x H100", port=0)
    stop = tmp_path / "stop"
    here = Yard(options)
    try:
        began_ms, job_id = running_until(here, stop)
        until(here.instance.clock.exists)
        here.close()
        if booted:
            kept = here.instance.clock
            kept.write_text(kept.read_text().replace(boot_id(), "4711"))

        here = Yard(options, now_ms=lambda: clock_ms() + HOUR_MS)
        here.start()
        until(lambda: here.leader.standing.steps)
        until(lambda: bool(here.replica.state.skipped_ms) is not booted)
        record = here.replica.state.jobs[job_id]
        ran_ms = here.replica.state.now_ms - record.started_ms
        # After a boot nobody knows, and the machine's clock counts.
        assert booted is (ran_ms > since_boot_ms() - began_ms)
        ready, how = here.readiness()
        assert (True, None if booted else "clock") == (ready, how["reason"])
        assert booted is not any(["of this machine was set" in note for note in how["notes"]])
        scope = {"type": "http", "method": "GET", "path": "/readyz", "headers": [], PERSON: None}
        answer = asyncio.run(_health(here)[endpoints.READY](Request(scope)))
        strangers = {"ready": True, "role": "leader", "reason": None if booted else "clock"}
        assert (200, strangers) == (answer.status_code, json.loads(answer.body))
    finally:
        stop.touch()
        here.close()


def test_what_is_kept_of_the_clocks_counts_in_its_boot_and_its_yard(tmp_path: Path) -> None:
    clocks = Clocks()
    path = tmp_path / "yard.clock"

    def record(yard: str = "y", boot: str = "b") -> ClockRecord:
        return ClockRecord(path, yard, lambda: boot)

    def found(kept: ClockRecord, skipped_ms: int = 0) -> Instant | None:
        return kept.found(skipped_ms, lambda: clocks.elapsed_ms)

    assert None is found(record())
    clock = Steady(lambda: clocks.wall_ms, 2_000_000, lambda: clocks.elapsed_ms)
    record().keep(clock, 0)
    there = Instant(2_000_000, 1_000_000, 77)
    assert there == found(record())
    assert [None, None] == [found(record(yard="x")), found(record(boot="c"))]
    # Another server has followed a clock that was set an hour ahead.
    assert replace(there, log_ms=2_000_000 + HOUR_MS) == found(record(), HOUR_MS)

    clocks.pass_ms(MINUTE_MS)
    clocks.wall_ms += HOUR_MS
    later = Steady(lambda: clocks.wall_ms, 2_000_500, lambda: clocks.elapsed_ms, found(record()))
    assert (2_060_000, 2_600_000) == (later(), later.ahead_ms)
    assert later.note.startswith("the clock of this machine was set 1 h ahead")
    kept = record()
    kept.keep(later, 0)
    assert there == found(kept), "the log has not said so yet"
    later.go_on(later() + later.ahead_ms)
    kept.keep(later, HOUR_MS)
    assert later.instant == found(kept, HOUR_MS)
    before = path.stat().st_mtime_ns
    clocks.pass_ms(MINUTE_MS)
    later()
    kept.keep(later, HOUR_MS)
    assert before == path.stat().st_mtime_ns, "nothing is new"
    clocks.elapsed_ms = 5
    assert None is found(record())
    path.write_text("{")
    assert None is found(record())


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


def test_work_saved_by_the_clock_of_the_start_counts_by_the_one_in_force() -> None:
    here = SchedulerYard("fifo", nodes(1))
    job_id = here.submit(1)
    here.step()
    record = here.state.jobs[job_id]
    here.wait(2 * MINUTE_MS)
    at_ms = record.started_ms + MINUTE_MS
    here.now_ms += HOUR_MS
    here.apply(ClockSet(here.now_ms, HOUR_MS))
    report = AttemptReport("y-1-1", Phase.RUNNING, started_ms=at_ms - MINUTE_MS, checkpoint_ms=at_ms)
    seen = [each for each in attempt_events(record, report, here.now_ms) if isinstance(each, CheckpointSeen)]
    assert [MINUTE_MS] == [each.saved_at_ms - record.started_ms for each in seen]
    end = replace(report, phase=Phase.ENDED, outcome=Outcome.PREEMPTED, ended_ms=at_ms + MINUTE_MS)
    ended = attempt_events(record, end, here.now_ms)[-1]
    assert isinstance(ended, AttemptEnded)
    assert MINUTE_MS == ended.saved_ms


def test_work_saved_by_the_clock_of_another_machine_is_moved_by_nothing() -> None:
    here = SchedulerYard("fifo", nodes(1))
    job_id = here.submit(1)
    here.step()
    here.wait(2 * MINUTE_MS)
    here.now_ms += HOUR_MS
    here.apply(ClockSet(here.now_ms, HOUR_MS))
    here.wait(2 * MINUTE_MS)
    at_ms = here.now_ms - MINUTE_MS
    report = AttemptReport("y-1-1", Phase.RUNNING, checkpoint_ms=at_ms, saved_by_now=True)
    found = attempt_events(here.state.jobs[job_id], report, here.now_ms)
    assert [at_ms] == [each.saved_at_ms for each in found if isinstance(each, CheckpointSeen)]


SETS = [0, HOUR_MS, -HOUR_MS, 2 * HOUR_MS]


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in SETS for b in SETS])
@pytest.mark.parametrize("before", [0, HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("followed", [True, False])
def test_two_sets_of_the_clock_in_one_attempt_leave_its_length_as_it_was(
    first: int, second: int, before: int, followed: bool
) -> None:
    """Its end is found two hours later. `before`: the clock was set and set back before; `followed`: not at once."""
    clocks = Clocks()
    clocks.wall_ms = 480_000 * HOUR_MS
    clock = Steady(lambda: clocks.wall_ms, 0, lambda: clocks.elapsed_ms)
    here = SchedulerYard("fifo", nodes(1))

    def follow() -> None:
        here.now_ms = clock()
        if clock.ahead_ms:
            at_ms = here.now_ms + clock.ahead_ms
            here.apply(ClockSet(at_ms, clock.ahead_ms))
            clock.go_on(at_ms)
            here.now_ms = clock()

    for by_ms in (before, -before):
        clocks.wall_ms += by_ms
        clocks.pass_ms(1000)
        follow()
    job_id = here.submit(1, limit_ms=10 * HOUR_MS)
    here.step()
    record = here.state.jobs[job_id]
    started_ms = clocks.wall_ms
    for by_ms in (first, second):
        clocks.pass_ms(10 * MINUTE_MS)
        clocks.wall_ms += by_ms
        if followed:
            follow()
    clocks.pass_ms(10 * MINUTE_MS)
    ended_ms = started_ms + 30 * MINUTE_MS
    clocks.pass_ms(2 * HOUR_MS)
    follow()
    report = AttemptReport("y-1-1", Phase.ENDED, Outcome.COMPLETED, started_ms=started_ms, ended_ms=ended_ms)
    ended = attempt_events(record, report, here.now_ms)[-1]
    assert isinstance(ended, AttemptEnded)
    assert 30 * MINUTE_MS == ended.ended_ms - record.started_ms
