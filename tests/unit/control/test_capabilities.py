"""What an engine cannot do is in the log, and a job that needs it is refused when it is handed in."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from gpuyard.control.admission.wanted import make_job
from gpuyard.control.commands.requests import RequestService
from gpuyard.control.loop.loop import Controller
from gpuyard.control.refusals import CouldNever, Impossible
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.replica import Replica
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.engines.contract import Container
from gpuyard.model import (
    Ask,
    Capability,
    ConfigSet,
    EngineSeen,
    Isolation,
    JobSpec,
    Milli,
    Node,
    NodeAdded,
    Settings,
    Verb,
    Whole,
)
from gpuyard.policies.registry import PRESETS
from gpuyard.store.codec import CODEC
from gpuyard.testing import Life, MemoryStore, SimEngine
from rigs.request_service import ROOT, granted

NODE = Node("n0", "hpc", "gpu", "A100-80GB", 8, 64_000, 512_000)


class World:
    """A leader over an engine that can do what a driven Slurm can, and the service of another process."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now_ms = 1000
        self.engine = SimEngine(
            lambda: self.now_ms,
            [NODE],
            lambda _launch: Life(10**9),
            capabilities=frozenset({Capability.GANG}),
        )
        replica = Replica(self.store)  # type: ignore[arg-type]
        replica.commit(None, lambda draft: draft.add(ConfigSet(0, Settings(policy=PRESETS["default"]))))
        lease = self.store.elect("me")
        assert lease is not None
        self.leader = Controller(replica, self.engine, lease.epoch)
        self.replica = Replica(self.store)  # type: ignore[arg-type]
        self.committer = Committer(self.replica, lambda: self.now_ms)
        self.committer.start()
        self.requests = RequestService(self.replica, self.committer, lambda: self.now_ms, allow_root=True)

    def step(self) -> list[object]:
        self.now_ms += 60_000
        events = list(self.leader.step(self.now_ms).events)
        self.replica.catch_up()
        return events

    def submit(self, **fields: object) -> int:
        new = make_job(**{"command": ("true",), "gpus": 1, **fields})  # type: ignore[arg-type]
        return self.requests.submit(ROOT, new, Future()).result(10).first_id


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.step()
    yield found
    found.committer.close()


@pytest.mark.parametrize(
    ("fields", "says", "instead"),
    [
        (
            {"gpu_milli": 250},
            "0.25 GPU; cluster hpc gives whole GPUs only, no shares",
            "whole GPUs, as in --gpus 1",
        ),
        (
            {"mig": "1g.10gb"},
            "cluster hpc gives whole GPUs only, and cuts none",
            "whole GPUs, as in --gpus 1",
        ),
        (
            {"gpus": 0, "gpu_memory_mib": 10_000, "isolation": Isolation.SHARED},
            "cluster hpc gives whole GPUs only, no shares",
            "whole GPUs, as in --gpus 1",
        ),
    ],
)
def test_what_no_engine_can_do_is_refused_with_what_to_ask_for_instead(
    world: World, fields: dict[str, object], says: str, instead: str
) -> None:
    with pytest.raises(CouldNever, match=says) as refused:
        world.submit(**fields)

    assert f"What would change it: {instead}." == refused.value.hint
    assert 1 == world.submit(), "no id was used up"


def test_memory_means_a_whole_gpu_where_there_are_no_parts(world: World) -> None:
    job_id = world.submit(gpus=0, gpu_memory_mib=10_000)
    world.replica.catch_up()

    assert Whole(1) == world.replica.state.jobs[job_id].job.spec.ask.gpus


def test_an_image_is_refused_where_none_runs_with_what_to_install(world: World) -> None:
    images = (Container("docker.io/library/python:3.12"),)
    with pytest.raises(CouldNever, match="and cluster hpc runs no images") as refused:
        world.submit(containers=images)
    assert "apt-get install podman crun uidmap" in refused.value.hint

    world.engine.capabilities = frozenset({Capability.GANG, Capability.IMAGES})
    world.step()

    assert 1 == world.submit(containers=images)


def test_a_gang_is_taken_where_the_engine_starts_gangs_and_refused_where_it_does_not(world: World) -> None:
    assert 1 == world.submit(tasks=2)

    world.engine.capabilities = frozenset({Capability.SHARES})
    world.step()

    with pytest.raises(CouldNever, match="cluster hpc cannot start several tasks as one job") as refused:
        world.submit(tasks=2)
    assert "What would change it: a job of one task." == refused.value.hint
    world.submit(gpu_milli=250)


def test_it_is_written_once_and_again_when_it_changes(world: World) -> None:
    assert [] == [event for event in world.step() if isinstance(event, EngineSeen)]

    world.engine.capabilities = frozenset(Capability)
    seen = [event for event in world.step() if isinstance(event, EngineSeen)]

    assert [EngineSeen(world.now_ms, "hpc", ())] == seen
    assert 1 == world.submit(gpu_milli=250)


def test_a_job_cannot_be_frozen_where_the_engine_cannot(world: World) -> None:
    job_id = world.submit()
    world.step()

    (asked,) = granted(world.requests, world.requests.wish(ROOT, Verb.SUSPEND, [str(job_id)]))

    assert isinstance(asked.error, Impossible)
    assert f"job {job_id} runs on cluster 'hpc', which cannot freeze jobs" == asked.error.message


def test_a_state_from_a_dump_or_from_the_log_judges_alike(world: World) -> None:
    state = world.leader.replica.state
    loaded = load(dump(state))
    spec = JobSpec("t", Ask(Milli(1, 250)))

    assert canonical(state) == canonical(loaded)
    assert impossible_reason(state, spec) == impossible_reason(loaded, spec) is not None
    event = EngineSeen(5, "hpc", (Capability.SHARES, Capability.SLICES))
    row = CODEC.encode(event)
    assert event == CODEC.decode(1, row.kind, row.version, row.body)
    assert EngineSeen(5, "hpc") == CODEC.decode(1, "EngineSeen", 1, '{"at_ms":5,"cluster":"hpc"}')


def test_a_log_that_says_nothing_of_engines_takes_everything_and_has_the_dump_that_it_had() -> None:
    replica = Replica(MemoryStore())  # type: ignore[arg-type]
    replica.commit(None, lambda draft: draft.add(NodeAdded(0, NODE)))

    assert "lacks" not in dump(replica.state)
    assert None is impossible_reason(replica.state, JobSpec("t", Ask(Milli(1, 250))))
