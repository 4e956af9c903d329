"""Which engine is asked about an attempt: that of the cluster whose nodes its grant names, and no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.attempts import Attempts, Measures
from gpuyard.control.clusters import Clusters
from gpuyard.control.refusals import Impossible
from gpuyard.control.replica.labels import parse_label
from gpuyard.engines.contract import Usage
from gpuyard.model import AttemptEnded, AttemptStarted, Grant, Node, NodeAdded, NodeChanged, Outcome
from rigs.request_service import Rig, rig

HERE, FAR = 0, 1
"""Numbers of the nodes: clusters `c` and `far` each have a node n1."""


class Engine:
    """Knows of every key, as one does that shares a world with another yard or was handed its folder."""

    def __init__(self, cpu_ms: int) -> None:
        self.cpu_ms = cpu_ms
        self.asked: list[str] = []

    def usage(self, key: str) -> Usage:
        self.asked.append(key)
        return Usage(self.cpu_ms)


class TwoClusters:
    """A service over two clusters, whose attempts are moved by hand."""

    def __init__(self, service: Rig) -> None:
        self.service = service
        self.engines = {"c": Engine(1), "far": Engine(2)}
        service.add(NodeAdded(1, Node("n1", "far", "p", "H100", 8, 16_000, 64_000)))
        service.add(NodeAdded(1, Node("n2", "far", "p", "H100", 8, 16_000, 64_000)))

    def start(self, job_id: int, node: int) -> None:
        self.service.replica.catch_up()
        attempt = self.service.replica.state.jobs[job_id].attempt + 1
        grants = (Grant(node, 1, 1000, 0, 0, 1),)
        self.service.add(AttemptStarted(self.service.now_ms(), job_id, attempt, grants))

    def lose(self, job_id: int) -> None:
        attempt = self.service.replica.state.jobs[job_id].attempt
        self.service.add(
            AttemptEnded(self.service.now_ms(), job_id, attempt, Outcome.NODE_FAIL, 0, 9, "gone")
        )

    def attempts(self, clusters: Clusters | None = None) -> Attempts:
        found = clusters or Clusters(self.engines)  # type: ignore[arg-type]
        return Attempts(self.service.replica, self.service.views.reading, found)

    def asked_of(self, job_id: int, attempt: int, clusters: Clusters | None = None) -> list[str]:
        """The clusters whose engines are asked what an attempt used."""
        before = {name: len(each.asked) for name, each in self.engines.items()}
        view = self.service.views.job(parse_label(str(job_id)))
        measures = Measures(self.service.replica, self.attempts(clusters), None, lambda: 1)  # type: ignore[arg-type]
        measures.usage_of(view)(attempt)
        return [name for name, each in self.engines.items() if len(each.asked) > before[name]]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoClusters]:
    with rig(tmp_path) as service:
        yield TwoClusters(service)


def test_each_attempt_of_a_job_is_asked_of_where_it_ran(two: TwoClusters) -> None:
    job_id = two.service.submit()
    two.start(job_id, FAR)
    assert [["far"]] == [two.asked_of(job_id, 1)], "while it runs"
    two.lose(job_id)
    assert ["far"] == two.asked_of(job_id, 1), "while its job waits again"
    two.start(job_id, HERE)
    assert [["far"], ["c"]] == [two.asked_of(job_id, attempt) for attempt in (1, 2)]
    two.service.end(job_id)
    assert [["far"], ["c"]] == [two.asked_of(job_id, attempt) for attempt in (1, 2)], (
        "after its job has ended"
    )


def test_a_cluster_that_got_another_name_goes_on_under_it(two: TwoClusters) -> None:
    job_id = two.service.submit()
    two.start(job_id, FAR)
    two.lose(job_id)
    two.service.add(NodeChanged(2, FAR, Node("n1", "away", "p", "H100", 8, 16_000, 64_000)))
    two.engines = {"c": two.engines["c"], "away": two.engines["far"]}
    assert ["away"] == two.asked_of(job_id, 1)


def test_a_cluster_that_the_file_no_longer_has_is_named(two: TwoClusters) -> None:
    job_id = two.service.submit()
    two.start(job_id, FAR)
    view = two.service.views.job(parse_label(str(job_id)))
    left = Clusters({"c": two.engines["c"]}, "c", lambda name: name == "far")  # type: ignore[dict-item]
    with pytest.raises(Impossible, match=r"ran in cluster 'far', which yard\.yaml no longer has"):
        two.attempts(left).at(view, 1)
    assert [] == two.asked_of(job_id, 1, left), "what it used is not known, and nobody else is asked"


def test_this_machine_keeps_its_folder_under_whatever_name(two: TwoClusters) -> None:
    job_id = two.service.submit()
    two.start(job_id, HERE)
    two.service.end(job_id)
    renamed = Clusters({"lab": two.engines["c"], "far": two.engines["far"]}, "lab", lambda _name: False)  # type: ignore[dict-item]
    assert ["c"] == two.asked_of(job_id, 1, renamed)


@pytest.mark.parametrize(("node", "found"), [(FAR, []), (2, ["far"])])
def test_of_a_try_of_an_older_release_the_names_of_its_nodes_tell(
    two: TwoClusters, node: int, found: list[str]
) -> None:
    job_id = two.service.submit()
    two.start(job_id, node)
    two.lose(job_id)
    with two.service.replica.store._backend.writing() as conn:
        conn.exec_driver_sql("UPDATE tries SET detail = json_remove(detail, '$.numbers')")
    assert found == two.asked_of(job_id, 1)
    if not found:
        view = two.service.views.job(parse_label(str(job_id)))
        with pytest.raises(Impossible, match="not known in which cluster"):
            two.attempts().at(view, 1)
