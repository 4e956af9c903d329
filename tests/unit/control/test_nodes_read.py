"""The published nodes: read without the replica's lock, and made anew only where something has changed."""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.reading import publisher
from gpuyard.control.reading import publisher as reading
from gpuyard.model import Node, NodeAdded, NodeCordoned
from gpuyard.wire.replies.fleet import NodeReply
from harness.steered import Steered
from rigs.request_service import Rig, rig


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        found.add(
            *[
                NodeAdded(0, Node(f"n{number}", "c", "p", "H100", 8, 16_000, 64_000))
                for number in (2, 3, 4, 5)
            ]
        )
        yield found


def while_busy(yard: Rig, ask: Callable[[], Any]) -> list[Any]:
    """What another thread is told while somebody has the replica."""
    found: list[Any] = []
    with yard.replica.lock:
        thread = threading.Thread(target=lambda: found.append(ask()))
        thread.start()
        thread.join(120)
    return found


def free(views: tuple[NodeReply, ...]) -> list[Any]:
    return [view["gpus_free"] for view in views]


def test_nodes_need_no_books_where_nothing_has_happened(yard: Rig) -> None:
    before = yard.views.nodes()

    assert [before] == while_busy(yard, yard.views.nodes)


def test_nodes_are_those_published_last_where_the_books_are_busy_for_long(
    yard: Rig,
) -> None:
    yard.views.fleet = reading.NodesReading(yard.replica, limits=reading.PublishingLimits(wait_s=0.05))
    before = yard.views.nodes()
    job_id = yard.submit(gpus=1)
    yard.start(job_id)

    assert [before] == while_busy(yard, yard.views.nodes)
    assert [7, 8, 8, 8, 8] == free(yard.views.nodes()["nodes"])


def test_a_reader_sees_what_was_written_before_it_asked_and_other_nodes_are_not_made_again(yard: Rig) -> None:
    before = yard.views.nodes()["nodes"]
    yard.add(NodeCordoned(0, 2, "a fan"))
    after = yard.views.nodes()["nodes"]

    assert ["UP", "UP", "DRAINED", "UP", "UP"] == [view["state"] for view in after]
    assert [True, True, False, True, True] == [a is b for a, b in zip(before, after, strict=True)]
    assert "UP" == before[2]["state"]


def test_many_nodes_are_made_in_pieces_between_which_others_have_the_books(
    yard: Rig,
) -> None:
    job_id, pauses, let_others = yard.submit(gpus=1), [], yard.replica.pause

    def pause() -> None:
        pauses.append(1)
        let_others()
        if len(pauses) == 1:
            yard.start(job_id)

    replica: Any = Steered(yard.replica, pause=pause)
    yard.views.fleet = reading.NodesReading(replica, limits=reading.PublishingLimits(nodes_at_once=2))

    assert [7, 8, 8, 8, 8] == free(yard.views.nodes()["nodes"])
    assert 2 == len(pauses)


def test_books_that_are_read_anew_are_published_anew(yard: Rig) -> None:
    before = yard.views.nodes()["nodes"]
    yard.replica.reload()
    after = yard.views.nodes()["nodes"]

    assert before == after
    assert not any(a is b for a, b in zip(before, after, strict=True))


def test_nodes_that_nobody_reads_for_long_are_dropped(yard: Rig) -> None:
    clock = [0.0]
    found = reading.NodesReading(yard.replica, lambda: clock[0])
    before = found.latest()
    found.drop_unread()
    assert before is found.latest()

    clock[0] += reading.LIMITS.unread_s
    found.drop_unread()
    assert before is not found.latest()
    assert before.views == found.latest().views


def test_an_overview_that_was_just_made_waits_for_nobody(yard: Rig) -> None:
    """It takes a tenth of a second by this clock, and so stands for two; what is new waits until then."""
    clock = count(0, 0.1)
    yard.views.reading = publisher.Publisher(
        yard.replica, now_s=lambda: next(clock), limits=publisher.PublishingLimits(wait_s=30.0)
    )
    before = yard.views.overview()["nodes"]
    yard.add(NodeCordoned(0, 2, "a fan"))

    assert [before] == while_busy(yard, lambda: yard.views.overview()["nodes"])
    while (now := yard.views.overview()["nodes"]) == before:
        pass
    assert "DRAINED" == now[2]["state"]
