"""What every engine promises, whatever runs below it. Effects are seen outside the engine's own books."""

import json
import shutil
from collections.abc import Callable

import pytest

from contract.rigs import EPOCH, GPUS, Program, Rig, ended, launch, look, moments, until, until_alive
from gpuyard.engines.contract import (
    Answer,
    Container,
    HasFence,
    HasTerminals,
    LinkEnd,
    NewLimit,
    NoSuchPlace,
    Permanent,
    Phase,
    Recipe,
    Stale,
    StopRequest,
)
from gpuyard.engines.node.visits import frames
from gpuyard.model import Capability, Outcome
from harness.patience import patient
from rigs.visits.line import Line

DONE = [Answer.DONE]
LONG = Program(run_ms=60_000)


def start(rig: Rig, *launches: object, epoch: int = EPOCH) -> list[Answer]:
    return [reply.answer for reply in rig.engine.start(epoch, launches)]  # type: ignore[arg-type]


def stop(rig: Rig, key: str, outcome: Outcome = Outcome.CANCELLED, grace_ms: int = 400) -> list[Answer]:
    return [reply.answer for reply in rig.engine.stop(EPOCH, [StopRequest(key, outcome, grace_ms)])]


def given(rig: Rig, key: str, asked: tuple[int, ...]) -> list[int]:
    """The GPUs that the job has to see: those asked for, or where the engine chooses, as many as it says it gave."""
    if Capability.INDICES in rig.engine.capabilities:
        return list(asked)
    ((node, gpus),) = look(rig, key).gpus
    assert (rig.node, len(asked)) == (node, len(gpus))
    return list(gpus)


def test_success_and_exit_code(rig: Rig) -> None:
    assert DONE == start(rig, launch(rig, "y-1-1", Program(run_ms=20)))
    report = ended(rig, "y-1-1")

    assert (Outcome.COMPLETED, 0) == (report.outcome, report.exit_code)
    assert 1 == rig.starts("y-1-1")
    assert 0 == rig.alive("y-1-1")


def test_failure_and_exit_code(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(exit_code=3)))
    report = ended(rig, "y-1-1")

    assert (Outcome.FAILED, 3) == (report.outcome, report.exit_code)


def test_started_twice_with_one_key_runs_once_counted_by_the_job(rig: Rig) -> None:
    one = launch(rig, "y-1-1", Program(run_ms=100))

    assert DONE * 3 == start(rig, one, one) + start(rig, one)
    ended(rig, "y-1-1")
    assert DONE == start(rig, one)
    rig.let_pass(100)
    assert 1 == rig.starts("y-1-1")
    assert Phase.ENDED is look(rig, "y-1-1").phase


def test_the_unknown_is_unknown_and_may_be_stopped(rig: Rig) -> None:
    assert Phase.UNKNOWN is look(rig, "y-9-1").phase
    assert [Answer.BARRED] == stop(rig, "y-9-1")
    assert Phase.UNKNOWN is look(rig, "y-9-1").phase
    assert [] == rig.engine.listing()


def test_what_was_stopped_before_it_was_started_never_starts(rig: Rig) -> None:
    """The start was on its way when the stop overtook it."""
    assert [Answer.BARRED] == stop(rig, "y-1-1")
    assert [Answer.REFUSED] == start(rig, launch(rig, "y-1-1"))
    rig.let_pass(50)
    assert (0, Phase.UNKNOWN) == (rig.starts("y-1-1"), look(rig, "y-1-1").phase)
    assert [] == rig.engine.listing()


def test_stopped_twice_is_stopped_once(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", LONG))
    until_alive(rig, "y-1-1")

    assert DONE * 2 == stop(rig, "y-1-1") + stop(rig, "y-1-1", Outcome.PREEMPTED)
    report = ended(rig, "y-1-1")
    assert DONE == stop(rig, "y-1-1")
    assert Outcome.CANCELLED is report.outcome
    assert report == look(rig, "y-1-1")
    assert 0 == rig.alive("y-1-1")


def test_a_stop_is_seen_at_once_and_ended_only_when_all_is_gone(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=60_000, ignores_term=True)))
    until_alive(rig, "y-1-1")
    stop(rig, "y-1-1", grace_ms=300)

    assert Phase.STOPPING is look(rig, "y-1-1").phase
    assert 0 < rig.alive("y-1-1")
    ended(rig, "y-1-1")
    assert 0 == rig.alive("y-1-1")


