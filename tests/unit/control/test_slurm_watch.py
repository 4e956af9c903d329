"""An observed cluster: what is seen is written once, with its own times, whatever comes late or twice."""

from collections.abc import Iterator
from dataclasses import replace
from inspect import getattr_static
from pathlib import Path

import pytest

from gpuyard.control.loop.observing import LOST_MS
from gpuyard.control.refusals import NotFound
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.views.explanations import Explained
from gpuyard.control.views.views import Views
from gpuyard.engines.contract import (
    Answer,
    HasDaemonLogs,
    HasTelemetry,
    Permanent,
    ReadsOutputs,
    StopRequest,
)
from gpuyard.engines.observer import LooksOn, Observer
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.observed import ObservedSlurm, key_of
from gpuyard.engines.slurm.site.accounting import Jobs
from gpuyard.model import JobState, Outcome
from rigs.request_service import listed
from rigs.slurm.world import T0_MS, Watched, World, attempt


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(World(), tmp_path / "yard.db")
    yield found
    found.close()


def at(second: int) -> int:
    return T0_MS + 1000 * second


def test_a_job_from_its_submission_to_its_end(watched: Watched) -> None:
    world = watched.world
    world.tries = [attempt("7", 1, 20, 40, gpus=8)]

    watched.look()
    (record,) = watched.replica.state.jobs.values()
    assert (JobState.PENDING, "7", "research/nlp/ann") == (
        record.state, record.job.label, record.job.spec.tenant,
    )  # fmt: skip
    watched.look(20)
    assert (JobState.RUNNING, at(20), 0) == (
        record.state, record.started_ms, watched.replica.state.nodes.free_mask[0],
    )  # fmt: skip
    watched.look(20)
    assert {} == watched.replica.state.jobs
    assert [(f"7@{at(1)}", "COMPLETED", at(20), at(40), 8)] == watched.ended()
    assert 255 == watched.replica.state.nodes.free_mask[0]


def test_rows_that_cannot_be_read_are_told_of(watched: Watched) -> None:
    """Nobody is charged for them, and so somebody should know."""
    watched.world.tries = [attempt("7", 0, 2)]
    rows = watched.world.queue().rows
    bad = Jobs(rows, 2, ["line 3: mixes MIG slices with other GPUs"])
    watched.world.queue_told = bad

    assert ["queue: 2 rows could not be read: line 3: mixes MIG slices with other GPUs"] == watched.look()
    assert ["7"] == [record.job.label for record in watched.replica.state.jobs.values()]


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_that_was_changed_while_it_waited_is_charged_as_it_runs(
    watched: Watched, restart: bool
) -> None:
    """`scontrol update` takes another account and more GPUs from a job's user until it starts."""
    world = watched.world
    world.tries = [attempt("7", 0, 20, 40, gpus=1)]
    watched.look()
    world.tries = [attempt("7", 0, 20, 40, gpus=8, account="other")]
    watched.look(20)
    (record,) = watched.replica.state.jobs.values()
    assert ("7", "other/ann", JobState.RUNNING, 8) == (
        record.job.label, record.job.spec.tenant, record.state, record.shape.gpus,
    )  # fmt: skip
    assert 0 == watched.replica.state.nodes.free_mask[0]
    if restart:
        watched.restart()

    watched.look(20)
    watched.look(60)
    if restart:
        watched.restart()
    watched.look(60)

    assert {} == watched.replica.state.jobs
    key = f"7@{at(0)}"
    cancelled, ran = watched.ended()
    assert (key, "CANCELLED", 1) == (cancelled[0], cancelled[1], cancelled[4])
    assert (key, "COMPLETED", at(20), at(40), 8) == ran


def test_a_workload_key_is_the_project(watched: Watched) -> None:
    watched.world.tries = [
        attempt("7", 0, 20, 40, wckey="vision"),
        attempt("8", 0, 20, 40),
        attempt("9", 0, 20, 40, wckey="q" * 127 + "  é"),
    ]
    watched.look()

    assert {"7": {"project": "vision"}, "8": {}, "9": {"project": "q" * 127}} == {
        record.job.label: dict(record.job.spec.labels) for record in watched.replica.state.jobs.values()
    }


