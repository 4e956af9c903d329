"""The control loop, step by step, on an engine whose every answer the test decides."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gpuyard.control.loop.act import ACT_NS, AT_ONCE_MAX, AT_ONCE_MIN
from gpuyard.control.loop.driving import LISTING_EVERY_MS, LOST_MS
from gpuyard.control.loop.loop import DOOMED_MAX, Controller
from gpuyard.control.replica.labels import Label
from gpuyard.control.replica.replica import Replica
from gpuyard.control.views.views import Views
from gpuyard.core.state.dump import canonical
from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    ForeignProcess,
    Launch,
    NewLimit,
    NodeReport,
    Part,
    Phase,
    Recipe,
    Reply,
    Stale,
    StopRequest,
    Transient,
)
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    AttemptStarted,
    AttemptState,
    ConfigSet,
    DemandLearned,
    JobCancelled,
    JobChanged,
    JobClass,
    Node,
    Outcome,
    ReasonCode,
    Settings,
    StopCause,
    Verb,
    Whole,
)
from gpuyard.model.serialise import to_plain
from gpuyard.packing.learning import FIRST_JOBS, JOB
from gpuyard.policies.registry import PRESETS
from gpuyard.store import Fenced
from gpuyard.testing import Faults, Life, LiveYard, SimEngine
from harness.steered import steered, steering


def key(job_id: int, submitted_ms: int = 1_000_000) -> str:
    return f"memory00-{submitted_ms:x}-{job_id}-1"


KEY = key(1)
NODE = Node("n0", "main", "p", "H100", 2, 64_000, 1 << 18)
RECIPE = json.dumps(to_plain(Recipe(argv=("true",)))).encode()
HASH = hashlib.sha256(RECIPE).hexdigest()
CLASSES = (JobClass("batch", grace_ms=1000, min_run_ms=0), JobClass("urgent", 9, False))
SETTINGS = Settings(classes=CLASSES, policy=PRESETS["default"])


class Engine(SimEngine):
    """The simulated engine, with calls that can be made to fail and answers that can be put in its mouth."""

    broken = ""
    """Which call does not get through."""
    busy: tuple[ForeignProcess, ...] = ()

    later = False
    """Whether starts are put off."""
    call_ns = 0
    """What a call takes for each attempt, by the stopwatch."""
    took_ns = 0
    asked: Sequence[str] = ()
    """The attempts that it was last asked about."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls: list[str] = []

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        self._note("start")
        self.took_ns += self.call_ns * len(launches)
        if self.later:
            return [Reply(Answer.LATER, "its turn has not come") for _ in launches]
        return super().start(epoch, launches)

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        self._note("status")
        self.asked = keys
        return super().status(keys)

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        self._note("stop")
        self.took_ns += self.call_ns * len(halts)
        return super().stop(epoch, halts)

    def limit(self, epoch: int, limits: Sequence[NewLimit]) -> list[Reply]:
        self._note("limit")
        return super().limit(epoch, limits)

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        self.took_ns += self.call_ns * len(keys)
        super().forget(epoch, keys)

    def nodes(self) -> tuple[NodeReport, ...]:
        return tuple([replace(report, busy=self.busy) for report in super().nodes()])

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.broken:
            raise Transient("not now")


class Here(LiveYard[Engine]):
    """A yard with one node of two GPUs."""

    has_room = True

    def __init__(self, run_ms: int = 10_000) -> None:
        super().__init__(lambda clock: steered(Engine(clock, [NODE], lambda _launch: Life(run_ms))), SETTINGS)

    def lead(self) -> None:
        epoch = self.store.elect("test").epoch
        self.controller = Controller(
            self.replica,
            self.engine,
            epoch,
            stopwatch_ns=lambda: self.engine.took_ns,
            has_room=lambda: self.has_room,
        )

    def live(self) -> list[str]:
        return [run.key for run in self.engine.world.live()]