def test_preempted_by_term_then_kill_after_the_grace(rig: Rig) -> None:
    """One that ignores TERM is killed after its grace, not before, and both ends are called PREEMPTED."""
    deaf = launch(rig, "y-1-1", Program(run_ms=60_000, ignores_term=True))
    start(rig, deaf, launch(rig, "y-2-1", LONG, job_id=2))
    until_alive(rig, "y-1-1")
    until_alive(rig, "y-2-1")
    rig.engine.stop(EPOCH, [StopRequest(key, Outcome.PREEMPTED, 500) for key in ("y-1-1", "y-2-1")])
    polite = ended(rig, "y-2-1")
    killed = ended(rig, "y-1-1")

    assert (Outcome.PREEMPTED, 128 + 15) == (polite.outcome, polite.exit_code)
    assert (Outcome.PREEMPTED, 128 + 9) == (killed.outcome, killed.exit_code)
    assert 400 <= killed.ended_ms - polite.ended_ms


def test_one_that_ended_before_it_was_told_keeps_its_own_end(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=10)))
    ended(rig, "y-1-1")
    stop(rig, "y-1-1", Outcome.PREEMPTED)

    assert Outcome.COMPLETED is ended(rig, "y-1-1").outcome


def test_the_time_limit_is_timeout(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", LONG, limit_ms=200))
    report = ended(rig, "y-1-1")

    assert Outcome.TIMEOUT is report.outcome
    assert 200 <= report.ended_ms - report.started_ms < 1000 * patient(5 * rig.slack)
    assert 0 == rig.alive("y-1-1")


def test_the_time_limit_kills_one_that_ignores_term(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=60_000, ignores_term=True), limit_ms=100, grace_ms=200))
    report = ended(rig, "y-1-1")

    assert Outcome.TIMEOUT is report.outcome
    assert 300 <= report.ended_ms - report.started_ms
    assert 0 == rig.alive("y-1-1")


