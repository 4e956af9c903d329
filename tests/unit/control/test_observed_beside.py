"""A cluster that schedules itself beside one that the yard drives: its jobs are seen, and never decided upon."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.commands.wishes import VerbWish
from gpuyard.control.loop.loop import Controller
from gpuyard.control.loop.observing import Recorder
from gpuyard.control.refusals import Impossible
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.views.queue_list import Filter
from gpuyard.control.views.views import Views
from gpuyard.core.state.dump import dump, load
from gpuyard.engines.contract import Recipe
from gpuyard.engines.slurm.observed import SLURM
from gpuyard.model import (
    Ask,
    ConfigSet,
    Event,
    Job,
    JobSpec,
    JobState,
    JobSubmitted,
    Node,
    Outcome,
    Quota,
    Settings,
    Tenant,
    Verb,
    Whole,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.serialise import to_plain
from gpuyard.policies.registry import PRESETS
from gpuyard.store import Submission
from gpuyard.testing import Life, SimEngine
from rigs.request_service import ROOT, listed
from rigs.slurm.world import NODES, T0_MS, Watched, World, attempt

HERE = Node("n1", "here", "p", "A100-80GB", 8, 64_000, 1 << 18)
"""A node of the yard's own, with the name of one of Slurm's."""
ANN = Tenant("research/nlp/ann", quota=Quota(limit={"total": 8_000}))


def settings(counts: bool) -> Settings:
    tenants = (Tenant("research"), Tenant("research/nlp"), ANN)
    return Settings(tenants=tenants, observed={"rig": counts}, policy=PRESETS["default"])


class Beside(Watched):
    """One log for a simulated cluster that is driven and a Slurm that is observed."""

    def __init__(self, path: Path, *, counts: bool = False) -> None:
        world = World()
        self.engine = SimEngine(lambda: world.now_ms, [HERE], lambda _: Life(60_000))
        super().__init__(world, path, settings(counts))

    def _begin(self) -> None:
        self.lease = self.store.elect("test")
        assert self.lease is not None
        self.watcher = Recorder(self.replica, "rig", self.world, self.lease.epoch, {"here"})
        self.controller = Controller(
            self.replica, {"here": self.engine}, self.lease.epoch, observed=frozenset({"rig"})
        )

    def step(self, after_s: float = 6.0) -> None:
        self.look(after_s)
        self.controller.step(self.world.now_ms)

    def submit(self, gpus: int, tenant: str = "research/nlp/ann") -> int:
        body = json.dumps(to_plain(Recipe(argv=("true",)))).encode()
        name = hashlib.sha256(body).hexdigest()
        spec = JobSpec(tenant, Ask(Whole(gpus)), user="ann", recipe=name)

        def make(job_id: int) -> list[Event]:
            return [JobSubmitted(self.world.now_ms, Job(job_id, spec, self.world.now_ms))]

        (answer,) = self.store.submit([Submission(make, blobs={name: body})], self.world.now_ms)
        assert not isinstance(answer, Exception)
        return answer.first_id

    def used_milli(self, tenant: str = "research") -> int:
        tenants = self.replica.state.tenants
        return tenants.used[tenants.find(tenant)][0]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Beside]:
    found = Beside(tmp_path / "yard.db")
    yield found
    found.close()


def at(second: int) -> int:
    return T0_MS + 1000 * second


def test_the_yard_starts_its_own_jobs_on_its_own_nodes_and_slurms_jobs_never(yard: Beside) -> None:
    """Slurm has twice as much room, and a job that has waited for longer than any other."""
    yard.world.tries = [attempt("7", 1), attempt("8", 1, 2, 600, gpus=8)]
    yard.step()
    own = [yard.submit(8), yard.submit(8)]
    for _ in range(4):
        yard.step()

    state = yard.replica.state
    assert [own[0]] == [run.job_id for run in yard.engine.world.live()]
    assert ["rig:8", str(own[0])] == sorted([r.job.label for r in state.running.values()], reverse=True)
    assert ["here"] == [state.nodes.node[g.node].cluster for g in state.jobs[own[0]].grants]
    waiting = {r.job.label for r in state.jobs.values() if r.state is JobState.PENDING}
    assert {"rig:7", str(own[1])} == waiting
    # Nodes of one name in two clusters are two nodes, and each is judged by its own.
    assert [("here", "n1"), *[("rig", name) for name in NODES]] == sorted(state.node_number)
    assert ["", "", ""] == list(state.nodes.down)


def test_jobs_of_an_observed_cluster_keep_its_own_times_in_a_log_that_is_ahead(yard: Beside) -> None:
    yard.step(100)
    yard.world.tries = [
        attempt("7", 3, 20, 40, gpus=8),
        attempt("8", 4, 50, 9000, gpus=4),
        attempt("9", 5, 41, 45, gpus=8),
    ]
    yard.step(60)

    (record,) = yard.replica.state.jobs.values()
    assert (at(4), at(50)) == (record.job.submitted_ms, record.started_ms)
    assert [
        (f"rig:7@{at(3)}", "COMPLETED", at(20), at(40), 8),
        (f"rig:9@{at(5)}", "COMPLETED", at(41), at(45), 8),
    ] == yard.ended()
    assert at(100) <= yard.replica.state.now_ms


def test_ids_of_the_yard_go_on_and_a_job_of_slurm_is_found_with_its_cluster(yard: Beside) -> None:
    yard.world.tries = [attempt("1", 0, 2, 600), attempt("2_3", 0, 2, 600), attempt("5", 0, 1, 2)]
    yard.step()
    own = [yard.submit(1) for _ in range(2)]
    yard.step()
    views = Views(yard.replica, lambda: yard.world.now_ms)

    assert [1, 2] == own
    assert "ann" == views.job(parse_label("1"))["user"]
    found = {text: views.job(parse_label(text)) for text in ("1", "rig:1", "rig:2_3", "rig:5")}
    assert list(found) == [job["label"] for job in found.values()]
    assert [1, *[FIRST_EXTERNAL_ID + i for i in range(3)]] == [job["id"] for job in found.values()]
    assert ["1", "2", "rig:1", "rig:2_3"] == sorted([row[1] for row in listed(views)["rows"]])
    queue = listed(views, Filter(cluster="rig"))
    assert ["rig:1", "rig:2_3"] == sorted([row[1] for row in queue["rows"]])
    # The newest of the yard's own come first.
    assert ["2", "1", "rig:5", "rig:2_3", "rig:1"] == [
        job["label"] for job in views.jobs(Filter(), None, 10)[0]
    ]
    _page, cursor = views.jobs(Filter(), None, 2)
    assert ["rig:5", "rig:2_3"] == [job["label"] for job in views.jobs(Filter(), cursor, 2)[0]]
    assert ["rig:5"] == [job["label"] for job in views.history(Filter(), None, None, 10)[0]]


@pytest.mark.parametrize("counts", [False, True])
def test_observed_jobs_count_against_quotas_where_the_file_says_so(tmp_path: Path, counts: bool) -> None:
    yard = Beside(tmp_path / "yard.db", counts=counts)
    yard.world.tries = [attempt("7", 1, 2, 600, gpus=8)]
    yard.step()
    yard.submit(4)
    yard.step()
    ran = len(yard.engine.world.live())

    assert ((8_000, 0) if counts else (4_000, 1)) == (yard.used_milli(), ran)
    state = yard.replica.state
    assert 8_000 * (3 if counts else 1) == sum(state.nodes.up_milli)
    again = load(dump(state))
    assert (state.nodes.up_milli, state.tenants.used[0]) == (again.nodes.up_milli, again.tenants.used[0])
    assert dump(state) == dump(again)
    yard.replica.commit(None, lambda draft: draft.add(ConfigSet(yard.world.now_ms, settings(not counts))))
    assert ((0, 8_000) if counts else (12_000, 24_000)) == (
        yard.used_milli(),
        sum(state.nodes.up_milli),
    )
    yard.close()


def test_a_counted_job_is_charged_for_the_time_that_it_really_ran(tmp_path: Path) -> None:
    yard = Beside(tmp_path / "yard.db", counts=True)
    plain = replace(settings(True), half_life_ms=1 << 50, period_ms=60_000)
    yard.replica.commit(None, lambda draft: draft.add(ConfigSet(T0_MS, plain)))
    yard.step(3600)
    yard.world.tries = [attempt("7", 0, 600, 700, gpus=8)]
    yard.step(600)
    state = yard.replica.state
    number = state.tenants.find("research/nlp/ann")
    (rate,) = {w.rate for w in state.shape_of(Ask(Whole(8), clusters=("rig",))).ways}

    assert rate * 100_000 == state.tenants.accrued[number]
    yard.close()


def test_what_slurm_has_to_do_is_refused_with_its_own_command(yard: Beside) -> None:
    yard.world.tries = [attempt("7", 1, 2, 600)]
    yard.step()
    own = yard.submit(1)
    observed = ObservedClusters({"rig": SLURM})
    wish = VerbWish(ROOT, Verb.CANCEL, ["rig:7", str(own)], lambda: yard.world.now_ms, observed)
    yard.replica.commit(None, lambda draft: wish.enter(wish.write(draft)))

    refused, done = wish.asked
    assert isinstance(refused.error, Impossible)
    assert "cluster 'rig' is observed: Slurm decides there" in refused.error.message
    assert "Use scancel 7" in refused.error.hint
    assert (None, 1) == (done.error, done.jobs)
    with pytest.raises(Impossible) as named:
        observed.check(("here", "rig"), "submit")
    assert "sbatch" in named.value.hint
    observed.check(("here",), "submit")


def test_a_log_from_before_the_yard_drove_anything_goes_on(yard: Beside) -> None:
    """Its live jobs named no cluster, and those that wait were candidates."""
    alone = replace(settings(False), observed={})
    yard.replica.commit(None, lambda draft: draft.add(ConfigSet(T0_MS, alone)))
    yard.world.tries = [
        attempt("6", 0, 1, 3), attempt("7", 0, 2, 50, gpus=8), attempt("8", 0, 20, 60, gpus=8, nodes=("n2",)),
    ]  # fmt: skip
    yard.look()
    yard.replica.commit(None, lambda draft: draft.add(ConfigSet(T0_MS, settings(False))))
    yard.restart()
    for _ in range(20):
        yard.step()

    assert [] == yard.engine.world.live()
    assert {} == yard.replica.state.jobs
    ended = [(key.rpartition(":")[2][0], state, start) for key, state, start, _end, _gpus in yard.ended()]
    # Job 8 became another when it started, because it named no cluster.
    assert [
        ("6", "COMPLETED", at(1)),
        ("7", "COMPLETED", at(2)),
        ("8", "CANCELLED", 0),
        ("8", "COMPLETED", at(20)),
    ] == sorted(ended)


def test_two_observed_clusters_may_have_jobs_of_one_id(tmp_path: Path) -> None:
    yard = Beside(tmp_path / "yard.db")
    both = replace(settings(False), observed={"rig": False, "old": False})
    yard.replica.commit(None, lambda draft: draft.add(ConfigSet(T0_MS, both)))
    old = World([attempt("7", 0, 3, 30, gpus=2)], cluster="old")
    assert yard.lease is not None
    yard.watcher = Recorder(yard.replica, "rig", yard.world, yard.lease.epoch, {"here", "old"})
    second = Recorder(yard.replica, "old", old, yard.lease.epoch, {"here", "rig"})
    yard.world.tries = [attempt("7", 0, 2, 20, gpus=4)]
    for _ in range(6):
        yard.step()
        old.now_ms = yard.world.now_ms
        second.step(yard.world.now_ms)
    found = [(key.partition("@")[0], start, gpus) for key, _state, start, _end, gpus in yard.ended()]

    assert [("old:7", at(3), 2), ("rig:7", at(2), 4)] == found
    assert {Outcome.COMPLETED.value} == {state for _key, state, *_ in yard.ended()}
    yard.close()


def test_no_engine_is_asked_for_what_slurm_started(yard: Beside) -> None:
    """Not even by a leader that finds it in the log."""
    yard.world.tries = [attempt("7", 1, 2, 600)]
    yard.step()
    yard.restart()
    for _ in range(8):
        yard.step(15)

    assert [] == yard.engine.world.live()
    assert 0 == yard.controller.difference.count
    assert [JobState.RUNNING] == [record.state for record in yard.replica.state.jobs.values()]


def test_an_origin_names_its_cluster() -> None:
    beside, alone = ObservedClusters({"rig": SLURM}), ObservedClusters({"rig": SLURM}, only=True)

    assert [("rig", "7@5"), ("", ""), ("", "")] == [
        beside.place_of(each) for each in ("rig:7@5", "7@5", "old:7@5")
    ]
    assert [("rig", "7@5"), ("", "")] == [alone.place_of(each) for each in ("7@5", "")]
    assert ["Slurm", ""] == [beside.name_of(each) for each in ("rig:7@5", "7@5")]
