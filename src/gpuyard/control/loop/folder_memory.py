"""What the engine's folder remembers of the log: which yard it served, and how far the log had come.

A store that was restored from a backup, or lost a part of itself, knows less than the world does: jobs run that it
does not list, and it would give out ids again whose folders hold other people's files. So the folder is asked at the
start. A yard whose log is behind starts only when it is told to. Then it skips the ids that are taken, and the attempts
that its log does not know keep their GPUs until they end.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuyard.engines.machine import files
from gpuyard.errors import BadInput
from gpuyard.store import Store

_FILE = "log.json"
_MARGIN = 1_000
"""Ids that were given out since the folder was last told, at most."""
EVERY_MS = 1_000
"""How often it is written at most, except that it is written before every start."""


class Memory(NamedTuple):
    """The log as it was when the folder was last told."""

    yard: str
    seq: int
    job_id: int
    adopted: tuple[str, ...] = ()
    """Keys of attempts that no log knows any more."""


def remembered(folder: Path) -> Memory | None:
    """What an engine's folder remembers; None: nothing yet."""
    found = files.read(str(folder / _FILE))
    if found is None:
        return None
    return Memory(found["yard"], found["seq"], found["job_id"], tuple(found["adopted"]))


class Witness:
    """Tells the folder how far the log has come."""

    def __init__(self, folder: Path, memory: Memory) -> None:
        self._path = str(folder / _FILE)
        self._memory = memory
        self._told_ms = 0

    @property
    def adopted(self) -> tuple[str, ...]:
        """Keys of attempts that the log does not know and that are left to run."""
        return self._memory.adopted

    def tell(self, seq: int, job_id: int, now_ms: int, *, starts: bool) -> None:
        """Note how far the log has come; at once if an attempt is about to start."""
        if job_id <= self._memory.job_id or not (starts or abs(now_ms - self._told_ms) >= EVERY_MS):
            return
        memory = self._memory._replace(seq=seq, job_id=job_id)
        # On a full disk it is written the next time; an attempt needs the disk too, and does not start.
        with suppress(OSError):
            files.overwrite(self._path, memory._asdict())
            self._memory, self._told_ms = memory, now_ms


def open_memory(folder: Path, store: Store, alive: list[str], *, told: bool) -> tuple[Witness, str]:
    """Compare folder and log; a note for people, if the log is behind and they said to go on.

    `alive` are the keys of the attempts that run and that the log does not know. Without being told so, a yard whose
    log is behind is refused.
    """
    memory, counters = remembered(folder), store.counters()
    head, last_id = counters.next_seq - 1, counters.next_job_id - 1
    if memory is None:
        return _kept(folder, Memory(store.yard, head, last_id)), ""
    if memory.yard == store.yard and memory.seq <= head and memory.job_id <= last_id:
        return Witness(folder, memory), ""
    if memory.yard == store.yard:
        how = f"the log in {store.place} ends at job {last_id:,}, event {head:,}: it is older than what runs here"
    else:
        how = f"the log in {store.place} is that of another yard, {store.yard}"
    what = (
        f"{folder} has served yard {memory.yard} up to job {memory.job_id:,}, event {memory.seq:,}, and {how}"
    )
    if not told:
        raise BadInput(
            what,
            "A backup was restored, or a part of the store is missing: put the newer store back. To go on with this "
            "one, add --older-log: ids that were given out are skipped, and what runs keeps its GPUs until it ends.",
        )
    epoch = (files.read_small(os.path.join(folder, files.EPOCH)) or {"epoch": 0})["epoch"]
    store.skip(memory.job_id + 1 + _MARGIN, epoch)
    adopted = tuple(sorted({*memory.adopted, *alive}))
    witness = _kept(folder, Memory(store.yard, store.head(), memory.job_id + _MARGIN, adopted))
    return witness, f"the log was behind: {len(alive)} attempts that it does not know run until they end"


def _kept(folder: Path, memory: Memory) -> Witness:
    files.replace(str(folder / _FILE), memory._asdict(), durable=True)
    return Witness(folder, memory)