def test_a_gang_runs_all_its_tasks_and_each_sees_the_gpus_of_all(rig: Rig) -> None:
    (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-1-1", Program(run_ms=50), gpus=(4, 5, 6, 7), tasks=2)])

    if Capability.GANG not in rig.engine.capabilities:
        assert (Answer.REFUSED, True) == (reply.answer, bool(reply.why))
        assert 0 == rig.starts("y-1-1")
        return
    assert Outcome.COMPLETED is ended(rig, "y-1-1").outcome
    assert 2 == rig.starts("y-1-1")
    assert [given(rig, "y-1-1", (4, 5, 6, 7))] * 2 == rig.gpus_seen("y-1-1")


def test_a_gang_ends_with_the_first_task_that_fails(rig: Rig) -> None:
    if Capability.GANG not in rig.engine.capabilities:
        pytest.skip("this engine runs no gangs")
    program = Program(run_ms=100, exit_code=7, only_rank=2)
    start(rig, launch(rig, "y-1-1", program, tasks=4))
    report = ended(rig, "y-1-1")

    assert (Outcome.FAILED, 7) == (report.outcome, report.exit_code)
    assert 4 == rig.starts("y-1-1")
    assert 0 == rig.alive("y-1-1")


def test_gpus_visible_inside_are_the_gpus_granted(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", gpus=(1, 3)), launch(rig, "y-2-1", gpus=(), job_id=2))
    ended(rig, "y-1-1")
    ended(rig, "y-2-1")

    assert [given(rig, "y-1-1", (1, 3))] == rig.gpus_seen("y-1-1")
    assert [[]] == rig.gpus_seen("y-2-1")


def test_two_jobs_at_a_time_never_see_the_same_gpu(rig: Rig) -> None:
    start(rig, *[launch(rig, f"y-{i}-1", LONG, gpus=(2 * i, 2 * i + 1), job_id=i) for i in range(4)])
    for i in range(4):
        until_alive(rig, f"y-{i}-1")
    seen = [gpu for i in range(4) for gpus in rig.gpus_seen(f"y-{i}-1") for gpu in gpus]
    rig.engine.stop(EPOCH, [StopRequest(f"y-{i}-1", Outcome.CANCELLED, 400) for i in range(4)])

    assert list(range(8)) == sorted(seen)
    for i in range(4):
        ended(rig, f"y-{i}-1")


def test_capacity_and_health(rig: Rig) -> None:
    (report,) = [each for each in rig.engine.nodes() if each.node.name == rig.node]

    assert (rig.node, True, GPUS, "A100-80GB") == (
        report.node.name,
        report.up,
        report.node.gpus,
        report.node.gpu_model,
    )
    assert 0 < report.node.cpu_milli
    assert 0 < report.node.memory_mib
    assert () == report.busy


def test_logs_are_readable_in_parts_after_the_end_and_after_forgetting(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(output="the quick brown fox")))
    ended(rig, "y-1-1")
    rig.engine.forget(EPOCH, ["y-1-1"])

    assert b"the quick brown fox" == rig.engine.log("y-1-1", "stdout", "", 1000).content.rstrip()
    assert b"quick" == rig.engine.log("y-1-1", "stdout", "4", 5).content
    assert b"" == rig.engine.log("y-1-1", "stdout", "1000", 10).content
    assert b"" == rig.engine.log("y-1-1", "stderr", "", 10).content
    assert b"" == rig.engine.log("y-9-1", "stdout", "", 10).content


def test_a_log_is_read_on_behind_a_cursor_by_another_object_over_its_world(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(output="the quick brown fox")))
    ended(rig, "y-1-1")
    first = rig.engine.log("y-1-1", "stdout", "", 9)
    again = rig.reopen()
    cursors, read = [first.after], first.content
    while (piece := again.log("y-1-1", "stdout", cursors[-1], 4)).content:
        read += piece.content
        cursors.append(piece.after)

    assert b"the quick brown fox" == read.rstrip()
    assert b"quick" == again.log("y-1-1", "stdout", again.log("y-1-1", "stdout", "", 4).after, 5).content
    assert piece.after == again.log("y-1-1", "stdout", piece.after, 4).after, "the end is a place too"
    assert all([len(each) <= 200 and each.isascii() and each.isprintable() for each in cursors])
    assert not [each for each in cursors if " " in each]
    with pytest.raises(NoSuchPlace):
        again.log("y-1-1", "stdout", "nowhere", 4)


def test_what_was_forgotten_is_unknown_and_never_runs_again(rig: Rig) -> None:
    one = launch(rig, "y-1-1")
    start(rig, one, launch(rig, "y-2-1", LONG, job_id=2))
    ended(rig, "y-1-1")
    until_alive(rig, "y-2-1")
    rig.engine.forget(EPOCH, ["y-1-1", "y-2-1", "y-9-1"])

    assert ["y-2-1"] == [report.key for report in rig.engine.listing()]
    assert Phase.UNKNOWN is look(rig, "y-1-1").phase
    assert [Answer.REFUSED] == start(rig, one)
    rig.let_pass(50)
    assert 1 == rig.starts("y-1-1")
    stop(rig, "y-2-1")
    ended(rig, "y-2-1")


def test_five_hundred_in_one_call_in_order(rig: Rig) -> None:
    start(rig, *[launch(rig, f"y-{i}-1", Program(exit_code=i), job_id=i) for i in range(4)])
    for i in range(4):
        ended(rig, f"y-{i}-1")
    keys = [f"y-{i % 4}-{1 + i % 2}" for i in range(500)]
    reports = rig.engine.status(keys)

    assert keys == [report.key for report in reports]
    assert {i if i % 2 == 0 else None for i in range(4)} == {
        report.exit_code if report.phase is Phase.ENDED else None for report in reports
    }


