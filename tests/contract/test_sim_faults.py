"""The faults of the simulated engine: each does what its name says, seen in the world and not in the books."""

from random import Random

import pytest

from contract.rigs import EPOCH, Program, SimRig, ended, launch, look
from gpuyard.engines.contract import Answer, Phase, StopRequest, Transient
from gpuyard.model import Outcome
from gpuyard.testing import Faults

LONG = Program(run_ms=60_000)
ALWAYS = 1000


def rig_with(**rates: int) -> SimRig:
    return SimRig(Faults(Random(1), **rates))


def start(rig: SimRig, key: str = "y-1-1", program: Program = LONG, **options: int) -> Answer:
    (reply,) = rig.engine.start(EPOCH, [launch(rig, key, program, **options)])  # type: ignore[arg-type]
    return reply.answer


def test_lost_says_unsure_and_nothing_happened() -> None:
    rig = rig_with(lost_milli=ALWAYS)

    assert Answer.UNSURE is start(rig)
    rig.let_pass(100_000)
    assert (Phase.UNKNOWN, 0) == (look(rig, "y-1-1").phase, rig.starts("y-1-1"))


def test_unsaid_says_unsure_but_it_happened() -> None:
    rig = rig_with(unsaid_milli=ALWAYS)

    assert Answer.UNSURE is start(rig)
    assert (Phase.RUNNING, 1) == (look(rig, "y-1-1").phase, rig.starts("y-1-1"))


def test_late_happens_later_and_not_for_a_leader_that_was_replaced() -> None:
    rig = rig_with(late_milli=ALWAYS, late_ms_max=50)
    assert Answer.UNSURE is start(rig)
    assert 0 == rig.starts("y-1-1")
    rig.let_pass(50)
    assert Phase.RUNNING is look(rig, "y-1-1").phase

    start(rig, "y-2-1")
    rig.engine.start(EPOCH + 1, [])
    rig.let_pass(50)
    assert (Phase.UNKNOWN, 0) == (look(rig, "y-2-1").phase, rig.starts("y-2-1"))


def test_twice_runs_once_also_when_it_has_ended_meanwhile() -> None:
    rig = rig_with(twice_milli=ALWAYS, late_ms_max=50)
    start(rig, program=Program(run_ms=0))
    rig.let_pass(100)

    assert Outcome.COMPLETED is ended(rig, "y-1-1").outcome
    assert 1 == rig.starts("y-1-1")


def test_a_call_that_breaks_may_have_happened() -> None:
    rig = SimRig(Faults(Random(3), breaks_milli=500))
    happened = []
    for i in range(40):
        try:
            start(rig, f"y-{i}-1")
        except Transient:
            happened.append(rig.starts(f"y-{i}-1"))

    assert {0, 1} == set(happened)


def test_a_finished_attempt_is_forgotten_and_does_not_run_again() -> None:
    rig = rig_with(forgets_milli=ALWAYS)
    start(rig, program=Program(run_ms=0))
    rig.let_pass(1)

    assert Phase.UNKNOWN is look(rig, "y-1-1").phase
    assert Answer.REFUSED is start(rig)
    assert 1 == rig.starts("y-1-1")


def test_half_a_gang_is_seen_in_the_world_and_ended_by_the_engine() -> None:
    rig = rig_with(half_gang_milli=ALWAYS)
    start(rig, tasks=4)

    assert 2 == rig.alive("y-1-1")
    assert Phase.STARTING is look(rig, "y-1-1").phase
    report = ended(rig, "y-1-1")
    assert (Outcome.NODE_FAIL, "only 2 of 4 tasks started") == (report.outcome, report.why)
    assert 0 == rig.alive("y-1-1")


@pytest.mark.parametrize(
    ("rate", "outcome", "code"),
    [("deaf_milli", Outcome.PREEMPTED, 137), ("ends_first_milli", Outcome.COMPLETED, 0)],
)
def test_stops_that_go_another_way(rate: str, outcome: Outcome, code: int) -> None:
    rig = rig_with(**{rate: ALWAYS})
    start(rig)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.PREEMPTED, 500)])
    report = ended(rig, "y-1-1")

    assert (outcome, code) == (report.outcome, report.exit_code)


