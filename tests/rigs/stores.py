"""Submissions and events to fill a store with."""

import hashlib
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from gpuyard.model import Ask, Event, Job, JobSpec, JobSubmitted, TasksSubmitted, Ticked, Whole
from gpuyard.store import (
    Accepted,
    Commit,
    Fenced,
    HistoryRow,
    Idempotency,
    Store,
    Submission,
    open_store,
)

LEASE_S = 1.0
"""Short, so that tests need not wait long for a lease to end."""

SPEC = JobSpec("lab/vision", Ask(Whole(1)), name="train")


def submission(
    ids: int = 1,
    key: str = "",
    request: str = "same",
    owner: str = "ann",
    script: bytes = b"",
    at_ms: int = 1,
) -> Submission:
    """So many jobs in one request, with a key and a script if given."""

    def make(first_id: int) -> Sequence[Event]:
        return [JobSubmitted(at_ms, Job(first_id + n, SPEC, at_ms)) for n in range(ids)]

    return Submission(
        make,
        ids,
        {hashlib.sha256(script).hexdigest(): script} if script else {},
        Idempotency(owner, key, request) if key else None,
        lambda first_id: {"id": first_id},
    )


def array(tasks: int, key: str = "", together: int = 500) -> Submission:
    """An array, in as many lines of the log as it takes."""

    def make(first_id: int) -> Sequence[Event]:
        return [
            TasksSubmitted(
                1,
                Job(first_id + 1 + start, SPEC, 1, array_id=first_id, array_index=start),
                tuple(range(start, min(tasks, start + together))),
            )
            for start in range(0, tasks, together)
        ]

    return Submission(make, tasks + 1, {}, Idempotency("ann", key, "same") if key else None)


def arrays_of(store: Store) -> dict[int, list[int]]:
    """The indices of every array in the log, by its id."""
    found: dict[int, list[int]] = {}
    for _seq, event in store.read(0, 1_000_000):
        if isinstance(event, TasksSubmitted):
            for job in event.jobs():
                assert job.id == job.array_id + 1 + job.array_index
                found.setdefault(job.array_id, []).append(job.array_index)
    return found


def accepted(store: Store, *batch: Submission, now_ms: int = 1) -> list[Accepted]:
    """Submit, and insist on success."""
    answers = store.submit(batch, now_ms)
    wrong = [answer for answer in answers if not isinstance(answer, Accepted)]
    assert [] == wrong
    return [answer for answer in answers if isinstance(answer, Accepted)]


def ticks(*at_ms: int) -> list[Event]:
    """The smallest events there are."""
    return [Ticked(at) for at in at_ms]


def ended(job_id: int, **fields: object) -> HistoryRow:
    """A job that ended, with everything filled in."""
    plain: dict[str, object] = {
        "name": "train",
        "tenant": "lab/vision",
        "user": "ann",
        "klass": "batch",
        "state": "COMPLETED",
        "gpus_milli": 1000,
        "submitted_ms": job_id * 10,
        "started_ms": job_id * 10 + 1,
        "ended_ms": job_id * 10 + 2,
    }
    return HistoryRow(job_id, **{**plain, **fields})  # type: ignore[arg-type]


def in_own_process(target: Callable[[str, Connection], None], place: str) -> tuple[BaseProcess, Connection]:
    """Run one of the functions below on this store; gives the process and our end of its pipe."""
    context = multiprocessing.get_context("forkserver")
    # What takes long to import is imported once, by the process from which the others are forked.
    context.set_forkserver_preload(["gpuyard.store", "psycopg"])
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(place, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def submit_until_killed(place: str, pipe: Connection) -> None:
    """Submit one batch after the other and report each that was acknowledged."""
    store = open_store(place)
    while True:
        for answer in accepted(store, submission(), submission(2)):
            pipe.send_bytes(b"%d %d %d" % (answer.first_id, answer.ids, answer.seqs[0]))


def submit_arrays_until_killed(place: str, pipe: Connection) -> None:
    """Submit one array after the other, each under a key of its own, and report each that was acknowledged."""
    store = open_store(place)
    done = len(arrays_of(store))
    while True:
        (answer,) = accepted(store, array(2_000, f"k{done}"))
        pipe.send_bytes(b"%d %d %d" % (answer.first_id, answer.ids, answer.seqs[0]))
        done += 1


def lead(place: str, pipe: Connection) -> None:
    """Win, say so, and stay; then say whether a commit still works."""
    store = open_store(place, lease_s=LEASE_S)
    lease = store.elect("other")
    assert lease is not None
    pipe.send(lease.epoch)
    pipe.recv()
    try:
        store.commit(lease.epoch, 0, lambda _new: Commit(ticks(1)))
        pipe.send(("committed", lease.still_held()))
    except Fenced:
        pipe.send(("fenced", lease.still_held()))