def test_a_new_control_plane_finds_what_runs(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=400, exit_code=5)), launch(rig, "y-2-1", job_id=2))
    until_alive(rig, "y-1-1")
    ended(rig, "y-2-1")
    rig.engine.close()
    rig.engine = rig.reopen()

    assert ["y-1-1", "y-2-1"] == [report.key for report in rig.engine.listing()]
    report = ended(rig, "y-1-1")
    assert (Outcome.FAILED, 5) == (report.outcome, report.exit_code)
    assert 1 == rig.starts("y-1-1")


def test_an_old_epoch_changes_nothing(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", LONG), epoch=2)
    until_alive(rig, "y-1-1")
    late = launch(rig, "y-2-1", job_id=2)

    acts: list[Callable[[], object]] = [
        lambda: rig.engine.start(1, [late]),
        lambda: rig.engine.stop(1, [StopRequest("y-1-1", Outcome.CANCELLED, 0)]),
        lambda: rig.engine.suspend(1, ["y-1-1"]),
        lambda: rig.engine.resume(1, ["y-1-1"]),
        lambda: rig.engine.forget(1, ["y-1-1"]),
    ]
    if Capability.NEW_LIMITS in rig.engine.capabilities:
        acts.append(lambda: limited(rig, "y-1-1", 1, epoch=1))
    for act in acts:
        with pytest.raises(Stale):
            act()
    rig.let_pass(50)
    assert 0 == rig.starts("y-2-1")
    assert Phase.RUNNING is look(rig, "y-1-1").phase
    assert DONE == [
        reply.answer for reply in rig.engine.stop(2, [StopRequest("y-1-1", Outcome.CANCELLED, 0)])
    ]
    ended(rig, "y-1-1")


def test_times_never_go_back(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=100)))
    begun = until(rig, "y-1-1", Phase.RUNNING)
    report = ended(rig, "y-1-1")

    assert 0 < begun.started_ms == report.started_ms
    assert report.started_ms + 100 <= report.ended_ms
    assert report == look(rig, "y-1-1")


def test_a_frozen_job_does_nothing_and_its_time_limit_waits(rig: Rig) -> None:
    limit_ms = 600 * rig.slack
    start(rig, launch(rig, "y-1-1", LONG, limit_ms=limit_ms))
    until_alive(rig, "y-1-1")
    until(rig, "y-1-1", Phase.RUNNING)

    (reply,) = rig.engine.suspend(EPOCH, ["y-1-1"])
    if Capability.SUSPEND not in rig.engine.capabilities:
        assert (Answer.REFUSED, True) == (reply.answer, bool(reply.why))
        assert Outcome.TIMEOUT is ended(rig, "y-1-1").outcome
        return
    assert Answer.DONE is reply.answer
    until(rig, "y-1-1", Phase.SUSPENDED)
    rig.let_pass(1_000 + limit_ms)
    assert Phase.SUSPENDED is look(rig, "y-1-1").phase
    assert DONE == [reply.answer for reply in rig.engine.resume(EPOCH, ["y-1-1"])]
    until(rig, "y-1-1", Phase.RUNNING)
    report = ended(rig, "y-1-1")
    assert Outcome.TIMEOUT is report.outcome
    assert 1_000 + 2 * limit_ms <= report.ended_ms - report.started_ms


def limited(rig: Rig, key: str, limit_ms: int, epoch: int = EPOCH) -> Answer:
    (reply,) = rig.engine.limit(epoch, [NewLimit(key, limit_ms)])  # type: ignore[attr-defined]
    return reply.answer


