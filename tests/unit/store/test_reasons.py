"""Why jobs wait, handed on by the leader: what it told last, and only while it leads."""

from gpuyard.control.replica.replica import Judged, read_judged
from gpuyard.store import Store

JUDGED = Judged(12, 9, (7, 9, 8), bytes([1, 13, 2]))


def test_the_other_processes_have_what_the_leader_told_last(store: Store) -> None:
    assert Judged() == read_judged(store.reasons.read())
    lease = store.elect("a")
    assert lease is not None
    assert store.reasons.put(lease.epoch, Judged(1, 1, (1,), b"\x01").text())
    assert store.reasons.put(lease.epoch, JUDGED.text())
    assert JUDGED == read_judged(store.reasons.read())
    assert {7: 1, 9: 13, 8: 2} == JUDGED.by_id()


def test_a_leader_whose_epoch_is_over_tells_nobody(store: Store) -> None:
    first = store.elect("a")
    assert first is not None
    assert store.reasons.put(first.epoch, JUDGED.text())
    first.release()
    second = store.elect("b")
    assert second is not None
    assert not store.reasons.put(first.epoch, Judged(99).text())
    assert JUDGED == read_judged(store.reasons.read())
    assert store.reasons.put(second.epoch, Judged(100).text())
