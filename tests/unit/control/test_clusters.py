"""One decision over several engines: each is asked for its own attempts, and a dead one holds up nobody else."""

from typing import Any

from gpuyard.control.loop.loop import SILENT_MS, Controller, Step
from gpuyard.engines.contract import Transient
from gpuyard.model import AttemptState, Node
from gpuyard.testing import Life, LiveYard, SimEngine
from harness.steered import steered

NEXT = 11_000
"""Long enough for nodes to be looked at again."""


class Reached:
    """An engine that can be out of reach."""

    def __init__(self, inner: SimEngine) -> None:
        self.inner, self.dead, self.asked = inner, False, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self.asked += 1
            if self.dead:
                raise Transient("out of reach")
            return found(*arguments)

        return call


class Two(LiveYard[Any]):
    """Two clusters with one node each, of one name and of two GPUs each; `east` is tried first."""

    def __init__(self, run_ms: int = 10_000) -> None:
        def made(clock: Any) -> dict[str, Reached]:
            return {
                name: Reached(
                    SimEngine(
                        clock, [Node("n1", name, name, "H100", 2, 64_000, 1 << 18)], lambda _: Life(run_ms)
                    )
                )
                for name in ("east", "west")
            }

        super().__init__(made)

    @property
    def east(self) -> Reached:
        return self.engine["east"]  # type: ignore[no-any-return]

    @property
    def west(self) -> Reached:
        return self.engine["west"]  # type: ignore[no-any-return]

    def running(self) -> dict[str, list[int]]:
        """Jobs that really run, by cluster."""
        return {
            name: sorted([run.job_id for run in each.inner.world.live()])
            for name, each in self.engine.items()
        }


def test_attempts_go_to_the_engine_of_their_nodes_cluster() -> None:
    here = Two()
    jobs = [here.submit(2), here.submit(2), here.submit(2)]
    here.step()
    assert {"east": jobs[:1], "west": jobs[1:2]} == here.running()
    here.step(1_000)
    here.step(10_000)
    here.step(1_000)
    assert ["COMPLETED", "COMPLETED", ""] == [here.ended(job_id) for job_id in jobs]
    here.step(100)
    assert [1, 0] == [len(there) for there in here.running().values()]


def test_a_dead_engine_holds_up_neither_the_plan_nor_another_engine() -> None:
    here = Two()
    here.step()
    here.east.dead = True
    first, second = here.submit(2), here.submit(2)
    step = here.step(100)
    assert {"east": [], "west": [second]} == here.running()
    assert step.errors
    assert [] == [error for error in step.errors if not error.startswith("east: ")]
    assert AttemptState.STARTING is here.phase(first)


def test_a_cluster_that_does_not_answer_takes_no_more_jobs_and_its_running_jobs_stay() -> None:
    here = Two(run_ms=100_000)
    here.step()
    on_east = here.submit(2)
    here.step(100)
    here.step(100)
    here.east.dead = True
    here.step(NEXT)
    here.step(SILENT_MS)
    assert "cluster east does not answer" == here.replica.state.nodes.down[0]
    assert "" == here.replica.state.nodes.down[1]
    assert AttemptState.RUNNING is here.phase(on_east)
    here.east.dead = False
    here.step(NEXT)
    assert "" == here.replica.state.nodes.down[0]
    here.step(100_000)
    assert "COMPLETED" == here.ended(on_east)
    assert 1 == len([run for run in here.east.inner.world.runs if run.job_id == on_east])


def test_a_job_that_the_silent_engine_was_never_asked_for_starts_elsewhere() -> None:
    here = Two(run_ms=1_000_000)
    here.step()
    job_id = here.submit(2)
    controller: Controller = here.controller
    controller.decide(here.now_ms, [])
    assert 0 == here.replica.state.running[job_id].grants[0].node
    here.east.dead = True
    for _ in range(3):
        # The driver of `east` hangs in a call: it neither looks nor acts.
        here.now_ms += SILENT_MS // 2
        controller.decide(here.now_ms, [controller.look("west", here.now_ms)])
        controller.act("west", here.now_ms, Step(), 0)
    assert {"east": [], "west": [job_id]} == here.running()
    here.east.dead = False
    controller.act("east", here.now_ms, Step(), 0)
    here.step(100)
    assert {"east": [], "west": [job_id]} == here.running()


def test_a_report_concludes_nothing_about_an_attempt_that_was_committed_later() -> None:
    here = Two()
    here.step()
    controller: Controller = here.controller
    early = controller.look("east", here.now_ms)
    job_id = here.submit(2)
    controller.decide(here.now_ms, [])
    controller.act("east", here.now_ms, Step(), 0)
    assert early.seq < here.replica.seq
    controller.decide(here.now_ms, [early])
    assert [job_id] == here.running()["east"]
    assert AttemptState.STARTING is here.phase(job_id)


def test_a_job_that_was_withdrawn_a_moment_ago_is_not_started() -> None:
    here = Two(run_ms=1_000_000)
    here.step()
    job_id = here.submit(2)
    controller: Controller = here.controller
    controller.decide(here.now_ms, [])
    west = controller.look("west", here.now_ms)
    store = here.replica.store

    def slowly(names: list[str]) -> dict[str, bytes]:
        # Another thread decides while the driver of `east` is about to start the job.
        controller.decide(here.now_ms + SILENT_MS, [west])
        return store.blobs(names)

    here.replica.store = steered(store, blobs=slowly)
    controller.act("east", here.now_ms, Step(), 0)
    here.replica.store = store
    controller.act("west", here.now_ms, Step(), 0)
    assert {"east": [], "west": [job_id]} == here.running()