def test_a_job_that_got_another_workload_key_is_booked_by_that(watched: Watched) -> None:
    watched.world.tries = [attempt("7", 0, 20, 40, wckey="one")]
    watched.look()
    watched.world.tries = [attempt("7", 0, 20, 40, wckey="two")]
    watched.look(20)

    (record,) = watched.replica.state.jobs.values()
    assert (JobState.RUNNING, (("project", "two"),)) == (record.state, record.job.spec.labels)
    watched.look(20)
    assert ["CANCELLED", "COMPLETED"] == [row[1] for row in watched.ended()]


def test_accounts_and_users_may_be_called_otherwise(watched: Watched) -> None:
    world = watched.world
    world.names |= {"_x": "nlp", "ann": "ann-2"}
    world.tries = [attempt("7", 0, 20, 40, account="_x"), attempt("8", 0, 20, 40, account="y")]
    watched.look()

    assert {"7": "research/nlp/ann-2", "8": "y/ann-2"} == {
        record.job.label: record.job.spec.tenant for record in watched.replica.state.jobs.values()
    }


def test_a_job_that_is_what_it_was_is_one_job(watched: Watched) -> None:
    watched.world.tries = [attempt("7", 0, 20, 40, gpus=8), attempt("8", 0, 20, 40, gpus=0, nodes=("n2",))]
    watched.look()
    watched.look(20)
    watched.look(20)

    assert 2 == len(watched.ended())


def test_an_end_that_is_still_to_come_is_none(watched: Watched) -> None:
    """A state that nobody here knows, with the end of the time limit beside it."""
    odd = attempt("7", 0, 2, 3600, "BRANDNEW", gpus=8)
    watched.world.tries = [attempt("7", 0, 2, 3600, gpus=8)]
    watched.look()
    watched.world.queue_told = Jobs([odd])

    watched.look()

    assert ([JobState.RUNNING], []) == (
        [record.state for record in watched.replica.state.jobs.values()], watched.ended(),
    )  # fmt: skip


def test_what_happened_before_the_first_look_has_its_own_times(watched: Watched) -> None:
    day = -86_400
    watched.world.tries = [
        attempt("1", 20 * day, 20 * day + 5, 20 * day + 905, gpus=4),
        attempt("2", 3 * day, 3 * day + 5, 3 * day + 3605, "FAILED", gpus=2, exit_code=3),
        attempt("3", 2 * day, None, 2 * day + 60, "CANCELLED"),
        attempt("4", -60, -30, None, "RUNNING", gpus=8, nodes=("n2",)),
    ]

    watched.look()

    assert [
        (f"1@{at(20 * day)}", "COMPLETED", at(20 * day + 5), at(20 * day + 905), 4),
        (f"2@{at(3 * day)}", "FAILED", at(3 * day + 5), at(3 * day + 3605), 2),
        (f"3@{at(2 * day)}", "CANCELLED", 0, at(2 * day + 60), 1),
    ] == watched.ended()
    (record,) = watched.replica.state.jobs.values()
    assert (at(-30), "4") == (record.started_ms, record.job.label)
    # What was used long ago has faded.
    assert watched.replica.state.tenants.usage[0] > 0


def test_a_requeued_job_is_two_tries_and_a_reused_id_another_job(watched: Watched) -> None:
    watched.world.tries = [
        attempt("6", 0, 1, 10, "PREEMPTED", gpus=8),
        attempt("6", 10, 30, 50, gpus=8),
        attempt("6", 4000, 4001, 4002, "FAILED", exit_code=1),
    ]

    views = Views(watched.replica, lambda: watched.world.now_ms)
    watched.look(20)
    watched.look()
    (first,) = views.job(parse_label("6"))["tries"]
    for _ in range(3):
        watched.look(30)
    assert 2 == len(watched.ended())
    tries = views.job(parse_label("6"))["tries"]
    assert [(1, "CANCELLED", at(1), at(10), ["n1"]), (2, "COMPLETED", at(30), at(50), ["n1"])] == [
        tuple(each[name] for name in ("attempt", "outcome", "started_ms", "ended_ms", "nodes"))
        for each in tries
    ]
    assert ("preempted by Slurm, which lets it wait again", tries[0]) == (first["why"], first)
    watched.look(4000)

    assert [
        (f"6@{at(0)}", "CANCELLED", at(1), at(10), 8),
        (f"6@{at(10)}", "COMPLETED", at(30), at(50), 8),
        (f"6@{at(4000)}", "FAILED", at(4001), at(4002), 1),
    ] == watched.ended()
    # The id stands for the last of them, which has nothing to do with the others.
    last = views.job(parse_label("6"))
    assert ("6", "FAILED", []) == (last["label"], last["state"], last["tries"])


