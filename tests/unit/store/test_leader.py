"""Election: one at a time, a new epoch each, given up by the dead and by the stopped."""

import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from gpuyard.store import Commit, Lease, Store, StoreUnreachable, open_store
from gpuyard.store.backend.leader import FileLease
from harness.patience import patient, until
from rigs.postgres import PostgresServer
from rigs.stores import LEASE_S, in_own_process, lead, ticks


def wins(store: Store) -> Lease:
    """Stand for election until it is won."""
    lease = until(lambda: store.elect("me"))
    assert lease is not None
    return lease


@pytest.fixture
def other_leader(place: str) -> tuple[BaseProcess, Connection]:
    return in_own_process(lead, place)


def test_only_one_leads_and_epochs_grow(store: Store, place: str) -> None:
    with open_store(place, lease_s=LEASE_S) as other:
        assert store.who_leads() is None
        first = store.elect("server a")
        assert first is not None
        assert (1, "server a", True) == (first.epoch, first.holder, first.still_held())
        assert other.elect("server b") is None
        assert store.elect("server a") is None
        holder = other.who_leads()
        assert holder is not None
        assert "server a" == holder.name
        first.release()
        first.release()
        assert not first.still_held()
        assert other.who_leads() is None
        second = other.elect("server b")
        assert second is not None
        assert 2 == second.epoch == store.counters().epoch
        second.release()


def test_a_lease_outlives_its_term_while_its_holder_lives(store: Store, place: str) -> None:
    with open_store(place, lease_s=LEASE_S) as other:
        lease = store.elect("a")
        assert lease is not None
        time.sleep(LEASE_S * 1.5)
        assert lease.still_held()
        assert other.elect("b") is None
        lease.release()


def test_the_lease_of_a_killed_process_is_free(
    store: Store, other_leader: tuple[BaseProcess, Connection]
) -> None:
    process, pipe = other_leader
    assert pipe.poll(patient(20))
    epoch = pipe.recv()
    assert store.elect("me") is None
    process.kill()
    process.join()

    lease = wins(store)

    assert epoch + 1 == lease.epoch
    lease.release()


def test_a_message_can_name_the_process_that_leads(tmp_path: Path) -> None:
    with open_store(tmp_path / "yard.db") as store:
        lease = store.elect("yard up")
        assert f"process {os.getpid()} (yard up)" == str(store.who_leads())
        assert lease is not None
        lease.release()


def test_a_forked_child_does_not_keep_the_lease(tmp_path: Path) -> None:
    """A supervisor of a job outlives the server; it must not hold what the server held."""
    with open_store(tmp_path / "yard.db") as store:
        lease = store.elect("a")
        assert isinstance(lease, FileLease)
        ready_r, ready_w = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready_w, b"x")
            signal.pause()
        os.read(ready_r, 1)
        assert lease.still_held()
        assert store.elect("b") is None
        # As if this process had died: its file is closed, nothing is said to the kernel about the lock.
        os.close(lease._fd)
        lease._fd = -1
        again = store.elect("b")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready_r)
        os.close(ready_w)
        assert again is not None
        again.release()


def test_a_stopped_leader_is_replaced_and_fenced_when_it_wakes(postgres_server: PostgresServer) -> None:
    place = postgres_server.fresh()
    process, ours = in_own_process(lead, place)
    with open_store(place, lease_s=LEASE_S) as store:
        assert ours.poll(patient(20))
        epoch = ours.recv()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        lease = wins(store)
        assert epoch + 1 == lease.epoch
        assert [1] == store.commit(lease.epoch, 0, lambda _new: Commit(ticks(1)))
        ours.send("go on")
        os.kill(process.pid, signal.SIGCONT)
        assert ("fenced", False) == ours.recv()
        assert lease.still_held()
        lease.release()
    process.join()


def test_a_process_stopped_in_a_transaction_holds_up_nobody(postgres_server: PostgresServer) -> None:
    """A transaction in which nothing happens is ended by the server."""
    place = postgres_server.fresh()
    with open_store(place, lease_s=0.5) as sleeper, open_store(place, busy_s=60) as store:

        def sleep_in_transaction() -> None:
            with sleeper._backend.writing() as conn:
                sleeper._backend.lock_counters(conn)
                began_s = time.monotonic()
                assert [1] == store.append(ticks(1))
                assert 0.5 < time.monotonic() - began_s < patient(30)
                sleeper._backend.lock_counters(conn)

        with pytest.raises(StoreUnreachable, match="cannot reach"):
            sleep_in_transaction()
        assert [2] == sleeper.append(ticks(2))