def test_a_job_is_started_seen_and_ended() -> None:
    here = Here()
    job_id = here.submit()
    here.step()
    assert [KEY] == here.live()
    assert AttemptState.STARTING is here.phase(job_id)
    here.step(100)
    assert AttemptState.RUNNING is here.phase(job_id)
    here.step(10_000)
    assert ("COMPLETED", 1) == (here.store.rows[job_id].state, here.store.rows[job_id].attempts)
    assert [] == here.engine.listing(), "what is in the log is forgotten by the engine"


def test_what_others_wrote_while_engines_were_asked_is_not_earlier_than_what_follows() -> None:
    here = Here()
    looked_ms = here.now_ms
    seen = [here.controller.look(cluster, looked_ms) for cluster in here.controller.drivers]
    here.now_ms += 400
    job_id = here.submit()
    step = here.controller.decide(looked_ms, seen)
    (started,) = [event for event in step.events if isinstance(event, AttemptStarted)]
    assert (job_id, looked_ms + 400) == (started.job_id, started.at_ms)
    assert 400 + looked_ms == here.replica.state.now_ms


def test_on_a_full_disk_nothing_starts_and_cancels_and_ends_go_on() -> None:
    here = Here()
    runs = here.submit()
    here.step()
    here.step(100)
    here.has_room = False
    waits = here.submit()
    here.ask_for(runs, Verb.CANCEL)
    for _ in range(4):
        here.step(1000)
    assert ("CANCELLED", None, []) == (here.store.rows[runs].state, here.phase(waits), here.live())
    here.has_room = True
    here.step(1000)
    assert AttemptState.STARTING is here.phase(waits)


def test_jobs_that_can_never_start_are_ended_some_at_a_time() -> None:
    """Cancelling an array may doom twenty thousand jobs: others' starts would wait for the ends of all of them."""
    here = Here()
    first = here.submit(2)
    after = (After(AfterKind.COMPLETED, first),)
    doomed = [here.submit(2, after=after) for _ in range(DOOMED_MAX + 30)]
    here.ask_for(first, Verb.CANCEL)
    other = here.submit()

    step = here.step()
    assert (DOOMED_MAX, True) == (sum([isinstance(e, JobCancelled) for e in step.events]), step.more)
    assert AttemptState.STARTING is here.phase(other)
    step = here.step()
    assert (30, False) == (sum([isinstance(e, JobCancelled) for e in step.events]), step.more)
    assert {"CANCELLED"} == {here.store.rows[job_id].state for job_id in (first, *doomed)}


def test_demand_is_learned_from_the_log_and_is_in_it() -> None:
    here = Here(run_ms=50)
    here.step()
    for _ in range(FIRST_JOBS - 1):
        here.submit()
    here.step(100)
    assert () == here.replica.state.demand, "too few to conclude anything"
    here.submit()
    here.step(100)
    assert {Ask(Whole(1)): FIRST_JOBS * JOB} == dict(here.replica.state.demand)
    assert 1 == sum([isinstance(event, DemandLearned) for _seq, event in here.store.read(0)])
    for _ in range(3 * FIRST_JOBS):
        here.submit()
        here.step(100)
    learned = [event for _seq, event in here.store.read(0) if isinstance(event, DemandLearned)]
    assert 1 == len(learned), "more of the same makes no difference"
    assert 3 * FIRST_JOBS == here.replica.state.arrivals
    assert canonical(here.replica.state) == canonical(Replica(here.store).state)  # type: ignore[arg-type]


def test_a_start_that_did_not_get_through_is_made_again_under_the_same_key() -> None:
    here = Here()
    here.submit()
    here.engine.broken = "start"
    assert ["start: not now"] == here.step().errors
    assert [] == here.live()
    here.engine.broken = ""
    here.step(100)
    assert [] == here.live(), "not at once: calls that fail are spaced out"
    here.step(1000)
    assert [KEY] == here.live()