def test_slurmctld_and_slurmdbd_out_of_reach_conclude_nothing(watched: Watched) -> None:
    world = watched.world
    world.tries = [attempt("7", 1, 2, 100)]
    watched.look()
    world.silent = {"queue", "history", "nodes"}

    for _ in range(30):
        errors = watched.look(60)
    assert any("queue: nobody answers" in error for error in errors)
    (record,) = watched.replica.state.jobs.values()
    assert JobState.RUNNING is record.state

    world.silent = {"queue"}
    watched.look(60)
    assert [(f"7@{at(1)}", "COMPLETED", at(2), at(100), 1)] == watched.ended()


def test_the_accounting_may_lag_and_the_yard_be_away(watched: Watched) -> None:
    world = watched.world
    world.tries = [attempt("7", 1, 2, 100), attempt("8", 1, 3, 90, nodes=("n2",))]
    world.lag_ms = lambda _row: 1_800_000
    watched.look()
    # It is not looked at for so long that the queue has forgotten both.
    watched.look(600)
    assert 2 == len(watched.replica.state.running)
    watched.restart()
    watched.look(300)
    assert (2, []) == (len(watched.replica.state.running), watched.ended())
    watched.look(2000)
    assert [(at(2), at(100)), (at(3), at(90))] == [row[2:4] for row in watched.ended()]


def test_asking_far_back_for_one_job_counts_no_other_again(watched: Watched) -> None:
    day = -86_400
    world = watched.world
    world.tries = [
        attempt("1", 5 * day, 5 * day + 1, 4 * day, gpus=2),
        attempt("2", 6 * day, 6 * day + 1, 100, nodes=("n2",)),
        attempt("3", -100, -90, -80),
    ]
    watched.look()
    watched.restart()
    watched.look(30)
    # The queue has forgotten how the long one ended, and the accounting is asked about six days.
    watched.look(600)
    watched.look(40)

    assert ["1", "2", "3"] == [row[0].partition("@")[0] for row in watched.ended()]


def test_a_job_that_nobody_tells_of_any_more_is_given_up(watched: Watched) -> None:
    world = watched.world
    world.tries = [attempt("7", 1, 2, None, "RUNNING"), attempt("8", 1)]
    world.tries[1] = replace(world.tries[1], state="PENDING")
    watched.look()
    world.tries = []

    watched.look(30)
    assert 2 == len(watched.replica.state.jobs)
    # Silence of the accounting does not count: it has not been asked, whatever the queue says.
    world.silent = {"history"}
    watched.look(LOST_MS / 1000)
    watched.look(60)
    assert 2 == len(watched.replica.state.jobs)
    world.silent = set()
    watched.look(60)
    watched.look(LOST_MS / 1000)
    watched.look(40)

    assert {"7": "NODE_FAIL", "8": "CANCELLED"} == {
        row[0].partition("@")[0]: row[1] for row in watched.ended()
    }
    assert {} == watched.replica.state.jobs


def test_jobs_on_hold_suspended_and_of_arrays(watched: Watched) -> None:
    world = watched.world
    held = replace(attempt("5_3", 1, eligible_s=None), state="PENDING", reason="JobHeldUser")
    world.tries = [held, replace(attempt("9", 1, 2, None, "SUSPENDED"))]
    watched.look()
    by_label = {record.job.label: record for record in watched.replica.state.jobs.values()}
    assert (True, JobState.SUSPENDED) == (by_label["5_3"].held, by_label["9"].state)

    world.tries = [replace(held, eligible_ms=at(5), reason=""), attempt("9", 1, 2, None, "RUNNING")]
    watched.look()
    assert (False, JobState.RUNNING) == (by_label["5_3"].held, by_label["9"].state)


