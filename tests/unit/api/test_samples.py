"""A collector's token: it hands in the samples of its own node, and gets nothing else."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.control.access.tokens import WantedToken
from gpuyard.control.refusals import Forbidden, NotFound, Unacceptable
from rigs.teams import ADMIN, Team, team


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("samples")) as made:
        # The node is this machine, which the yard would watch by itself.
        made.yard.watch._eyes.clear()
        yield made


@pytest.fixture(scope="module")
def node(yard: Team) -> str:
    return yard.yard.replica.state.nodes.node[0].name


@pytest.fixture(scope="module")
def token(yard: Team, node: str) -> str:
    return yard.token(node, role="collector")


def body(**series: Any) -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    return {"sent_ms": now_ms, "steady_ms": 5, "at_ms": [now_ms - 10, now_ms], "series": series}


def test_a_collector_hands_in_and_prometheus_reads_it(yard: Team, node: str, token: str) -> None:
    told = body(**{"gpu/3/busy": [100, 930], "gpu/3/power": [None, 400], "node/memory_used": [5, 6]})
    told["cards"] = [{"gpu": 3, "uuid": "GPU-x", "model": "NVIDIA H200", "pci": "00:1B", "driver": "580"}]

    said = yard.call("POST", f"/api/v1/nodes/{node}/samples", token, told)
    text = yard.call("GET", "/metrics", yard.tokens["adam"]).body.decode()

    assert (200, {"node": node, "taken": 2, "clock_off_ms": 0}) == (said.status, said.json)
    assert (
        f'gpu="3",UUID="GPU-x",pci_bus_id="00:1B",device="nvidia3",modelName="NVIDIA H200",Hostname="{node}"'
        in text
    )
    assert f'gpuyard_gpu_busy_ratio{{node="{node}",gpu="3",uuid="GPU-x"}} 0.93' in text


def test_a_collector_cannot_write_samples_of_another_node(yard: Team, token: str) -> None:
    said = yard.call("POST", "/api/v1/nodes/other/samples", token, body(**{"gpu/0/busy": [1, 2]}))

    assert 403 == said.status
    assert "and not of other" in said.json["detail"]
    assert not [each for each in yard.yard.watch.latest() if each.node == "other"]


@pytest.mark.parametrize("who", ["vera", "ulla", "tara"])
def test_people_hand_in_nothing_unless_the_whole_yard_is_theirs(yard: Team, node: str, who: str) -> None:
    said = yard.call("POST", f"/api/v1/nodes/{node}/samples", yard.tokens[who], body())
    own = yard.call("POST", f"/api/v1/nodes/{who}/samples", yard.tokens[who], body())

    assert [403, 403] == [said.status, own.status]
    assert [f"{who} is not a collector, and may not send samples"] * 2 == [
        each.json["detail"] for each in (said, own)
    ]


def test_only_an_admin_of_the_whole_yard_makes_such_a_token_and_for_a_node_that_there_is(
    yard: Team, node: str
) -> None:
    body = {"user": node, "role": "collector"}

    assert 403 == yard.call("POST", "/api/v1/tokens", yard.tokens["tara"], body).status
    assert 201 == yard.call("POST", "/api/v1/tokens", yard.tokens["adam"], body).status
    with pytest.raises(NotFound, match="there is no node 'nowhere'"):
        yard.token_service.make(ADMIN, WantedToken("nowhere", role="collector"))
    with pytest.raises(Unacceptable, match="is for a node"):
        yard.token_service.make(ADMIN, WantedToken(node, role="collector", tenant="research"))


def test_bodies_that_make_no_sense_are_refused_whole(yard: Team, node: str, token: str) -> None:
    path = f"/api/v1/nodes/{node}/samples"
    uneven = body(**{"gpu/0/busy": [1]})
    words = body(**{"gpu/0/busy": ["1", 2]})

    assert 422 == yard.call("POST", path, token, uneven).status
    assert 422 == yard.call("POST", path, token, words).status
    assert 400 == yard.call("POST", path, token, json.loads('{"sent_ms": NaN}')).status


def test_a_person_with_the_name_of_a_node_is_no_collector(yard: Team, node: str) -> None:
    person = yard.token_service.bearer(yard.tokens["adam"])

    with pytest.raises(Forbidden):
        yard.token_service.make(person.__class__(1, 1, node, False), WantedToken(node, role="collector"))
