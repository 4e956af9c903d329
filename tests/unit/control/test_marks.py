"""Labels and taints that people set on nodes: written, shown and undone, or refused without a trace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.commands.marks import MarkRequests, WantedMarks
from gpuyard.control.refusals import Forbidden, NotFound, Unacceptable
from gpuyard.control.views.audit import read_audit
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import AttemptStarted, Grant, Node, NodeAdded, NodeMarks, Settings
from gpuyard.model.placement import join_selections, parse_taint
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ANA, ROOT, Rig, rig

SETTINGS = Settings(
    policy=PRESETS["default"],
    marks=(NodeMarks("c", "", (), (("zone", "a"), ("disk", "hdd")), (parse_taint("old:PreferNoSchedule"),)),),
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, SETTINGS) as found:
        found.add(
            *[NodeAdded(0, Node(f"m{number}", "c", "q", "H100", 8, 96_000, 1 << 20)) for number in range(3)]
        )
        yield found


def requests_of(service: Rig) -> MarkRequests:
    return MarkRequests(service.replica, service.committer, service.now_ms)


def mark(service: Rig, person: Any = ROOT, **wanted: Any) -> list[str]:
    done = requests_of(service).mark(person, WantedMarks(**wanted)).result(10)
    service.replica.catch_up()
    return done["nodes"]


def labels_of(service: Rig, name: str) -> dict[str, tuple[str, str]]:
    return {row["key"]: (row["value"], row["from"]) for row in requests_of(service).view(name)["labels"]}


def test_what_is_set_live_wins_over_the_file_until_it_is_reset(service: Rig) -> None:
    assert ["m0", "m1"] == mark(
        service, nodes=("m0", "m1"), labels=(("disk", None), ("zone", "b"), ("ib", ""))
    )
    mark(service, pools=("q",), taints=("gone=now:NoSchedule",), untaint=("old",))

    found = labels_of(service, "m0")
    assert (("b", "live"), ("", "live")) == (found["zone"], found["ib"])
    assert "disk" not in found
    assert ["disk"] == requests_of(service).view("m0")["removed"]
    assert ("c", "every node") == found["gpuyard/cluster"]
    assert ("hdd", "yard.yaml") == labels_of(service, "m2")["disk"]
    taints = requests_of(service).view("m2")["taints"]
    assert [("gone=now:NoSchedule", "live")] == [(row["taint"], row["from"]) for row in taints]
    live = {row["node"]: row for row in requests_of(service).live()["nodes"]}
    assert ({"zone": "b", "ib": ""}, ["disk"]) == (live["m0"]["labels"], live["m0"]["unlabelled"])
    assert (["gone=now:NoSchedule"], ["old:PreferNoSchedule"]) == (
        live["m2"]["taints"],
        live["m2"]["untainted"],
    )

    # A restart, or another server, has the same.
    state = service.replica.state
    again = load(dump(state))
    assert canonical(state) == canonical(again)
    assert state.nodes.marks.labels(1) == again.nodes.marks.labels(1)

    mark(service, nodes=("m0", "m1", "m2"), reset=True)
    assert ("a", "yard.yaml") == labels_of(service, "m0")["zone"]
    assert [] == requests_of(service).live()["nodes"]
    assert ["old:PreferNoSchedule"] == [row["taint"] for row in requests_of(service).view("m0")["taints"]]


def test_what_is_set_already_writes_nothing_and_the_audit_has_the_rest(service: Rig) -> None:
    before = service.replica.seq
    mark(service, nodes=("m0",), labels=(("zone", "b"),))
    assert before + 1 == service.replica.seq
    mark(service, nodes=("m0",), labels=(("zone", "b"),))
    mark(service, nodes=("m1",), reset=True)
    assert before + 1 == service.replica.seq
    mark(service, nodes=("m0",), taints=("gone:NoExecute",), labels=(("disk", None),), reset=True)
    lines, _ = read_audit(service.replica.store, lambda number: service.replica.state.nodes.node[number].name)
    assert [
        ("root", "mark", "node m0: reset to yard.yaml, disk-, gone:NoExecute"),
        ("root", "mark", "node m0: zone=b"),
    ] == [(line["who"], line["what"], line["about"]) for line in lines if line["what"] == "mark"]


@pytest.mark.parametrize(
    ("wanted", "error", "says"),
    [
        ({"nodes": ("m0",)}, Unacceptable, "sets nothing"),
        ({"labels": (("zone", "b"),)}, Unacceptable, "names no node"),
        ({"nodes": ("m0", "m9"), "labels": (("zone", "b"),)}, NotFound, "no node 'm9'"),
        ({"pools": ("z",), "labels": (("zone", "b"),)}, Unacceptable, "unknown pool 'z'"),
        ({"nodes": ("m0",), "labels": (("zo ne", "b"),)}, Unacceptable, "names a label"),
        ({"nodes": ("m0",), "taints": ("gone:Never",)}, Unacceptable, "one of the effects"),
        ({"nodes": ("m0",), "taints": ("a:NoSchedule", "a=b:NoSchedule")}, Unacceptable, "set twice"),
    ],
)
def test_wrong_marks_are_refused_and_nothing_is_written(
    service: Rig, wanted: dict[str, Any], error: type[Exception], says: str
) -> None:
    before = service.replica.seq
    with pytest.raises(error, match=says):
        mark(service, **wanted)
    service.replica.catch_up()
    assert before == service.replica.seq


def test_only_administrators_set_labels_and_taints(service: Rig) -> None:
    with pytest.raises(Forbidden, match="ana may not set labels"):
        mark(service, ANA, nodes=("m0",), labels=(("zone", "b"),))


def test_a_label_that_goes_under_a_waiting_job_leaves_it_waiting_with_the_reason(service: Rig) -> None:
    mark(service, nodes=("m0",), labels=(("team", "ml"),))
    selects = join_selections(["team=ml, disk=hdd"])
    running = service.submit(gpus=8, selects=selects)
    service.replica.catch_up()
    service.add(AttemptStarted(service.now_ms(), running, 1, (Grant(1, 255, 1000, 0, 0, 1),)))
    waiting = service.submit(gpus=8, selects=selects)
    with pytest.raises(Unacceptable, match="no node has a label 'teem'; did you mean 'team'"):
        service.submit(selects=join_selections(["teem=ml"]))
    with pytest.raises(Unacceptable, match=r"none of \d+ nodes has the label team=x; team is ml on 1"):
        service.submit(selects=join_selections(["team=x"]))

    mark(service, nodes=("m0",), labels=(("team", None),))
    state = service.replica.state
    assert state.jobs[running].grants
    assert not state.jobs[waiting].shape.ways
    mark(service, nodes=("m1",), labels=(("team", "ml"),))
    assert state.jobs[waiting].shape.ways
