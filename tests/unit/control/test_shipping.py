"""What sends logs to a receiver: which attempts it finds, and what it does when lines are not taken."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.clusters import Clusters
from gpuyard.control.replica.labels import attempt_key
from gpuyard.control.upkeep.log_sender import Shipper, back_off_s
from gpuyard.engines.contract import LogPiece, offset_of
from gpuyard.shipping.contract import Away, Refused, SinkSpec
from gpuyard.shipping.lines import LogLine
from rigs.request_service import ANA, Rig, rig


class Receiver:
    """Takes lines; does not want some, and may be away."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.away = False

    def send(self, lines: Sequence[LogLine]) -> int:
        if self.away:
            raise Away("nobody is there", 7.0)
        if any(["poison" in line.text for line in lines]):
            raise Refused("a line is not wanted")
        self.lines += lines
        return 0

    def close(self) -> None:
        pass

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


class Engine:
    """What attempts wrote, by key and stream."""

    def __init__(self) -> None:
        self.content: dict[tuple[str, str], bytes] = {}

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        offset = offset_of(cursor)
        content = self.content.get((key, stream), b"")[offset : offset + limit]
        return LogPiece(content, str(offset + len(content)))


class World:
    """A yard without an engine, and a receiver."""

    def __init__(self, service: Rig, folder: Path) -> None:
        self.requests, self.folder = service, folder
        self.engine: Any = Engine()
        self.receiver = Receiver()
        self._made: list[Shipper] = []
        self.shipper = self.made()

    def made(self) -> Shipper:
        """As a server makes one that begins."""
        spec = SinkSpec("loki", "loki", "http://127.0.0.1")
        replica, now_ms = self.requests.replica, self.requests.now_ms
        made = Shipper(
            spec, self.folder, replica, Clusters({"c": self.engine}), now_ms, self.receiver, look_s=(0.0, 0.0)
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        for each in self._made:
            each.close()

    def write(self, job_id: int, content: bytes, attempt: int = 1, stream: str = "stdout") -> None:
        replica = self.requests.replica
        replica.catch_up()
        job = replica.state.jobs[job_id].job
        key = attempt_key(replica.store.yard, job_id, attempt, job.submitted_ms)
        self.engine.content[key, stream] = self.engine.content.get((key, stream), b"") + content


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with rig(tmp_path) as service:
        world = World(service, tmp_path / "shipping")
        yield world
        world.close()


def test_attempts_are_found_in_the_log_and_those_that_ended_meanwhile_too(world: World):
    first = world.requests.submit(ANA)
    world.requests.start(first)
    world.write(first, b"one\n")
    world.shipper.round()
    assert ["one"] == world.receiver.texts
    labels = world.receiver.lines[0].labels
    assert ("c", "ana", str(first), "1", "", "n1") == tuple(
        [labels[name] for name in ("cluster", "user", "job", "attempt", "task", "node")]
    )
    # Another server takes over; meanwhile one job has ended and another has begun and ended.
    world.write(first, b"two")
    world.requests.end(first)
    second = world.requests.submit()
    world.requests.start(second)
    world.write(second, b"three\n")
    world.requests.end(second)
    world.shipper = world.made()
    for _ in range(4):
        world.shipper.round()
    assert ["one", "three", "two"] == sorted(world.receiver.texts)
    assert (2, 0) == (world.shipper.sent, world.shipper.streams)
    # And again: nothing is left to send.
    world.shipper = world.made()
    world.shipper.round()
    assert (0, 0) == (world.shipper.sent, world.shipper.streams)


def test_a_job_that_was_over_before_the_first_look_is_sent_by_a_server_that_has_just_started(world: World):
    quick = world.requests.submit()
    world.requests.start(quick)
    world.write(quick, b"quick\n")
    world.requests.end(quick)
    world.shipper.round()
    assert ["quick"] == world.receiver.texts


def test_a_receiver_that_is_away_gets_everything_in_order_when_it_is_back(world: World):
    job = world.requests.submit()
    world.requests.start(job)
    world.receiver.away = True
    for number in range(5):
        world.write(job, f"line {number}\n".encode())
        assert world.shipper.round() >= 7.0, "as the receiver said"
    assert "nobody is there" == world.shipper.trouble
    assert world.shipper.lag_s > 0
    world.receiver.away = False
    world.shipper.round()
    assert [f"line {number}" for number in range(5)] == world.receiver.texts
    assert ("", 0.0) == (world.shipper.trouble, world.shipper.lag_s)


def test_a_line_that_is_not_wanted_keeps_no_other_back(world: World):
    job = world.requests.submit()
    world.requests.start(job)
    world.write(job, b"a\nb\npoison\nc\nd\ne\n")
    world.shipper.round()
    assert ["a", "b", "c", "d", "e"] == world.receiver.texts
    assert (5, 1) == (world.shipper.sent, world.shipper.refused)
    world.shipper.round()
    assert 5 == len(world.receiver.texts)


def test_errors_in_a_file_of_their_own_are_a_stream(world: World):
    job = world.requests.submit(stderr="/tmp/err")
    world.requests.start(job)
    world.write(job, b"out\n")
    world.write(job, b"err\n", stream="stderr")
    world.shipper.round()
    assert [("err", "stderr"), ("out", "stdout")] == sorted(
        [(line.text, line.stream) for line in world.receiver.lines]
    )


def test_logs_that_wait_are_bounded_and_what_is_given_up_is_counted(
    world: World,
):
    world.shipper.streams_max = 3
    world.receiver.away = True
    world.shipper.round()
    for _ in range(5):
        job = world.requests.submit()
        world.requests.start(job)
        world.write(job, b"line\n")
        world.requests.end(job)
        world.shipper.round()
    assert (3, 2) == (world.shipper.streams, world.shipper.lost)
    world.receiver.away = False
    for _ in range(4):
        world.shipper.round()
    assert (3, 0) == (world.shipper.sent, world.shipper.streams)


def test_pauses_grow_and_differ():
    assert [0.25, 0.5, 1.0, 2.0] == [back_off_s(failures, 0.0) for failures in (1, 2, 3, 4)]
    assert (30.0, 60.0) == (back_off_s(50, 0.0), back_off_s(50, 1.0))