def test_a_start_that_is_put_off_is_not_lost_however_long_it_takes() -> None:
    here = Here()
    job_id = here.submit()
    here.engine.later = True
    assert [f"start {KEY}: its turn has not come"] == here.step().errors
    for _ in range(10 * LOST_MS // 1000):
        here.step(1000)
    assert AttemptState.STARTING is here.phase(job_id)
    views = Views(here.replica, lambda: here.now_ms, late=lambda _record: here.controller.late.get(KEY, ""))
    assert "its turn has not come" == views.job(Label(job_id))["reason"]
    here.engine.later = False
    for _ in range(5):
        here.step(1000)
    assert [KEY] == here.live(), "its turn is not missed for long"
    here.step(1000)
    assert "" == views.job(Label(job_id))["reason"]
    here.step(10_000)
    assert ("COMPLETED", 1) == (here.store.rows[job_id].state, here.store.rows[job_id].attempts)


def test_thousands_of_starts_of_one_user_take_turns_with_those_of_others() -> None:
    here = Here(run_ms=100 * LOST_MS)
    here.engine.call_ns = ACT_NS
    crowd = [here.submit(0, user="eve") for _ in range(4 * AT_ONCE_MAX)]
    assert not here.step().idle, "there is more to start"
    assert [key(job_id) for job_id in crowd[:AT_ONCE_MAX]] == here.live(), "nobody else waits"
    other = here.submit(0, user="ann")
    here.step()
    assert [*crowd[: AT_ONCE_MAX + AT_ONCE_MIN - 1], other] == sorted(map(job_of, here.live()))
    assert AT_ONCE_MAX == len(here.engine.asked), "the engine is not asked about what it was never asked for"
    here.step()
    assert AT_ONCE_MAX + 2 * AT_ONCE_MIN == len(here.live()), "ann may well submit another one"
    for _ in range(3):
        here.step(2 * LOST_MS)
    assert {key(job_id) for job_id in (*crowd, other)} == set(here.live())
    here.step(1000)
    assert {1} == {here.replica.state.jobs[job_id].attempt for job_id in crowd}, "one that waited is not lost"
    here.step(1000)
    assert here.step(1000).idle


def job_of(key: str) -> int:
    return int(key.split("-")[2])


def test_of_those_to_start_the_user_with_the_fewest_is_first_in_every_turn() -> None:
    here = Here(run_ms=100 * LOST_MS)
    users = ["eve"] * 9 + ["bob"] * 2 + ["ann"]
    by_id = {here.submit(0, user=user): user for user in users}
    launched: list[str] = []
    calls: list[int] = []
    start = here.engine.start

    def noted(epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        calls.append(len(launches))
        launched.extend([by_id[launch.job_id] for launch in launches])
        return start(epoch, launches)

    here.engine.start = noted  # type: ignore[method-assign]
    here.step()
    assert ["ann", "bob", "eve", "bob", "eve", *["eve"] * 7] == launched
    calls.clear()
    by_id |= {here.submit(0, user=user): user for user in users}
    here.step()
    assert [AT_ONCE_MIN, 12 - AT_ONCE_MIN] == calls, (
        "the first few do not wait for the engine's answer on all"
    )


def test_a_step_acts_for_a_while_and_as_long_as_looking_took() -> None:
    here = Here(run_ms=100 * LOST_MS)
    for number in range(5 * AT_ONCE_MIN):
        here.submit(0, user=("eve", "ann")[number % 2])
    here.engine.call_ns = ACT_NS // (2 * AT_ONCE_MIN)
    here.step()
    assert 2 * AT_ONCE_MIN == len(here.live())
    status = here.engine.status

    def slow(keys: Sequence[str]) -> list[AttemptReport]:
        here.engine.took_ns += 3 * ACT_NS // 2
        return status(keys)

    here.engine.status = slow  # type: ignore[method-assign]
    here.step()
    assert 5 * AT_ONCE_MIN == len(here.live())


def test_a_step_that_looked_for_long_acts_no_longer_than_a_while_once_a_job_has_come() -> None:
    here = Here(run_ms=100 * LOST_MS)
    crowd = [here.submit(0, user=("eve", "ann")[number % 2]) for number in range(20 * AT_ONCE_MIN)]
    status, start, came = here.engine.status, here.engine.start, list[int]()

    def slow(keys: Sequence[str]) -> list[AttemptReport]:
        here.engine.took_ns += 8 * ACT_NS
        return status(keys)

    def news(epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        if not came:
            came.append(here.submit(0, user="bob"))
        return start(epoch, launches)

    here.step()
    here.engine.status, here.engine.start = slow, news  # type: ignore[method-assign]
    here.engine.call_ns = ACT_NS // AT_ONCE_MIN
    crowd += [here.submit(0, user=("eve", "ann")[number % 2]) for number in range(20 * AT_ONCE_MIN)]
    before = len(here.live())
    here.step()
    assert 1 <= len(here.live()) - before <= 4 * AT_ONCE_MIN, "there was time for twice as many"
    here.step()
    assert key(came[0]) in here.live()
    for _ in range(20):
        here.step()
    assert {key(job_id) for job_id in (*crowd, *came)} == set(here.live())


def test_stops_and_ends_of_one_users_jobs_keep_others_from_starting_no_longer_than_a_few_do() -> None:
    here = Here(run_ms=10_000)
    crowd = [here.submit(0, user="eve") for _ in range(4 * AT_ONCE_MIN)]
    mine = here.submit(0, user="ann")
    here.step()
    here.engine.call_ns = ACT_NS
    for job_id in (*crowd[: 2 * AT_ONCE_MIN], mine):
        here.ask_for(job_id, Verb.CANCEL)
    other = here.submit(0, user="bob")
    before_ns = here.engine.took_ns
    here.step(1000)
    assert key(other) in here.live()
    assert key(mine) not in here.live(), "stops take turns, too"
    here.step(9500)
    assert here.engine.took_ns - before_ns <= 2 * 3 * AT_ONCE_MIN * ACT_NS, (
        "stops, starts and ends in two steps"
    )
    for _ in range(20):
        here.step(1000)
    assert ([], []) == (here.live(), here.engine.listing()), (
        "all of them are stopped and forgotten in the end"
    )


def test_a_job_that_is_cancelled_before_its_turn_to_start_never_runs() -> None:
    here = Here(run_ms=100 * LOST_MS)
    here.engine.call_ns = ACT_NS * AT_ONCE_MAX
    crowd = [here.submit(0, user="eve") for _ in range(2 * AT_ONCE_MAX)]
    here.step()
    here.ask_for(crowd[-1], Verb.CANCEL)
    for _ in range(5):
        here.step(1000)
    assert [key(job_id) for job_id in crowd[:-1]] == here.live()
    assert "CANCELLED" == here.store.rows[crowd[-1]].state
    assert "stop" not in here.engine.calls, "the engine never heard of it"


def test_a_leader_that_died_before_it_acted_is_followed_by_one_that_does() -> None:
    here = Here()
    here.submit()
    here.engine.broken = "start"
    here.step()
    here.engine.broken = ""
    here.lead()
    here.step()
    assert [KEY] == here.live()


def test_without_an_answer_nothing_is_concluded() -> None:
    here = Here()
    job_id = here.submit()
    here.step()
    here.step(100)
    here.engine.broken = "status"
    for _ in range(10):
        here.step(60_000)
    assert AttemptState.RUNNING is here.phase(job_id)


def test_an_attempt_out_of_sight_keeps_its_gpus_and_is_seen_again() -> None:
    here = Here(run_ms=1_000_000)
    job_id = here.submit(2)
    here.step()
    here.step(100)
    here.engine.cut_off("n0")
    here.step(10_000)
    assert AttemptState.UNKNOWN is here.phase(job_id)
    other = here.submit(2)
    for _ in range(5):
        here.step(LOST_MS)
    assert None is here.phase(other), "the engine could not promise that the first one is gone"
    here.engine.mend("n0")
    here.step(10_000)
    assert [KEY] == [run.key for run in here.engine.world.runs]


def test_what_the_engine_refuses_for_good_fails_with_its_reason() -> None:
    here = Here()
    job_id = here.submit()
    here.engine.capabilities = frozenset()
    here.store._blobs[HASH] = json.dumps(to_plain(Recipe())).encode()
    here.step()
    row = here.store.rows[job_id]
    assert ("FAILED", "there is nothing to run: no argv and no script") == (row.state, row.why)


def test_a_refusal_ends_an_attempt_with_the_exit_code_that_the_engine_says() -> None:
    here = Here()
    job_id = here.submit()
    reply = Reply(Answer.REFUSED, "runs in an image, and runc is not installed", 125)
    with steering(here.engine).doing(start=lambda _epoch, launches: [reply for _ in launches]):
        here.step()
    row = here.store.rows[job_id]
    assert ("FAILED", 125, reply.why) == (row.state, row.exit_code, row.why)


def test_a_job_whose_recipe_was_deleted_fails_and_says_so() -> None:
    here = Here()
    job_id = here.submit()
    here.store._blobs.clear()
    here.step()
    assert "how to run it was deleted" == here.store.rows[job_id].why


def test_what_runs_and_belongs_to_nobody_is_stopped() -> None:
    """As after a restore from an old backup: the log has never heard of job 77."""
    here = Here(run_ms=10_000_000)
    launch = Launch(
        "memory00-0-77-1", 77, 1, "77", "", Recipe(argv=("true",)), (Part("n0", (0,), 1000, 0, 0, 1),), 0, 0
    )
    stranger = replace(launch, key="another-0-5-1")
    assert [Answer.DONE] * 2 == [reply.answer for reply in here.engine.start(0, [launch, stranger])]
    here.step()
    assert ("memory00-0-77-1",) == here.controller.difference.orphans
    here.step(LISTING_EVERY_MS)
    assert ["another-0-5-1"] == here.live(), "what is not ours is not touched"
    assert () == here.controller.difference.orphans


@pytest.mark.parametrize(
    ("verb", "state", "attempts"), [(Verb.CANCEL, "CANCELLED", 1), (Verb.REQUEUE, "COMPLETED", 2)]
)
def test_people_are_heeded(verb: Verb, state: str, attempts: int) -> None:
    here = Here()
    job_id = here.submit()
    here.step()
    here.step(100)
    here.ask_for(job_id, verb)
    for _ in range(20):
        here.step(1000)
    assert (state, attempts) == (here.store.rows[job_id].state, here.store.rows[job_id].attempts)


def test_a_job_that_asks_to_be_requeued_and_ends_at_once_waits_again() -> None:
    """As from a trap: `scontrol requeue $SLURM_JOB_ID; exit 0`."""
    here = Here()
    job_id = here.submit()
    here.step()
    here.step(100)
    here.ask_for(job_id, Verb.REQUEUE)
    for _ in range(4):
        here.step(3_600_000)
    assert ("COMPLETED", 2) == (here.store.rows[job_id].state, here.store.rows[job_id].attempts)


def test_suspended_and_continued() -> None:
    here = Here()
    job_id = here.submit()
    here.step()
    here.step(100)
    here.ask_for(job_id, Verb.SUSPEND)
    here.step(100)
    here.step(100)
    assert AttemptState.SUSPENDED is here.phase(job_id)
    for _ in range(50):
        here.step(10_000)
    assert AttemptState.SUSPENDED is here.phase(job_id), "it stands still and keeps its GPUs"
    here.ask_for(job_id, Verb.CONTINUE)
    here.step(100)
    here.step(100)
    assert AttemptState.RUNNING is here.phase(job_id)
    here.step(20_000)
    assert "COMPLETED" == here.store.rows[job_id].state


def test_an_image_that_is_pulled_for_long_is_waited_for_and_a_cancelled_pull_frees_its_gpus() -> None:
    here = Here()
    here.engine._life = lambda _launch: Life(1000, pull_ms=3_600_000)
    pulled, broken_off, waits = [here.submit(2) for _ in range(3)]
    here.step()
    for _ in range(59):
        here.step(60_000)
        assert AttemptState.STARTING is here.phase(pulled)
        assert [KEY] == here.live(), "it holds its GPUs"
    for _ in range(3):
        here.step(60_000)
    assert ("COMPLETED", 1) == (here.store.rows[pulled].state, here.store.rows[pulled].attempts)
    assert AttemptState.STARTING is here.phase(broken_off)
    here.engine._life = lambda _launch: Life(1000, pull_ms=10, no_image="it has no such image")
    here.ask_for(broken_off, Verb.CANCEL)
    for _ in range(4):
        here.step(1000)
    rows = [here.store.rows[job_id] for job_id in (broken_off, waits)]
    assert [("CANCELLED", 1), ("FAILED", 1)] == [(row.state, row.attempts) for row in rows]
    assert (125, "it has no such image") == (rows[1].exit_code, rows[1].why)
    assert 3 == len(here.engine.world.runs), "each was started once"


def test_an_image_that_does_not_exist_is_asked_for_once_and_a_silent_registry_again() -> None:
    here = Here()
    here.engine._life = lambda _launch: Life(1000, pull_ms=10, no_image="it has no such image")
    absent = here.submit(2, retries=100)
    for _ in range(4):
        here.step(1000)
    row = here.store.rows[absent]
    assert ("FAILED", 1) == (row.state, row.attempts)
    assert "it has no such image; it was not tried again, as each attempt would fail alike" == row.why

    here.engine._life = lambda _launch: Life(1000, pull_ms=10)
    here.engine.faults = Faults(Random(1), pull_fails_milli=1000)
    unheard = here.submit(2, retries=1)
    for _ in range(20):
        here.step(1000)
    row = here.store.rows[unheard]
    assert ("FAILED", 2, "the registry does not answer") == (row.state, row.attempts, row.why)


def test_stopped_jobs_hold_their_gpus_until_they_are_gone() -> None:
    here = Here(run_ms=1_000_000)
    low = here.submit(2)
    here.step()
    here.step(100)
    urgent = here.submit(2, klass="urgent")
    here.engine._life = lambda _launch: Life(1000)
    here.step(100)
    assert AttemptState.STOPPING is here.phase(low)
    assert [KEY] == here.live()
    for _ in range(5):
        here.step(1000)
    runs = {run.key: run for run in here.engine.world.runs}
    assert runs[key(low)].ended_ms <= runs[key(urgent, 1_000_100)].started_ms  # type: ignore[operator]


def test_a_job_that_was_told_to_stop_and_is_out_of_sight_keeps_its_gpus() -> None:
    here = Here()
    here.add(ConfigSet(here.now_ms, replace(SETTINGS, classes=(JobClass("batch", grace_ms=60_000),))))
    here.engine._life = lambda _launch: Life(1_000_000, ignores_term=True)
    first = here.submit(2)
    here.step()
    here.step(100)
    other = here.submit(2)
    here.ask_for(first, Verb.CANCEL)
    here.step(100)
    here.engine.cut_off("n0")
    here.step(100)
    here.engine.mend("n0")
    for _ in range(5):
        here.step(10_000)
    assert [key(first)] == here.live(), "it has until the end of its grace"
    for _ in range(3):
        here.step(10_000)
    assert [key(other, 1_000_100)] == here.live()


def test_gpus_used_outside_the_yard_are_left_alone_and_named() -> None:
    here = Here()
    here.engine.busy = (ForeignProcess(0, 4242, "ada"),)
    job_id = here.submit(2)
    here.step()
    assert [] == here.live()
    assert {0: (1, "GPU 0: pid 4242 of ada")} == here.replica.state.nodes.foreign
    here.engine.busy = ()
    here.step(10_000)
    here.step(100)
    assert AttemptState.RUNNING is here.phase(job_id)


def test_a_node_that_the_engine_no_longer_has_takes_nothing_new() -> None:
    here = Here()
    here.step()
    with steering(here.engine).doing(nodes=tuple):
        here.step(10_000)
        here.submit()
        here.step(100)
        assert [] == here.live()
        assert "the engine no longer has it" == here.replica.state.nodes.down[0]
    here.step(10_000)
    here.step(100)
    assert 1 == len(here.live())


def test_one_that_lost_its_place_is_decided_with_the_nodes_as_they_are_now() -> None:
    here = Here(run_ms=1_000_000)
    job_id = here.submit()
    here.step()
    here.step(100)
    record = here.replica.state.jobs[job_id]
    gone = AttemptReport(key(job_id), Phase.ENDED, Outcome.NODE_FAIL)
    assert here.controller.drivers[""]._lost_a_place({gone.key: gone})
    assert not here.controller.drivers[""]._lost_a_place(
        {gone.key: AttemptReport(gone.key, Phase.ENDED, Outcome.FAILED)}
    )
    record.cause = StopCause.CANCEL
    assert not here.controller.drivers[""]._lost_a_place({gone.key: gone})


def test_a_deposed_leader_neither_writes_nor_acts() -> None:
    here = Here()
    old = here.controller
    here.lead()
    here.submit()
    here.step()
    before = len(here.engine.calls)
    with pytest.raises(Fenced):
        old.step(here.now_ms)
    with pytest.raises(Stale):
        here.engine.stop(old.epoch, [])
    assert "start" not in here.engine.calls[before:]


def test_time_that_goes_back_is_not_followed() -> None:
    here = Here()
    job_id = here.submit()
    here.step()
    here.controller.step(here.now_ms - 3_600_000)
    here.step(20_000)
    row = here.store.rows[job_id]
    assert Outcome.COMPLETED.value == row.state
    assert row.started_ms <= row.ended_ms


def test_reports_say_only_what_they_say() -> None:
    assert Phase.UNKNOWN is Here().engine.status(["memory00-0-9-1"])[0].phase


def test_what_a_pass_says_of_jobs_is_kept_for_those_who_list_them() -> None:
    here = Here()
    first, second = here.submit(2), here.submit(2)
    here.step()
    judged = here.replica.judged
    assert {first: ReasonCode.STARTED, second: ReasonCode.ROOM} == judged.by_id()
    assert (here.replica.seq, second) == (judged.seq, judged.last_job_id)
    here.step(10_000)
    assert {second: ReasonCode.STARTED} == here.replica.judged.by_id()


def changed(here: Here, job_id: int, limit_ms: int) -> None:
    job = here.replica.state.jobs[job_id].job
    here.add(JobChanged(here.now_ms, job._replace(limit_ms=limit_ms), by="ada"))


def test_a_running_attempt_is_held_to_the_new_limit_of_its_job() -> None:
    here = Here(run_ms=100_000)
    job_id = here.submit(limit_ms=60_000)
    for _ in range(2):
        here.step(100)
    changed(here, job_id, 5_000)
    here.step(100)
    here.step(100)
    assert 5_000 == here.engine.status([KEY])[0].limit_ms
    here.step(5_000)
    here.step(2_000)
    assert "TIMEOUT" == here.ended(job_id)


def test_a_limit_that_did_not_come_through_is_asked_for_again() -> None:
    here = Here(run_ms=100_000)
    job_id = here.submit(limit_ms=60_000)
    for _ in range(2):
        here.step(100)
    here.engine.broken = "limit"
    changed(here, job_id, 5_000)
    assert "limit: not now" in " ".join(here.step(100).errors)
    assert 60_000 == here.engine.status([KEY])[0].limit_ms
    here.engine.broken = ""
    here.lead()
    for _ in range(3):
        here.step(1_000)
    assert 5_000 == here.engine.status([KEY])[0].limit_ms, "another leader goes on with it"


def test_a_limit_that_the_engine_refuses_leaves_both_sides_as_they_were() -> None:
    here = Here(run_ms=100_000)
    job_id = here.submit(limit_ms=60_000)
    for _ in range(2):
        here.step(100)
    end_ms = here.replica.state.jobs[job_id].end_ms
    here.engine.faults.refuses_limit_milli = 1000
    changed(here, job_id, 90_000)
    (back,) = [event for event in here.step(100).events if isinstance(event, JobChanged)]

    assert "time limit 1m, as before: the site allows no other limit" == back.what
    record = here.replica.state.jobs[job_id]
    assert (60_000, end_ms, 60_000) == (record.limit_ms, record.end_ms, here.engine.status([KEY])[0].limit_ms)
    here.engine.calls.clear()
    here.step(60_000)
    assert "limit" not in here.engine.calls, "there is nothing left to ask for"
