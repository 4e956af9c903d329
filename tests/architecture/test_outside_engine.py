"""A kind of engine from outside (`tests/rigs/outside`): observed and driven with nothing in `src` that knows it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from gpuyard.api.client import Refused
from gpuyard.config.reading import loads
from gpuyard.control.fleet import choose_fleet
from gpuyard.engines.contract import Launch, Part, Phase, Recipe
from gpuyard.engines.observer import LooksOn, Observer
from gpuyard.engines.registry import Context, EngineKind, register
from gpuyard.errors import YardError
from gpuyard.testing import LiveYard
from gpuyard.wire import endpoints
from harness.patience import until
from rigs.outside.kind import KIND, Driver, Keys, Onlooker, install, registered
from rigs.outside.world import Order, World

FILE = """
version: 1
clusters:
  far: {{engine: outside, outside: {{address: "{far}", looks_on: true}}}}
  near: {{engine: outside, outside: {{address: "{near}"}}}}
tenants: {{freight: {{}}}}
"""


@pytest.fixture
def far() -> Iterator[World]:
    made = World("far")
    yield made
    made.close()


@pytest.fixture
def near() -> Iterator[World]:
    made = World("near", berths=1)
    yield made
    made.close()


def keys(world: World, **more: str) -> Keys:
    return Keys.model_validate({"address": world.address, **more})


def context(tmp_path: Path, cluster: str) -> Context:
    return Context(cluster, tmp_path, tmp_path)


def test_a_yard_looks_on_at_one_and_drives_the_other(
    far: World, near: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    already = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*install(tmp_path / "site"), *already]))
    runs = far.load(7, {"far-1": 3, "far-2": 1}, name="wool")
    far.queue(8, 8, "no berth is free")
    far.berths["far-2"]["shut"] = "it is painted"
    box = Box(tmp_path / "data", FILE.format(far=far.address, near=near.address))
    told = box("validate", box.config).out
    assert "far: Harbour decides; near: jobs are loaded by Harbour" in told
    box.up()
    try:
        seen = lambda: set(box("queue", "-o", "csv", "--columns", "label").out.split()[1:])  # noqa: E731
        until(lambda: {"far:7", "far:8"} == seen())
        columns = "label,state,tenant,gpus,name,reason"
        rows = box("queue", "-o", "csv", "--columns", columns).out.splitlines()[1:]
        assert [
            "far:7,RUNNING,freight/ann,4,wool,",
            "far:8,PENDING,freight/ann,8,crate,Harbour: no berth is free",
        ] == rows
        assert "Harbour says: no berth is free" in box("why", "far:8").out
        with box.client() as client:
            why = client.why("far:8")
        assert ("no berth is free", "Harbour") == (why["said"], why["said_by"])
        assert {"far-1": 3, "far-2": 1} == on_nodes(box, "far:7")
        nodes = box("nodes", "-o", "csv", "--columns", "name,cluster,pool,gpus,state").out.splitlines()
        assert ["far-1,far,quay,4,UP", "far-2,far,quay,4,DRAINED", "near-1,near,quay,4,UP"] == sorted(
            nodes[1:]
        )
        refused = box("cancel", "far:7").err
        assert "Harbour decides there" in refused
        assert "Use berth unload 7." in refused
        own = box.submit("-g", 2, "--", "say", "hello")
        box.wait(own, "RUNNING")
        until(lambda: near.orders)
        (order,) = near.orders.values()
        assert (["say", "hello"], {"near-1": 2}) == (order.words, order.at)
        near.finish(order.key)
        box.wait(own, "COMPLETED")
        assert "hello\n" == box("logs", own).out
        far.unload(runs, "dropped")
        assert "FAILED" == box.wait("far:7", "FAILED")["state"]
        assert {"load", "drop", "forget"}.isdisjoint(far.asked), "it is only looked at"
    finally:
        box("down")


TWO = """
version: 1
clusters:
  far: {{engine: outside, outside: {{address: "{far}"}}}}
  near: {{engine: outside, outside: {{address: "{near}"}}}}