def test_nodes_are_drained_go_down_and_come_back(watched: Watched) -> None:
    world, state = watched.world, watched.replica.state
    world.tries = [attempt("7", 1, 2, None, "RUNNING", nodes=("n1",))]
    watched.look()
    world.states = {"n1": "MIXED+DRAIN", "n2": "DOWN*"}
    watched.look(40)
    assert ("bad fan", "down*: bad fan") == (state.nodes.cordoned[0], state.nodes.down[1])
    # Slurm starts something where the replica held the node closed: then it is open.
    world.tries.append(attempt("8", 50, 51, None, "RUNNING", nodes=("n2",)))
    world.states = {}
    watched.look(40)
    assert [("", ""), ("", "")] == list(zip(state.nodes.cordoned, state.nodes.down, strict=True))
    assert 2 == len(state.running)


def test_more_than_the_books_have_room_for_is_counted_all_the_same(watched: Watched) -> None:
    watched.world.tries = [attempt(str(n), 1, 2, 60, gpus=8) for n in (1, 2, 3)]

    watched.look()
    assert 3 == len(watched.replica.state.running)
    watched.look(90)

    assert [8, 8, 8] == [row[4] for row in watched.ended()]
    assert [255, 255] == watched.replica.state.nodes.free_mask


def test_jobs_of_nodes_that_are_gone_are_told_of_not_guessed(watched: Watched) -> None:
    watched.world.tries = [attempt("1", -500, -400, -300, nodes=("old7",))]

    assert any("1 jobs ran on nodes that Slurm no longer has" in error for error in watched.look())
    assert [] == watched.ended()


def test_why_has_slurms_reason_and_ours(watched: Watched) -> None:
    world = watched.world
    world.tries = [
        *[attempt(str(n), 1, 2, None, "RUNNING", gpus=8, nodes=(f"n{n}",)) for n in (1, 2)],
        replace(attempt("9", 3, gpus=8), state="PENDING", reason="QOSMaxGRESPerUser"),
    ]
    watched.look()

    def said(record) -> str:
        told = watched.watcher.waiting.get(record.job.spec.origin)
        return told.reason if told is not None else ""

    found = Explained(watched.replica, lambda: world.now_ms, said, said_by=lambda _: "Slurm").why(
        parse_label("9")
    )

    assert ("9", "QOSMaxGRESPerUser", "Slurm") == (found["label"], found["said"], found["said_by"])
    assert ["ROOM"] == [each["code"] for each in found["blockers"]]
    views = Views(watched.replica, lambda: world.now_ms, said)
    assert "QOSMaxGRESPerUser" == listed(views)["rows"][-1][-1]
    with pytest.raises(NotFound):
        views.job(parse_label("77"))


def test_only_commands_that_read_are_run() -> None:
    engine = ObservedSlurm("rig", Commands(folder="/nonexistent"))
    for words in (
        ("scancel", "7"),
        ("scontrol", "update", "x"),
        ("sbatch", "x"),
        ("sacctmgr", "-i", "add", "x"),
    ):
        with pytest.raises(Permanent, match="never touched"):
            engine.ask(*words)
    looks_on = LooksOn("rig", engine)
    assert Answer.REFUSED is looks_on.stop(1, [StopRequest("k", Outcome.CANCELLED, 0)])[0].answer
    with pytest.raises(Permanent, match="there is no program squeue"):
        engine.queue()


def test_what_an_observer_can_do_is_seen_where_an_engine_is_wanted() -> None:
    """Also by a Python from 3.12 on, for which a protocol is not met by `__getattr__`."""
    looks_on = LooksOn("rig", ObservedSlurm("rig", Commands(folder="/nonexistent")))
    assert [True] * 3 == [isinstance(looks_on, each) for each in (Observer, ReadsOutputs, HasDaemonLogs)]
    assert not isinstance(looks_on, HasTelemetry)
    for name in ("scheduler", "jobs", "ended", "close", "output", "daemon_lines"):
        getattr_static(looks_on, name)


def test_a_key_tells_tries_apart() -> None:
    assert key_of(attempt("4_3", 1)) != key_of(attempt("4_3", 2))


def test_a_node_that_is_in_no_partition_any_more_stays_as_it_was(
    watched: Watched,
) -> None:
    watched.look()
    reports = watched.world.nodes()
    out = [replace(each, node=replace(each.node, pool="", gpus=4)) for each in reports]
    new = replace(out[0], node=replace(out[0].node, name="n9"))
    watched.world.nodes_told = (*out, new)
    watched.look(60)

    state = watched.replica.state
    assert [("main", 8, ""), ("main", 8, "")] == [
        (node.pool, node.gpus, down) for node, down in zip(state.nodes.node, state.nodes.down, strict=True)
    ]
