"""Why, now and then, and the shares, over a real store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.access.rights import Sight
from gpuyard.control.refusals import NotFound, Unacceptable
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.views.explanations import Explained
from gpuyard.core import dump
from gpuyard.model import JobHeld, JobReleased, NodeCordoned
from gpuyard.model.units import HOUR_MS
from rigs.request_service import Rig, rig


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def explained(yard: Rig) -> Explained:
    return Explained(yard.replica, yard.now_ms)


def waiting(yard: Rig) -> tuple[int, int]:
    """A job that has all GPUs, and one that waits for them."""
    first = yard.submit(gpus=8, limit_ms=HOUR_MS)
    yard.start(first, 0xFF)
    return first, yard.submit(gpus=2, limit_ms=HOUR_MS, name="second")


def test_a_blocker_is_told_with_its_lift_as_plain_values(yard: Rig) -> None:
    first, second = waiting(yard)
    found = explained(yard).why(parse_label(str(second)))

    assert (second, "PENDING", 0, 1, True) == tuple(
        found[key] for key in ("job", "state", "ahead", "waiting", "judged")
    )
    (blocker,) = found["blockers"]
    assert ("ROOM", {"kind": "end_jobs", "job_ids": [first]}) == (blocker["code"], blocker["lift"])
    assert found["start"]["at_ms"] > yard.time_ms


def test_the_books_are_as_they_were(yard: Rig) -> None:
    _first, second = waiting(yard)
    yard.replica.catch_up()
    before = dump(yard.replica.state)
    explained(yard).why(parse_label(str(second)))
    explained(yard).share()
    assert before == dump(yard.replica.state)


def test_the_past_is_answered_from_the_log(yard: Rig) -> None:
    first, second = waiting(yard)
    full_ms = yard.now_ms()
    yard.end(first)
    yard.add(JobHeld(yard.now_ms(), second))
    held_ms = yard.now_ms()
    yard.add(JobReleased(yard.now_ms(), second))
    yard.add(NodeCordoned(yard.now_ms(), 0, "fan"))
    then = explained(yard)
    label = parse_label(str(second))

    codes = [
        [(each["code"], each["by"]) for each in found["blockers"]]
        for found in (then.why(label, full_ms), then.why(label, held_ms), then.why(label))
    ]
    assert [[("ROOM", "placement")], [("HELD", "hold")], [("ROOM", "node n1")]] == codes


def test_a_snapshot_on_the_way_makes_no_difference(yard: Rig) -> None:
    _first, second = waiting(yard)
    assert yard.replica.save(yard.now_ms(), every=1)
    full_ms = yard.now_ms()
    yard.add(JobHeld(yard.now_ms(), second))
    found = explained(yard).why(parse_label(str(second)), full_ms)
    assert ["ROOM"] == [each["code"] for each in found["blockers"]]


def test_times_that_cannot_be_answered_are_told_apart(yard: Rig) -> None:
    yard.now_ms()
    early_ms = yard.time_ms
    first, second = waiting(yard)
    label = parse_label(str(second))
    for at_ms, said in ((early_ms, "was not there"), (yard.time_ms + HOUR_MS, "in the future")):
        with pytest.raises(Unacceptable, match=said):
            explained(yard).why(label, at_ms)
    with pytest.raises(NotFound, match="there is no job 99"):
        explained(yard).why(parse_label("99"))
    with pytest.raises(NotFound, match="there is no job 99"):
        explained(yard).why(parse_label("99"), yard.time_ms)
    yard.end(first)
    assert "COMPLETED" == explained(yard).why(parse_label(str(first)))["state"]


def test_before_the_log_begins_nothing_is_known(yard: Rig) -> None:
    first, second = waiting(yard)
    yard.end(first)
    assert yard.replica.save(yard.now_ms(), every=1)
    at_ms = yard.time_ms - 10_000
    yard.add(JobHeld(yard.now_ms(), second))
    yard.replica.store.snapshots.prune(yard.replica.seq)
    with pytest.raises(Unacceptable, match="does not reach back"):
        explained(yard).why(parse_label(str(second)), at_ms)


def test_of_an_array_the_first_task_that_waits_is_explained(yard: Rig) -> None:
    first, _second = waiting(yard)
    array = yard.submit(gpus=1, array=(0, 1), limit_ms=HOUR_MS)
    assert f"{array}_0" == explained(yard).why(parse_label(str(array)))["label"]
    assert f"{array}_1" == explained(yard).why(parse_label(f"{array}_1"))["label"]
    assert "RUNNING" == explained(yard).why(parse_label(str(first)))["state"]


def test_shares_are_told_for_the_tree_or_a_part_of_it(yard: Rig) -> None:
    waiting(yard)
    found = explained(yard).share()
    assert ["", "root"] == [row["path"] for row in found["tenants"]]
    assert 8 == found["tenants"][1]["amounts"]["total"]["used"]
    assert found == {**explained(yard).share("root"), "at_ms": found["at_ms"]}
    with pytest.raises(NotFound, match=r"there is no tenant .rot."):
        explained(yard).share("rot")


def test_what_is_out_of_sight_is_not_there_at_any_time(yard: Rig) -> None:
    _first, second = waiting(yard)
    at_ms = yard.now_ms()
    other = Sight(("elsewhere",))
    for when in (None, at_ms, 5):
        with pytest.raises(NotFound, match=f"there is no job {second}$"):
            explained(yard).why(parse_label(str(second)), when, other)
    assert [""] == [row["path"] for row in explained(yard).share("", other)["tenants"]]


def test_an_array_that_has_ended_tells_of_its_first_task(yard: Rig) -> None:
    array = yard.submit(array=(0, 1))
    for job_id in (array + 1, array + 2):
        yard.start(job_id, 1 << job_id - array)
        yard.end(job_id)
    found = explained(yard).why(parse_label(str(array)))
    assert (f"{array}_0", "COMPLETED") == (found["label"], found["state"])