"""


def test_what_an_attempt_wrote_is_asked_of_its_own_cluster_alone(
    far: World, near: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both worlds know the key, and only one of them ran the attempt."""
    already = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*install(tmp_path / "site"), *already]))
    box = Box(tmp_path / "data", TWO.format(far=far.address, near=near.address))
    box.up()
    try:
        job = box.submit("-g", 2, "--cluster", "near", "--", "say", "mine")
        box.wait(job, "RUNNING")
        until(lambda: near.orders)
        (order,) = near.orders.values()
        far.orders[order.key] = Order(
            order.key, ["say"], {"far-1": 1}, state="forgotten", pieces=["theirs\n"]
        )
        assert "mine\n" == box("logs", job).out
        near.finish(order.key)
        box.wait(job, "COMPLETED")
        assert "mine\n" == box("logs", job).out == box("logs", "-f", job).out
        assert (b"min", "piece0+3", "3") == piece(box, job, "limit=3")
        assert (b"e\n", "piece1+0", None) == piece(box, job, "cursor=piece0%2B3")
        assert (b"e\n", "piece1+0", "5") == piece(box, job, "offset=3") == piece(box, job, "cursor=3")
        assert (b"", "piece1+0", None) == piece(box, job, "cursor=piece1%2B0")
        for follow in ("", "&follow=true"):
            with pytest.raises(Refused, match="`cursor` is not what an earlier reply said") as refused:
                piece(box, job, f"cursor=nowhere{follow}")
            assert 422 == refused.value.status
        assert "stream" not in far.asked
        box("down")
        box.config.write_text(box.config.read_text().partition("  near:")[0])
        box.up()
        gone = box("logs", job)
        assert "ran in cluster 'near', which yard.yaml no longer has" in gone.err
        assert 0 != gone.code
        assert "stream" not in far.asked
    finally:
        box("down")


def piece(box: Box, job: int, query: str) -> tuple[bytes, str | None, str | None]:
    """Part of a log over HTTP, and where it says to read on."""
    with box.client() as client:
        head, content = client._content(f"{endpoints.LOGS.address(id=job)}?{query}")
    return content, head.headers.get("x-next-cursor"), head.headers.get("x-next-offset")


def on_nodes(box: Box, job: str) -> dict[str, int]:
    """GPUs of a job by node."""
    with box.client() as client:
        shown = client.job(job)
        return {name: len(gpus) for name, gpus in zip(shown["nodes"], shown["gpu_indices"], strict=True)}


def test_its_kind_makes_what_the_keys_say(far: World, near: World, tmp_path: Path) -> None:
    with registered():
        config = loads(FILE.format(far=far.address, near=near.address))
        fleet = choose_fleet(config, "")
    assert {"far": False} == config.settings.observed
    assert [True, False] == [cluster.observed for cluster in fleet.clusters]
    looks, drives = [KIND.made(cluster.keys, context(tmp_path, cluster.name)) for cluster in fleet.clusters]
    assert isinstance(looks, LooksOn)
    assert isinstance(looks, Observer)
    assert isinstance(drives, Driver)
    assert not isinstance(drives, Observer)


def test_a_kind_that_observes_brings_an_observer() -> None:
    with pytest.raises(
        YardError, match="engine half says which clusters are observed, and brings no observer"
    ):
        register(EngineKind("half", Driver, observes=lambda _keys: True))


def test_what_an_observed_cluster_can_do_is_for_its_own_scheduler_to_say(far: World, near: World) -> None:
    with registered():
        clusters = loads(FILE.format(far=far.address, near=near.address)).clusters
        assert [frozenset(), KIND.lacks] == [clusters[name].lacks for name in ("far", "near")]


def test_its_jobs_count_where_the_keys_say_so(far: World, near: World) -> None:
    text = FILE.format(far=far.address, near=near.address).replace(
        "looks_on: true", "looks_on: true, counts: true"
    )
    with registered():
        assert {"far": True} == loads(text).settings.observed


def test_the_loop_drives_it_over_another_leader(near: World, tmp_path: Path) -> None:
    yard = LiveYard(lambda _clock: Driver(keys(near), context(tmp_path, "near")))
    first, second = yard.submit(3), yard.submit(3)
    yard.step()
    (order,) = near.orders.values()
    yard.lead()
    yard.step(1_000)
    assert 1 == len(near.orders), "a key starts once"
    near.finish(order.key, 3)
    for _ in range(3):
        yard.step(1_000)
    assert "FAILED" == yard.ended(first)
    assert "" == yard.ended(second)
    assert 2 == len(near.orders)


def test_a_world_that_is_away_raises_and_says_so(near: World, tmp_path: Path) -> None:
    onlooker, driver = [make(keys(near), context(tmp_path, "near")) for make in (Onlooker, Driver)]
    launch = Launch(
        "k-1", 1, 1, "1", "x", Recipe(("wait",)), (Part("near-1", (0,), 1000, 1000, 100, 1),), 0, 0
    )
    driver.start(1, [launch])
    assert Phase.RUNNING is driver.status(["k-1"])[0].phase
    near.close()
    for ask in (onlooker.nodes, onlooker.jobs, lambda: onlooker.ended(0), driver.listing):
        with pytest.raises(Exception, match="nobody answers"):
            ask()
