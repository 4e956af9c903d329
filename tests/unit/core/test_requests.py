"""What people ask for, what fails and is tried again, and GPUs that others use: folded from the log."""

import pytest

from gpuyard.core import InvalidEvent, apply, decide, explain
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.core.state.fold import RETRY_FIRST_MS, RETRY_MAX_MS
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    AttemptStopping,
    AttemptUnknown,
    EarmarkSet,
    Event,
    GpusTaken,
    Grant,
    Job,
    JobContinued,
    JobSpec,
    JobState,
    JobSubmitted,
    JobSuspended,
    NodeChanged,
    NodeDown,
    NodeUp,
    Outcome,
    Requested,
    StopCause,
    Ticked,
    Verb,
    Whole,
)
from gpuyard.testing import node, nodes
from harness.yard import Yard

ROOM = (Grant(0, 1, 1000, 1000, 1024, 1),)


def yard(*events: Event, **spec: object) -> Yard:
    """One node, and job 1 on it with an attempt that runs."""
    here = Yard("fifo", [node("n0", 4, cpu_milli=8000, memory_mib=8192)])
    ask = Ask(Whole(1), cpu_milli=1000, memory_mib=1024)
    apply(here.state, JobSubmitted(0, Job(1, JobSpec("t", ask, **spec), 0)))  # type: ignore[arg-type]
    for event in events:
        apply(here.state, event)
    return here


def running(**spec: object) -> Yard:
    return yard(AttemptStarted(0, 1, 1, ROOM), AttemptConfirmed(0, 1, 1), **spec)


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("before", ["nothing", "waiting", "running", "stopping"])
def test_a_request_can_always_be_folded(verb: Verb, before: str) -> None:
    here = {"nothing": Yard, "waiting": yard, "running": running, "stopping": running}[before]()
    if before == "stopping":
        apply(here.state, AttemptStopping(1, 1, 1, StopCause.CLASS))
    apply(here.state, Requested(2, 1, verb, "ada"))
    loaded = load(dump(here.state))
    assert canonical(here.state) == canonical(loaded)


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_marked() -> None:
    waiting, busy = yard(), running()
    for here in (waiting, busy):
        apply(here.state, Requested(2, 1, Verb.CANCEL))
    assert {} == waiting.state.jobs
    assert Verb.CANCEL is busy.state.jobs[1].wanted
    apply(busy.state, Requested(3, 1, Verb.REQUEUE))
    assert Verb.CANCEL is busy.state.jobs[1].wanted


@pytest.mark.parametrize("outcome", [Outcome.PREEMPTED, Outcome.NODE_FAIL])
def test_who_was_to_be_cancelled_does_not_come_back(outcome: Outcome) -> None:
    here = running()
    record = here.state.jobs[1]
    apply(here.state, Requested(2, 1, Verb.CANCEL))
    apply(here.state, AttemptEnded(3, 1, 1, outcome))
    assert JobState.CANCELLED is record.state
    assert {} == here.state.jobs


def test_held_until_released() -> None:
    here = yard(Requested(1, 1, Verb.HOLD))
    assert [] == here.started(here.decide())
    apply(here.state, Requested(2, 1, Verb.RELEASE))
    assert [1] == here.started(here.decide())


def test_a_job_that_fails_is_tried_again_later_and_later_and_not_for_ever() -> None:
    here = running(retries=2)
    record = here.state.jobs[1]
    apply(here.state, AttemptEnded(100, 1, 1, Outcome.FAILED, exit_code=3))
    assert (JobState.PENDING, 100 + RETRY_FIRST_MS) == (record.state, record.begin_ms)
    assert 100 + RETRY_FIRST_MS == here.state.wake_ms()
    apply(here.state, Ticked(100 + RETRY_FIRST_MS))
    apply(here.state, AttemptStarted(20_000, 1, 2, ROOM))
    apply(here.state, AttemptEnded(20_001, 1, 2, Outcome.FAILED))
    assert 20_001 + 2 * RETRY_FIRST_MS == record.begin_ms
    # Who releases it does not want it to wait.
    apply(here.state, Requested(20_002, 1, Verb.RELEASE))
    apply(here.state, AttemptStarted(20_003, 1, 3, ROOM))
    apply(here.state, AttemptEnded(20_004, 1, 3, Outcome.FAILED))
    assert (JobState.FAILED, {}) == (record.state, here.state.jobs)
    assert RETRY_FIRST_MS << 16 > RETRY_MAX_MS


def test_a_job_that_fails_for_good_is_not_tried_again() -> None:
    here = running(retries=2)
    record = here.state.jobs[1]
    apply(here.state, AttemptEnded(5, 1, 1, Outcome.FAILED, exit_code=125, for_good=True))
    assert (JobState.FAILED, {}) == (record.state, here.state.jobs)


def test_a_lost_node_ends_a_job_that_may_not_be_requeued() -> None:
    here = running(requeue=False)
    record = here.state.jobs[1]
    apply(here.state, AttemptEnded(5, 1, 1, Outcome.NODE_FAIL))
    assert JobState.NODE_FAIL is record.state


def test_an_unknown_attempt_keeps_its_gpus_until_it_is_seen_again() -> None:
    here = running()
    apply(here.state, AttemptUnknown(1, 1, 1))
    assert AttemptState.UNKNOWN is here.state.jobs[1].phase
    assert 0b1110 == here.state.nodes.free_mask[0]
    apply(here.state, AttemptConfirmed(2, 1, 1))
    assert AttemptState.RUNNING is here.state.jobs[1].phase


