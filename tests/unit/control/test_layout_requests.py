"""Layouts at the service: judged on the replica as it is, written for an admin, told with reasons."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.clusters import Clusters
from gpuyard.control.commands.layouts import LayoutRequests, WantedLayout
from gpuyard.control.refusals import Forbidden, Impossible, NotFound, Unacceptable
from gpuyard.control.views.audit import read_audit
from gpuyard.control.views.defragmenting import defrag_view
from gpuyard.engines.contract import NoMig, Transient
from gpuyard.model import (
    AttemptConfirmed,
    AttemptStarted,
    Capability,
    EngineSeen,
    Grant,
    LayoutMade,
    Node,
    NodeAdded,
    Settings,
)
from gpuyard.model.mig import Slice
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ANA, ROOT, Rig, rig

H100 = "n1"


class There(NoMig):
    """What an engine finds."""

    found: dict[str, tuple[Slice, ...]] | Exception

    def cuts(self) -> dict[str, tuple[Slice, ...]]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Shop:
    """The service for layouts, over one node of eight H100 and one of a T4."""

    def __init__(self, under: Rig) -> None:
        self.rig = under
        self.engine = There()
        self.engine.found = {}
        clusters = Clusters({"c": self.engine})  # type: ignore[dict-item]
        self.parts = LayoutRequests(under.replica, under.committer, clusters, under.now_ms)
        under.add(NodeAdded(1, Node("old", "c", "p", "T4", 1, 16_000, 64_000)))

    def pin(self, layout: str, *gpus: int, node: str = H100) -> dict[str, Any]:
        return self.parts.pin(ROOT, node, [WantedLayout(layout, gpus or None)]).result(10)

    def start(self, job_id: int, *pieces: Slice) -> None:
        mask = sum({1 << piece.gpu for piece in pieces})
        grant = Grant(0, mask, 142 * len(pieces), 0, 0, 1, pieces)
        self.rig.add(AttemptStarted(self.rig.now_ms(), job_id, 1, (grant,)))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with rig(tmp_path, Settings(policy=PRESETS["default"], whole_gpus=6)) as under:
        yield Shop(under)


def test_a_layout_is_pinned_once_and_is_in_the_audit(shop: Shop) -> None:
    done = shop.pin("3g.40gb+2x2g.20gb", 0, 1)
    assert [(0, "3g.40gb+2x2g.20gb", False), (1, "3g.40gb+2x2g.20gb", False)] == [
        (each["gpu"], each["layout"], each["made"]) for each in done["gpus"]
    ]
    seq = shop.rig.replica.seq
    shop.pin("2x2g.20gb+3g.40gb", 0, 1)
    assert seq == shop.rig.replica.seq
    shop.rig.add(LayoutMade(shop.rig.now_ms(), 0, 0b11))
    assert [True, True] == [pin["made"] for pin in shop.parts.view()["nodes"][0]["pins"]]
    assert {"node": H100, "released": [0]} == shop.parts.release(ROOT, H100, (0, 5)).result(10)
    assert [1] == [pin["gpu"] for pin in shop.parts.view()["nodes"][0]["pins"]]
    lines, _more = read_audit(shop.rig.replica.store, lambda _number: H100)
    assert [("root", "unpin"), ("root", "pin")] == [(line["who"], line["what"]) for line in lines][:2]
    assert "node n1: GPU 0 to 3g.40gb+2x2g.20gb, GPU 1 to 3g.40gb+2x2g.20gb" == lines[1]["about"]


def test_only_an_admin_says_how_gpus_are_cut(shop: Shop) -> None:
    with pytest.raises(Forbidden):
        shop.parts.pin(ANA, H100, [WantedLayout("whole")])
    with pytest.raises(Forbidden):
        shop.parts.release(ANA, H100, None)


@pytest.mark.parametrize(
    ("layout", "gpus", "node", "kind", "says"),
    [
        ("8x1g.10gb", (), H100, Unacceptable, "H100 cannot be cut to 8x1g.10gb"),
        ("1g.18gb", (), H100, Unacceptable, "H100 has no profile 1g.18gb; it has 1g.10gb"),
        ("nonsense", (), H100, Unacceptable, "is not a layout"),
        ("+".join(["1g.10gb"] * 3000), (), H100, Unacceptable, "no GPU has so many slices"),
        ("whole", (8,), H100, Unacceptable, "n1 has no GPU 8: its GPUs are 0 to 7"),
        ("1g.10gb", (), "old", Unacceptable, "T4 has no MIG"),
        ("whole", (), "n2", NotFound, "known nodes: n1, old"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    shop: Shop, layout: str, gpus: tuple[int, ...], node: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        shop.pin(layout, *gpus, node=node)


def test_no_layout_is_taken_for_a_cluster_whose_engine_cuts_no_gpus(shop: Shop) -> None:
    shop.rig.add(NodeAdded(shop.rig.now_ms(), Node("s1", "hpc", "gpu", "H100", 8, 64_000, 512_000)))
    assert [H100, "s1"] == [node["node"] for node in shop.parts.view()["nodes"]]
    shop.rig.add(EngineSeen(shop.rig.now_ms(), "hpc", (Capability.SLICES,)))
    text = "s1 cannot be cut: cluster hpc gives whole GPUs only"

    with pytest.raises(Unacceptable, match=text):
        shop.pin("7x1g.10gb", node="s1")
    assert not shop.rig.replica.state.nodes.pins
    assert text == shop.parts.plan("s1", [WantedLayout("7x1g.10gb", (0,))])["gpus"][0]["why"]
    assert [H100] == [node["node"] for node in shop.parts.view()["nodes"]]
    # What was pinned before that was known can still be released.
    assert {"node": "s1", "released": []} == shop.parts.release(ROOT, "s1", None).result(10)


def test_one_gpu_in_use_stands_against_all_and_the_others_are_named(shop: Shop) -> None:
    job = shop.rig.submit(gpus=1)
    shop.rig.start(job, 0b10)
    with pytest.raises(Impossible, match="GPU 1: the GPU is in use by job 1") as refused:
        shop.pin("7x1g.10gb", 0, 1, 2)
    assert "--gpu 0,2" in refused.value.hint
    assert not shop.rig.replica.state.nodes.pins


def test_a_plan_says_what_is_kept_made_and_taken_away(shop: Shop) -> None:
    shop.start(shop.rig.submit(gpus=1, mig="1g.10gb"), Slice(0, "1g.10gb", 6))
    shop.engine.found = {H100: (Slice(0, "1g.10gb", 6), Slice(0, "2g.20gb", 0), Slice(0, "1g.10gb", 2))}
    found = shop.parts.plan(H100, [WantedLayout("2g.20gb+3x1g.10gb", (0,)), WantedLayout("7g.80gb", (0, 1))])
    one, two = found["gpus"]
    assert one["refused"]
    assert "1g.10gb is in use by job 1" in one["why"]
    assert "7g.80gb" == two["layout"]
    (one,) = shop.parts.plan(H100, [WantedLayout("2x2g.20gb+1g.10gb", (0,))])["gpus"]
    assert ["keep", "keep", "take away", "make"] == [step["do"] for step in one["steps"]]
    assert not shop.rig.replica.state.nodes.pins


def test_a_plan_without_a_layout_says_what_the_queue_leads_to(shop: Shop) -> None:
    for gpu in range(1, 8):
        shop.rig.start(shop.rig.submit(gpus=1), 1 << gpu)
    shop.rig.submit(gpus=1, mig="3g.40gb")
    shop.rig.submit(gpus=2, mig="2g.20gb")
    found = shop.parts.plan("", [])
    assert 8 == len(found["gpus"])
    assert "whole and free; not cut, as whole_gpus keeps 6 GPUs whole" == found["gpus"][0]["why"]
    assert "whole, in use by job 1" == found["gpus"][1]["why"]
    assert ["2g.20gb", "3g.40gb"] == [row["profile"] for row in found["waiting"]]
    assert all(["a GPU is free, and whole_gpus keeps 6 GPUs whole" == row["why"] for row in found["waiting"]])
    assert "the next H100 that becomes free would be cut to 3g.40gb+2x2g.20gb" in found["notes"]
    # Somebody's word stands above the reserve, and that is said.
    noted = shop.parts.plan(H100, [WantedLayout("7g.80gb", (0,))])["notes"]
    assert ["it leaves 1 whole GPU free, and whole_gpus is 6"] == noted


def test_what_the_engine_cannot_tell_is_told_from_the_books(shop: Shop) -> None:
    shop.start(shop.rig.submit(gpus=1, mig="1g.10gb"), Slice(0, "1g.10gb", 6))
    shop.engine.found = Transient("the driver is gone")
    (node,) = shop.parts.view()["nodes"]
    assert [(0, "1g.10gb", 6, "1")] == node["slices"]


def test_defragmentation_is_planned_with_its_cost(tmp_path: Path) -> None:
    with rig(tmp_path) as under:
        under.add(NodeAdded(1, Node("n2", "c", "p", "H100", 8, 16_000, 64_000)))
        for number, gpus in ((0, 0b1), (1, 0b11)):
            job = under.submit(gpus=gpus.bit_count(), checkpoint_s=60)
            under.add(AttemptStarted(under.time_ms, job, 1, (Grant(number, gpus, 1000, 0, 0, 1),)))
            under.add(AttemptConfirmed(under.time_ms, job, 1))
        under.time_ms += 3_600_000
        (row,) = defrag_view(under.replica, under.now_ms)["plan"]
        assert ("node", "n1", 1) == (row["frees"], row["node"], row["gained_gpus"])
        (move,) = row["moves"]
        assert ("1", "n1", "n2") == (move["job"], move["from_node"], move["to_node"])
        assert 0 < row["lost_gpu_s"] == move["lost_gpu_s"] < 61