def test_a_running_job_gets_another_time_limit_counted_from_its_start(rig: Rig) -> None:
    if Capability.NEW_LIMITS not in rig.engine.capabilities:
        pytest.skip("this engine gives a running job no other limit")
    limit_ms = 900 * rig.slack
    start(
        rig,
        launch(rig, "y-1-1", LONG, limit_ms=60_000),
        launch(rig, "y-2-1", LONG, limit_ms=limit_ms, job_id=2),
    )
    for key in ("y-1-1", "y-2-1"):
        until_alive(rig, key)
        until(rig, key, Phase.RUNNING)
    assert (60_000, limit_ms) == (look(rig, "y-1-1").limit_ms, look(rig, "y-2-1").limit_ms)

    assert DONE * 2 == [limited(rig, "y-1-1", limit_ms), limited(rig, "y-2-1", 60_000)]
    assert [Answer.UNSURE] == [limited(rig, "y-9-1", 5)]
    short = ended(rig, "y-1-1")
    assert Outcome.TIMEOUT is short.outcome
    assert limit_ms <= short.ended_ms - short.started_ms < 30_000
    rig.let_pass(1_000)
    long = look(rig, "y-2-1")
    assert (Phase.RUNNING, 60_000) == (long.phase, long.limit_ms)
    assert DONE == [limited(rig, "y-2-1", 1)], "it has run for longer than that"
    assert Outcome.TIMEOUT is ended(rig, "y-2-1").outcome


def test_a_frozen_job_can_be_stopped(rig: Rig) -> None:
    if Capability.SUSPEND not in rig.engine.capabilities:
        pytest.skip("this engine freezes no jobs")
    start(rig, launch(rig, "y-1-1", LONG))
    until_alive(rig, "y-1-1")
    # Its tasks may be up before the engine has heard of it, and then it is refused.
    until(rig, "y-1-1", Phase.RUNNING)
    assert DONE == [reply.answer for reply in rig.engine.suspend(EPOCH, ["y-1-1"])]
    until(rig, "y-1-1", Phase.SUSPENDED)
    stop(rig, "y-1-1", grace_ms=5_000)
    report = ended(rig, "y-1-1")

    assert (Outcome.CANCELLED, 128 + 15) == (report.outcome, report.exit_code)


def test_what_does_not_run_cannot_be_frozen(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1"))
    ended(rig, "y-1-1")

    replies = rig.engine.suspend(EPOCH, ["y-1-1", "y-9-1"]) + rig.engine.resume(EPOCH, ["y-9-1"])
    assert [Answer.REFUSED] * 3 == [reply.answer for reply in replies]


def test_what_can_never_run_is_refused_in_words_and_leaves_nothing(rig: Rig) -> None:
    bad = [
        launch(rig, "y-1-1", node="elsewhere"),
        launch(rig, "y-2-1", gpus=(GPUS,)),
        launch(rig, "y-3-1", recipe=Recipe()),
        launch(rig, "y-4-1", recipe=Recipe(argv=("echo", "a\0b"))),
        launch(rig, "y-5-1", recipe=Recipe(argv=("env",), env={"A": "\0"})),
    ]
    replies = rig.engine.start(EPOCH, bad)

    assert [Answer.REFUSED] * len(bad) == [reply.answer for reply in replies]
    assert all(reply.why for reply in replies)
    assert [] == rig.engine.listing()


def test_a_share_runs_only_where_there_is_the_capability(rig: Rig) -> None:
    (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-1-1", gpus=(0,), milli=500)])

    if Capability.SHARES in rig.engine.capabilities:
        assert Answer.DONE is reply.answer
        ended(rig, "y-1-1")
        assert 1 == rig.starts("y-1-1")
    else:
        assert Answer.REFUSED is reply.answer
        assert 0 == rig.starts("y-1-1")


def test_a_bad_one_does_not_hold_up_the_others(rig: Rig) -> None:
    mixed = [launch(rig, "y-1-1"), launch(rig, "y-2-1", recipe=Recipe()), launch(rig, "y-3-1", job_id=3)]

    assert [Answer.DONE, Answer.REFUSED, Answer.DONE] == start(rig, *mixed)
    assert [Outcome.COMPLETED] * 2 == [ended(rig, key).outcome for key in ("y-1-1", "y-3-1")]


def test_checkpoints_are_seen(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=1000, saves=True)), launch(rig, "y-2-1", job_id=2))
    until_alive(rig, "y-1-1")
    report = look(rig, "y-1-1")
    for _ in range(100):
        if report.checkpoint_ms:
            break
        # A busy machine may take a while to get to the line that saves.
        rig.let_pass(20)
        report = look(rig, "y-1-1")

    # The clock of a file system may be some milliseconds behind.
    assert report.started_ms - 10 <= report.checkpoint_ms
    assert report.checkpoint_ms <= ended(rig, "y-1-1").checkpoint_ms
    assert 0 == ended(rig, "y-2-1").checkpoint_ms