def test_a_frozen_attempt_that_could_not_be_asked_is_frozen_still_and_goes_on_when_told() -> None:
    here = running()
    record = here.state.jobs[1]
    end_ms = record.end_ms
    apply(here.state, JobSuspended(2, 1))
    apply(here.state, AttemptUnknown(3, 1, 1))
    apply(here.state, Requested(4, 1, Verb.CONTINUE))
    apply(here.state, AttemptConfirmed(5, 1, 1))
    assert (AttemptState.SUSPENDED, Verb.CONTINUE) == (record.phase, record.wanted)
    # A log of an earlier release tells it twice.
    apply(here.state, JobSuspended(6, 1))
    apply(here.state, JobContinued(12, 1))
    assert (JobState.RUNNING, AttemptState.RUNNING, None) == (record.state, record.phase, record.wanted)
    assert end_ms + 10 == record.end_ms


def test_a_wish_to_suspend_is_over_once_it_stands_still() -> None:
    here = running()
    apply(here.state, Requested(1, 1, Verb.SUSPEND))
    apply(here.state, JobSuspended(2, 1))
    assert None is here.state.jobs[1].wanted


def test_gpus_that_others_use_are_not_given_out() -> None:
    here = Yard("fifo", nodes(1, gpus=4))
    apply(here.state, GpusTaken(0, 0, 0b0111, "GPU 0: pid 7 of ada"))
    here.submit(2)
    assert [] == here.started(here.step())
    loaded = load(dump(here.state))
    assert canonical(here.state) == canonical(loaded)
    assert here.state.nodes.free_mask == loaded.nodes.free_mask
    told = [reason.text for reason in explain(here.state, here.policy, 1, here.now_ms).reasons]
    assert "3 x H100 of h100-0 are used outside the yard: GPU 0: pid 7 of ada" in told
    apply(here.state, GpusTaken(1, 0, 0b0001, "GPU 0: pid 7 of ada"))
    assert [1] == here.started(here.step())


def test_a_gpu_that_someone_else_enters_while_it_is_held_is_not_free_afterwards() -> None:
    here = running()
    apply(here.state, GpusTaken(1, 0, 0b0001, "GPU 0: pid 7 of ada"))
    apply(here.state, AttemptEnded(2, 1, 1, Outcome.COMPLETED))
    assert 0b1110 == here.state.nodes.free_mask[0]
    apply(here.state, GpusTaken(3, 0, 0, ""))
    assert 0b1111 == here.state.nodes.free_mask[0]


@pytest.mark.parametrize(
    "grant",
    [
        Grant(0, 0b100, 1000, 9000, 0, 1),
        Grant(0, 0b100, 1000, 0, 9000, 1),
        Grant(0, 0b001, 1000, 0, 0, 1),
    ],
    ids=["cores", "memory", "GPU"],
)
def test_a_start_without_room_is_refused_and_changes_nothing(grant: Grant) -> None:
    here = yard(GpusTaken(0, 0, 0b0001, "GPU 0: pid 7 of ada"))
    apply(here.state, EarmarkSet(1, 1, (Grant(0, 0b10, 1000, 0, 0, 1),), 10_000))
    before = canonical(here.state)
    with pytest.raises(InvalidEvent, match="its room is taken"):
        apply(here.state, AttemptStarted(1, 1, 1, (grant,)))
    assert before == canonical(here.state)


def test_a_start_on_a_node_that_is_down_is_refused() -> None:
    here = yard(NodeDown(0, 0, "gone"))
    with pytest.raises(InvalidEvent, match="its room is taken"):
        apply(here.state, AttemptStarted(1, 1, 1, ROOM))


def test_a_node_with_other_hardware_is_taken_for_what_it_is_once_it_is_empty() -> None:
    here = Yard("fifo", [*nodes(1, gpus=4), node("other", 2, "A100-80GB")])
    now = node("h100-0", 8, "H200")
    apply(here.state, GpusTaken(0, 0, 0b0011, "GPU 0: pid 7 of ada"))
    here.submit(2)
    apply(here.state, AttemptStarted(0, 1, 1, (Grant(0, 0b1100, 1000, 0, 0, 1),)))
    with pytest.raises(InvalidEvent, match="something is on it"):
        apply(here.state, NodeChanged(1, 0, now))
    apply(here.state, AttemptEnded(1, 1, 1, Outcome.COMPLETED))
    apply(here.state, NodeDown(2, 0, "swapped"))
    apply(here.state, NodeChanged(3, 0, now))
    apply(here.state, NodeUp(4, 0))
    loaded = load(dump(here.state))
    assert canonical(here.state) == canonical(loaded)
    assert [8, 2] == [mask.bit_count() for mask in here.state.nodes.free_mask]
    assert 10_000 == sum(here.state.nodes.up_milli) == sum(loaded.nodes.up_milli)
    apply(here.state, JobSubmitted(5, Job(2, JobSpec("t", Ask(Whole(8), models=("H200",))), 5)))
    assert [2] == here.started(here.decide())
    assert [2] == [start.job_id for start in decide(load(dump(here.state)), here.policy, 5).starts]