def test_a_node_out_of_reach_hides_what_goes_on_there() -> None:
    rig = SimRig()
    start(rig, program=Program(run_ms=500))
    rig.engine.cut_off(rig.node)

    assert not rig.engine.nodes()[0].up
    assert Phase.UNKNOWN is look(rig, "y-1-1").phase
    (reply,) = rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    assert Answer.UNSURE is reply.answer
    rig.let_pass(1_000)
    assert Phase.UNKNOWN is look(rig, "y-1-1").phase
    rig.engine.mend(rig.node)
    assert Outcome.COMPLETED is look(rig, "y-1-1").outcome


def test_a_crash_kills_at_once_and_is_told_when_the_node_is_back() -> None:
    rig = SimRig()
    start(rig)
    rig.engine.crash(rig.node)

    assert 0 == rig.alive("y-1-1")
    assert Phase.UNKNOWN is look(rig, "y-1-1").phase
    rig.let_pass(100)
    rig.engine.mend(rig.node)
    report = look(rig, "y-1-1")
    assert (Outcome.NODE_FAIL, report.started_ms) == (report.outcome, report.ended_ms)


def test_a_node_that_flaps_comes_back() -> None:
    rig = rig_with(flap_milli=ALWAYS, flap_ms_max=100)
    assert not rig.engine.nodes()[0].up
    rig.engine.faults.stop()
    rig.let_pass(100)

    assert rig.engine.nodes()[0].up


def test_old_news_is_what_was_said_before() -> None:
    rig = rig_with(old_news_milli=0)
    start(rig, program=Program(run_ms=10))
    look(rig, "y-1-1")
    rig.engine.faults.old_news_milli = ALWAYS
    rig.let_pass(100)

    assert Phase.RUNNING is look(rig, "y-1-1").phase
    rig.engine.faults.stop()
    assert Phase.ENDED is look(rig, "y-1-1").phase


def test_one_seed_is_one_story() -> None:
    def story() -> list[object]:
        rig = SimRig(Faults(Random(7), lost_milli=200, unsaid_milli=200, late_milli=200, twice_milli=200))
        for i in range(50):
            start(rig, f"y-{i}-1", Program(run_ms=i * 10))
            rig.let_pass(100)
        return [(run.key, run.started_ms, run.ended_ms) for run in rig.engine.world.runs]

    assert story() == story()


def test_the_engines_time_does_not_go_back_with_the_clock() -> None:
    rig = SimRig()
    start(rig, program=Program(run_ms=10))
    rig.let_pass(100)
    rig.engine.advance()
    rig.let_pass(-5_000)
    start(rig, "y-2-1")

    assert look(rig, "y-1-1").ended_ms <= look(rig, "y-2-1").started_ms


def test_a_pull_that_fails_says_so_and_nothing_ran() -> None:
    rig = rig_with(pull_fails_milli=ALWAYS)
    rig.pull_ms = 5_000

    assert Answer.DONE is start(rig)
    report = look(rig, "y-1-1")
    assert (Phase.STARTING, "its image is made ready", 0) == (report.phase, report.why, rig.alive("y-1-1"))
    rig.let_pass(5_000)
    report = look(rig, "y-1-1")
    assert (Outcome.FAILED, 125) == (report.outcome, report.exit_code)
    assert ("the registry does not answer", 0) == (report.why, rig.starts("y-1-1"))


def test_a_pull_is_broken_off_by_a_stop_and_by_a_crash_and_takes_its_time_otherwise() -> None:
    rig = rig_with()
    rig.pull_ms = 5_000
    for key in ("y-1-1", "y-2-1", "y-3-1"):
        start(rig, key)
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 60_000)])
    assert Outcome.CANCELLED is look(rig, "y-1-1").outcome
    rig.let_pass(5_000)
    assert (Phase.RUNNING, 1) == (look(rig, "y-2-1").phase, rig.alive("y-2-1"))
    assert 5_000 == look(rig, "y-2-1").started_ms - rig.engine.world.of("y-2-1")[0].started_ms
    start(rig, "y-4-1")
    rig.engine.crash(rig.node)
    rig.let_pass(9_000)
    rig.engine.mend(rig.node)
    assert (Outcome.NODE_FAIL, 0) == (look(rig, "y-4-1").outcome, rig.starts("y-4-1"))