def test_an_end_wakes_who_waits(rig: Rig) -> None:
    start(rig, launch(rig, "y-1-1", Program(run_ms=100)))
    rig.let_pass(100)

    assert rig.engine.wait(10.0)
    assert Phase.ENDED is look(rig, "y-1-1").phase
    assert not rig.engine.wait(0.01)


def test_an_image_that_is_not_there_fails_in_words_and_nothing_runs(rig: Rig) -> None:
    absent = "localhost/absent:1"
    recipe = Recipe(argv=("true",), containers=(Container(absent, pull="never"),))
    (reply,) = rig.engine.start(EPOCH, [launch(rig, "y-1-1", recipe=recipe)])

    if Capability.IMAGES not in rig.engine.capabilities:
        assert (Answer.REFUSED, True) == (reply.answer, bool(reply.why))
        return
    assert Answer.DONE is reply.answer
    report = ended(rig, "y-1-1")
    assert (Outcome.FAILED, 125) == (report.outcome, report.exit_code)
    installed = not rig.processes or shutil.which("podman")
    assert (absent if installed else "is not installed") in report.why
    assert 0 == rig.alive("y-1-1")


def test_the_keeper_of_terminals_and_a_shell_beside_a_job_end_with_its_attempt(rig: Rig) -> None:
    engine = rig.engine
    if not (isinstance(engine, HasTerminals) and rig.processes):
        pytest.skip("this engine has no terminals of processes of this machine")
    start(rig, launch(rig, "y-1-1", LONG))
    until_alive(rig, "y-1-1")
    for _ in moments(rig):
        if (link := engine.terminal("y-1-1", own=False)) is not None:
            break
        rig.let_pass(20)
    assert link is not None
    with pytest.raises(Permanent):
        engine.terminal("y-1-1", own=True)
    with Line(link) as line:
        asked = {"do": "shell", "argv": ["sh", "-c", "echo up; exec sleep 900"]}
        line.send(frames.HELLO, json.dumps(asked).encode())
        shown = b""
        while b"up" not in shown:
            kind, content, end = line.receive()
            assert end is None, content
            shown += content if kind == frames.DATA else b""
        assert 2 <= rig.alive("y-1-1")
        stop(rig, "y-1-1")
        ended(rig, "y-1-1")
        assert 0 == rig.alive("y-1-1"), "the shell has gone with it"
        *_more, last = line.frames()
        assert last.end in LinkEnd, "it ends with a word and never by silence"
    assert engine.terminal("y-1-1", own=False) is None


def test_what_an_engine_says_of_its_fence_is_whole_and_holds_for_memory(rig: Rig) -> None:
    if not (isinstance(rig.engine, HasFence) and rig.processes):
        pytest.skip("this engine fences no processes of this machine")
    told = {each.kind: each for each in rig.engine.protections()}

    assert {"whole GPU", "slice", "share", "memory", "cores"} <= told.keys()
    assert {"yes", "partly", "no"} >= {each.enforced for each in told.values()}
    assert all([each.by for each in told.values()])
    takes = "#!/usr/bin/env python3\nprint(len(b'x' * (200 << 20)))\n"
    start(rig, launch(rig, "y-1-1", recipe=Recipe(script=takes)))
    report = ended(rig, "y-1-1")
    held = told["memory"].enforced == "yes"
    assert (Outcome.OUT_OF_MEMORY if held else Outcome.COMPLETED) is report.outcome, report
